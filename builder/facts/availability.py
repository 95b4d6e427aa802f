"""Which versions the user's package index has, and whether it has a wheel for what is proposed."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename

from builder.errors import PackageIndexError
from builder.facts import tables
from builder.facts.base import system_of, tag_of
from builder.facts.truth import Truth
from builder.facts.versions import pinned, requirement
from builder.index import target

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from packaging.utils import BuildTag
    from packaging.version import Version

    from builder.index.client import Index
    from builder.index.simple_api import IndexFile
    from builder.model import Cell

MACHINES = ("x86_64", "any")
_THREADS = 4


@dataclass(frozen=True, kw_only=True)
class Offer:
    """What the index says of one project. ``unknown`` is the reason where it did not say."""

    wheels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """File names for Linux on x86-64 by version, without yanked files and pre-releases."""
    unknown: str | None = None

    @property
    def versions(self) -> tuple[str, ...]:
        return tuple(self.wheels)


def ask(names: Iterable[str], index: Index) -> dict[str, Offer]:
    """One question for each project, several at a time; by canonical name. Raises nothing."""
    wanted = sorted({canonicalize_name(name) for name in names})
    with ThreadPoolExecutor(_THREADS) as pool:
        return dict(zip(wanted, pool.map(lambda name: _offer(name, index), wanted), strict=True))


def ask_own(cells: Iterable[Cell], index: Index) -> dict[tuple[str, str], Offer]:
    """What cells' own indexes say of the builds that come from there; by canonical name and address."""
    wanted = sorted({(name, url) for cell in cells for name, _ in _own_builds(cell) for url in cell.index})
    with ThreadPoolExecutor(_THREADS) as pool:
        return dict(zip(wanted, pool.map(lambda pair: _offer(pair[0], index, pair[1]), wanted), strict=True))


def _own_builds(cell: Cell) -> Iterator[tuple[str, str]]:
    """Name and version of those frameworks that come from the cell's own indexes: ``2.1.2+cu118``."""
    for text in cell.frameworks if cell.index else ():
        parsed = requirement(text)
        version = pinned(parsed) if parsed is not None else None
        if parsed is not None and version is not None and "+" in version:
            yield canonicalize_name(parsed.name), version


def _offer(name: str, index: Index, url: str | None = None) -> Offer:
    """What all of the user's indexes have of a project, or the one at ``url``."""
    try:
        files = index.offers(name) if url is None else index.offers_of(url.rstrip("/"), name)
    except PackageIndexError as problem:
        return Offer(unknown=problem.message)
    wheels: dict[str, list[str]] = {}
    for file in files:
        version = version_of(file)
        if version is not None:
            wheels.setdefault(version, []).append(file.name)
    return Offer(wheels={version: tuple(found) for version, found in wheels.items()})


def version_of(file: IndexFile) -> str | None:
    """The version of a released, standing wheel for Linux on x86-64; None for any other file."""
    parsed = parsed_wheel(file.name)
    if parsed is None or file.yanked is not None:
        return None
    version, _, platforms = parsed
    fits = any(platform.endswith(MACHINES) and not platform.startswith("macos") for platform in platforms)
    return str(version) if fits and not version.is_prerelease else None


def parsed_wheel(file: str) -> tuple[Version, BuildTag, frozenset[str]] | None:
    """Version, build and platforms out of a wheel's name; None for what is no wheel's name."""
    try:
        _, version, build, tags = parse_wheel_filename(file)
    except InvalidWheelFilename:
        return None
    return version, build, frozenset(tag.platform for tag in tags)


def missing(
    cell: Cell, offers: Mapping[str, Offer], own: Mapping[tuple[str, str], Offer] | None = None
) -> str | None:
    """The first pinned package of a cell for which no index has a wheel that fits; None where all are there.

    ``own`` is what :func:`ask_own` got for the cell's own indexes. Projects that nobody asked for, and
    indexes that did not answer, are not judged.
    """
    known = tables.load()
    system = system_of(cell, Truth(), tag_of(cell.base, known), known)
    glibc = system.glibc if system is not None else "2.17"
    fitting = target.Target(python=cell.python, platform=cell.platform, glibc=glibc).tags()
    theirs = dict(_own_builds(cell))
    for text in (*cell.frameworks, *cell.cuda.packages):
        parsed = requirement(text)
        version = pinned(parsed) if parsed is not None else None
        if parsed is None or version is None:
            continue
        name = canonicalize_name(parsed.name)
        if name in theirs:
            asked = [(own or {}).get((name, url)) for url in cell.index]
            where = f"its index {', '.join(cell.index)}"
        else:
            asked = [offers.get(name)]
            where = "the package index"
        said = [offer for offer in asked if offer is not None and offer.unknown is None]
        if len(said) < len(asked):
            continue
        files = [file for offer in said for file in offer.wheels.get(version, ())]
        if not any(target.rank(file, fitting) is not None for file in files):
            return f"{text}: {where} has no wheel for Python {cell.python} and glibc {glibc}"
    return None
