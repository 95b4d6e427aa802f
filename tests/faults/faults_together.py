"""Faults of frameworks in one process: each is sound alone, and the second gets what the first has loaded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fault_list import fault

if TYPE_CHECKING:
    from fault_scene import Scene


def two_frameworks(scene: Scene, first: str, second: str) -> None:
    """PyTorch with one cuDNN, Paddle with another, each by its own run path."""
    scene.framework("torch", cudnn=first, compiled="9.1.0")
    scene.framework("paddle")
    scene.links("torch/lib/libtorch_cuda.so", scene.cudnn(first, into=scene.folder("opt/a")))
    scene.links("paddle/libs/libdouble.so", scene.cudnn(second, into=scene.folder("opt/b")))


@fault("two copies of cuDNN, the older one too old", verdict="broken", cause="import-order-conflict")
def second_import_gets_the_older_cudnn(scene: Scene) -> None:
    two_frameworks(scene, "9.10.2", "9.0.0")


@fault("two copies whose order decides, under --strict", verdict="broken", cause="import-order-conflict")
def order_decides_under_strict(scene: Scene) -> None:
    two_frameworks(scene, "9.1.0", "9.1.1")
    scene.args.append("--strict")


@fault("an import that fails only after another one", verdict="broken", cause="import-order-conflict")
def import_fails_after_another(scene: Scene) -> None:
    two_frameworks(scene, "9.10.2", "9.10.2")
    package = scene.site / "paddle" / "__init__.py"
    text = (
        "import sys\nif 'torch' in sys.modules:\n    raise ImportError('generic_type: already registered')\n"
    )
    content = package.read_text()
    package.unlink()
    package.write_text(content + text)
