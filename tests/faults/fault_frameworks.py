"""Real frameworks, installed once into the cache; PyTorch alone needs its CUDA libraries to be imported."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING

from uv import find_uv_bin

from builder.core import resources

if TYPE_CHECKING:
    from pathlib import Path

PYTHON = "3.11"
_FRAMEWORKS = {
    "torch": ("torch==2.6.0", "torchvision==0.21.0", "numpy", "setuptools"),
    "tensorflow": ("tensorflow==2.18.0",),
    "jax": ("jax==0.6.2", "jaxlib==0.6.2", "jax-cuda12-plugin==0.6.2", "jax-cuda12-pjrt==0.6.2"),
    "onnxruntime": ("onnxruntime-gpu==1.22.0",),
    "cupy": ("cupy-cuda12x==13.4.1",),
    "ctranslate2": ("ctranslate2==4.6.0", "setuptools"),
    "paddle": ("paddlepaddle==3.2.0", "setuptools"),
}


def framework_tree(name: str) -> Path:
    """A folder like site-packages with this framework and what it needs of Python."""
    target = resources.cache() / "test-frameworks" / f"{name}-py{PYTHON}"
    if not target.is_dir():
        half = target.with_name(target.name + ".part")
        shutil.rmtree(half, ignore_errors=True)
        command = [find_uv_bin(), "pip", "install", "--quiet", "--no-cache", "--only-binary", ":all:"]
        command += ["--python-version", PYTHON, "--target", str(half), *_FRAMEWORKS[name]]
        subprocess.run(command, check=True)
        half.rename(target)
    return target
