"""P04: compiled packages beside the frameworks, whose libraries the loader finds or does not."""

from __future__ import annotations

from pathlib import Path

import pytest
from probe_elf import write_elf

from builder.verify.cudnn_verify.common.distributions import read_distributions
from builder.verify.cudnn_verify.measure.companions import check_companions, companions


class Site:
    """A folder of packages, as pip leaves them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def add(self, name: str, version: str, *requires: str, **files: dict) -> None:
        """``files``: a path, and what :func:`write_elf` takes."""
        info = self.folder / f"{name.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        lines = [f"Name: {name}", f"Version: {version}", *(f"Requires-Dist: {text}" for text in requires)]
        (info / "METADATA").write_text("\n".join(lines))
        for path, options in files.items():
            write_elf(self.folder / path, **options)
        (info / "RECORD").write_text("".join(f"{path},,\n" for path in files))

    def packages(self) -> dict:
        return read_distributions([str(self.folder)])


@pytest.fixture
def site(tmp_path):
    """PyTorch for CUDA 13 with its runtime."""
    made = Site(tmp_path)
    runtime = {"needed": ["libcudart.so.13"], "rpath": "$ORIGIN/../../nvidia/cu13/lib"}
    files = {"libtorch_global_deps.so": runtime, "libtorch_python.so": {"soname": "libtorch_python.so"}}
    made.add("torch", "2.15.0", **{f"torch/lib/{name}": options for name, options in files.items()})
    files = {"nvidia/cu13/lib/libcudart.so.13": {"soname": "libcudart.so.13"}}
    made.add("nvidia-cuda-runtime", "13.2.1", **files)
    return made


def said(recorder, site):
    ctx = recorder(facts={"packages": site.packages()})
    check_companions(ctx)
    return ctx.found("P04")


def test_an_extension_of_cuda_12_beside_a_torch_of_cuda_13(recorder, site):
    """https://github.com/vllm-project/vllm/issues/44335 and sgl-project/sglang#29646, from the other side."""
    site.add(
        "sgl-kernel", "0.3.0", "torch", **{"sgl_kernel/common_ops.abi3.so": {"needed": ["libcudart.so.12"]}}
    )
    check = said(recorder, site)
    assert (check["outcome"], check["cause"]) == ("failed", "toolkit-library-missing")
    assert check["summary"].startswith("sgl-kernel 0.3.0 does not load: ")
    assert check["summary"].endswith(
        "common_ops.abi3.so needs libcudart.so.12, which the loader does not find"
    )
    assert check["evidence"]["weak"], "it does not explain what is wrong with a framework"


def test_a_build_for_cuda_beside_a_torch_for_the_cpu(recorder, site):
    """torchvision 0.29.2 of the default index beside torch 2.13.0+cpu."""
    site.add("torchvision", "0.29.2", "torch", **{"torchvision/_C.so": {"needed": ["libc10_cuda.so"]}})
    check = said(recorder, site)
    assert (check["outcome"], check["cause"]) == ("failed", "package-pin-mismatch")
    assert "needs libc10_cuda.so" in check["summary"]


def test_what_the_framework_has_loaded_is_there_for_others(recorder, site):
    site.add(
        "vision", "1.0", "torch", **{"vision/_C.so": {"needed": ["libtorch_python.so", "libcudart.so.13"]}}
    )
    check = said(recorder, site)
    assert (check["outcome"], check["note"]) == ("passed", None)
    assert check["evidence"]["files"] == 1


def test_one_of_several_builds_is_enough(recorder, site):
    """torchcodec brings a library for each FFmpeg, bitsandbytes one for each CUDA."""
    files = {f"codec/libcodec{n}.so": {"needed": [f"libavutil.so.{50 + n}"]} for n in (6, 7)}
    site.add("torchcodec", "0.9", "torch", **files)
    assert said(recorder, site)["cause"] == "system-library-missing"
    write_elf(site.folder / "codec/libcodec7.so")
    check = said(recorder, site)
    assert check["outcome"] == "passed"
    assert "libcodec6.so needs libavutil.so.56" in check["note"]


def test_a_library_that_some_package_has_may_be_opened_by_its_path(recorder, site):
    """As tensorrt opens that of tensorrt_cu12_libs, and NVIDIA's wheels are opened by name."""
    site.add(
        "tensorrt-bindings", "10.0", "nvidia-cuda-runtime", **{"trt/trt.so": {"needed": ["libnvinfer.so.10"]}}
    )
    assert said(recorder, site)["outcome"] == "failed"
    site.add("tensorrt-libs", "10.0", **{"trt_libs/libnvinfer.so.10": {}})
    check = said(recorder, site)
    assert check["outcome"] == "passed"
    assert "libnvinfer.so.10" in check["note"]


def test_two_cuda_runtimes_in_one_process_are_a_remark(recorder, site):
    site.add("old", "1.0", "torch", **{"old/_C.so": {"needed": ["libcudart.so.12"], "runpath": "$ORIGIN"}})
    write_elf(site.folder / "old/libcudart.so.12", soname="libcudart.so.12")
    check = said(recorder, site)
    assert check["outcome"] == "passed"
    assert check["note"] == "old brings the runtime of CUDA 12 into a process that has CUDA 13's"


def test_the_drivers_libraries_are_not_missed_and_frameworks_are_left_out(recorder, site):
    site.add("user", "1.0", "torch; extra == 'x'", **{"user/_C.so": {"needed": ["libnowhere.so"]}})
    assert companions(site.packages()) == []
    assert said(recorder, site)["outcome"] == "not_run"
    site.add("video", "1.0", "torch", **{"video/_C.so": {"needed": ["libcuda.so.1", "libnvcuvid.so.1"]}})
    assert said(recorder, site)["outcome"] == "passed"
