"""Puts a recipe into a folder, the same one every time: content, modes and times."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from builder.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from builder.model import Recipe

_CANNOT_LINK = frozenset({errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP, errno.EACCES})


def write(recipe: Recipe, directory: Path, *, blobs: Mapping[str, Path]) -> None:
    """Write ``recipe`` as ``directory``, whole or not at all; a recipe that is there is replaced.

    ``blobs`` says where the recipe's large files are, by their name in it; they are linked where that is
    possible, so they keep their own mode and times, which no build looks at.

    Raises:
        UsageError: ``directory`` is there and is no recipe.
    """
    if missing := sorted(recipe.blobs.keys() - blobs.keys()):
        raise ValueError(f"no file is given for {', '.join(missing)}")
    _refuse_foreign(directory)
    directory.parent.mkdir(parents=True, exist_ok=True)
    beside = Path(tempfile.mkdtemp(prefix=f".{directory.name}.", dir=directory.parent))
    made = beside / directory.name
    try:
        made.mkdir()
        epoch = (recipe.pinned.epoch, recipe.pinned.epoch)
        for name, file in recipe.files.items():
            path = made / name
            path.write_bytes(file.content)
            path.chmod(file.mode)
            os.utime(path, epoch)
        for name in recipe.blobs:
            _link_or_copy(blobs[name], made / name, epoch)
        made.chmod(0o755)
        os.utime(made, epoch)
        if directory.exists():
            directory.rename(made.with_name("replaced"))
        made.rename(directory)
    finally:
        shutil.rmtree(beside)


def _refuse_foreign(directory: Path) -> None:
    if not directory.exists() and not directory.is_symlink():
        return
    names = {entry.name for entry in directory.iterdir()} if directory.is_dir() else None
    if directory.is_symlink() or names is None or (names and not {"Dockerfile", "expect.json"} <= names):
        raise UsageError(
            f"{directory} is there and was not made by rtbuild",
            hint="name a folder that does not exist, or remove it",
        )


def _link_or_copy(source: Path, target: Path, epoch: tuple[int, int]) -> None:
    try:
        os.link(source.resolve(), target)
    except OSError as error:
        if error.errno not in _CANNOT_LINK:
            raise
        shutil.copyfile(source, target)
        target.chmod(0o644)
        os.utime(target, epoch)
