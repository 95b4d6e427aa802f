"""Packages of which an index has only sources: which of them a cell wants built, and from what.

Building is :mod:`builder.sdist`'s, which :func:`built` receives as its ``workshop``.
"""

from __future__ import annotations

import platform
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from packaging.requirements import Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import InvalidSdistFilename, canonicalize_name, parse_sdist_filename
from packaging.version import InvalidVersion, Version

from builder.compat.facts import load
from builder.errors import CellError, PackageIndexError
from builder.lock import target as targets
from builder.lock.availability import parsed_wheel
from builder.model import RootfsBase, Sdist

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from pathlib import Path

    from builder.lock.debian import Debian
    from builder.lock.index import Index
    from builder.lock.simple_api import IndexFile
    from builder.lock.target import Target
    from builder.model import Cell, Wheel

_ARCHIVES = re.compile(r"\.(tar\.gz|tar\.bz2|tar\.xz|tgz|zip)$")


@dataclass(frozen=True, kw_only=True)
class Built:
    """A wheel that was built, and its file."""

    wheel: Wheel
    path: Path


class Workshop(Protocol):
    """What builds: :class:`builder.sdist.Workshop`."""

    def lock(
        self, sdist: Sdist, *, index: Index, target: Target, system: RootfsBase, pins: Sequence[str] = ()
    ) -> Built: ...

    def make(self, wheel: Wheel, index: Index) -> Path: ...


def built(
    cell: Cell,
    requirements: Sequence[str],
    *,
    index: Index,
    debian: Debian,
    workshop: Workshop,
    target: Target,
    base: object,
    previous: Sequence[Wheel] = (),
    upgrade: Collection[str] | bool = False,
) -> tuple[Built, ...]:
    """The wheels of ``cell.from_source`` that no index has.

    A source that was locked before stays, unless ``upgrade`` names its package.

    Raises:
        CellError: a name that no requirement has, sources that do not fit, or a build that failed.
        PackageIndexError: the index did not answer.
    """
    asked = {canonicalize_name(Requirement(text).name): Requirement(text) for text in requirements}
    old = {canonicalize_name(wheel.name): wheel for wheel in previous if wheel.source is not None}
    made: list[Built] = []
    system: RootfsBase | None = None
    for name in map(canonicalize_name, cell.from_source):
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
        if kept is not None and not moves and _fits(kept, sdist, cell.python):
            made.append(Built(wheel=kept, path=workshop.make(kept, index)))
            continue
        system = system or system_for(cell, base, debian)
        made.append(workshop.lock(sdist, index=index, target=target, system=system, pins=requirements))
    return tuple(made)


def _fits(kept: Wheel, sdist: Sdist, python: str) -> bool:
    source = kept.source
    return source is not None and source.sdist.sha256 == sdist.sha256 and source.python == python


def system_for(cell: Cell, base: object, debian: Debian) -> RootfsBase:
    """What the cell's sources are built in: a small Debian with its Python, whatever the image stands on."""
    here = host_platform()
    if isinstance(base, RootfsBase) and not cell.apt and cell.platform == here:
        return base
    suite = suite_of(cell.python)
    if suite is None:
        raise CellError(
            f"no Debian release has Python {cell.python}, to build {', '.join(cell.from_source)} with",
            hint="name an index that has their wheels (`index:`), or take a Python that Debian has",
        )
    return debian.resolve(suite, platform=here)


def host_platform() -> str:
    """This machine's: pure Python comes out the same on each, and only its own programs run here."""
    machine = platform.machine()
    return next((name for name, known in targets.MACHINES.items() if known == machine), "linux/amd64")


def suite_of(python: str) -> str | None:
    """The Debian release with that Python: ``bookworm`` for ``3.11``."""
    for name, row in load().systems.items():
        if name.startswith("debian/") and python in row.python:
            return name.removeprefix("debian/")
    return None


def choose(wanted: Requirement, files: Sequence[IndexFile], target: Target) -> Sdist | None:
    """The sources to build; None where a wheel fits, which is then what is taken.

    Raises:
        PackageIndexError: there are no sources either, or none for this Python.
    """
    fitting = target.tags()
    wheels = [file for file in files if targets.rank(file.name, fitting) is not None]
    versions = [
        str(parsed[0]) for file in wheels if _takes(file, target) and (parsed := parsed_wheel(file.name))
    ]
    if next(iter(wanted.specifier.filter(versions)), None) is not None:
        return None
    sources = {v: file for file in files if (v := sdist_version(file, wanted.name)) is not None}
    allowed = sorted(wanted.specifier.filter(sources), key=Version, reverse=True)
    if not allowed:
        raise PackageIndexError(
            f"no index has a wheel or sources of {wanted}", hint="check the name and the version"
        )
    takes = [version for version in allowed if _takes(sources[version], target)]
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


def _takes(file: IndexFile, target: Target) -> bool:
    try:
        return file.requires_python is None or SpecifierSet(file.requires_python).contains(
            f"{target.python}.99"
        )
    except InvalidSpecifier:
        return True  # pip installs those as well
