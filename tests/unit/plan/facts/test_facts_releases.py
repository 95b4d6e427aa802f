"""The generated rows: whole, as they were written, and right where tables by minor version were wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from builder.core import resources
from builder.plan.facts.reading.release_survey import load_table, table_text
from builder.plan.facts.reading.row_sources import FAMILIES, total
from builder.plan.facts.tables import loader as tables

TABLES = tables.load()
STEMS = [family.stem for family in FAMILIES]


def row(name: str, version: str, variant: str = "", distribution: str | None = None):
    found = TABLES.frameworks[name].row(version, variant, distribution)
    assert found is not None, f"no row of {name} {version} {variant}"
    return found


@pytest.mark.parametrize("stem", STEMS)
def test_no_generated_row_was_changed_by_hand(stem) -> None:
    table = load_table(resources.facts(), stem)
    assert table.rows
    assert [r["version"] for r in table.rows if r["sum"] != total(r)] == []
    assert table_text(table) == (resources.facts() / "releases" / f"{stem}.json").read_text("utf-8")


@pytest.mark.parametrize("stem", STEMS)
def test_every_value_says_where_it_was_read(stem) -> None:
    names = {"cuda", "cudnn", "architectures", "numpy_abi", "python", "platforms", "glibc"}
    for one in load_table(resources.facts(), stem).rows:
        told = names & one.keys()
        assert told <= one["read"].keys(), (one["version"], told - one["read"].keys())


@pytest.mark.parametrize(
    ("version", "pythons"),
    [
        ("2.5.2", "3.6 3.7 3.8 3.9"),
        ("2.5.3", "3.7 3.8 3.9"),
        ("2.6.2", "3.6 3.7 3.8 3.9"),
        ("2.6.3", "3.7 3.8 3.9"),
        ("2.6.5", "3.7 3.8 3.9"),
        ("2.11.0", "3.7 3.8 3.9 3.10"),
        ("2.11.1", "3.8 3.9 3.10"),
    ],
)
def test_a_patch_of_tensorflow_can_have_other_pythons(version, pythons) -> None:
    assert " ".join(row("tensorflow", version).python) == pythons


@pytest.mark.parametrize(
    ("version", "pythons"),
    [
        ("0.4.30", "3.9 3.10 3.11 3.12"),
        ("0.4.31", "3.10 3.11 3.12"),
        ("0.4.33", "3.10 3.11 3.12"),
        ("0.4.34", "3.10 3.11 3.12 3.13"),
        ("0.7.0", "3.11 3.12 3.13"),
        ("0.7.1", "3.11 3.12 3.13 3.14"),
        ("0.11.0", "3.12 3.13 3.14"),
        ("0.11.1", "3.12 3.13 3.14 3.15"),
    ],
)
def test_a_patch_of_jax_can_have_other_pythons(version, pythons) -> None:
    assert " ".join(row("jax", version, "cuda12").python) == pythons


@pytest.mark.parametrize(
    ("version", "newest"),
    [("12.0.0", "3.11"), ("12.2.0", "3.11"), ("12.3.0", "3.12"), ("13.3.0", "3.12"), ("13.4.0", "3.13")],
)
def test_a_patch_of_cupy_can_have_other_pythons(version, newest) -> None:
    assert row("cupy", version, "cuda12x", "cupy-cuda12x").python[-1] == newest


@pytest.mark.parametrize(
    ("version", "glibc"),
    [
        ("1.16.3", "2.17"),
        ("1.17.0", "2.28"),
        ("1.19.2", "2.27"),
        ("1.22.0", "2.27"),
        ("1.28.0", "2.27"),
        ("1.31.1", "2.28"),
    ],
)
def test_glibc_of_onnxruntime(version, glibc) -> None:
    assert row("onnxruntime-gpu", version).glibc == glibc


@pytest.mark.parametrize(
    ("version", "cudnn"),
    [
        ("1.13.2", "7.3"),
        ("1.14.0", "7.3"),
        ("1.15.0", "7.6"),
        ("2.0.0", "7.6"),
        ("2.1.0", "7.6"),
        ("2.4.4", "8.0"),
        ("2.11.1", "8.1"),
        ("2.14.1", "8.6"),
        ("2.15.1", "8.9"),
    ],
)
def test_tensorflow_was_compiled_for(version, cudnn) -> None:
    distribution = "tensorflow" if version >= "2.1" else "tensorflow-gpu"
    found = row("tensorflow", version, distribution=distribution)
    assert found.cudnn == cudnn
    assert "libtensorflow_framework.so" in found.read["cudnn"]


def test_what_jax_was_compiled_with_is_not_the_oldest_that_it_runs_with() -> None:
    for version, cuda, cudnn in (
        ("0.4.26", "12.3", "8.9.6"),
        ("0.4.29", "12.3", "9.1.1"),
        ("0.9.0", "12.9", "9.8.0"),
    ):
        found = row("jax", version, "cuda12")
        assert (found.cuda, found.cudnn) == (cuda, cudnn)
        assert any(line.startswith("nvidia-cudnn-cu12") for line in found.extras["cuda12"])


@pytest.mark.parametrize("version", ["2.11.0", "2.12.0", "2.13.0", "2.14.0"])
def test_pytorch_from_2_11_has_no_ptx(version) -> None:
    found = row("torch", version)
    assert found.architectures == ("sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120")
    assert found.read["architectures"] == "torch/lib/libtorch_python.so"


def test_every_pytorch_of_the_default_index_has_its_architectures() -> None:
    rows = [one for one in TABLES.frameworks["torch"].rows if one.default]
    assert len(rows) >= 40
    assert all(one.architectures and one.numpy_abi for one in rows)


@pytest.mark.parametrize("version", ["2.15.1", "2.9.7", "1.8.9"])
def test_a_release_that_does_not_exist_has_no_row(version) -> None:
    assert not TABLES.frameworks["torch"].of(version)
    assert TABLES.frameworks["torch"].row(version, "cu126") is None


def test_paddle_2_5_0_is_not_2_5_1() -> None:
    assert (row("paddlepaddle-gpu", "2.5.0").cuda, row("paddlepaddle-gpu", "2.5.0").cudnn) == (
        "11.2",
        "8.2.1",
    )
    assert (row("paddlepaddle-gpu", "2.5.1").cuda, row("paddlepaddle-gpu", "2.5.1").cudnn) == (
        "11.8",
        "8.6.0",
    )


@pytest.mark.parametrize(
    ("name", "version"),
    [("tensorflow", "2.10.0"), ("tensorflow", "2.13.0"), ("tensorflow", "2.20.0"), ("torch", "2.4.1")],
)
def test_wheels_for_arm_without_cuda(name, version) -> None:
    assert row(name, version).cpu_only == ("linux/arm64",)
    assert set(row(name, version).platforms) == {"linux/amd64", "linux/arm64"}


def test_tensorflow_1_without_gpu_in_its_name_has_none() -> None:
    assert row("tensorflow", "1.14.0", distribution="tensorflow").cpu_only == ("linux/amd64",)
    assert row("tensorflow", "1.14.0", distribution="tensorflow-gpu").cuda == "10.0"


@pytest.mark.parametrize(
    ("name", "version", "abi"),
    [
        ("tensorflow", "2.10.1", "1"),
        ("tensorflow", "2.17.1", "1"),
        ("tensorflow", "2.18.0", "2"),
        ("onnxruntime-gpu", "1.16.3", "1"),
        ("onnxruntime-gpu", "1.19.0", "2"),
        ("torch", "2.2.2", "1"),
        ("torch", "2.3.0", "2"),
    ],
)
def test_numpy_abi(name, version, abi) -> None:
    assert row(name, version).numpy_abi == abi


def test_a_variant_on_another_index_says_so() -> None:
    found = row("torch", "2.3.1", "cu118")
    assert (found.cuda, found.cudnn, found.default) == ("11.8", "8.7.0.84", False)
    assert found.architectures[0] == "sm_37"
    unread = row("torch", "2.7.1", "cu118")
    assert unread.unread["platforms"].startswith("unreachable index")
    assert found.source_of("cudnn").reference.startswith("pytorch/pytorch")
    assert row("torch", "2.3.1").source_of("cuda").reference.startswith("torch/version.py of torch 2.3.1")


INDEPENDENT = json.loads((Path(__file__).parent / "data" / "releases.json").read_text())


@pytest.mark.parametrize("name", INDEPENDENT["releases"])
def test_rows_equal_a_second_reading(name) -> None:
    """Whole wheels, by NVIDIA's own cuobjdump, binutils, and by running the function that tells: ``how``."""
    told = INDEPENDENT["releases"][name]
    found = row(told["table"], told["version"], told.get("variant", ""), told.get("distribution"))
    for value in ("cuda", "cudnn", "numpy_abi"):
        if value in told:
            assert getattr(found, value) == told[value], value
    assert sorted(found.architectures) == sorted(told["architectures"])


def test_the_second_reading_is_of_40_releases() -> None:
    assert len(INDEPENDENT["releases"]) >= 40
