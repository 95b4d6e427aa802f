"""Faults of the convolution itself: a fake driver and a fake cuDNN that compute on the CPU and go wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fault_list import add, fault

if TYPE_CHECKING:
    from fault_scene import Scene


def _with_gpu(scene: Scene, faults: str, version: str = "9.10.2", **settings: object) -> None:
    scene.cudnn(version)
    scene.driver(**settings)
    scene.env["RTBUILD_DOUBLE_CUDNN"] = faults


@fault("forward convolution gives wrong numbers", verdict="broken", cause="wrong-result")
def wrong_forward(scene: Scene) -> None:
    _with_gpu(scene, "cudnnConvolutionForward=wrong")


@fault("the second of two cards gives wrong numbers", verdict="host", cause="driver-error")
def second_card_is_bad(scene: Scene) -> None:
    _with_gpu(scene, "", devices=2, bad_card=1)


for _direction in ("Forward", "BackwardData", "BackwardFilter"):
    for _name, _what in {
        "stale": "leaves the answer of the call before",
        "stored": "gives its first answer again and again",
        "first-wrong": "is wrong the first time and right the second",
        "nan": "gives one corner that is not a number",
        "unwritten": "writes nothing",
    }.items():
        add(
            f"{_name}-{_direction.lower()}",
            f"`cudnnConvolution{_direction}` {_what}",
            "broken",
            "wrong-result",
            lambda scene, what=f"cudnnConvolution{_direction}={_name}": _with_gpu(scene, what),
        )


@fault("only the gradient by the data is wrong", verdict="broken", cause="wrong-result")
def wrong_backward_data(scene: Scene) -> None:
    _with_gpu(scene, "cudnnConvolutionBackwardData=wrong", "8.9.7")


@fault("only the gradient by the filter is wrong", verdict="broken", cause="wrong-result")
def wrong_backward_filter(scene: Scene) -> None:
    _with_gpu(scene, "cudnnConvolutionBackwardFilter=wrong", "7.6.5")


@fault("an FFT that is off by more than rounding explains", verdict="broken", cause="wrong-result")
def off_by_more_than_rounding(scene: Scene) -> None:
    _with_gpu(scene, "", algorithm=5, rounding=0.2)


@fault("a direct algorithm that rounds", verdict="broken", cause="wrong-result")
def direct_algorithm_rounds(scene: Scene) -> None:
    _with_gpu(scene, "", algorithm=1, rounding=0.08)


@fault("a copy from the GPU comes back changed", verdict="host", cause="driver-error")
def wrong_copy(scene: Scene) -> None:
    scene.cudnn()
    scene.driver("cuMemcpyDtoH_v2=wrong")


@fault("cudnnCreate fails for want of memory", verdict="busy", cause="out-of-memory")
def handle_out_of_memory(scene: Scene) -> None:
    _with_gpu(scene, "cudnnCreate=4", "8.9.7", free=16 << 20)


@fault("memory for the convolution, none for its workspace", verdict="busy", cause="out-of-memory")
def workspace_out_of_memory(scene: Scene) -> None:
    faults = [f"cudnnConvolution{name}=4004" for name in ("Forward", "BackwardData", "BackwardFilter")]
    _with_gpu(scene, ",".join(faults), free=1 << 20)


@fault("a convolution that fails with no reason below it", verdict="broken", cause="execution-failed")
def execution_failed(scene: Scene) -> None:
    _with_gpu(scene, "cudnnConvolutionBackwardData=5003")


@fault("a second algorithm fails after the first one ran", verdict="broken", cause="execution-failed")
def one_algorithm_fails(scene: Scene) -> None:
    _with_gpu(scene, "cudnnConvolutionForward#1=5000")


@fault("only the training algorithm fails, in cuDNN 8", verdict="broken", cause="execution-failed")
def one_algorithm_fails_8(scene: Scene) -> None:
    _with_gpu(scene, "cudnnConvolutionBackwardFilter#1=8", "8.9.7")


@fault("an algorithm's internal error with memory to spare", verdict="broken", cause="execution-failed")
def one_algorithm_has_an_internal_error(scene: Scene) -> None:
    _with_gpu(scene, "cudnnConvolutionBackwardData#1=4000")


@fault("the heuristics fail", verdict="broken", cause="execution-failed")
def heuristics_fail(scene: Scene) -> None:
    _with_gpu(scene, "cudnnGetConvolutionForwardAlgorithm_v7=5001")


@fault("no algorithm supports the convolution", verdict="broken", cause="execution-failed")
def nothing_supported(scene: Scene) -> None:
    _with_gpu(scene, "cudnnConvolutionForward=3000")


@fault("cudnnCreate says that the driver is too old", verdict="host", cause="driver-too-old")
def handle_wants_a_newer_driver(scene: Scene) -> None:
    _with_gpu(scene, "cudnnCreate=3005")


@fault("cudnnCreate says that the CUDA runtime does not fit", verdict="broken", cause="cudnn-cuda-flavour")
def handle_wants_another_runtime(scene: Scene) -> None:
    _with_gpu(scene, "cudnnCreate=3006")


@fault("cudnnCreate cannot load a part", verdict="broken", cause="cudnn-sublibrary-missing")
def handle_cannot_load_a_part(scene: Scene) -> None:
    _with_gpu(scene, "cudnnCreate=1008")


@fault("cudnnCreate finds parts of two versions", verdict="broken", cause="cudnn-sublibrary-mismatch")
def handle_finds_two_versions(scene: Scene) -> None:
    _with_gpu(scene, "cudnnCreate=1002")


@fault("a convolution lacks the run-time compiler", verdict="broken", cause="nvrtc-missing")
def prerequisite_missing(scene: Scene) -> None:
    _with_gpu(scene, "cudnnConvolutionForward=11", "8.9.7")


@fault(
    "cuDNN 9 says that it has no kernels for this GPU", verdict="unsupported-gpu", cause="cudnn-arch-dropped"
)
def arch_mismatch_9(scene: Scene) -> None:
    _with_gpu(scene, "cudnnCreate=3007")


@fault(
    "cuDNN says that it has no kernels for this GPU", verdict="unsupported-gpu", cause="cudnn-arch-dropped"
)
def arch_mismatch(scene: Scene) -> None:
    _with_gpu(scene, "cudnnCreate=6", "8.9.7")


@fault("a GPU older than cuDNN 9.11 serves", verdict="unsupported-gpu", cause="cudnn-arch-dropped")
def gpu_too_old(scene: Scene) -> None:
    _with_gpu(scene, "", "9.11.0", capability=70)


@fault("a convolution that never ends", verdict="broken", cause="hang")
def convolution_hangs(scene: Scene) -> None:
    _with_gpu(scene, "cudnnConvolutionForward=hang")
    scene.args += ["--timeout", "3"]


@fault("a convolution that kills the process", verdict="broken", cause="crash")
def convolution_crashes(scene: Scene) -> None:
    _with_gpu(scene, "cudnnConvolutionBackwardFilter=segv")


@fault("cuDNN aborts as it creates a handle", verdict="broken", cause="crash")
def handle_aborts(scene: Scene) -> None:
    _with_gpu(scene, "cudnnCreate=abort")


def _family(
    name: str, title: str, verdict: str, cause: str, faults: str, version: str = "9.10.2", **settings: object
) -> None:
    add(name, title, verdict, cause, lambda scene: _with_gpu(scene, faults, version, **settings))


_FORWARD, _FILTER = "cudnnConvolutionForward", "cudnnConvolutionBackwardFilter"
_family("no-host-memory", "cudnnCreate gets no host memory (4003)", "host", "host-memory", "cudnnCreate=4003")
_family(
    "no-host-memory-later", "a convolution gets no host memory", "host", "host-memory", f"{_FORWARD}=4003"
)
_family(
    "nothing-compiles",
    "a kernel does not compile, without NVRTC (4001)",
    "broken",
    "nvrtc-missing",
    f"{_FORWARD}=4001",
)
_family(
    "prerequisite-missing-9", "no run-time compiler (3008)", "broken", "nvrtc-missing", f"{_FORWARD}=3008"
)
_family(
    "engines-unavailable",
    "no engine can be loaded (3009)",
    "broken",
    "cudnn-sublibrary-missing",
    f"{_FORWARD}=3009",
)
_family(
    "training-wants-a-newer-driver",
    "only the filter's gradient wants a newer driver (3005)",
    "host",
    "driver-too-old",
    f"{_FILTER}=3005",
)
_family(
    "training-without-kernels",
    "cuDNN 8 has kernels to infer and none to train",
    "unsupported-gpu",
    "cudnn-arch-dropped",
    f"{_FILTER}=6",
    "8.9.7",
)
_family(
    "device-memory-with-plenty",
    "device memory refused with plenty free (4004)",
    "broken",
    "execution-failed",
    f"{_FORWARD}=4004",
)
_family(
    "alloc-failed-with-plenty",
    "ALLOC_FAILED of cuDNN 8 with plenty free",
    "broken",
    "execution-failed",
    f"{_FORWARD}=2",
    "8.9.7",
)
_family(
    "driver-call-fails", "a call on the driver fails (5001)", "broken", "execution-failed", f"{_FORWARD}=5001"
)
_family("cublas-call-fails", "a call on cuBLAS fails (5002)", "broken", "execution-failed", f"{_FILTER}=5002")
_family(
    "execution-fails-8", "EXECUTION_FAILED of cuDNN 8", "broken", "execution-failed", f"{_FORWARD}=8", "8.9.7"
)
_family(
    "execution-fails-7", "EXECUTION_FAILED of cuDNN 7", "broken", "execution-failed", f"{_FORWARD}=8", "7.6.5"
)
_family("mapping-fails-7", "MAPPING_ERROR of cuDNN 7", "broken", "execution-failed", f"{_FILTER}=7", "7.6.5")
_family(
    "workspace-unknown",
    "the size of a workspace cannot be had",
    "broken",
    "execution-failed",
    "cudnnGetConvolutionBackwardDataWorkspaceSize=4000",
)
_family(
    "descriptor-refused",
    "a descriptor of the convolution is refused",
    "broken",
    "execution-failed",
    "cudnnSetConvolution2dDescriptor=2000",
)
_family("forward-aborts", "a forward convolution aborts", "broken", "crash", f"{_FORWARD}=abort")
_family("convolution-killed", "the kernel kills a convolution", "host", "host-memory", f"{_FORWARD}=kill")
_family(
    "heuristics-abort",
    "the heuristics abort",
    "broken",
    "crash",
    "cudnnGetConvolutionForwardAlgorithm_v7=abort",
)
_family(
    "wrong-forward-8", "cuDNN 8 gives wrong numbers", "broken", "wrong-result", f"{_FORWARD}=wrong", "8.9.7"
)
_family(
    "wrong-filter-9",
    "cuDNN 9 gives a wrong gradient by the filter",
    "broken",
    "wrong-result",
    f"{_FILTER}=wrong",
)
_family(
    "winograd-off",
    "a Winograd that is off by more than its bound",
    "broken",
    "wrong-result",
    "",
    algorithm=6,
    rounding=0.6,
)
_family(
    "volta-and-cudnn-9.15",
    "a V100 under cuDNN 9.15",
    "unsupported-gpu",
    "cudnn-arch-dropped",
    "",
    "9.15.1",
    capability=70,
)
_family(
    "pascal-and-cudnn-9.11",
    "a P100 under cuDNN 9.11",
    "unsupported-gpu",
    "cudnn-arch-dropped",
    "",
    "9.11.0",
    capability=60,
)
