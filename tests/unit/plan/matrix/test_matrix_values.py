"""The syntax of single values, on both sides of each border."""

from __future__ import annotations

import json
import re
import time
from typing import TYPE_CHECKING

import pytest

from builder.core.errors import MatrixError
from builder.plan.matrix import values
from builder.plan.matrix.values import BASE, FRAMEWORK, IMPORT, REQUIREMENT, BadValue, parse_reference
from builder.verify.cudnn_verify.measure.expectation import read_expectation
from builder.verify.cudnn_verify.measure.protocol import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

DIGEST = "sha256:" + "0a" * 32


@pytest.mark.parametrize(
    ("syntax", "text", "wanted"),
    [
        (FRAMEWORK, "tensorflow==2.8.4", "tensorflow==2.8.4"),
        (FRAMEWORK, "Torch == 2.1.0+cu118", "torch==2.1.0+cu118"),
        (FRAMEWORK, "jax[Cuda12,k8s]==0.4.30", "jax[cuda12,k8s]==0.4.30"),
        (FRAMEWORK, "tf_nightly==2.8.0-rc1", "tf-nightly==2.8.0rc1"),
        (FRAMEWORK, "torch==1!2.1", "torch==1!2.1"),
        (REQUIREMENT, "numpy >=1.20, <2", "numpy<2,>=1.20"),
        (REQUIREMENT, "numpy==1.*", "numpy==1.*"),
        (REQUIREMENT, 'pandas<2; python_version < "3.9"', 'pandas<2; python_version < "3.9"'),
        (REQUIREMENT, "scipy", "scipy"),
        (values.PYTHON, "3.6", "3.6"),
        (values.PYTHON, "3.10", "3.10"),
        (values.PYTHON, "3.20", "3.20"),
        (values.APT, "libgomp1", "libgomp1"),
        (values.APT, "libstdc++6=1:10.2.1-6~deb11u1+b2", "libstdc++6=1:10.2.1-6~deb11u1+b2"),
        (values.GPU, "RTX 4090", "RTX 4090"),
        (values.URL, "https://wheels.example.invalid:8443/simple/", "https://wheels.example.invalid:8443/simple/"),
        (values.URL, "http://127.0.0.1:3141/root", "http://127.0.0.1:3141/root"),
        (values.URL, "http://[::1]:3141/root", "http://[::1]:3141/root"),
        (values.SIZE, "6GB", "6000000000"),
        (values.SIZE, "5.5 GiB", "5905580032"),
        (values.SIZE, "800MB", "800000000"),
        (values.SIZE, "1kB", "1000"),
        (values.SIZE, "512B", "512"),
        (values.NAME, "tf2.8_a-b", "tf2.8_a-b"),
        (values.VARIANT, "a.b_c-1", "a.b_c-1"),
        (BASE, "ubuntu:22.04", "ubuntu:22.04"),
        (BASE, f"ubuntu@{DIGEST}", f"ubuntu@{DIGEST}"),
        (BASE, "localhost/a/b__c--d.e:T_1.x-y", "localhost/a/b__c--d.e:T_1.x-y"),
        (BASE, "rootfs:debian/trixie", "rootfs:debian/trixie"),
    ],
)  # fmt: skip
def test_a_value_and_its_normal_form(syntax, text, wanted):
    assert syntax.check(text) == wanted
    assert syntax.pattern is None or re.fullmatch(syntax.pattern, text)


@pytest.mark.parametrize(
    ("syntax", "text"),
    [
        (FRAMEWORK, "torch===2.1"),
        (FRAMEWORK, "torch==2.1.*"),
        (FRAMEWORK, "torch==2.1,!=2.2"),
        (REQUIREMENT, "numpy @ ./numpy.whl"),
        (FRAMEWORK, ""),
        (REQUIREMENT, "numpy==1.23.5 RUN id"),
        (REQUIREMENT, "./numpy.whl"),
        (REQUIREMENT, "numpy==$(id)"),
        (values.PYTHON, "3"),
        (values.PYTHON, "3.8.01"),
        (values.PYTHON, "3.100"),
        (values.PYTHON, "3.08"),
        (values.PYTHON, "4.0"),
        (values.PYTHON, "3.٩"),
        (values.APT, "a"),
        (values.APT, "-o=x"),
        (values.APT, "libgomp1;id"),
        (values.APT, "libgomp1/bullseye"),
        (values.GPU, "-T4"),
        (values.GPU, "T4;"),
        (values.URL, "https://"),
        (values.URL, "https://é.example.invalid/"),
        (values.URL, "https://wheels.example.invalid/a b"),
        (values.URL, "https://[::1/"),
        (values.SIZE, "6"),
        (values.SIZE, "6gb"),
        (values.SIZE, "-6GB"),
        (values.SIZE, "1e3GB"),
        (values.SIZE, "0.0GB"),
        (values.NAME, "a--b"),
        (values.NAME, "-a"),
        (values.VARIANT, "a-"),
        (values.VARIANT, "A"),
        (BASE, "ubuntu"),
        (BASE, "ubuntu:"),
        (BASE, "ubuntu:-x"),
        (BASE, "ubuntu:22.04@sha256:" + "0A" * 32),
        (BASE, "ubuntu:22.04@"),
        (BASE, "/ubuntu:22.04"),
        (BASE, "a//b:1"),
        (BASE, "a__-b:1"),
        (BASE, ":5000/a:1"),
        (BASE, "host.example:port/a:1"),
        (BASE, "rootfs:"),
        (BASE, "rootfs:debian/sid"),
        (BASE, "rootfs:debian/bullseye@" + DIGEST),
    ],
)
def test_what_is_no_value(syntax, text):
    with pytest.raises(BadValue) as caught:
        syntax.check(text)
    assert caught.value.hint


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("tensorflow=2.8.4", "did you mean 'tensorflow==2.8.4'?"),
        ("tensorflow 2.8.4", "did you mean 'tensorflow==2.8.4'?"),
        ("tensorflow:2.8.4", "did you mean 'tensorflow==2.8.4'?"),
        ("tensorflow@2.8.4", "did you mean 'tensorflow==2.8.4'?"),
        ("scikit-learn=1.0", "did you mean 'scikit-learn==1.0'?"),
        ("torch[x]=v2.1", "did you mean 'torch[x]==2.1'?"),
        ("--pre", "options of pip have no place here; extra package indexes go under 'index'"),
    ],
)
def test_another_tool_s_spelling_is_understood(text, hint):
    with pytest.raises(BadValue) as caught:
        REQUIREMENT.check(text)
    assert caught.value.hint == hint


