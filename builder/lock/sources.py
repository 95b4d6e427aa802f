"""Packages for which an index has only sources: which of them a cell wants built, and from which source.

Building is :mod:`builder.sdist`'s, which :func:`built` receives as its ``workshop``.
"""

from __future__ import annotations

import platform
import re
from functools import partial
from typing import TYPE_CHECKING, Protocol

from packaging.requirements import Requirement
from packaging.utils import InvalidSdistFilename, canonicalize_name, parse_sdist_filename
from packaging.version import InvalidVersion, Version

from builder.errors import CellError, PackageIndexError
from builder.facts.availability import parsed_wheel
from builder.facts.tables import load
from builder.index import target as targets
from builder.index.client import LocalWheel
from builder.lock import compiled
from builder.model import RootfsBase, Sdist

if TYPE_CHECKING:
    import threading
    from collections.abc import Collection, Sequence
    from pathlib import Path

    from builder.debian.archive import Debian
    from builder.index.client import Index
    from builder.index.simple_api import IndexFile
    from builder.index.target import Target
    from builder.model import Cell, Wheel

_ARCHIVES = re.compile(r"\.(tar\.gz|tar\.bz2|tar\.xz|tgz|zip)$")


class SdistBuilder(Protocol):
    """What builds: :class:`builder.sdist.Workshop`."""

    @property
    def cancel(self) -> threading.Event:
        """Once set, the running build ends soon, by a CancelledError."""

    def lock(
        self,
        sdist: Sdist,
        *,
        index: Index,
        target: Target,
        system: RootfsBase,
        also: RootfsBase | None = None,
        pins: Sequence[str] = (),
        needs: Sequence[str] | None = None,
    ) -> LocalWheel: ...

    def make(self, wheel: Wheel, index: Index) -> Path: ...


def built(
    cell: Cell,
    requirements: Sequence[str],
    *,
    index: Index,
    debian: Debian,
    workshop: SdistBuilder,
    target: Target,
    base: object,
    previous: Sequence[Wheel] = (),
    upgrade: Collection[str] | bool = False,
) -> tuple[LocalWheel, ...]:
    """The wheels of ``cell.from_source`` and ``cell.compiled`` that no index has.

    A source that was locked before stays, unless ``upgrade`` names its package.

    Raises:
        CellError: a name that no requirement has, sources that do not fit, a build that failed, or compiled
            code that the cell's image cannot run.
        PackageIndexError: the index did not answer.
    """
    asked = {canonicalize_name(Requirement(text).name): Requirement(text) for text in requirements}
    old = {canonicalize_name(wheel.name): wheel for wheel in previous if wheel.source is not None}
    made: list[LocalWheel] = []
    systems: tuple[RootfsBase, RootfsBase | None] | None = None
    if cell.compiled:
        compiled.refuse_place(cell, host_platform())
    for given, needs in (*((name, None) for name in cell.from_source), *cell.compiled):
        name = canonicalize_name(given)
        wanted = asked.get(name)
        if wanted is None:
            raise CellError(
                f"'from-source' names {name}, and no requirement of the cell does",
                hint=f"add {name}==VERSION to 'pip'",
            )
        sdist = choose(wanted, index.offers(wanted.name), target)
        if sdist is None:
            continue
        kept = old.get(name)
        moves = upgrade if isinstance(upgrade, bool) else name in map(canonicalize_name, upgrade)
        if kept is not None and not moves and _fits(kept, sdist, cell.python, needs):
            made.append(LocalWheel(wheel=kept, path=workshop.make(kept, index)))
            continue
        build = partial(workshop.lock, sdist, index=index, target=target, pins=requirements)
        if needs is not None:
            system = compiled.system(cell.base, needs, platform=cell.platform, debian=debian)
            made.append(build(system=system, needs=needs))
            continue
        systems = systems or systems_for(cell, base, debian)
        made.append(build(system=systems[0], also=systems[1]))
    if isinstance(base, RootfsBase):
        compiled.refuse_missing((one.wheel for one in made), base)
    return tuple(made)


def _fits(kept: Wheel, sdist: Sdist, python: str, needs: Sequence[str] | None) -> bool:
    source = kept.source
    if source is None or source.sdist.sha256 != sdist.sha256 or source.python != python:
        return False
    return needs == (None if source.compiled is None else source.compiled.needs)


