"""Faults of installed packages: pins that are missed, files that were cut, emptied, removed or closed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fault_list import add, fault
from fault_scene import replace

if TYPE_CHECKING:
    from pathlib import Path

    from fault_scene import Scene


def _torch(scene: Scene, *requires: str) -> Path:
    """A fake PyTorch with a library of its own, as pip records it; that library."""
    scene.framework("torch")
    library = scene.site / "torch" / "lib" / "libtorch_cuda.so"
    scene.links("torch/lib/libtorch_cuda.so", scene.cudnn())
    data = library.read_bytes()
    replace(library, data + b"kernels!" * (3 << 17))
    scene.record("torch", "2.6.0", [library, scene.site / "torch" / "__init__.py"], requires)
    return library


@fault("the NVRTC that a wheel pins exactly is not installed", verdict="broken", cause="nvrtc-missing")
def pinned_nvrtc_absent(scene: Scene) -> None:
    _torch(scene, 'nvidia-cuda-nvrtc-cu12 (==12.4.127) ; platform_system == "Linux"')


@fault("a pinned CUDA library is not installed", verdict="broken", cause="toolkit-library-missing")
def pinned_library_absent(scene: Scene) -> None:
    _torch(scene, "nvidia-cusparselt-cu12==0.6.2")


@fault(
    "a pinned CUDA library is gone, and another one lies there without its dist-info",
    verdict="broken",
    cause="toolkit-library-missing",
)
def pinned_library_absent_beside_one_without_metadata(scene: Scene) -> None:
    """``pip uninstall`` of one; of the other the library is sound, and only pip knows nothing of it."""
    _torch(scene, "nvidia-cusparselt-cu12==0.6.2", "nvidia-nccl-cu12==2.27.5")
    lib = scene.site / "nvidia" / "nccl" / "lib"
    lib.mkdir(parents=True)
    (lib / "libnccl.so.2").hardlink_to(scene.cudnn_lib / "libcudnn.so.9")


@fault(
    "most of an extra is installed, and cuSPARSE of it is not",
    verdict="broken",
    cause="toolkit-library-missing",
)
def extra_without_one_of_its_packages(scene: Scene) -> None:
    names = ("cublas", "cufft", "curand", "cusparselt")
    _torch(scene, *(f"nvidia-{name}-cu12==1.0 ; extra == 'and-cuda'" for name in names))
    for name in names[:3]:
        scene.record(f"nvidia-{name}-cu12", "1.0", [])


@fault("JAX's plug-in without the PJRT half", verdict="broken", cause="package-pin-mismatch")
def pjrt_absent(scene: Scene) -> None:
    scene.cudnn()
    scene.record("jax-cuda12-plugin", "0.6.2", [], requires=("jax-cuda12-pjrt==0.6.2",))


@fault("Keras 2.9 under TensorFlow 2.8", verdict="broken", cause="package-pin-mismatch")
def keras_of_another_release(scene: Scene) -> None:
    scene.cudnn()
    scene.record("tensorflow", "2.8.4", [], requires=("keras (<2.9,>=2.8.0rc0)",))
    scene.record("keras", "2.9.0", [])


@fault(
    "an import that fails over a package of another release", verdict="broken", cause="package-pin-mismatch"
)
def import_fails_over_a_missed_pin(scene: Scene) -> None:
    _torch(scene, "protobuf<3.20")
    scene.record("protobuf", "4.25.0", [])
    scene.env["RTBUILD_DOUBLE_TORCH"] = (
        "import=Descriptors+cannot+be+created+directly:+regenerate+with+protobuf"
    )


@fault("a framework's library cut in the middle", verdict="broken", cause="package-overwritten")
def framework_library_cut(scene: Scene) -> None:
    library = _torch(scene)
    replace(library, library.read_bytes()[:6000])


@fault("a hole of zeros in a library of the right size", verdict="broken", cause="package-overwritten")
def framework_library_with_a_hole(scene: Scene) -> None:
    library = _torch(scene)
    data = library.read_bytes()
    replace(library, data[: 1 << 20] + bytes(1 << 20) + data[2 << 20 :])


@fault("a library of the right size that ends in zeros", verdict="broken", cause="package-overwritten")
def framework_library_that_ends_in_zeros(scene: Scene) -> None:
    """Also where its table of sections was, at the end: a download cut off, with the full length reserved."""
    library = _torch(scene)
    data = bytearray(library.read_bytes())
    count, entry = int.from_bytes(data[60:62], "little"), 64
    data[40:48] = (len(data) - count * entry).to_bytes(8, "little")
    replace(library, bytes(data))
    scene.record("torch", "2.6.0", [library, scene.site / "torch" / "__init__.py"])
    replace(library, bytes(data[: 1 << 20]) + bytes(len(data) - (1 << 20)))


@fault("one changed byte", verdict="broken", cause="package-overwritten")
def framework_library_of_another_content(scene: Scene) -> None:
    library = _torch(scene)
    replace(library, library.read_bytes()[:-1] + b"?")


@fault("a damaged library that kills the process", verdict="broken", cause="package-overwritten")
def damaged_library_crashes(scene: Scene) -> None:
    library = _torch(scene)
    replace(library, library.read_bytes()[:-1] + b"?")
    scene.env["RTBUILD_DOUBLE_TORCH"] = "conv=abort"


@fault("a framework's library removed", verdict="broken", cause="package-overwritten")
def framework_library_removed(scene: Scene) -> None:
    other = scene.site / "torch" / "lib" / "libc10_cuda.so"
    replace_with = _torch(scene).read_bytes()
    other.write_bytes(replace_with)
    scene.record("torch", "2.6.0", [other, scene.site / "torch" / "lib" / "libtorch_cuda.so"])
    other.unlink()


def _toolkit_wheel(scene: Scene, library: str, *flags: str) -> Path:
    """A wheel of NVIDIA's with one library of this name, beside a PyTorch with a cuDNN; the library."""
    _torch(scene)
    family = library.partition(".")[0].removeprefix("lib").lower()
    path = scene.folder(f"venv/lib/{scene.site.parent.name}/site-packages/nvidia/{family}/lib") / library
    scene.build.requester(path, (), f"-Wl,-soname,{library}", *flags)
    spare = path.with_name("libspare.so")
    spare.write_bytes(path.read_bytes())
    scene.record(f"nvidia-{family}-cu12", "12.8.93", [path, spare])
    return path


