"""Faults that real frameworks do not tell, or not in plain words: TensorFlow, JAX, ONNX Runtime, CuPy."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from fault_frameworks import framework_tree
from fault_list import fault
from fault_scene import link_tree, replace

if TYPE_CHECKING:
    from pathlib import Path

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


@fault("JAX without its PJRT half", parts="framework", verdict="broken", cause="package-pin-mismatch")
def jax_without_pjrt(scene: Scene) -> None:
    _jax(scene)
    for path in scene.site.glob("jax_cuda12_pjrt*"):
        shutil.rmtree(path)
    shutil.rmtree(scene.site / "jax_plugins")


def _jax(scene: Scene) -> None:
    install(scene, "jax")
    scene.wheel("cudnn-9.10.2")
    _toolkit(scene)


@fault("JAX's plug-in cut in the middle", parts="framework", verdict="broken", cause="package-overwritten")
def jax_plugin_cut(scene: Scene) -> None:
    _jax(scene)
    path = scene.site / "jax_plugins" / "xla_cuda12" / "xla_cuda_plugin.so"
    replace(path, path.read_bytes()[: 40 << 20])


@fault(
    "a plug-in that jaxlib says it will not use",
    parts="framework",
    verdict="broken",
    cause="package-pin-mismatch",
)
def jax_plugin_refused(scene: Scene) -> None:
    _jax(scene)
    path = scene.site / "jax_cuda12_plugin" / "version.py"
    replace(path, path.read_bytes().replace(b"0.6.2", b"0.6.1"))


@fault("JAX_PLATFORMS=cpu", parts="framework", verdict="broken", cause="framework-silent-cpu")
def jax_told_to_use_the_cpu(scene: Scene) -> None:
    _jax(scene)
    scene.env["JAX_PLATFORMS"] = "cpu"


@fault(
    "an unknown flag for XLA, under JAX",
    parts="framework",
    verdict="broken",
    cause="variable-breaks-framework",
)
def jax_unknown_flag(scene: Scene) -> None:
    _jax(scene)
    scene.env["XLA_FLAGS"] = "--xla_no_such_flag=1"


def _onnxruntime(scene: Scene) -> Path:
    install(scene, "onnxruntime")
    scene.wheel("cudnn-9.10.2")
    _toolkit(scene)
    return scene.site / "onnxruntime" / "capi"


@fault(
    "ONNX Runtime without its shared provider",
    parts="framework",
    verdict="broken",
    cause="package-overwritten",
)
def onnxruntime_without_the_shared_provider(scene: Scene) -> None:
    (_onnxruntime(scene) / "libonnxruntime_providers_shared.so").unlink()


@fault(
    "ONNX Runtime without its CUDA provider", parts="framework", verdict="broken", cause="package-overwritten"
)
def onnxruntime_without_the_cuda_provider(scene: Scene) -> None:
    (_onnxruntime(scene) / "libonnxruntime_providers_cuda.so").unlink()


@fault(
    "a hole in ONNX Runtime's CUDA provider", parts="framework", verdict="broken", cause="package-overwritten"
)
def onnxruntime_provider_with_a_hole(scene: Scene) -> None:
    path = _onnxruntime(scene) / "libonnxruntime_providers_cuda.so"
    data = path.read_bytes()
    middle = len(data) // 2
    replace(path, data[:middle] + bytes(1 << 20) + data[middle + (1 << 20) :])


@fault(
    "an unknown flag for XLA, under TensorFlow",
    parts="framework",
    verdict="broken",
    cause="variable-breaks-framework",
)
def tensorflow_unknown_flag(scene: Scene) -> None:
    install(scene, "tensorflow")
    scene.wheel("cudnn-9.10.2")
    _toolkit(scene)
    scene.env["XLA_FLAGS"] = "--xla_no_such_flag=1"


@fault("TensorFlow without Keras", parts="framework", verdict="broken", cause="package-pin-mismatch")
def tensorflow_without_keras(scene: Scene) -> None:
    install(scene, "tensorflow")
    for path in scene.site.glob("keras*"):
        shutil.rmtree(path)


@fault("NumPy without OpenBLAS", parts="framework", verdict="broken", cause="package-overwritten")
def numpy_without_openblas(scene: Scene) -> None:
    _jax(scene)
    for path in scene.site.glob("numpy.libs/*openblas*"):
        path.unlink()


@fault("CTranslate2 beside cuDNN 8 only", parts="framework", verdict="broken", cause="cudnn-major-mismatch")
def ctranslate2_beside_cudnn_8(scene: Scene) -> None:
    install(scene, "ctranslate2")
    for name in ("cudnn-8.9.7", "cublas", "nvrtc"):
        scene.wheel(name)
    scene.search(*sorted((scene.site / "nvidia").glob("*/lib")))


@fault(
    "CTranslate2 without cuBLAS, which it finds in no wheel",
    parts="framework",
    verdict="broken",
    cause="toolkit-library-missing",
)
def ctranslate2_without_cublas(scene: Scene) -> None:
    install(scene, "ctranslate2")
    scene.wheel("cudnn-9.10.2")


@fault("CTranslate2 without its library", parts="framework", verdict="broken", cause="package-overwritten")
def ctranslate2_without_its_library(scene: Scene) -> None:
    install(scene, "ctranslate2")
    for path in scene.site.glob("ctranslate2.libs/libctranslate2-*"):
        path.unlink()
