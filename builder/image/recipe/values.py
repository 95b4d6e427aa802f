"""A recipe as values, and as a folder: its steps, the settings of its image, the files of its build context.

The Dockerfile is rendered from these values and is read back nowhere.
"""

import errno
import hashlib
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

from builder.core.files import locked_folder, refuse_foreign, sweep
from builder.core.model import Cell, Pinned, RootfsBase, StandalonePython, Wheel

_SECOND = 10**9
"""In nanoseconds."""


@dataclass(frozen=True, kw_only=True)
class RecipeFile:
    content: bytes
    mode: int = 0o644


@dataclass(frozen=True, kw_only=True)
class RecipeStep:
    """A shell script that runs as root in the base with the wheels, without network."""

    name: str
    script: str
    makes: tuple[str, ...]
    """Folders below ``/out`` that it leaves; each becomes a layer of the image."""
    files: tuple[tuple[str, str], ...] = ()
    """Files and folders of the recipe that it sees, as (name, path in the image)."""
    needs: tuple[str, ...] = ()
    """Folders below ``/out`` of earlier steps that it looks at."""
    reads: Literal["libraries", "sources"] | None = None
    """The parts of the wheels that it looks at: their libraries and folders, or all of that and the Python
    files that it compiles, of which it gets those whose bytecode is not at hand. None: it sees no wheels."""


@dataclass(frozen=True, kw_only=True)
class RecipeSetting:
    """A change of the image's config. ``value`` is the config's own JSON."""

    kind: Literal["ENV", "LABEL", "CMD", "ENTRYPOINT", "HEALTHCHECK", "USER"]
    name: str = ""
    """The name of a variable or a label; empty for other kinds."""
    value: str | tuple[str, ...]
    durations: tuple[tuple[str, int], ...] = ()
    """Seconds of a ``HEALTHCHECK``, by the names of the Dockerfile's options."""


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A rendered build context: ``Dockerfile`` and all that it needs.

    ``blobs`` are the large files of the context, by what they are made of (``rootfs.tar``, the ``pip`` wheel
    that installs the others); they are put beside ``files`` when the recipe is written.
    """

    cell: Cell
    pinned: Pinned
    files: Mapping[str, RecipeFile]
    blobs: Mapping[str, RootfsBase | StandalonePython | Wheel]
    inputs: str
    """Digest of the lock's inputs and of every file: what ``io.rtbuild.inputs`` in the image says."""
    steps: tuple[RecipeStep, ...] = ()
    added: tuple[str, ...] = ()
    """Folders below ``/out`` that are the image's upper layers, lowest first."""
    settings: tuple[RecipeSetting, ...] = ()

    @cached_property
    def steps_of(self) -> Mapping[str, tuple[RecipeStep, ...]]:
        """By each added folder the steps that make it: its own, and those whose folders that one looks at."""
        every: dict[str, tuple[RecipeStep, ...]] = {}
        for folder in self.added:
            wanted, found = {folder}, list[RecipeStep]()
            for step in reversed(self.steps):
                if wanted & {*step.makes}:
                    found.insert(0, step)
                    wanted |= {*step.needs}
            every[folder] = tuple(found)
        return every

    def files_of(self, step: RecipeStep) -> dict[str, RecipeFile]:
        """The files that a step sees, by their paths in the image; a folder stands for what is in it."""
        seen = {}
        for source, target in step.files:
            if source in self.files:
                seen[target] = self.files[source]
            below = (name for name in self.files if name.startswith(f"{source}/"))
            seen |= {target + name.removeprefix(source): self.files[name] for name in below}
        return seen


def write(recipe: Recipe, directory: Path, *, blobs: Mapping[str, Path]) -> None:
    """Write ``recipe`` as ``directory``, whole or not at all; a recipe that is there is replaced.

    ``blobs`` says where the recipe's large files are, by their name in it; they are linked if that is
    possible, and keep their own times.

    A file's time is the lock's date, to the second, and below the second it stands for the content. BuildKit
    asks for those files of a context again whose size or time differ from what it kept of an earlier one with
    the same folder name (``sameFile`` in
    https://github.com/tonistiigi/fsutil/blob/master/diff_containerd.go). A SHA-256 that changed in
    ``requirements.txt`` leaves its size as it was: with the date alone, the old file would be built. No time
    of a context reaches the image.

    Raises UsageError if ``directory`` is there and is no recipe.
    """
    if missing := sorted(recipe.blobs.keys() - blobs.keys()):
        raise ValueError(f"no file is given for {', '.join(missing)}")
    refuse_foreign(directory, {"Dockerfile", "expect.json"}, "recipe of rtbuild", link=directory.is_symlink())
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


def _link_or_copy(source: Path, target: Path) -> None:
    try:
        os.link(source.resolve(), target)
    except OSError as error:
        if error.errno not in (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP, errno.EACCES):
            raise
        shutil.copy2(source, target)
        target.chmod(0o644)
