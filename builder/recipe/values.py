"""A recipe as values: what it adds to an image, step by step, and the files of its build context.

The Dockerfile is rendered from these values and is read back nowhere.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from builder.model import Cell, Pinned, RootfsBase, StandalonePython, Wheel


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
    reads: Literal["nothing", "libraries", "sources"] = "nothing"
    """The parts of the wheels that it looks at: with ``libraries`` their folders, too, and with ``sources``
    all of that and their Python files."""


SettingKind = Literal["ENV", "LABEL", "CMD", "ENTRYPOINT", "HEALTHCHECK", "USER"]


@dataclass(frozen=True, kw_only=True)
class RecipeSetting:
    """A change of the image's config. ``value`` is the config's own JSON."""

    kind: SettingKind
    name: str = ""
    """Of a variable or a label."""
    value: str | tuple[str, ...]
    durations: tuple[tuple[str, int], ...] = ()
    """Of a ``HEALTHCHECK``, in seconds, by the names of the Dockerfile's options."""


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

    def steps_of(self, folder: str) -> tuple[RecipeStep, ...]:
        """The steps that make ``/out/<folder>``: its own, and those whose folders that one looks at."""
        wanted, found = {folder}, list[RecipeStep]()
        for step in reversed(self.steps):
            if wanted & {*step.makes}:
                found.insert(0, step)
                wanted |= {*step.needs}
        return tuple(found)
