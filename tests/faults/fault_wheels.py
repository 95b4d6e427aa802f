"""Real parts: NVIDIA's wheels, downloaded once into the cache, of which only the libraries are kept."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING

from uv import find_uv_bin

from builder import resources

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


WHEELS: dict[str, RealWheel] = {}


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
