"""Faults that only a framework shows: a fake PyTorch over a fake driver and a fake cuDNN that are sound."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fault_list import add, fault

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


def _told(
    name: str, title: str, verdict: str, cause: str, *, capability: int = 90, **behaviour: object
) -> None:
    add(name, title, verdict, cause, lambda scene: _torch_on_a_gpu(scene, capability=capability, **behaviour))


_STATUS = "cuDNN+error:+CUDNN_STATUS_"
_told(
    "told-incompatible-driver",
    "PyTorch tells of an incompatible driver (3005)",
    "host",
    "driver-too-old",
    conv=_STATUS + "NOT_SUPPORTED_INCOMPATIBLE_CUDA_DRIVER",
)
_told(
    "told-prerequisite",
    "PyTorch tells of a missing run-time compiler",
    "broken",
    "nvrtc-missing",
    conv=_STATUS + "NOT_SUPPORTED_RUNTIME_PREREQUISITE_MISSING",
)
_told(
    "told-loading-failed",
    "PyTorch tells that a part cannot be loaded",
    "broken",
    "cudnn-sublibrary-missing",
    conv=_STATUS + "SUBLIBRARY_LOADING_FAILED",
)
_told(
    "told-two-versions",
    "PyTorch tells of parts of two versions",
    "broken",
    "cudnn-sublibrary-mismatch",
    conv=_STATUS + "SUBLIBRARY_VERSION_MISMATCH",
)
_told(
    "told-no-host-memory",
    "PyTorch tells that the host gave no memory",
    "host",
    "host-memory",
    conv=_STATUS + "INTERNAL_ERROR_HOST_ALLOCATION_FAILED",
)
_told(
    "told-arch-mismatch",
    "PyTorch tells of an architecture",
    "unsupported-gpu",
    "cudnn-arch-dropped",
    conv=_STATUS + "NOT_SUPPORTED_ARCH_MISMATCH",
)
_told(
    "told-sm-too-old",
    "PyTorch refuses its cuDNN for an old card",
    "unsupported-gpu",
    "cudnn-arch-dropped",
    conv="cuDNN+is+not+compatible+with+devices+with+SM+<+7.5",
)
_told(
    "told-not-supported",
    "a convolution that is not supported",
    "broken",
    "execution-failed",
    conv=_STATUS + "NOT_SUPPORTED",
)
_told(
    "told-illegal-access",
    "an illegal access in a convolution",
    "broken",
    "execution-failed",
    conv="CUDA+error:+an+illegal+memory+access+was+encountered",
)
_told(
    "fused-fails",
    "only the fused convolution fails",
    "broken",
    "execution-failed",
    fused=_STATUS + "EXECUTION_FAILED",
)
_told(
    "training-fails", "only training fails", "broken", "execution-failed", train=_STATUS + "EXECUTION_FAILED"
)
_told("training-aborts", "training kills the process", "broken", "crash", train="abort")
_told("convolution-of-a-framework-aborts", "a convolution kills the process", "broken", "crash", conv="abort")
_told("convolution-leaves", "a convolution leaves with status 0", "broken", "crash", conv="exit")
_told(
    "training-without-kernels-for-it",
    "training has no kernel image",
    "unsupported-gpu",
    "framework-arch-missing",
    train="no+kernel+image+is+available+for+execution+on+the+device",
)
_told(
    "blackwell-without-kernels",
    "a wheel up to sm_90 on compute capability 12.0",
    "unsupported-gpu",
    "framework-arch-missing",
    capability=120,
    archs="sm_80+sm_90",
)
_told(
    "ptx-of-a-newer-card",
    "PTX for a newer card than this one",
    "unsupported-gpu",
    "framework-arch-missing",
    capability=80,
    archs="sm_70+compute_90",
)
_told(
    "torch-1.8.0-on-turing",
    "PyTorch 1.8.0 for CUDA 10.2 on a T4",
    "unsupported-gpu",
    "framework-known-bad",
    capability=75,
    archs="sm_70+sm_75",
    version="1.8.0",
    cuda="10.2",
    train="CUDA+error:+CUBLAS_STATUS_INTERNAL_ERROR+when+calling+`cublasCreate(handle)`",
)
_told(
    "torch-1.8.1-on-pascal",
    "PyTorch 1.8.1 for CUDA 11.1 on a P100",
    "unsupported-gpu",
    "framework-known-bad",
    capability=60,
    archs="sm_60+sm_70",
    version="1.8.1",
    cuda="11.1",
    train="CUDA+error:+CUBLAS_STATUS_EXECUTION_FAILED+when+calling+`cublasSgemm(...)`",
)
_told(
    "the-same-on-another-card",
    "the exception of PyTorch 1.8.0 on a card that it serves",
    "broken",
    "execution-failed",
    capability=60,
    archs="sm_60+sm_70",
    version="1.8.0",
    cuda="10.2",
    train="CUDA+error:+CUBLAS_STATUS_INTERNAL_ERROR+when+calling+`cublasCreate(handle)`",
)


@fault("training out of memory, where little is free", verdict="busy", cause="out-of-memory")
def training_out_of_memory(scene: Scene) -> None:
    _torch_on_a_gpu(scene, train="CUDA+out+of+memory.")
    scene.env["RTBUILD_DOUBLE_FREE"] = str(200 << 20)


def _import(name: str, title: str, verdict: str, cause: str, text: str) -> None:
    def prepare(scene: Scene) -> None:
        scene.cudnn()
        scene.framework("torch", **{"import": text.replace(" ", "+")})

    add(name, title, verdict, cause, prepare)


_OPEN = "cannot open shared object file: No such file or directory"
_import(
    "import-wants-cublas",
    "an import that wants cuBLAS",
    "broken",
    "toolkit-library-missing",
    f"libcublas.so.12: {_OPEN}",
)
_import(
    "import-wants-nvrtc", "an import that wants NVRTC", "broken", "nvrtc-missing", f"libnvrtc.so.12: {_OPEN}"
)
_import(
    "import-wants-a-part",
    "an import that wants a part of cuDNN 8",
    "broken",
    "cudnn-sublibrary-missing",
    f"libcudnn_ops_infer.so.8: {_OPEN}",
)
_import(
    "import-wants-cudnn", "an import that wants cuDNN 8", "broken", "cudnn-missing", f"libcudnn.so.8: {_OPEN}"
)
_import(
    "import-wants-gomp",
    "an import that wants libgomp",
    "broken",
    "system-library-missing",
    f"libgomp-of-nowhere.so.1: {_OPEN}",
)
_import("import-gets-no-memory", "an import that gets no memory", "host", "host-memory", "std::bad_alloc")
_import(
    "import-gets-no-thread", "an import that gets no thread", "host", "host-memory", "can't start new thread"
)
_import(
    "import-may-not-read",
    "an import that may not read a file of its own",
    "broken",
    "file-access-denied",
    "[Errno 13] Permission denied: '/opt/model/config.json'",
)
_import("import-aborts", "an import that aborts", "broken", "crash", "abort")
_import("import-leaves", "an import that leaves with status 0", "broken", "crash", "exit")
_import(
    "import-of-numpy-fails",
    "an import that fails over NumPy's ABI",
    "broken",
    "framework-import",
    "numpy.dtype size changed may indicate binary incompatibility",
)


@fault("an import that does not come back", verdict="broken", cause="hang")
def import_hangs(scene: Scene) -> None:
    scene.cudnn()
    scene.framework("torch", **{"import": "hang"})
    scene.args += ["--timeout", "2"]


@fault("cuDNN 9.10.0 under cuDNN's own test", verdict="broken", cause="cudnn-known-bad")
def cudnn_known_bad_alone(scene: Scene) -> None:
    scene.cudnn("9.10.0")
    scene.driver()


@fault("a patch that differs, under --strict", verdict="broken", cause="cudnn-not-equal")
def cudnn_patch_not_equal(scene: Scene) -> None:
    scene.cudnn("9.1.1")
    scene.framework("torch", cudnn="9.1.1", compiled="9.1.0")
    scene.args.append("--strict")


@fault("PyTorch for cuDNN 8 over cuDNN 9", verdict="broken", cause="cudnn-major-mismatch")
def cudnn_newer_major(scene: Scene) -> None:
    scene.cudnn()
    scene.framework("torch", cudnn="9.10.2", compiled="8.9.2")


@fault("cuDNN 8.0 under a build for 8.1", verdict="broken", cause="cudnn-too-old")
def cudnn_8_too_old(scene: Scene) -> None:
    scene.cudnn("8.5.0")
    scene.framework("torch", cudnn="8.5.0", compiled="8.9.2", cuda="12.1")
