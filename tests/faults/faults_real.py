"""The faults once more in NVIDIA's own files: cuDNN 7, 8 and 9 out of their wheels, with real aborts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fault_list import fault
from fault_scene import link_tree, replace, swap
from nvidia_driver import real_driver, without_nodes

if TYPE_CHECKING:
    from pathlib import Path

    from fault_scene import Scene


def _cudnn(scene: Scene, version: str = "9.10.2") -> Path:
    """A sound environment: cuDNN with the toolkit's libraries that it needs; cuDNN's folder."""
    for name in (f"cudnn-{version}", "cublas", "nvrtc", "cudart"):
        scene.wheel(name)
    return scene.cudnn_lib


@fault("a sub-library deleted", parts="real", verdict="broken", cause="cudnn-sublibrary-missing")
def real_sublibrary_deleted(scene: Scene) -> None:
    (_cudnn(scene) / "libcudnn_cnn.so.9").unlink()


@fault(
    "an engine deleted, which shows at no call",
    parts="real",
    verdict="broken",
    cause="cudnn-sublibrary-missing",
)
def real_engine_deleted(scene: Scene) -> None:
    (_cudnn(scene) / "libcudnn_engines_precompiled.so.9").unlink()


@fault(
    "cuDNN 8 without its training library", parts="real", verdict="broken", cause="cudnn-sublibrary-missing"
)
def real_train_library_deleted(scene: Scene) -> None:
    (_cudnn(scene, "8.9.7") / "libcudnn_cnn_train.so.8").unlink()


@fault("9.1's cnn among 9.10's libraries", parts="real", verdict="broken", cause="cudnn-sublibrary-mismatch")
def real_sublibrary_far(scene: Scene) -> None:
    source = scene.wheels("cudnn-9.1.0") / "nvidia/cudnn/lib/libcudnn_cnn.so.9"
    swap(_cudnn(scene) / "libcudnn_cnn.so.9", source)


@fault(
    "9.10.1's cnn among 9.10.2's libraries", parts="real", verdict="broken", cause="cudnn-sublibrary-mismatch"
)
def real_sublibrary_near(scene: Scene) -> None:
    source = scene.wheels("cudnn-9.10.1-cnn") / "nvidia/cudnn/lib/libcudnn_cnn.so.9"
    swap(_cudnn(scene) / "libcudnn_cnn.so.9", source)


@fault("8.9.2's cnn_infer among 8.9.7's", parts="real", verdict="broken", cause="cudnn-sublibrary-mismatch")
def real_sublibrary_near_8(scene: Scene) -> None:
    name = "libcudnn_cnn_infer.so.8"
    swap(_cudnn(scene, "8.9.7") / name, scene.wheels("cudnn-8.9.2-cnn") / "nvidia/cudnn/lib" / name)


@fault(
    "9.1 on LD_LIBRARY_PATH before the wheel's 9.10", parts="real", verdict="broken", cause="cudnn-shadowed"
)
def real_shadow(scene: Scene) -> None:
    _cudnn(scene)
    other = scene.folder("usr/lib/x86_64-linux-gnu")
    link_tree(scene.wheels("cudnn-9.1.0") / "nvidia/cudnn/lib", other)
    scene.search(other)


@fault(
    "a system's 9.1 beside an incomplete wheel of 9.10",
    parts="real",
    verdict="broken",
    cause="cudnn-sublibrary-missing",
)
def real_gap_filled(scene: Scene) -> None:
    (_cudnn(scene) / "libcudnn_cnn.so.9").unlink()
    system = scene.folder("usr/lib/x86_64-linux-gnu")
    swap(system / "libcudnn_cnn.so.9", scene.wheels("cudnn-9.1.0") / "nvidia/cudnn/lib/libcudnn_cnn.so.9")
    scene.search(system)


@fault(
    "nvidia-cudnn-cu11 installed over nvidia-cudnn-cu12",
    parts="real",
    verdict="broken",
    cause="package-overwritten",
)
def real_cu11_over_cu12(scene: Scene) -> None:
    _cudnn(scene)
    scene.wheel("cudnn-9.10.2-cu11")


@fault("one of the two uninstalled", parts="real", verdict="broken", cause="package-overwritten")
def real_uninstalled_half(scene: Scene) -> None:
    for path in _cudnn(scene).glob("libcudnn*"):
        path.unlink()


@fault(
    "the cuDNN of CUDA 11 under the name of CUDA 12's",
    parts="real",
    verdict="broken",
    cause="cudnn-cuda-flavour",
)
def real_flavour(scene: Scene) -> None:
    _cudnn(scene)
    scene.wheel("cudnn-9.10.2-cu11")
    for info in scene.site.glob("nvidia_cudnn_cu1*.dist-info"):
        (info / "RECORD").unlink()
        if "cu11" in info.name:
            (info / "METADATA").unlink()
            for rest in info.iterdir():
                rest.unlink()
            info.rmdir()


@fault("a library cut off in the middle", parts="real", verdict="broken", cause="cudnn-file-corrupt")
def real_truncated(scene: Scene) -> None:
    path = _cudnn(scene) / "libcudnn_graph.so.9"
    replace(path, path.read_bytes()[: 2 << 20])


@fault(
    "cuDNN 8 without the cuBLAS it is linked against",
    parts="real",
    verdict="broken",
    cause="toolkit-library-missing",
)
def real_cublas_missing(scene: Scene) -> None:
    scene.wheel("cudnn-8.9.7")


@fault("cuBLAS from the wheel over another cublasLt", parts="real", verdict="broken", cause="toolkit-mixed")
def real_cublas_mixed(scene: Scene) -> None:
    _cudnn(scene, "8.9.7")
    toolkit = scene.folder("usr/local/cuda/lib64")
    swap(toolkit / "libcublasLt.so.12", scene.build.toolkit("libcublasLt.so.12"))
    scene.search(toolkit)


@fault("NVRTC without its builtins", parts="real", verdict="broken", cause="nvrtc-missing")
def real_nvrtc_without_builtins(scene: Scene) -> None:
    _cudnn(scene)
    for path in (scene.site / "nvidia" / "cuda_nvrtc" / "lib").glob("libnvrtc-builtins*"):
        path.unlink()


def cudnn_8_6(scene: Scene) -> None:
    """The cuDNN of TensorFlow 2.5 to 2.13, with its toolkit on the loader's path."""
    for name in ("cudnn-8.6.0-cu11", "cublas-cu11", "nvrtc-cu11"):
        scene.wheel(name)
    scene.search(*sorted((scene.site / "nvidia").glob("*/lib")))


