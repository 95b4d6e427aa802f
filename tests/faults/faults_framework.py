"""Faults that only a framework shows: a fake PyTorch over a fake driver and a fake cuDNN that are sound."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fault_list import fault

if TYPE_CHECKING:
    from fault_scene import Scene


def _torch_on_a_gpu(scene: Scene, *, capability: int = 90, **behaviour: object) -> None:
    scene.cudnn()
    scene.driver(capability=capability)
    scene.framework("torch", **behaviour)


@fault("a build for the CPU", verdict="broken", cause="framework-cpu-build")
def cpu_build(scene: Scene) -> None:
    scene.framework("torch", cuda="none")


@fault("an import that fails", verdict="broken", cause="framework-import")
def import_fails(scene: Scene) -> None:
    scene.framework("torch", **{"import": "partially+initialized+module"})


@fault("a GPU works and the framework sees none", verdict="broken", cause="framework-silent-cpu")
def framework_sees_no_gpu(scene: Scene) -> None:
    _torch_on_a_gpu(scene, gpus=0)


@fault("results on the CPU without an error", verdict="broken", cause="framework-silent-cpu")
def result_on_the_cpu(scene: Scene) -> None:
    _torch_on_a_gpu(scene, device="cpu")


@fault(
    "training on the CPU although convolutions were on the GPU",
    verdict="broken",
    cause="framework-silent-cpu",
)
def training_on_the_cpu(scene: Scene) -> None:
    _torch_on_a_gpu(scene, train_device="cpu")


@fault("a wheel without kernels for this GPU", verdict="unsupported-gpu", cause="framework-arch-missing")
def no_kernels_for_this_gpu(scene: Scene) -> None:
    _torch_on_a_gpu(scene, capability=75, archs="sm_80+sm_90")


@fault(
    "machine code for another GPU only, with the suffix a",
    verdict="unsupported-gpu",
    cause="framework-arch-missing",
)
def kernels_of_one_gpu_only(scene: Scene) -> None:
    _torch_on_a_gpu(scene, capability=120, archs="sm_80+sm_100a")


@fault("a framework gives wrong numbers forward", verdict="broken", cause="wrong-result")
def framework_wrong_numbers(scene: Scene) -> None:
    _torch_on_a_gpu(scene, numbers="wrong")


@fault("a framework gives a wrong gradient only", verdict="broken", cause="wrong-result")
def framework_wrong_gradient(scene: Scene) -> None:
    _torch_on_a_gpu(scene, numbers="wrong-backward")


@fault("a framework gives not a number", verdict="broken", cause="wrong-result")
def framework_not_a_number(scene: Scene) -> None:
    _torch_on_a_gpu(scene, numbers="nan")


@fault("a loss that does not fall", verdict="broken", cause="training-loss")
def loss_is_flat(scene: Scene) -> None:
    _torch_on_a_gpu(scene, loss="flat")


@fault("a loss that is not a number", verdict="broken", cause="training-loss")
def loss_is_not_a_number(scene: Scene) -> None:
    _torch_on_a_gpu(scene, loss="nan")


@fault("training stops after the library has loaded", verdict="broken", cause="hang")
def training_hangs(scene: Scene) -> None:
    _torch_on_a_gpu(scene, train="hang")
    scene.args += ["--timeout", "4"]


@fault("the fused convolution kills the process", verdict="broken", cause="crash")
def fused_convolution_aborts(scene: Scene) -> None:
    _torch_on_a_gpu(scene, fused="abort")


@fault("a convolution that the framework cannot run", verdict="broken", cause="execution-failed")
def framework_execution_failed(scene: Scene) -> None:
    _torch_on_a_gpu(scene, conv="cuDNN+error:+CUDNN_STATUS_EXECUTION_FAILED")


@fault("loaded cuDNN older than the compiled one", verdict="broken", cause="cudnn-too-old")
def cudnn_too_old(scene: Scene) -> None:
    scene.cudnn("9.0.0")
    scene.framework("torch", cudnn="9.0.0", compiled="9.1.0")


@fault("loaded cuDNN of another major version", verdict="broken", cause="cudnn-major-mismatch")
def cudnn_of_another_major(scene: Scene) -> None:
    scene.cudnn("8.9.7")
    scene.framework("torch", cudnn="8.9.7", compiled="9.1.0")


@fault("a newer cuDNN than compiled, under --strict", verdict="broken", cause="cudnn-not-equal")
def cudnn_not_equal(scene: Scene) -> None:
    scene.cudnn()
    scene.framework("torch", cudnn="9.10.2", compiled="9.1.0")
    scene.args.append("--strict")


@fault("cuDNN 9.10.0, which broke its own compatibility", verdict="broken", cause="cudnn-known-bad")
def cudnn_known_bad(scene: Scene) -> None:
    scene.cudnn("9.10.0")
    scene.framework("torch", cudnn="9.10.0", compiled="9.8.0")


@fault("another framework version than the matrix asked for", verdict="broken", cause="expect-mismatch")
def framework_not_as_expected(scene: Scene) -> None:
    _torch_on_a_gpu(scene)
    scene.expect(cudnn="9.10.2", frameworks={"torch": "2.5.1"})


@fault("a framework out of memory, where little is free", verdict="busy", cause="out-of-memory")
def framework_out_of_memory(scene: Scene) -> None:
    _torch_on_a_gpu(scene, conv="CUDNN_STATUS_ALLOC_FAILED")
    scene.env["RTBUILD_DOUBLE_FREE"] = str(200 << 20)


@fault("NOT_INITIALIZED with memory to spare", verdict="broken", cause="execution-failed")
def framework_not_initialized(scene: Scene) -> None:
    _torch_on_a_gpu(scene, conv="cuDNN+error:+CUDNN_STATUS_NOT_INITIALIZED")


@fault(
    "no kernel image, which only the launch shows", verdict="unsupported-gpu", cause="framework-arch-missing"
)
def no_kernel_image(scene: Scene) -> None:
    _torch_on_a_gpu(scene, conv="no+kernel+image+is+available+for+execution+on+the+device")


@fault("PTX from a newer CUDA than the driver's", verdict="host", cause="driver-too-old")
def ptx_too_new(scene: Scene) -> None:
    _torch_on_a_gpu(scene, conv="the+provided+PTX+was+compiled+with+an+unsupported+toolchain.", cuda="12.9")