@fault("libnvrtc gone, which RECORD lists", verdict="broken", cause="nvrtc-missing")
def nvrtc_removed(scene: Scene) -> None:
    _toolkit_wheel(scene, "libnvrtc.so.12").unlink()


@fault("a library of CUDA gone, which RECORD lists", verdict="broken", cause="package-overwritten")
def toolkit_library_removed(scene: Scene) -> None:
    _toolkit_wheel(scene, "libcusparse.so.12").unlink()


@fault("a foreign nvJitLink, and PyTorch misses its symbol", verdict="broken", cause="package-overwritten")
def foreign_nvjitlink(scene: Scene) -> None:
    path = _toolkit_wheel(scene, "libnvJitLink.so.12")
    replace(path, path.read_bytes() + b"of another release")
    said = f"{path.parent}/libcusparse.so.12:+undefined+symbol:+__nvJitLinkCreate_12_8"
    scene.env["RTBUILD_DOUBLE_TORCH"] = "import=" + said


@fault("the run path of cuDNN's shim edited in its place", verdict="broken", cause="package-overwritten")
def shim_with_another_run_path(scene: Scene) -> None:
    path = scene.cudnn() / "libcudnn.so.9"
    data = path.read_bytes()
    assert b"$ORIGIN" in data
    replace(path, data.replace(b"$ORIGIN", b"/nothin"))


@fault("a line in a .pth that fakes PyTorch", verdict="broken", cause="startup-preload")
def framework_faked_at_start(scene: Scene) -> None:
    _torch(scene)
    # as .pth, since Debian's Python has a sitecustomize of its own before site-packages
    fake = "import sys, types; sys.modules['torch'] = types.ModuleType('torch')\n"
    (scene.site / "fake.pth").write_text(fake)


@fault("an empty libgcc_s under NVRTC", verdict="broken", cause="system-library-missing")
def system_library_empty(scene: Scene) -> None:
    gone = scene.build.toolkit("libsystem.so.6")
    nvrtc = _toolkit_wheel(scene, "libnvrtc.so.12")
    folder = scene.folder("usr/lib")
    replace(folder / gone.name, b"")
    nvrtc.unlink()
    scene.build.requester(nvrtc, (gone,), "-Wl,-soname,libnvrtc.so.12")
    next(scene.site.glob("nvidia_nvrtc*/RECORD")).unlink()
    scene.search(folder)


@fault("32 kB of zeros in a library of the right size", verdict="broken", cause="package-overwritten")
def framework_library_with_a_small_hole(scene: Scene) -> None:
    library = _torch(scene)
    data = library.read_bytes()
    replace(library, data[: 1 << 20] + bytes(32 << 10) + data[(1 << 20) + (32 << 10) :])


@fault(
    "an empty stub of NVIDIA's in the place of CUDA 13's NPP", verdict="broken", cause="package-name-retired"
)
def stub_of_nvidia(scene: Scene) -> None:
    scene.cudnn(flavour=13)
    scene.record("nvidia-npp-cu13", "0.0.0a0", [])


