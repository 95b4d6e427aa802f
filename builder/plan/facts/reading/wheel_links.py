"""Kept readings of a wheel's libraries for the link proof. Asks no network: :mod:`.wheel_links_read` does."""

from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from builder.core.link_set import LinkFile, WheelLinks
from builder.core.model import Wheel
from builder.core.versions import canonical
from builder.plan.facts.reading.observed import Kind, load_reading, reading_path

KIND: Kind = "links-3"
"""Counts up when more is kept of a wheel: what was kept before says nothing of that, and is read again."""


def links_of(wheel: Wheel, cache: Path | None = None) -> WheelLinks | None:
    """The kept reading of a wheel's libraries; an empty one for pure Python; None if it was not read.

    One that was built from sources is taken for such: it is linked with what Debian's packages bring.
    """
    name = canonical(wheel.name)
    if not may_have_libraries(wheel) or wheel.source is not None:
        return WheelLinks(name=name, version=wheel.version, files={})
    reading = load_reading(reading_path(wheel.sha256, KIND, cache))
    try:
        return (
            None if reading is None or reading.unread else _from_values(name, wheel.version, reading.values)
        )
    except (KeyError, TypeError, ValueError, AttributeError):
        return None  # a cache that somebody else wrote


def may_have_libraries(wheel: Wheel) -> bool:
    """False for a wheel for every platform."""
    return not wheel.file.endswith("-any.whl")


def _from_values(name: str, version: str, values: Mapping[str, Any]) -> WheelLinks:
    files: dict[str, LinkFile] = {}
    unread = set(values["partly"])
    for path, raw in values["libraries"].items():
        if raw is None:
            unread.add(path)
            files[path] = LinkFile(soname=PurePosixPath(path).name)
            continue
        files[path] = LinkFile(
            soname=raw["soname"],
            needed=tuple(raw["needed"]),
            rpath=raw["rpath"],
            runpath=raw["runpath"],
            asked=tuple((file, one, weak) for file, one, weak in raw["asked"]),
            offered=None if raw["offered"] is None else tuple(raw["offered"]),
        )
    return WheelLinks(
        name=name,
        version=version,
        files=files,
        digests=dict(values["digests"]),
        asks=frozenset(values["asks"]),
        unread=frozenset(unread),
        numpy=frozenset(map(str, values["numpy"])),
        numpy_api=None if None in (numbers := values["numpy_api"]) else min(map(int, numbers), default=None),
        torch={path: frozenset(map(str, found)) for path, found in values["torch"].items()},
    )
