"""Results of readings of wheels, kept in the user's cache by the wheel's hash. Asks no network."""

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from builder import resources
from builder.files import read_cached, write_cached

_SCHEMA = 1
Kind = Literal["small", "deep", "other", "metadata"]
"""``other``: the parts that are read of a second wheel; ``metadata``: none."""


@dataclass(kw_only=True)
class Told:
    """Values read from one wheel."""

    file: str
    metadata: str | None = None
    """Its ``METADATA``, up to the description."""
    values: dict[str, Any] = field(default_factory=dict)
    """See :data:`builder.facts.inside.Values`."""
    read: dict[str, str] = field(default_factory=dict)
    """The member that told each value."""
    unread: list[str] = field(default_factory=list)
    """Parts that could not be read, with the reason."""
    beyond: list[str] = field(default_factory=list)
    """Values that may stand in the unread rest of a library."""
    transferred: int = 0


def place_of(sha256: str | None, kind: Kind, cache: Path | None = None) -> Path | None:
    """The file of one reading, below ``cache`` or the user's; None for a wheel without a hash."""
    if not sha256:
        return None
    return (cache or resources.cache() / "wheelfacts") / sha256[:2] / f"{sha256}.{kind}.json"


def kept(place: Path | None) -> Told | None:
    return read_cached(place, _told)


def _told(document: dict[str, Any]) -> Told | None:
    return Told(**document | {"transferred": 0}) if document.pop("schema") == _SCHEMA else None


def keep(place: Path, told: Told) -> None:
    write_cached(place, {"schema": _SCHEMA, **asdict(told)})