@fault("ptxas removed from NVIDIA's wheel", verdict="broken", cause="ptxas-missing")
def ptxas_removed(scene: Scene) -> None:
    scene.cudnn()
    tool = scene.folder("venv/nvcc/bin") / "ptxas"
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o755)
    scene.record("nvidia-cuda-nvcc-cu12", "12.5.82", [tool])
    tool.unlink()


@fault("ptxas of another machine", verdict="broken", cause="package-overwritten")
def ptxas_of_another_machine(scene: Scene) -> None:
    tool = scene.folder("venv/nvcc/bin") / "ptxas"
    data = bytearray((scene.cudnn() / "libcudnn.so.9").read_bytes())
    tool.write_bytes(data)
    tool.chmod(0o755)
    scene.record("nvidia-cuda-nvcc-cu12", "12.5.82", [tool])
    data[18:20] = (183).to_bytes(2, "little")  # e_machine: AArch64
    tool.write_bytes(data)


def without_root_powers(scene: Scene) -> None:
    """Run the probe as somebody for whom the mode of a file counts."""
    powers = "-dac_override,-dac_read_search"
    python = str(scene.venv / "bin" / "python")
    scene.command = ["setpriv", "--bounding-set", powers, "--inh-caps", powers, python, str(scene.probe)]


@fault("a cuDNN that this user may not read", verdict="broken", cause="file-access-denied")
def cudnn_closed(scene: Scene) -> None:
    path = scene.cudnn() / "libcudnn.so.9"
    replace(path, path.read_bytes())  # the mode belongs to all hard links
    path.chmod(0)
    without_root_powers(scene)


@fault("a framework's library that this user may not read", verdict="broken", cause="file-access-denied")
def framework_library_closed(scene: Scene) -> None:
    _torch(scene).chmod(0)
    without_root_powers(scene)


@fault("a folder of packages that this user may not list", verdict="broken", cause="file-access-denied")
def package_folder_closed(scene: Scene) -> None:
    _torch(scene)
    closed = scene.folder("closed")
    closed.chmod(0)
    scene.env["PYTHONPATH"] = str(closed)
    without_root_powers(scene)


@fault("a library of the distribution is not there", verdict="broken", cause="system-library-missing")
def system_library_absent(scene: Scene) -> None:
    scene.framework("torch")
    gone = scene.build.toolkit("libsystem.so.6")
    scene.build.requester(scene.site / "torch" / "lib" / "libtorch_cuda.so", (gone,))


@fault(
    "a part of cuDNN that came with 9.21 is missing from 9.24",
    verdict="broken",
    cause="cudnn-sublibrary-missing",
)
def new_part_absent(scene: Scene) -> None:
    library = scene.cudnn("9.24.0")
    header = library.parent / "include" / "cudnn_version.h"
    header.parent.mkdir()
    rows = zip(("MAJOR", "MINOR", "PATCHLEVEL"), (9, 24, 0), strict=True)
    header.write_text("".join(f"#define CUDNN_{name} {number}\n" for name, number in rows))


@fault("a sub-library under the name of another", verdict="broken", cause="cudnn-file-corrupt")
def sublibrary_under_another_name(scene: Scene) -> None:
    folder = scene.cudnn()
    replace(folder / "libcudnn_ops.so.9", (folder / "libcudnn_adv.so.9").read_bytes())


def _pinned(name: str, title: str, cause: str, requires: str, installed: str = "") -> None:
    def prepare(scene: Scene) -> None:
        _torch(scene, requires)
        if installed:
            package, _, version = installed.partition("==")
            scene.record(package, version, [])

    add(name, title, "broken", cause, prepare)


_PIN = "package-pin-mismatch"
_pinned(
    "nvjitlink-of-another-release",
    "an nvJitLink older than the pin",
    _PIN,
    "nvidia-nvjitlink-cu12 (==12.4.127)",
    "nvidia-nvjitlink-cu12==12.1.105",
)
_pinned(
    "cublas-of-another-major",
    "a cuBLAS of another major",
    _PIN,
    "nvidia-cublas-cu12==12.4.5.8",
    "nvidia-cublas-cu12==11.11.3.6",
)
_pinned(
    "nccl-too-new",
    "a newer NCCL than the wheel allows",
    _PIN,
    "nvidia-nccl-cu12<2.22",
    "nvidia-nccl-cu12==2.27.3",
)
_pinned(
    "pinned-cublas-absent",
    "cuBLAS is pinned and absent",
    "toolkit-library-missing",
    "nvidia-cublas-cu12==12.4.5.8",
)
_pinned(
    "pinned-cupti-absent",
    "CUPTI is pinned and absent",
    "toolkit-library-missing",
    "nvidia-cuda-cupti-cu12==12.4.127",
)
_pinned(
    "pinned-nvjitlink-absent",
    "nvJitLink is pinned and absent",
    "toolkit-library-missing",
    "nvidia-nvjitlink-cu12==12.4.127",
)


