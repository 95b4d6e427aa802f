"""Real parts: NVIDIA's wheels, downloaded once into the cache, of which only the libraries are kept."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING

from uv import find_uv_bin

from builder.core import resources

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True)
class RealWheel:
    requirement: str
    sha256: str
    python: str = "3.11"
    platform: str = "x86_64-manylinux_2_28"
    keep: tuple[str, ...] = ()
    """Globs of the files that are kept, below the folder it is unpacked into; all where empty."""


_CUDNN = ("nvidia/cudnn/lib/*", "*.dist-info/*")
WHEELS: dict[str, RealWheel] = {
    "cudnn-9.10.2": RealWheel(
        "nvidia-cudnn-cu12==9.10.2.21",
        "949452be657fa16687d0930933f032835951ef0892b37d2d53824d1a84dc97a8",
        keep=_CUDNN,
    ),
    "cudnn-9.1.0": RealWheel(
        "nvidia-cudnn-cu12==9.1.0.70",
        "165764f44ef8c61fcdfdfdbe769d687e06374059fbb388b6c89ecb0e28793a6f",
        keep=_CUDNN,
    ),
    "cudnn-9.10.1-cnn": RealWheel(
        "nvidia-cudnn-cu12==9.10.1.4",
        "df73c4dab84df2c54f0a40e6427cde26e8d80feeffef02d749ee42d7da3c8204",
        keep=("nvidia/cudnn/lib/libcudnn_cnn.so.9",),
    ),
    "cudnn-8.9.7": RealWheel(
        "nvidia-cudnn-cu12==8.9.7.29",
        "adf4f59ed7a1341103822ed8df6e144f4d47ea8b10d9bf0ea0047ba738fd7b02",
        keep=_CUDNN,
    ),
    "cudnn-8.9.2-cnn": RealWheel(
        "nvidia-cudnn-cu12==8.9.2.26",
        "5ccb288774fdfb07a7e7025ffec286971c06d8d7b4fb162525334616d7629ff9",
        keep=("nvidia/cudnn/lib/libcudnn_cnn_infer.so.8",),
    ),
    "cudnn-9.10.2-cu11": RealWheel(
        "nvidia-cudnn-cu11==9.10.2.21",
        "e69235a0035588490c971432b5413f85791728089ec97db55aed72f90d7890f2",
        keep=_CUDNN,
    ),
    "cudnn-8.6.0-cu11": RealWheel(
        "nvidia-cudnn-cu11==8.6.0.163",
        "add207b5fb149cfa02919b8f413364ff4ed348a202f6ae3d7922ae5303fa38a3",
        platform="x86_64-manylinux_2_17",
        keep=_CUDNN,
    ),
    "cublas-cu11": RealWheel(
        "nvidia-cublas-cu11==11.11.3.6", "60252822adea5d0b10cd990a7dc7bedf7435f30ae40083c7a624a85a43225abc"
    ),
    "nvrtc-cu11": RealWheel(
        "nvidia-cuda-nvrtc-cu11==11.8.89", "a8d02f3cba345be56b1ffc3e74d8f61f02bb758dd31b0f20e12277a5a244f756"
    ),
    # The only wheel of an index that still holds a cuDNN 7.
    "cudnn-7.6.5": RealWheel(
        "cupy-cuda101==7.8.0",
        "bbf32fd0ee78a115e699e4c92456488d2fb104269be924bed8102e8e80ab7f78",
        python="3.7",
        keep=("cupy/.data/lib/libcudnn.so.7",),
    ),
    "cublas": RealWheel(
        "nvidia-cublas-cu12==12.4.5.8", "2fc8da60df463fdefa81e323eef2e36489e1c94335b5358bcb38360adf75ac9b"
    ),
    "nvrtc": RealWheel(
        "nvidia-cuda-nvrtc-cu12==12.4.127", "a178759ebb095827bd30ef56598ec182b85547f1508941a3d560eb7ea1fbf338"
    ),
    "cudart": RealWheel(
        "nvidia-cuda-runtime-cu12==12.4.127",
        "64403288fa2136ee8e467cdc9c9427e0434110899d07c779f25b5c068934faa5",
    ),
}
"""Real parts by name. Together they take 8 GB of the cache."""


def wheel_tree(name: str) -> Path:
    """The unpacked wheel called ``name`` in the list above; downloads it where the cache lacks it."""
    wheel = WHEELS[name]
    target = resources.cache() / "test-wheels" / f"{name}-{wheel.sha256[:12]}"
    if target.is_dir():
        return target
    half = target.with_name(target.name + ".part")
    shutil.rmtree(half, ignore_errors=True)
    half.mkdir(parents=True)
    wanted = half / "wanted.txt"
    wanted.write_text(f"{wheel.requirement} --hash=sha256:{wheel.sha256}\n")
    command = [find_uv_bin(), "pip", "install", "--quiet", "--no-cache", "--no-deps", "--require-hashes"]
    command += ["--only-binary", ":all:", "--python-version", wheel.python]
    command += ["--python-platform", wheel.platform, "--target", str(half), "-r", str(wanted)]
    subprocess.run(command, check=True)
    wanted.unlink()
    if wheel.keep:
        kept = {path for glob in wheel.keep for path in half.glob(glob)}
        for path in sorted(half.rglob("*"), reverse=True):
            if path.is_file() and path not in kept:
                path.unlink()
            elif path.is_dir() and not any(path.iterdir()):
                path.rmdir()
    half.rename(target)
    return target
