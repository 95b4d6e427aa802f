"""Faults of what stands around cuDNN: the toolkit's libraries, and the names without a version number."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fault_list import fault
from fault_scene import replace, swap

if TYPE_CHECKING:
    from fault_scene import Scene


def _torch_library(scene: Scene, *needed: str) -> None:
    """A libtorch_cuda.so that needs these libraries, with PyTorch's run path."""
    scene.framework("torch")
    files = tuple(scene.build.toolkit(name) for name in needed)
    rpath = "-Wl,--disable-new-dtags,-rpath,$ORIGIN/../../nvidia/cudnn/lib:$ORIGIN/../../nvidia/cublas/lib"
    shim = scene.build.cudnn("9.10.2") / "libcudnn.so.9"
    scene.build.requester(scene.site / "torch" / "lib" / "libtorch_cuda.so", (shim, *files), rpath)


@fault(
    "a framework that needs a CUDA library which is not there",
    verdict="broken",
    cause="toolkit-library-missing",
)
def cublas_missing(scene: Scene) -> None:
    scene.cudnn()
    _torch_library(scene, "libcublas.so.12")


@fault("NVRTC needed and not there", verdict="broken", cause="nvrtc-missing")
def nvrtc_missing(scene: Scene) -> None:
    scene.cudnn()
    _torch_library(scene, "libnvrtc.so.12")


@fault("NVRTC without the builtins that it opens by name", verdict="broken", cause="nvrtc-missing")
def nvrtc_without_builtins(scene: Scene) -> None:
    (scene.nvrtc() / "libnvrtc-builtins.so.13.0").unlink()


@fault("NVRTC's builtins are an HTML page", verdict="broken", cause="nvrtc-missing")
def nvrtc_with_a_page_for_builtins(scene: Scene) -> None:
    replace(scene.nvrtc() / "libnvrtc-builtins.so.13.0", b"<!DOCTYPE html>\n<title>403 Forbidden</title>\n")


@fault("a framework whose cuDNN is not there", verdict="broken", cause="cudnn-missing")
def framework_without_cudnn(scene: Scene) -> None:
    _torch_library(scene)


@fault("a framework built for cuDNN 9 beside cuDNN 8 only", verdict="broken", cause="cudnn-major-mismatch")
def framework_beside_another_major(scene: Scene) -> None:
    scene.cudnn("8.9.7")
    _torch_library(scene)


@fault(
    "a program that opens libcudnn.so where only libcudnn.so.9 is",
    verdict="broken",
    cause="unversioned-name-missing",
)
def unversioned_name_missing(scene: Scene) -> None:
    scene.search(scene.cudnn(into=scene.folder("opt/cudnn/lib")))
    package = scene.site / "paddle"
    shim = scene.build.cudnn("9.10.2") / "libcudnn.so.9"
    scene.build.requester(package / "base" / "libpaddle.so", (), f"-DNAME={shim.name}")
    (package / "__init__.py").write_text("raise ImportError('a double: not to be imported')\n")
    scene.record("paddlepaddle-gpu", "2.6.2", [], requires=("nvidia-cudnn-cu12==9.1.1.17",))


@fault(
    "half of a cuDNN, the rest filled in from the system", verdict="broken", cause="cudnn-sublibrary-missing"
)
def gap_filled_from_the_system(scene: Scene) -> None:
    (scene.cudnn() / "libcudnn_cnn.so.9").unlink()
    system = scene.folder("usr/lib")
    swap(system / "libcudnn_cnn.so.9", scene.build.cudnn("9.1.0") / "libcudnn_cnn.so.9")
    scene.search(system)


@fault("cuDNN in NVIDIA's wheel, where no run path leads", verdict="broken", cause="cudnn-missing")
def cudnn_where_nobody_looks(scene: Scene) -> None:
    scene.cudnn()
    scene.framework("torch")
    shim = scene.build.cudnn("9.10.2") / "libcudnn.so.9"
    scene.build.requester(scene.site / "torch" / "lib" / "libtorch_cuda.so", (shim,))


@fault("cuDNN too old for one framework, as another one pins it", verdict="broken", cause="cudnn-too-old")
def cudnn_too_old_by_a_pin(scene: Scene) -> None:
    scene.cudnn("9.1.0")
    scene.record("somenet", "1.0", [], requires=("nvidia-cudnn-cu12==9.1.0.0",))
    scene.framework("torch", cudnn="9.1.0", compiled="9.8.0")
