"""The Pythons that requirements have wheels for, by the names of the files that the index lists."""

from collections.abc import Collection, Mapping, Sequence

from packaging.version import Version

from builder.core.versions import key
from builder.plan.facts.tables import load
from builder.plan.resolve.requirements import NamedRequirement
from builder.sources.index import Index, IndexFile, Target, pages, rank, takes, wheel_name

_NEWEST_GLIBC = "2.41"
"""The question is about Python alone, so the newest system is taken."""


def every_python() -> list[str]:
    """The Pythons that a system has, or a framework's release has wheels for; the newest first."""
    tables = load()
    found = {python for system in tables.systems.values() for python in system.python}
    found |= {python for table in tables.frameworks.values() for row in table.rows for python in row.python}
    return sorted((python for python in found if python.startswith("3.")), key=key, reverse=True)


def wheel_pythons(
    wishes: Collection[NamedRequirement], index: Index, platform: str
) -> dict[NamedRequirement, frozenset[str]]:
    """The Pythons of each requirement that has wheels for some Pythons and not for others.

    A requirement is left out if the index does not answer about it, or has sources alone.
    """
    if not wishes:
        return {}
    tags = {
        python: Target(python=python, platform=platform, glibc=_NEWEST_GLIBC).tags()
        for python in every_python()
    }
    listed = pages((wish.name for wish in wishes), index)
    found = {}
    for wish in wishes:
        files = listed[wish.name]
        if isinstance(files, str):
            continue
        mine = _admitted(wish, files)
        has = frozenset(
            python
            for python, fitting in tags.items()
            if any(takes(f.requires_python, python) and rank(f.name, fitting) is not None for f in mine)
        )
        there = has | {python for python in tags if not wish.holds(python, platform)}
        if has and len(there) < len(tags):
            found[wish] = there
    return found


def _admitted(wish: NamedRequirement, files: Sequence[IndexFile]) -> list[IndexFile]:
    """The wheels of the releases that a requirement admits."""
    versions: dict[str, Version] = {
        file.name: wheel.version for file in files if (wheel := wheel_name(file.name)) is not None
    }
    return [
        file
        for file in files
        if file.name in versions
        and file.yanked is None
        and wish.parsed.specifier.contains(versions[file.name], prereleases=True)
    ]


def common(has: Mapping[NamedRequirement, frozenset[str]]) -> frozenset[str]:
    """The Pythons that all of these requirements have wheels for; all without any requirement."""
    return frozenset(every_python()).intersection(*has.values())
