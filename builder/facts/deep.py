"""Reading a wheel on its server down to the code in its libraries, at most 16 MiB of it.

What a wheel's parts tell (:mod:`builder.facts.inside`) is kept in the user's cache by the wheel's hash, so an
interrupted refresh goes on where it was, and nothing is read twice.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import requests

from builder import resources
from builder.facts.inside import parts_of
from builder.facts.versions import agree, key
from builder.files import write_whole
from builder.index.remote_zip import DEEP_LIMIT, RemoteZip, UnknownError
from builder.net.http import explain

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from builder.facts.inside import WheelPart
    from builder.index.remote_zip import Session, ZipEntry
    from builder.index.simple_api import IndexFile

_SCHEMA = 1
Kind = Literal["deep", "other", "metadata"]
"""``other``: the parts that are read of a second wheel; ``metadata``: none."""


@dataclass(kw_only=True)
class Told:
    """What one wheel tells."""

    file: str
    metadata: str | None = None
    """Its ``METADATA``, up to the description."""
    values: dict[str, Any] = field(default_factory=dict)
    """See :data:`builder.facts.inside.Values`."""
    read: dict[str, str] = field(default_factory=dict)
    """The member that told each value."""
    unread: list[str] = field(default_factory=list)
    """Parts that could not be read, with the reason."""
    transferred: int = 0


def read_deep(
    file: IndexFile,
    distribution: str,
    client: Session,
    *,
    kind: Kind = "deep",
    cache: Path | None = None,
) -> Told:
    """Read one wheel, or take it from the cache. Nothing that a server does is an error: see ``unread``."""
    place = _place(file, cache, kind)
    known = _known(place)
    if known is not None:
        return known
    told = Told(file=file.name)
    archive = RemoteZip(url=file.url, session=client, size=file.size, limit=DEEP_LIMIT)
    try:
        entries = archive.entries()
        told.metadata = _metadata(archive, entries)
        for part in () if kind == "metadata" else parts_of(distribution, other=kind == "other"):
            _part(archive, entries, part, told)
    except UnknownError as problem:
        told.unread.append(str(problem))
    except requests.RequestException as problem:
        told.unread.append(explain(problem))
        place = None  # a line that broke says nothing about the wheel
    told.transferred = archive.transferred
    if place is not None and told.metadata is not None:
        _keep(place, told)
    return told


def _metadata(archive: RemoteZip, entries: Sequence[ZipEntry]) -> str:
    found = [entry for entry in entries if re.fullmatch(r"[^/]+\.dist-info/METADATA", entry.name)]
    if len(found) != 1:
        raise UnknownError(f"it holds {len(found)} METADATA files")
    text = archive.content(found[0]).decode("utf-8", "replace")
    return re.split(r"\r?\n\r?\n", text, maxsplit=1)[0]


def _part(archive: RemoteZip, entries: Sequence[ZipEntry], part: WheelPart, told: Told) -> None:
    """Read one part, if it is there and tells what is not known yet."""
    if all(name in told.values for name in part.tells) or (part.gpu_only and told.values.get("gpu") is False):
        return
    for entry in [entry for entry in entries if re.fullmatch(part.pattern, entry.name)][:1]:
        room = archive.limit - archive.transferred - (4 << 10)
        most = min(part.most or entry.packed, entry.packed)
        if most > room and part.most is None:
            told.unread.append(
                f"{entry.name} has {entry.packed >> 20} MiB, more than is left to read of one wheel"
            )
            continue
        try:
            found = part.read(archive.content(entry, min(most, room)))
        except UnknownError as problem:
            told.unread.append(str(problem))
            continue
        for name, value in found.items():
            if name not in told.values or _exacter(told.values[name], value):
                told.values[name] = value
                told.read[name] = entry.name


def _exacter(old: Any, new: Any) -> bool:
    """Whether a version says the same as one known, and more: ``9.3.0`` and ``9``."""
    if not isinstance(old, str) or not isinstance(new, str):
        return False
    return agree(old, new) and len(key(new)) > len(key(old))


def _place(file: IndexFile, cache: Path | None, kind: Kind) -> Path | None:
    if file.sha256 is None:
        return None
    return (cache or resources.cache() / "wheelfacts") / file.sha256[:2] / f"{file.sha256}.{kind}.json"


def _known(place: Path | None) -> Told | None:
    if place is None:
        return None
    try:
        document = json.loads(place.read_text("utf-8"))
        if document.pop("schema") != _SCHEMA:
            return None
        told = Told(**document)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None  # absent or damaged: read again
    told.transferred = 0
    return told


def _keep(place: Path, told: Told) -> None:
    try:
        write_whole(place, json.dumps({"schema": _SCHEMA, **asdict(told)}).encode(), mode=0o600)
    except OSError:
        return  # a cache that cannot be written costs time, nothing else
