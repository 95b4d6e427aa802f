from .cell_layers import (
    BaseLayers,
    LayerBuild,
    Plan,
    SystemLayers,
    layer_keys_of,
    plan,
    python_key,
)
from .compose import ComposedImage, compose_image
from .pythons import FOLDER, Pythons
from .rootfs import cached_rootfs, lacks_for_rootfs, rootfs_key
from .run_steps import BaseCache, ComposeInput
from .sizes import CellSize, LayerSize, check_room, measure
from .step_runners import StepRunner, step_runner

__all__ = [
    "FOLDER",
    "BaseCache",
    "BaseLayers",
    "CellSize",
    "ComposeInput",
    "ComposedImage",
    "LayerBuild",
    "LayerSize",
    "Plan",
    "Pythons",
    "StepRunner",
    "SystemLayers",
    "cached_rootfs",
    "check_room",
    "compose_image",
    "lacks_for_rootfs",
    "layer_keys_of",
    "measure",
    "plan",
    "python_key",
    "rootfs_key",
    "step_runner",
]