def systems_for(cell: Cell, base: object, debian: Debian) -> tuple[RootfsBase, RootfsBase | None]:
    """What the cell's sources are built in, whatever the image stands on: see :func:`systems_of`."""
    if isinstance(base, RootfsBase) and not cell.apt and cell.platform == host_platform():
        return base, None
    return systems_of(cell.python, debian)


def systems_of(python: str, debian: Debian) -> tuple[RootfsBase, RootfsBase | None]:
    """A small Debian with that Python; or, if no release has it, the nearest above and the nearest below.

    The lock records the one above: its packages stay in the archive for longer.

    Raises:
        CellError: no release has that Python, and it is not between two that have one.
        PackageIndexError: the Debian archive did not answer.
    """
    suite, also = suites_of(python)
    here = host_platform()
    system = debian.resolve(suite, platform=here)
    return system, debian.resolve(also, platform=here) if also is not None else None


def host_platform() -> str:
    """This machine's: pure Python comes out the same on each, and only its own programs run here."""
    machine = platform.machine()
    return next((name for name, known in targets.MACHINES.items() if known == machine), "linux/amd64")


def suites_of(python: str) -> tuple[str, str | None]:
    """Releases of :func:`systems_of`: ``bookworm`` for ``3.11``; ``trixie, bookworm`` for ``3.12``.

    Setup code that asks for its Python asks whether it is older than some other. What it answers alike above
    and below it answers alike between; with neighbours on one side alone nothing is known.
    """
    known = {
        Version(version): name.removeprefix("debian/")
        for name, row in load().systems.items()
        if name.startswith("debian/")
        for version in row.python
    }
    wanted = Version(python)
    if wanted in known:
        return known[wanted], None
    above = [version for version in known if version > wanted]
    below = [version for version in known if version < wanted]
    if not above or not below:
        has = ", ".join(str(version) for version in sorted(known))
        raise CellError(
            f"no Debian release has Python {python}, nor do two of them stand around it ({has}), "
            "to build sources with",
            hint="name an index that has their wheels (`index:`), or take a Python that Debian has",
        )
    return known[min(above)], known[max(below)]


def choose(wanted: Requirement, files: Sequence[IndexFile], target: Target) -> Sdist | None:
    """The source to build; None if a wheel fits, which is then taken.

    Raises:
        PackageIndexError: there are no sources either, or none for this Python.
    """
    fitting = target.tags()
    wheels = [file for file in files if targets.rank(file.name, fitting) is not None]
    admitted = [file for file in wheels if targets.takes(file.requires_python, target.python)]
    versions = [str(parsed[0]) for file in admitted if (parsed := parsed_wheel(file.name))]
    if next(iter(wanted.specifier.filter(versions)), None) is not None:
        return None
    sources = {v: file for file in files if (v := sdist_version(file, wanted.name)) is not None}
    allowed = sorted(wanted.specifier.filter(sources), key=Version, reverse=True)
    if not allowed:
        raise PackageIndexError(
            f"no index has a wheel or sources of {wanted}", hint="check the name and the version"
        )
    takes = [v for v in allowed if targets.takes(sources[v].requires_python, target.python)]
    if not takes:
        file = sources[allowed[0]]
        raise PackageIndexError(
            f"{file.name} wants Python {file.requires_python}, and the cell has {target.python}",
            hint="take another version of it, or another Python",
        )
    file = sources[takes[0]]
    if file.sha256 is None:
        raise PackageIndexError(f"the index gives no sha256 for {file.name}", hint="use an index that does")
    return Sdist(
        name=canonicalize_name(wanted.name),
        version=takes[0],
        file=file.name,
        sha256=file.sha256,
        size=file.size,
    )


def sdist_version(file: IndexFile, name: str) -> str | None:
    """The version that an archive of sources is of; None for any other file."""
    if not _ARCHIVES.search(file.name):
        return None
    try:
        found, version = parse_sdist_filename(_ARCHIVES.sub(".tar.gz", file.name))
    except (InvalidSdistFilename, InvalidVersion):
        return None
    return str(version) if canonicalize_name(found) == canonicalize_name(name) else None
