"""P04: compiled packages beside the frameworks, whose libraries the loader finds or does not."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from probe_elf import write_elf

from builder.verify.cudnn_verify.common.distributions import read_distributions
from builder.verify.cudnn_verify.measure.files import check_companions, companions


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
    assert check["summary"].startswith("0 of 1 compiled files"), "nobody has seen it find its library"
    assert check["note"].endswith(
        "libnvinfer.so.10, which the loader does not find, and which an installed package has"
    )


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


@pytest.fixture
def torch_of_c(site):
    """PyTorch with real libraries: what an extension asks of them, the compiler writes."""

    def compile_library(path, source, *libraries, hash_style="gnu"):
        out = site.folder / path
        out.parent.mkdir(parents=True, exist_ok=True)
        code = out.with_suffix(".c")
        code.write_text(source)
        options = [
            f"-Wl,-soname,{out.name}",
            f"-Wl,--hash-style={hash_style}",
            "-Wl,-rpath,$ORIGIN",
            "-Wl,--no-as-needed",
        ]
        linked = [str(site.folder / "torch/lib" / name) for name in libraries]
        command = ["gcc", "-shared", "-fPIC", "-nostdlib", "-o", str(out), str(code), *options, *linked]
        subprocess.run(command, check=True, capture_output=True)
        code.unlink()

    compile_library("torch/lib/libc10.so", f"int {ERROR}(void) {{ return 1; }}")
    compile_library("torch/lib/libtorch_cpu.so", f"int {EMPTY}(void) {{ return 1; }}", hash_style="sysv")
    compile_library("torch/lib/libtorch_python.so", "int x;", "libc10.so", "libtorch_cpu.so")
    return compile_library


ERROR, EMPTY, GONE = "_ZN3c105ErrorC2ESs", "_ZN2at5emptyEv", "_ZN3c105ErrorC2EOs"


def test_an_extension_for_another_torch_lacks_a_symbol(recorder, site, torch_of_c):
    """flash_attn_2_cuda.so: undefined symbol: _ZN3c105ErrorC2E…, of the other C++ ABI."""
    site.add("flash-attn", "2.8.3", "torch", **{"flash_attn_2_cuda.so": {}})
    asks = f"int {ERROR}(void); int {EMPTY}(void); int f(void) {{ return {ERROR}() + {EMPTY}(); }}"
    torch_of_c("flash_attn_2_cuda.so", asks)
    check = said(recorder, site)
    assert (check["outcome"], check["note"]) == ("passed", None)
    torch_of_c("flash_attn_2_cuda.so", asks.replace(ERROR, GONE))
    check = said(recorder, site)
    assert (check["outcome"], check["cause"]) == ("failed", "extension-mismatch")
    assert check["summary"].endswith(f"flash_attn_2_cuda.so: undefined symbol: {GONE}")
    torch_of_c("flash_attn_2_cuda.so", f"int {GONE}(void) __attribute__((weak)); int *f = (int *) {GONE};")
    assert said(recorder, site)["outcome"] == "passed", "without a weak one it does"
    torch_of_c("flash_attn_2_cuda.so", asks.replace(ERROR, "_ZN5other5ErrorC2EOs"))
    assert said(recorder, site)["outcome"] == "passed", "of another namespace: its own Python may load it"


def test_a_symbol_that_the_package_has_in_another_library_is_there(recorder, site, torch_of_c):
    """fbgemm_gpu's libraries define names in PyTorch's namespaces, and its Python loads them in turn."""
    site.add("kernels", "1.0", "torch", **{"kernels/_C.so": {}, "kernels/_parts.so": {}})
    torch_of_c("kernels/_C.so", f"int {GONE}(void); int f(void) {{ return {GONE}(); }}")
    torch_of_c("kernels/_parts.so", f"int {GONE}(void) {{ return 1; }}")
    assert said(recorder, site)["outcome"] == "passed"


def test_a_library_of_the_packages_own_is_opened_before_what_needs_it(recorder, site, torch_of_c):
    """torchaudio 2.5.1: _torchaudio.so needs libtorchaudio.so, which its Python opens by its path."""
    site.add("torchaudio", "2.5.1", "torch", **{"torchaudio/lib/_torchaudio.so": {}, "lib/libaudio.so": {}})
    torch_of_c("lib/libaudio.so", f"int {ERROR}(void); int f(void) {{ return {ERROR}(); }}")
    write_elf(site.folder / "torchaudio/lib/_torchaudio.so", needed=["libaudio.so"])
    assert (said(recorder, site)["outcome"], said(recorder, site)["note"]) == ("passed", None)
    torch_of_c("lib/libaudio.so", f"int {GONE}(void); int f(void) {{ return {GONE}(); }}")
    assert said(recorder, site)["cause"] == "extension-mismatch"
    write_elf(site.folder / "torchaudio/lib/_torchaudio.so", needed=["libaudio.so"])
    write_elf(site.folder / "lib/libaudio.so", needed=["_torchaudio.so"])
    assert said(recorder, site)["outcome"] == "passed", "a loop ends, and nobody knows"
