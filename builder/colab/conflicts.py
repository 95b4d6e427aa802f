"""Contradictions among a runtime's packages, by their own metadata.

Colab installs its list without resolving it, so a faithful image has the same contradictions; they are
recorded and not repaired.
"""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from packaging.markers import UndefinedEnvironmentName
from packaging.utils import canonicalize_name

from builder.facts.versions import requirement
from builder.facts.wheel import truth_from_members
from builder.facts.wheelmeta import read_listed

if TYPE_CHECKING:
    from builder.colab.match import Match
    from builder.index.client import Index
    from builder.index.target import Target

_THREADS = 16


@dataclass(frozen=True, kw_only=True, order=True)
class Conflict:
    """A requirement that the runtime itself does not meet."""

    package: str
    requires: str
    found: str | None
    """The version in the list; None if the list does not have the package."""

    def __str__(self) -> str:
        return f"{self.package} wants {self.requires}, the list has {self.found or 'none'}"


def conflicts(
    matches: Sequence[Match],
    versions: Mapping[str, str | None],
    *,
    index: Index,
    target: Target,
    progress: Callable[[str, int, int], None] | None = None,
) -> tuple[tuple[Conflict, ...], int]:
    """The contradictions, and the number of unreadable wheels. ``versions`` is the whole list, by name."""
    unread = 0
    found: list[Conflict] = []
    with ThreadPoolExecutor(_THREADS) as pool:
        for done, (match, requires) in enumerate(pool.map(lambda m: (m, _requires(m, index)), matches), 1):
            if requires is None:
                unread += 1
            else:
                found += _broken(match.package.name, requires, versions, target.environment)
            if progress is not None:
                progress(match.package.name, done, len(matches))
    return tuple(sorted(found, key=str)), unread


def _requires(match: Match, index: Index) -> tuple[str, ...] | None:
    if match.built is not None:
        with zipfile.ZipFile(match.built) as wheel:
            metadata = next(n for n in wheel.namelist() if n.endswith(".dist-info/METADATA"))
            return truth_from_members(match.built.name, wheel.read(metadata), {}).requires
    file = match.file
    if file is None:
        return None
    metadata_file = read_listed(file, index.client).metadata
    return None if metadata_file is None else truth_from_members(file.name, metadata_file, {}).requires


def _broken(
    package: str, requires: Sequence[str], versions: Mapping[str, str | None], environment: Mapping[str, str]
) -> Iterator[Conflict]:
    for line in requires:
        parsed = requirement(line)
        if parsed is None:
            continue
        try:
            holds = parsed.marker is None or parsed.marker.evaluate({**environment, "extra": ""})
        except UndefinedEnvironmentName:
            continue
        name = canonicalize_name(parsed.name)
        if not holds or (name in versions and versions[name] is None):
            continue
        version = versions.get(name)
        if version is None or not parsed.specifier.contains(version, prereleases=True):
            yield Conflict(package=package, requires=f"{parsed.name}{parsed.specifier}", found=version)
