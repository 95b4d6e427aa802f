# ruff: noqa: E501, as programs print it
"""Packages that are compiled for PyTorch, and what PyTorch's own table and xFormers say of builds."""

import pytest

from builder.verify.cudnn_verify.read.diagnosis import diagnose
from builder.verify.cudnn_verify.read.reading import read_text_given


def _told(text):
    document = diagnose(read_text_given(text))
    commands = [one["text"] for row in document["causes"][:1] for one in row["commands"]]
    return document, next(iter(document["causes"]), {}), commands


@pytest.mark.parametrize("package", ["natten", "mamba-ssm"])
@pytest.mark.parametrize(("torch", "certain"), [("torch", False), ("torch 2.10.0+cu130", True)])
def test_a_card_that_an_extension_has_no_code_for_is_certain_where_pytorchs_build_serves_it(
    package, torch, certain
):
    """https://github.com/state-spaces/mamba/issues/1019"""
    text = "B300, %s, import %s\nCUDA error: no kernel image is available for execution on the device"
    document, row, commands = _told(text % (torch, package))
    assert row["cause"] == "framework-arch-missing"
    assert document["decided"] == certain
    assert f"--no-binary {package} {package}" in commands[0]


def test_pytorchs_own_list_in_the_text_tells_that_it_is_pytorch():
    text = "natten\nThe current PyTorch install supports CUDA capabilities sm_80 sm_90.\nno kernel image is available for execution on the device"
    assert "natten" not in " ".join(_told(text)[2])


_REFUSED = "RuntimeError: The current installed version of g++ (%s) is greater than the maximum required version by CUDA %s. Please make sure to use an adequate version of g++ (>=6.0.0, <%s)."


@pytest.mark.parametrize(
    ("compiler", "cuda", "bound", "of_torch"),
    [("14.3.0", "12.9", "14.0", True), ("15.1.0", "13.0", "15.0", True), ("15.1.0", "12.9", "14.0", False)],
)
def test_a_compiler_that_nvcc_takes_is_refused_by_pytorchs_table_alone(compiler, cuda, bound, of_torch):
    """https://github.com/NixOS/nixpkgs/pull/504339"""
    _, row, commands = _told(_REFUSED % (compiler, cuda, bound))
    assert row["cause"] == "build-toolkit-mismatch"
    assert ("export TORCH_DONT_CHECK_COMPILER_ABI=1" in commands) == of_torch


def test_the_pytorch_that_xformers_has_is_the_one_that_is_here():
    """https://github.com/kijai/ComfyUI-Hunyuan3DWrapper/issues/205"""
    text = "xFormers was built for:\nPyTorch 2.10.0+cu128\nPython 3.10\n\nYou have:\nPyTorch 2.10.0+cu130\nPython 3.12"
    _, row, commands = _told(text)
    assert row["cause"] == "extension-mismatch"
    assert commands[0].endswith("whl/cu130")


def test_what_generated_code_asks_of_protobuf_came_with_5_27():
    row = _told("ImportError: cannot import name 'runtime_version' from 'google.protobuf'")
    assert row[2][0] == 'pip install "protobuf>=5.27"'


@pytest.mark.parametrize(
    ("text", "cause", "words"),
    [
        ("memoryUtils.cu: fatal error: sanitizer/asan_interface.h: No such file or directory", "build-toolkit-missing", "sanitizer"),
        ("libnvshmem_host.so.3 => not found\nld: libtorch_nvshmem.so: undefined reference to `nvshmem_ptr@NVSHMEM'", "toolkit-library-missing", ""),
        ("Getting requirements to build wheel: error\nimportlib.metadata.PackageNotFoundError: No package metadata was found for torch", "build-isolation", ""),
        ("JIT session error: Symbols not found: [ cuda_dialect_unload_library_once ]", "variable-breaks-framework", "unset CUTE_DSL_LIBS"),
        ("error: use of undeclared: `texture_fetch_functions.h` not found", "build-toolkit-mismatch", ""),
        ("['C:\\\\VC\\\\14.42\\\\bin\\\\Hostx64\\\\x64', 'C:\\\\Temp\\\\a\\\\cuda_utils.c', '-O3', '-shared']", "kernel-compiler-missing", "CC="),
        ("flash_api.cpp: x.sizes() == torch::IntArrayRef\nerror C2666: 'c10::HeaderOnlyArrayRef<int64_t>::operator ==': overloaded functions have similar conversions\ntorch 2.13.0", "extension-mismatch", "c++20"),
        ("/v/site-packages/foo_kernels/csrc/act.cuh:95:1: note: substitution failed\nact.cuh:95:52: error: type/value mismatch at argument 1", "build-toolkit-mismatch", "pip install --upgrade foo"),
        ("  File \"vllm/v1/sample/ops/topk_topp_sampler.py\", line 174, in forward_cuda\n    return flashinfer_sample(logits, k, p, generators), None", "kernel-compiler-missing", "export CUDA_HOME="),
    ],
)  # fmt: skip
def test_what_is_absent_or_misnamed_in_a_build_is_told_by_the_line(text, cause, words):
    _, row, commands = _told(text)
    assert row["cause"] == cause
    assert words in " ".join(commands)


def test_a_name_is_read_of_the_lines_above_an_import_error_without_words():
    """As https://github.com/huggingface/peft/pull/3571 has them."""
    text = "    from transformers import BeamSearchScorer\n    from transformers.utils import logging\nImportError"
    _, row, commands = _told(text)
    assert row["cause"] == "package-pin-mismatch"
    assert commands[0] == 'pip install "transformers<4.57"'


@pytest.mark.parametrize("system", ["Windows 11", "Ubuntu 24.04"])
def test_no_wheel_of_cudnn_is_for_a_pytorch_on_windows(system):
    """https://github.com/pytorch/pytorch/issues/185512"""
    text = "%s, RTX 5090, torch 2.13.0.dev20260530+cu132\nCUDNN_STATUS_SUBLIBRARY_VERSION_MISMATCH"
    _, row, commands = _told(text % system)
    assert row["cause"] == "cudnn-sublibrary-mismatch"
    assert any("nvidia-cudnn" in command for command in commands) == ("Ubuntu" in system)