@pytest.mark.parametrize(
    "text", ["a", "moviepy.editor", "_a.b2:C_", "a:b:c", "a:", ":a", "a.", "2a", "a b", "a-b", "a:b.c", ""]
)
def test_the_probe_takes_the_imports_that_a_matrix_takes(text, tmp_path):
    """Each has the spelling in its own words: the probe is one file, for Pythons that the matrix is not."""
    path = tmp_path / "expect.json"
    path.write_text(json.dumps({"schema": 1, "imports": [text]}))
    assert accepts(lambda: IMPORT.check(text)) == accepts(lambda: read_expectation(str(path)))


def accepts(read: Callable[[], object]) -> bool:
    try:
        read()
    except (BadValue, UsageError):
        return False
    return True


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("import moviepy.editor", "did you mean 'moviepy.editor'?"),
        ("import moviepy.editor as mp", "did you mean 'moviepy.editor'?"),
        ("from openai import OpenAI", "did you mean 'openai:OpenAI'?"),
        ("from cuda import cudart, nvrtc", "did you mean 'cuda:cudart' and 'cuda:nvrtc'?"),
        ("from a import *", "did you mean 'a'?"),
        ("openai: OpenAI", "did you mean 'openai:OpenAI'?"),
        ("openai:OpenAI.chat", "did you mean 'openai:OpenAI'?"),
        ("moviepy/editor.py", "did you mean 'moviepy.editor'?"),
        ("opencv-python", "a module as code imports it"),
        (".relative", "a module as code imports it"),
        ("moviepy==1.0.3", "a module as code imports it"),
        ("a.class", "write it as code does"),
    ],
)
def test_another_spelling_of_an_import_is_understood(text, meant):
    with pytest.raises(BadValue) as caught:
        IMPORT.check(text)
    assert caught.value.hint.startswith(meant)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("ubuntu:22.04", (None, "ubuntu", "22.04", None)),
        ("nvidia/cuda:11.2.2-base", (None, "nvidia/cuda", "11.2.2-base", None)),
        (f"host.example:5000/a/b:1@{DIGEST}", ("host.example:5000", "a/b", "1", DIGEST)),
        (f"localhost/b@{DIGEST}", ("localhost", "b", None, DIGEST)),
    ],
)
def test_an_image_reference_in_its_parts(text, parts):
    found = parse_reference(text)
    assert (found.host, found.path, found.tag, found.digest) == parts


@pytest.mark.parametrize(
    "text", ["a" * 399 + "!", "a-" * 199 + "!:1", "a/" * 199 + "!:1", "a." * 199 + "-/b:1"]
)
def test_no_reference_takes_long_to_refuse(text):
    started = time.process_time()
    with pytest.raises(BadValue):
        BASE.check(text)
    assert time.process_time() - started < 2  # at once; a pattern that goes back and forth takes years


@pytest.mark.parametrize(
    "key", ["framework", "python", "base", "pip", "apt", "index", "gpus", "platform", "variant"]
)
@pytest.mark.parametrize("escape", ["\\n", "\\r", "\\0", "\\e", "\\u2028", "\\u202e", "\\u00a0", "\\t"])
def test_no_value_smuggles_a_line_or_control_character(load_text, key, escape):
    good = {"framework": "torch==2.1.0", "python": "3.9", "base": "a:1", "cuda": "base"}
    cell = good | {key: good.get(key, "x") + escape + "RUN id"}
    text = (
        "version: 1\ninclude:\n  - {"
        + ", ".join(f'{name}: "{value}"' for name, value in cell.items())
        + "}\n"
    )
    with pytest.raises(MatrixError, match=rf"'{key}' holds U\+00|'{key}' holds U\+20"):
        load_text(text)
