# ruff: noqa: E501, ISC004, as installers print it
"""Which tag of a wheel's name decides, and what is typed."""

import pytest

from builder.verify.cudnn_verify.read.diagnosis import diagnose
from builder.verify.cudnn_verify.read.reading import read_text_given

NONE = "ERROR: Could not find a version that satisfies the requirement {0} (from versions: none)\nERROR: No matching distribution found for {0}\n"


@pytest.mark.parametrize(
    ("text", "told", "command"),
    [
        ("ERROR: xformers-0.0.28-cp311-cp311-win_amd64.whl is not a supported wheel on this platform.\n# Python 3.12", "cp311 is for Python 3.11, and this is Python 3.12", "uv venv --python 3.11"),
        ("ERROR: foo-1.0-cp39-abi3-manylinux2014_x86_64.whl is not a supported wheel on this platform.\nmacOS 15, Python 3.12", "manylinux2014_x86_64 is for Linux with glibc, and this is macOS", None),
        ("ERROR: foo-1.0-cp312-cp312-manylinux_2_17_x86_64.whl is not a supported wheel on this platform.\n# Raspberry Pi 5, aarch64", "manylinux_2_17_x86_64 is for x86-64, and this is an ARM processor", None),
        ("ERROR: torch-2.4.0-cp310-cp310-manylinux1_x86_64.whl is not a supported wheel on this platform.", "its name asks for Python 3.10 (cp310) and Linux with glibc (manylinux1_x86_64)", None),
        (NONE.format("onnxruntime-gpu") + "# Apple M2", "onnxruntime-gpu is made for NVIDIA's cards, and has no wheel for macOS", "pip install onnxruntime"),
        (NONE.format("bitsandbytes") + "FROM python:3.12-alpine", "this Linux has musl (Alpine)", "FROM python:3.12-slim"),
        (
            "error: Distribution `torch==2.7.0+cu128 @ registry+https://index.invalid` can't be installed because it doesn't have a source distribution or wheel for the current platform\n"
            "hint: You're on Linux (`manylinux_2_28_aarch64`), but `torch` (v2.7.0+cu128) only has wheels for the following platforms: `manylinux_2_28_x86_64`, `win_amd64`",
            "torch 2.7.0+cu128 has wheels for manylinux_2_28_x86_64, win_amd64, and this is manylinux_2_28_aarch64",
            None,
        ),
        (
            "hint: You require CPython 3.13 (`cp313`), but we only found wheels for `torch` (v2.4.1) with the following Python ABI tags: `cp38`, `cp39`, `cp312`",
            "torch 2.4.1 has wheels for Python 3.8 to 3.12, and this is Python 3.13",
            "UV_PYTHON=3.12",
        ),
    ],
)  # fmt: skip
def test_the_tag_that_decides_is_named(text, told, command):
    row = diagnose(read_text_given(text))["causes"][0]
    assert row["cause"] == "build-not-published"
    assert any(told in reason for reason in row["because"]), row["because"]
    assert command is None or command in row["commands"][0]["text"], row["commands"]


def test_a_source_that_refuses_a_python_asks_for_one_within_its_range():
    text = "RuntimeError: Cannot install on Python version 3.14.0; only versions >=3.10,<3.14 are supported."
    row = diagnose(read_text_given(text))["causes"][0]
    assert row["cause"] == "build-not-published"
    assert row["commands"][0]["text"].startswith("uv venv --python 3.1")
