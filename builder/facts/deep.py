"""Reading a wheel on its server down to the code in its libraries, at most 16 MiB of it.

The values (:mod:`builder.facts.inside`) are kept in the user's cache by the wheel's hash, so an
interrupted refresh continues, and nothing is read twice.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import requests

from builder.facts.inside import WheelPart, add, parts_of
from builder.facts.told import Kind, Told, keep, kept, place_of
from builder.index.remote_zip import DEEP_LIMIT, RemoteZip, UnknownError, ZipEntry
from builder.net.http import Client, explain

if TYPE_CHECKING:
    from builder.index.simple_api import IndexFile


def read_deep(
    file: IndexFile, distribution: str, client: Client, *, kind: Kind = "deep", cache: Path | None = None
) -> Told:
    """Read one wheel, or take it from the cache. Nothing that a server does is an error: see ``unread``."""
    place = place_of(file.sha256, cache, kind)
    known = kept(place)
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
        keep(place, told)
    return told


def _metadata(archive: RemoteZip, entries: Sequence[ZipEntry]) -> str:
    found = [entry for entry in entries if re.fullmatch(r"[^/]+\.dist-info/METADATA", entry.name)]
    if len(found) != 1:
        raise UnknownError(f"it holds {len(found)} METADATA files")
    text = archive.content(found[0]).decode("utf-8", "replace")
    return re.split(r"\r?\n\r?\n", text, maxsplit=1)[0]


def _part(archive: RemoteZip, entries: Sequence[ZipEntry], part: WheelPart, told: Told) -> None:
    """Read one part, if it is there and may have a value that is not known yet."""
    if all(name in told.values for name in part.tells) or (part.gpu_only and told.values.get("gpu") is False):
        return
    fitting = [entry for entry in entries if re.fullmatch(part.pattern, entry.name)]
    for entry in [entry for entry in fitting if entry.packed <= (part.largest or entry.packed)][:1]:
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
        told.read |= dict.fromkeys(add(told.values, found), entry.name)
        if min(most, room) < entry.packed:
            told.beyond += [name for name in part.tells if name not in told.values]
