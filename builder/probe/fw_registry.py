"""The frameworks by the name of their stage."""

from .fw_ctranslate2 import Ctranslate2
from .fw_cupy import Cupy
from .fw_jax import Jax
from .fw_onnxruntime import Onnxruntime
from .fw_paddle import Paddle
from .fw_tensorflow import Tensorflow
from .fw_torch import Torch


def framework_by_stage(name, ctx):
    """A fresh object for the framework whose stage has this name."""
    known = {kind.name: kind for kind in (Torch, Tensorflow, Jax, Cupy, Onnxruntime, Paddle, Ctranslate2)}
    return known[name](ctx)
