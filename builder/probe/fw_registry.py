"""The frameworks, each of which is a stage."""

from .fw_common import check_framework
from .fw_ctranslate2 import Ctranslate2
from .fw_cupy import Cupy
from .fw_jax import Jax
from .fw_judge import judge_framework
from .fw_onnxruntime import Onnxruntime
from .fw_paddle import Paddle
from .fw_tensorflow import Tensorflow
from .fw_torch import Torch
from .protocol import stage

FRAMEWORKS = {kind.name: kind for kind in (Torch, Tensorflow, Jax, Cupy, Onnxruntime, Paddle, Ctranslate2)}


def framework_by_stage(name, ctx):
    """A fresh object for the framework whose stage has this name."""
    return FRAMEWORKS[name](ctx)


def framework_stage(ctx):
    check_framework(ctx, framework_by_stage(ctx.stage, ctx))


for _kind in FRAMEWORKS.values():
    stage(_kind.name, "framework", 300, _kind.module, judge=judge_framework)(framework_stage)