@fault("jaxlib of another release under JAX", verdict="broken", cause="package-pin-mismatch")
def jaxlib_of_another_release(scene: Scene) -> None:
    scene.cudnn()
    scene.record("jax", "0.6.2", [], requires=("jaxlib<=0.6.2,>=0.6.2",))
    scene.record("jaxlib", "0.5.3", [])


@fault("libdevice removed from NVIDIA's wheel", verdict="broken", cause="ptxas-missing")
def libdevice_removed(scene: Scene) -> None:
    scene.cudnn()
    file = scene.folder("venv/nvcc/libdevice") / "libdevice.10.bc"
    file.write_bytes(b"BC\xc0\xde")
    scene.record("nvidia-cuda-nvcc-cu12", "12.5.82", [file])
    file.unlink()


@fault("a ptxas that may not be run", verdict="broken", cause="file-access-denied")
def ptxas_not_executable(scene: Scene) -> None:
    scene.cudnn()
    tool = scene.folder("venv/nvcc/bin") / "ptxas"
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o644)
    scene.record("nvidia-cuda-nvcc-cu12", "12.5.82", [tool])


@fault("pip lists PyTorch, and there is no module of it", verdict="broken", cause="package-overwritten")
def framework_listed_and_gone(scene: Scene) -> None:
    scene.cudnn()
    scene.record("torch", "2.6.0", [])


@fault("a hole of zeros in an engine of cuDNN", verdict="broken", cause="package-overwritten")
def engine_with_a_hole(scene: Scene) -> None:
    path = scene.cudnn() / "libcudnn_engines_precompiled.so.9"
    data = path.read_bytes() + b"kernels!" * (3 << 17)
    replace(path, data)
    scene.record("nvidia-cudnn-cu12", "9.10.2.0", sorted(scene.cudnn_lib.iterdir()))
    replace(path, data[: 1 << 20] + bytes(1 << 20) + data[2 << 20 :])


@fault("a framework's library that is empty", verdict="broken", cause="package-overwritten")
def framework_library_empty(scene: Scene) -> None:
    replace(_torch(scene), b"")


@fault("a folder of cuDNN's that this user may not enter", verdict="broken", cause="file-access-denied")
def cudnn_folder_closed(scene: Scene) -> None:
    scene.cudnn().chmod(0)
    without_root_powers(scene)


@fault(
    "cuDNN of another release in a package's place, RECORD written anew",
    verdict="broken",
    cause="package-overwritten",
)
def cudnn_of_another_release_with_its_record(scene: Scene) -> None:
    scene.cudnn("9.1.0")
    next(scene.site.glob("nvidia_cudnn*")).rename(scene.site / "nvidia_cudnn_cu12-9.10.2.21.dist-info")
    metadata = scene.site / "nvidia_cudnn_cu12-9.10.2.21.dist-info" / "METADATA"
    metadata.write_text(metadata.read_text().replace("9.1.0.0", "9.10.2.21"))


@fault(
    "PyTorch of another release in its package's place, RECORD written anew",
    verdict="broken",
    cause="package-overwritten",
)
def torch_of_another_release_with_its_record(scene: Scene) -> None:
    scene.cudnn()
    package = scene.framework("torch", version="2.5.1")
    scene.record("torch", "2.6.0", [package / "__init__.py"])


@fault("a library of PyTorch cut, RECORD written anew", verdict="broken", cause="package-overwritten")
def cut_library_with_its_record(scene: Scene) -> None:
    library = _torch(scene)
    spare = library.with_name("libtorch_spare.so")
    spare.write_bytes(library.read_bytes()[:8000])
    scene.record("torch", "2.6.0", [library, spare])


@fault(
    "libcufft in the place of libcurand, RECORD written anew", verdict="broken", cause="package-overwritten"
)
def another_library_with_its_record(scene: Scene) -> None:
    scene.cudnn()
    folder = scene.folder("real")
    scene.build.requester(folder / "libcufft.so.11", (), "-Wl,-soname,libcufft.so.11")
    place = scene.site / "nvidia" / "curand" / "lib" / "libcurand.so.10"
    place.parent.mkdir(parents=True)
    place.hardlink_to(folder / "libcufft.so.11")
    scene.record("nvidia-curand-cu12", "10.3.5.147", [place])
