"""Faults that real frameworks do not tell, or not in plain words: TensorFlow, JAX, ONNX Runtime, CuPy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fault_frameworks import framework_tree
from fault_list import fault
from fault_scene import link_tree

if TYPE_CHECKING:
    from fault_scene import Scene

_TOOLKIT = (
    "cublas/libcublas.so.12",
    "cublas/libcublasLt.so.12",
    "cufft/libcufft.so.11",
    "cupti/libcupti.so.12",
)
_TOOLKIT += ("cusolver/libcusolver.so.11", "cusparse/libcusparse.so.12", "curand/libcurand.so.10")


def install(scene: Scene, name: str) -> None:
    link_tree(framework_tree(name), scene.site)


def _toolkit(scene: Scene) -> None:
    """Doubles of the libraries that are only opened, and the real CUDA runtime, which is called."""
    scene.wheel("cudart")
    scene.wheel("nvrtc")
    for name in _TOOLKIT:
        package, library = name.split("/")
        folder = scene.folder(f"venv/lib/python3.11/site-packages/nvidia/{package}/lib")
        if not (folder / library).exists():
            (folder / library).hardlink_to(scene.build.toolkit(library))
    scene.search(*sorted((scene.site / "nvidia").glob("*/lib")))


@fault(
    "TensorFlow without cuDNN: the CPU, without an error",
    parts="framework",
    verdict="broken",
    cause="cudnn-missing",
)
def tensorflow_alone(scene: Scene) -> None:
    install(scene, "tensorflow")


@fault("TensorFlow 2.18 (9.3) over cuDNN 9.1", parts="framework", verdict="broken", cause="cudnn-too-old")
def tensorflow_over_an_older_cudnn(scene: Scene) -> None:
    install(scene, "tensorflow")
    scene.wheel("cudnn-9.1.0")
    _toolkit(scene)


@fault("TensorFlow 2.18 over cuDNN 8", parts="framework", verdict="broken", cause="cudnn-major-mismatch")
def tensorflow_over_cudnn_8(scene: Scene) -> None:
    install(scene, "tensorflow")
    scene.wheel("cudnn-8.9.7")
    _toolkit(scene)


@fault(
    "JAX without cuDNN: the CPU, after a log line", parts="framework", verdict="broken", cause="cudnn-missing"
)
def jax_alone(scene: Scene) -> None:
    install(scene, "jax")


@fault(
    "JAX 0.6.2 (9.8) over cuDNN 9.1, which it accepts itself",
    parts="framework",
    verdict="broken",
    cause="cudnn-too-old",
)
def jax_over_an_older_cudnn(scene: Scene) -> None:
    install(scene, "jax")
    scene.wheel("cudnn-9.1.0")
    _toolkit(scene)


@fault(
    "ONNX Runtime without cuDNN: the CPU, after a log line",
    parts="framework",
    verdict="broken",
    cause="cudnn-missing",
)
def onnxruntime_alone(scene: Scene) -> None:
    install(scene, "onnxruntime")


@fault("CuPy without the CUDA runtime", parts="framework", verdict="broken", cause="toolkit-library-missing")
def cupy_alone(scene: Scene) -> None:
    install(scene, "cupy")


@fault(
    "CuPy beside cuDNN 9, where it opens libcudnn.so.8", parts="framework", verdict="unverified", cause=None
)
def cupy_without_its_cudnn(scene: Scene) -> None:
    """No fault: CuPy's cuDNN is an extra, and its absence is a remark. Nothing may be made of it."""
    install(scene, "cupy")
    scene.wheel("cudnn-9.10.2")
    scene.wheel("cublas")
    _toolkit(scene)


@fault("Paddle, a build for the CPU", parts="framework", verdict="broken", cause="framework-cpu-build")
def paddle_cpu_build(scene: Scene) -> None:
    install(scene, "paddle")
