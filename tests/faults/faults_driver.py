"""Faults of the driver and the device, with a stub in the place of libcuda."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fault_list import fault

if TYPE_CHECKING:
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
