"""A recipe carries the wheels that no index has, and pip takes them by hash."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import recipe_cells as cells

from builder.core.model import Sdist, WheelSource
from builder.image.recipe.rendering import render
from builder.image.recipe.values import write

if TYPE_CHECKING:
    from pathlib import Path

SDIST = Sdist(name="tiny", version="1.0", file="tiny-1.0.tar.gz", sha256="a" * 64, size=10)
SOURCE = WheelSource(sdist=SDIST, requires=(), system=cells.BULLSEYE, python="3.9")
TINY = dataclasses.replace(cells.wheel("tiny", "1.0"), source=SOURCE)
PINNED = dataclasses.replace(cells.ROOTFS_WHEELS, wheels=(*cells.ROOTFS_WHEELS.wheels, TINY))


def test_built_wheels_are_in_the_folder(tmp_path: Path) -> None:
    recipe = render(PINNED, probe=cells.PROBE, version="0.1.0")
    assert recipe.blobs["built/tiny-1.0-py3-none-any.whl"] == TINY
    asked = recipe.files["requirements.txt"].content.decode()
    assert "--find-links /mnt/built\n" in asked
    assert f"tiny==1.0 --hash=sha256:{TINY.sha256}\n" in asked
    assert b"source=built,target=/mnt/built" in recipe.files["Dockerfile"].content
    assert b"!built\n" in recipe.files[".dockerignore"].content
    for name in recipe.blobs:
        (tmp_path / name.replace("/", "-")).write_text(name)
    write(recipe, tmp_path / "recipe", blobs={n: tmp_path / n.replace("/", "-") for n in recipe.blobs})
    assert (tmp_path / "recipe/built/tiny-1.0-py3-none-any.whl").read_text().startswith("built/")


def test_a_cell_without_them_knows_nothing_of_it() -> None:
    recipe = render(cells.ROOTFS_WHEELS, probe=cells.PROBE, version="0.1.0")
    assert not any(b"built" in recipe.files[name].content for name in ("requirements.txt", ".dockerignore"))
    assert b"/mnt/built" not in recipe.files["Dockerfile"].content
