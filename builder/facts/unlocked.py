"""Which wheels a cell without a lock would get of its frameworks: the newest that its requirements admit.

Only frameworks are chosen, as the index lists them; a lock decides the rest.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from packaging.requirements import Requirement
from packaging.tags import Tag
from packaging.version import Version

from builder.facts.base import system_of
from builder.facts.versions import canonical, requirement
from builder.index import target
from builder.model import Cell

if TYPE_CHECKING:
    from builder.facts.availability import Files
    from builder.index.simple_api import IndexFile

    Page = Callable[[str, tuple[str, ...]], Files]
    """A project's files by its name and a cell's own indexes."""


@dataclass(frozen=True)
class Chosen:
    """One wheel that a cell without a lock would get, or why there is none."""

    name: str
    file: IndexFile | None = None
    why: str | None = None


def distributions(cell: Cell) -> tuple[str, ...]:
    """The frameworks of a cell, with JAX's plug-ins, which are compiled with CUDA while jax is not."""
    found: list[str] = []
    for text in cell.frameworks:
        parsed = requirement(text)
        if parsed is not None:
            found.append(canonical(parsed.name))
            found += _plugins(parsed)
    return tuple(found)


def _plugins(parsed: Requirement) -> Iterator[str]:
    if canonical(parsed.name) == "jax":
        names = {match[0] for extra in parsed.extras if (match := re.match(r"cuda\d+", extra))}
        yield from sorted(f"jax-{name}-plugin" for name in names)


def choose(cell: Cell, page: Page) -> Iterator[Chosen]:
    """One wheel for each of :func:`distributions`."""
    system = system_of(cell)
    if system is None:
        return
    fitting = target.Target(python=cell.python, platform=cell.platform, glibc=system.glibc).tags()
    for text in cell.frameworks:
        parsed = requirement(text)
        if parsed is None:
            continue
        first = _one(parsed, page(canonical(parsed.name), cell.index), fitting, cell)
        yield first
        if first.file is not None:
            for name in _plugins(parsed):
                beside = Requirement(f"{name}=={first.file.name.split('-')[1]}")
                yield _one(beside, page(name, cell.index), fitting, cell)


def _one(parsed: Requirement, files: Files, fitting: dict[Tag, int], cell: Cell) -> Chosen:
    name = canonical(parsed.name)
    if isinstance(files, str):
        return Chosen(name, why=f"{name} could not be read: {files}")
    admitted = [(version, file) for version, file in _wheels(files) if parsed.specifier.contains(version)]
    if not admitted:
        return Chosen(name, why=f"the package index has no wheel of {parsed}")
    ranked = [
        (version, rank, file)
        for version, file in admitted
        if (rank := target.rank(file.name, fitting)) is not None
    ]
    if not ranked:
        where = f"Python {cell.python} on {cell.platform} and the glibc of {cell.base}"
        return Chosen(name, why=f"the package index has wheels of {parsed}, but none for {where}")
    newest = max(version for version, _, _ in ranked)
    best = min((one for one in ranked if one[0] == newest), key=lambda one: one[1])
    return Chosen(name, file=best[2])


def _wheels(files: Iterable[IndexFile]) -> Iterator[tuple[Version, IndexFile]]:
    """Final releases that were not yanked."""
    for file in files:
        wheel = target.wheel_name(file.name)
        if wheel is not None and not wheel.version.is_prerelease and file.yanked is None:
            yield wheel.version, file
