"""Reading values of a wheel on its server, by HTTP ranges.

``check --read`` reads at most 1 MiB of a wheel: its metadata and small members. A deep reading has 16 MiB,
down to the code in its libraries. Values (:mod:`.wheel_members`) are in the user's cache by the wheel's
hash: an interrupted refresh continues, and nothing is read twice.

The metadata file beside a wheel is used if the index offers one: PEP 658 and PEP 714, now in
https://packaging.python.org/en/latest/specifications/simple-repository-api/.
"""

import contextlib
import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from urllib.parse import urlsplit
from zipfile import ZipInfo

import requests

from builder.plan.facts.reading.wheel import (
    Kind,
    WheelReading,
    add_values,
    load_reading,
    reading_path,
    save_reading,
)
from builder.plan.facts.reading.wheel_members import WheelPart, parts_of
from builder.sources.index import DEEP_LIMIT, LIMIT, IndexFile, RemoteZip, UnknownError, is_html
from builder.sources.net import Client, explain

_METADATA = r"[^/]+\.dist-info/METADATA"


def read_wheel(
    file: IndexFile, client: Client, kind: Kind = "small", *, cache: Path | None = None
) -> WheelReading:
    """Read one wheel, or take it from the cache. Nothing that a server does is an error: see ``unread``.

    A wheel without a hash is not kept, and a small reading only if it is complete.
    """
    limit = DEEP_LIMIT if kind in {"deep", "other"} else LIMIT

    def read(reading: WheelReading) -> None:
        with zip_of(file, client, reading, limit=limit) as archive:
            reading.metadata = metadata_beside(archive, file.metadata) if file.metadata else None
            _members(archive, parts_of(file.name, kind), reading, small=kind == "small")

    def complete(reading: WheelReading) -> bool:
        return reading.metadata is not None and not (reading.unread and kind == "small")

    return read_once(file, kind, read, complete, cache=cache)


def read_once(
    file: IndexFile,
    kind: Kind,
    read: Callable[[WheelReading], None],
    complete: Callable[[WheelReading], bool],
    *,
    cache: Path | None = None,
) -> WheelReading:
    """The reading of a file that is kept, else that of ``read``, which is kept if it is ``complete``.

    Whatever ``read`` raises of a server or a file becomes ``unread``. One with a line that broke is not kept:
    that says nothing about the file.
    """
    place = reading_path(file.sha256, kind, cache)
    known = load_reading(place)
    if known is not None:
        return known
    reading = WheelReading(file=file.name)
    try:
        read(reading)
    except UnknownError as problem:
        reading.unread.append(str(problem))
    except requests.RequestException as problem:
        reading.unread.append(explain(problem))
        return reading
    if place is not None and complete(reading):
        save_reading(place, reading)
    return reading


@contextlib.contextmanager
def zip_of(file: IndexFile, client: Client, reading: WheelReading, *, limit: int) -> Iterator[RemoteZip]:
    """A wheel on its server; ``reading`` gets how much of it was transferred. ``limit`` in bytes."""
    archive = RemoteZip(url=file.url, session=client, size=file.size, limit=limit)
    try:
        yield archive
    finally:
        reading.transferred = archive.transferred


def metadata_beside(archive: RemoteZip, expected: str | bool) -> str | None:
    """The metadata file beside the wheel; None if it is not there after all, or differs."""
    headers = {"Accept-Encoding": "identity"}
    parts = urlsplit(archive.url)
    beside = parts._replace(path=f"{parts.path}.metadata", fragment="").geturl()
    with archive.session.get(beside, stream=True, headers=headers) as answer:
        if answer.status_code != 200 or is_html(answer):
            return None
        content = archive.body(answer, LIMIT // 2)
    matches = isinstance(expected, bool) or hashlib.sha256(content).hexdigest() == expected
    return metadata_head(content) if matches and content.startswith(b"Metadata-Version:") else None


def metadata_head(metadata: bytes) -> str:
    """The metadata up to the description."""
    return re.split(r"\r?\n\r?\n", metadata.decode("utf-8", "replace"), maxsplit=1)[0]


def _members(archive: RemoteZip, parts: Sequence[WheelPart], reading: WheelReading, *, small: bool) -> None:
    """Read metadata and parts. In a small reading libraries and data may be missing without a reason.

    Raises UnknownError if the directory cannot be read.
    """
    patterns = [part.member for part in parts]
    if reading.metadata is None:
        patterns.append(_METADATA)
    if not patterns:
        return
    found, why = archive.find(patterns, first=small or not parts)
    if reading.metadata is None:
        try:
            reading.metadata = metadata_head(archive.content(found[_METADATA][0]))
        except IndexError:
            reading.unread.append(why or "it holds no METADATA")
        except UnknownError as problem:
            reading.unread.append(str(problem))
    needed = [part for part in parts if not small or part.member.endswith(r"\.py")]
    for part in parts:
        reasons = _part(archive, found[part.member], part, reading)
        reading.unread += reasons if part in needed else ()
    if why is not None and not all(found[part.member] for part in needed):
        reading.unread.append(why)


def _part(
    archive: RemoteZip, entries: Sequence[ZipInfo], part: WheelPart, reading: WheelReading
) -> list[str]:
    """Read one part, if it is there and may have a value that is not known yet; why it could not be read."""
    if all(name in reading.values for name in part.tells) or (
        part.gpu_only and reading.values.get("gpu") is False
    ):
        return []
    fitting = (one for one in entries if not part.largest or one.compress_size <= part.largest << 20)
    if (entry := next(fitting, None)) is None:
        return []
    size, room = entry.compress_size, archive.limit - archive.transferred - (4 << 10)
    most = min(part.most << 20, size) if part.most else size
    if most > room and part.most is None:
        return [f"{entry.filename} has {size >> 20} MiB, more than is left to read of one wheel"]
    try:
        found = part.read(archive.content(entry, min(most, room)))
    except UnknownError as problem:
        return [str(problem)]
    reading.read |= dict.fromkeys(add_values(reading.values, found), entry.filename)
    if min(most, room) < size:
        reading.beyond += [name for name in part.tells if name not in reading.values]
    return []