@fault("NVRTC under its versioned name only", parts="real", verdict="broken", cause="nvrtc-missing")
def real_nvrtc_only_with_its_number(scene: Scene) -> None:
    """cuDNN 8 opens ``libnvrtc.so``, which NVIDIA's wheels do not have, and aborts at its first call."""
    cudnn_8_6(scene)


@fault("a preloaded dlopen wrapper", parts="real", verdict="host", cause="preload-interference")
def real_dlopen_wrapper(scene: Scene) -> None:
    _cudnn(scene)
    scene.env["LD_PRELOAD"] = str(scene.build.wrapper())


def real_driver_alone(scene: Scene, branch: str) -> None:
    """NVIDIA's own driver libraries on the loader's path, on a machine without a GPU."""
    _cudnn(scene)
    scene.search(real_driver(branch))
    scene.command = without_nodes(scene.venv / "bin" / "python", scene.probe)


@fault("NVIDIA's driver 470 without a device", parts="real", verdict="host", cause="no-device")
def real_driver_470_without_a_device(scene: Scene) -> None:
    real_driver_alone(scene, "470")


@fault("NVIDIA's driver 535 without a device", parts="real", verdict="host", cause="no-device")
def real_driver_535_without_a_device(scene: Scene) -> None:
    real_driver_alone(scene, "535")


@fault("a driver too old for cuDNN's CUDA", parts="real", verdict="host", cause="driver-too-old")
def real_driver_too_old(scene: Scene) -> None:
    _cudnn(scene)
    scene.driver(driver=11080)


@fault(
    "a GPU that real cuDNN finds no driver for", parts="real", verdict="host", cause="driver-library-mismatch"
)
def real_driver_library_mismatch(scene: Scene) -> None:
    _cudnn(scene)
    scene.driver("cuInit=803")
