"""Faults of the driver and the device, with a stub in the place of libcuda."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fault_list import add, fault

if TYPE_CHECKING:
    from collections.abc import Callable

    from fault_scene import Scene


def _with_cudnn(scene: Scene, faults: str = "", **settings: object) -> None:
    scene.cudnn()
    scene.driver(faults, **settings)


@fault("a stub that was made for linking answers", verdict="broken", cause="driver-stub")
def stub_driver_answers(scene: Scene) -> None:
    _with_cudnn(scene, "cuInit=34")


@fault("a folder of stubs on the loader's path", verdict="broken", cause="driver-stub")
def stubs_on_the_path(scene: Scene) -> None:
    scene.cudnn()
    stubs = scene.folder("usr/local/cuda/lib64/stubs")
    (stubs / "libcuda.so.1").hardlink_to(scene.build.driver() / "libcuda.so.1")
    scene.search(stubs)
    scene.env["RTBUILD_DOUBLE_CUDA"] = "cuInit=34"


@fault("the driver finds no GPU", verdict="host", cause="no-device")
def driver_without_a_device(scene: Scene) -> None:
    _with_cudnn(scene, "cuInit=100")


@fault("CUDA_VISIBLE_DEVICES hides the GPU", verdict="host", cause="device-hidden")
def device_hidden(scene: Scene) -> None:
    _with_cudnn(scene)
    scene.env["CUDA_VISIBLE_DEVICES"] = ""


@fault("the fabric manager is not running", verdict="host", cause="fabric-not-ready")
def fabric_not_ready(scene: Scene) -> None:
    _with_cudnn(scene, "cuInit=802")


@fault("libcuda and kernel module of two versions", verdict="host", cause="driver-library-mismatch")
def driver_library_mismatch(scene: Scene) -> None:
    _with_cudnn(scene, "cuInit=803")


@fault("forward compatibility on a GPU that has none", verdict="unsupported-gpu", cause="compat-unsupported")
def compat_on_a_consumer_gpu(scene: Scene) -> None:
    _with_cudnn(scene, "cuInit=804")


@fault("/dev/nvidia-uvm is missing", verdict="host", cause="device-node-missing")
def device_node_missing(scene: Scene) -> None:
    _with_cudnn(scene, "cuInit=999")


@fault("a driver older than the CUDA that cuDNN was built for", verdict="host", cause="driver-too-old")
def driver_too_old(scene: Scene) -> None:
    _with_cudnn(scene, driver=11080)


@fault("a GPU in exclusive mode that another process has", verdict="busy", cause="device-busy")
def device_busy(scene: Scene) -> None:
    _with_cudnn(scene, "cuDevicePrimaryCtxRetain=46", mode=3)


@fault("no memory left for a context", verdict="busy", cause="out-of-memory")
def memory_full(scene: Scene) -> None:
    _with_cudnn(scene, "cuDevicePrimaryCtxRetain=2")


@fault("the driver hangs", verdict="host", cause="hang")
def driver_hangs(scene: Scene) -> None:
    _with_cudnn(scene, "cuInit=hang")
    scene.args += ["--timeout", "2"]


def _family(
    name: str, title: str, cause: str, faults: str, verdict: str = "host", **settings: object
) -> None:
    add(name, title, verdict, cause, lambda scene: _with_cudnn(scene, faults, **settings))


_family("driver-crashes", "the driver kills the process", "crash", "cuInit=segv")
_family("no-device-counted", "cuInit succeeds and the driver counts no device", "no-device", "", devices=0)
_family("prohibited", "a GPU in compute mode PROHIBITED", "device-busy", "", "busy", mode=2)
_family(
    "exclusive-taken",
    "an exclusive GPU that is no valid device now",
    "device-busy",
    "cuDevicePrimaryCtxRetain=101",
    "busy",
    mode=3,
)
_family("busy-at-start", "the device is unavailable at cuInit", "device-busy", "cuInit=46", "busy")
_family("memory-full-at-start", "no memory left at cuInit", "out-of-memory", "cuInit=2", "busy")
_family("allocation-refused", "a context, and no MiB of memory", "out-of-memory", "cuMemAlloc_v2=2", "busy")
_family("upload-fails", "a copy to the GPU fails", "driver-error", "cuMemcpyHtoD_v2=719")
_family("download-fails", "a copy from the GPU fails", "driver-error", "cuMemcpyDtoH_v2=999")
_family("context-not-current", "the context cannot be made current", "driver-error", "cuCtxSetCurrent=201")
_family("start-unknown", "cuInit returns a number without a meaning", "driver-error", "cuInit=304")
_family("context-hangs", "a context that never comes", "hang", "cuDevicePrimaryCtxRetain=hang")
_family("too-old-for-cuda-12-by-far", "a driver of CUDA 10 under CUDA 12", "driver-too-old", "", driver=10020)


@fault("CUDA_VISIBLE_DEVICES=-1 hides the GPU", verdict="host", cause="device-hidden")
def device_hidden_by_minus_one(scene: Scene) -> None:
    _with_cudnn(scene)
    scene.env["CUDA_VISIBLE_DEVICES"] = "-1"


@fault("a driver for CUDA 12 under cuDNN for CUDA 13", verdict="host", cause="driver-too-old")
def driver_too_old_for_cuda_13(scene: Scene) -> None:
    scene.cudnn("9.15.1", flavour=13)
    scene.driver()


@fault("a driver older than the image's CUDA_VERSION", verdict="host", cause="driver-too-old")
def driver_too_old_for_the_base(scene: Scene) -> None:
    scene.search(scene.cudnn(into=scene.folder("opt/cudnn/lib")))
    scene.driver(driver=11080)
    scene.env["CUDA_VERSION"] = "12.4.1"


@fault(
    "cuda-compat beside another driver than its own",
    verdict="unsupported-gpu",
    cause="compat-unsupported",
)
def compat_beside_another_driver(scene: Scene) -> None:
    scene.cudnn()
    compat = scene.folder("usr/local/cuda-12.4/compat")
    (compat / "libcuda.so.1").hardlink_to(scene.build.driver() / "libcuda.so.1")
    scene.search(compat)
    scene.env["RTBUILD_DOUBLE_CUDA"] = "cuInit=803"


def _library(name: str, title: str, change: Callable[[bytes], bytes]) -> None:
    def prepare(scene: Scene) -> None:
        scene.cudnn()
        data = (scene.build.driver() / "libcuda.so.1").read_bytes()
        (scene.folder("driver") / "libcuda.so.1").write_bytes(change(data))
        scene.search(scene.folder("driver"))

    add(name, title, "host", "driver-error", prepare)


_library("driver-cut", "libcuda.so.1 cut in the middle", lambda data: data[: len(data) // 2])
_library("driver-empty", "an empty libcuda.so.1", lambda data: data[:0])
_library("driver-is-text", "a text in the place of libcuda.so.1", lambda data: b"driver\n" * (len(data) > 0))
_library("driver-of-32-bits", "a 32-bit libcuda.so.1", lambda data: data[:4] + b"\x01" + data[5:])


@fault("a libcuda.so.1 without the driver's functions", verdict="host", cause="driver-error")
def driver_without_functions(scene: Scene) -> None:
    scene.cudnn()
    scene.search(scene.build.toolkit("libcuda.so.1").parent)
