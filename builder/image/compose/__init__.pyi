from .compose import ComposedImage, compose_image
from .differ import ImageDifference, compare
from .layer_build import MissingLayers
from .layer_plan import Elsewhere, Plan, layer_keys_of, plan, python_key, ready_wheels
from .layer_stream import LayerSink, LayersReady
from .pythons import FOLDER, Pythons
from .rootfs import cached_rootfs, rootfs_key
from .run_steps import Assembly, Workbench
from .sizes import BASE_UNPACKED, DEB_UNPACKED, UNPACKED, CellSize, LayerSize, measure
from .step_runners import StepRunner, step_runner

__all__ = [
    "BASE_UNPACKED",
    "DEB_UNPACKED",
    "FOLDER",
    "UNPACKED",
    "Assembly",
    "CellSize",
    "ComposedImage",
    "Elsewhere",
    "ImageDifference",
    "LayerSink",
    "LayerSize",
    "LayersReady",
    "MissingLayers",
    "Plan",
    "Pythons",
    "StepRunner",
    "Workbench",
    "cached_rootfs",
    "compare",
    "compose_image",
    "layer_keys_of",
    "measure",
    "plan",
    "python_key",
    "ready_wheels",
    "rootfs_key",
    "step_runner",
]
