"""Puts a recipe into a folder, the same one every time: content, modes and times.

A file's time is the lock's date, to the second, and below the second it stands for the content. BuildKit asks
for those files of a context again whose size or time differ from what it kept of an earlier one with the same
folder name (``sameFile`` in https://github.com/tonistiigi/fsutil/blob/master/diff_containerd.go). A SHA-256
that changed in ``requirements.txt`` leaves its size as it was: with the date alone, the old file would be
built. No time of a context reaches the image.
"""

import errno
import hashlib
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from builder.errors import UsageError
from builder.recipe.values import Recipe
from builder.temporary import locked_folder, sweep

_CANNOT_LINK = frozenset({errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP, errno.EACCES})
_SECOND = 10**9
"""In nanoseconds."""


def write(recipe: Recipe, directory: Path, *, blobs: Mapping[str, Path]) -> None:
    """Write ``recipe`` as ``directory``, whole or not at all; a recipe that is there is replaced.

    ``blobs`` says where the recipe's large files are, by their name in it; they are linked if that is
    possible, and keep their own times.

    Raises UsageError if ``directory`` is there and is no recipe.
    """
    if missing := sorted(recipe.blobs.keys() - blobs.keys()):
        raise ValueError(f"no file is given for {', '.join(missing)}")
    _refuse_foreign(directory)
    directory.parent.mkdir(parents=True, exist_ok=True)
    prefix = f".{directory.name}.rtbuild-"
    sweep(directory.parent, prefix)
    with locked_folder(directory.parent, prefix) as beside:
        made = beside / directory.name
        made.mkdir()
        date = recipe.pinned.epoch * _SECOND
        for name, file in recipe.files.items():
            path = made / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(file.content)
            path.chmod(file.mode)
            time = date + int.from_bytes(hashlib.sha256(file.content).digest()[:8]) % _SECOND
            os.utime(path, ns=(time, time))
        for name in recipe.blobs:
            (made / name).parent.mkdir(exist_ok=True)
            _link_or_copy(blobs[name], made / name)
        made.chmod(0o755)
        os.utime(made, ns=(date, date))
        if directory.exists():
            directory.rename(made.with_name("replaced"))
        made.rename(directory)


def _refuse_foreign(directory: Path) -> None:
    if not directory.exists() and not directory.is_symlink():
        return
    names = {entry.name for entry in directory.iterdir()} if directory.is_dir() else None
    if directory.is_symlink() or names is None or (names and not {"Dockerfile", "expect.json"} <= names):
        raise UsageError(
            f"{directory} exists and was not made by rtbuild",
            hint="name a folder that does not exist, or remove it",
        )


def _link_or_copy(source: Path, target: Path) -> None:
    try:
        os.link(source.resolve(), target)
    except OSError as error:
        if error.errno not in _CANNOT_LINK:
            raise
        shutil.copy2(source, target)
        target.chmod(0o644)
