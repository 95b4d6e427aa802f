"""Which versions the user's package index has, and whether it has a wheel for what is proposed."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename

from builder.errors import PackageIndexError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from packaging.utils import BuildTag
    from packaging.version import Version

    from builder.index.client import Index
    from builder.index.simple_api import IndexFile

MACHINES = ("x86_64", "any")
_THREADS = 4


@dataclass(frozen=True, kw_only=True)
class Offer:
    """The index's answer about one project; ``unknown`` is the reason if there is none."""

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
        return dict(zip(wanted, pool.map(lambda name: offer(name, index), wanted), strict=True))


def offer(name: str, index: Index, url: str | None = None) -> Offer:
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
