"""The part of a layer of wheels that the recipe's steps read, kept beside the layer in the store.

The steps compile Python sources and have ``ldconfig`` read libraries, a hundredth of all bytes: so
that it is not unpacked for them again and again, it is set aside when a wheel becomes a layer, and taken from
the layer where that came from elsewhere. Any other file is left out: a step that opened one would fail.
"""

import csv
import hashlib
import io
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from builder.documents import shown
from builder.errors import CancelledError, CellError
from builder.layers.pack import FORMAT, Content, Pack, Packed, find_pack, keep_pack
from builder.layers.store import LayerStore, Lease
from builder.layers.types import Layer
from builder.layers.untar import open_layer
from builder.wheels.elf import Skeleton
from builder.wheels.wheel import SITE, parents

_LIBRARY = re.compile(r"/lib(64)?/[^/]+\.so(\.[\w.]+)?$")
"""Only folders of this name are told to the loader."""
_RECORD = re.compile(rf"{SITE}/([^/]+\.dist-info)/RECORD")
_MOST = 2 << 30
"""Bytes of a layer's sources and of libraries that are kept whole: they are in memory for a moment."""


def is_source(path: str) -> bool:
    """Whether the bytecode step reads this file: Python, and who brought it."""
    return path.endswith(".py") or _RECORD.fullmatch(path) is not None


def is_library(path: str) -> bool:
    return _LIBRARY.search(path) is not None


class _Whole:
    """Takes a file in pieces and keeps it."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []

    def feed(self, piece: bytes) -> None:
        self._pieces.append(piece)

    def ranges(self) -> list[tuple[int, bytes]]:
        return [(0, b"".join(self._pieces))]


@dataclass(frozen=True, slots=True)
class _Taken:
    path: str
    mode: int
    size: int
    part: Skeleton | _Whole


@dataclass
class Excerpt:
    """Collects what is looked at while a layer's files pass by, in any order."""

    folders: set[str] = field(default_factory=set)
    whole: frozenset[str] = frozenset()
    """Libraries of which a skeleton was not enough."""
    _taken: list[_Taken] = field(default_factory=list)
    _left: int = _MOST

    def take(self, path: str, mode: int, size: int) -> Callable[[bytes], None] | None:
        """The function to call with each piece of this file, if the steps read it; else None."""
        self.folders.update(parents(path))
        if is_source(path) or path in self.whole:
            part: Skeleton | _Whole = _Whole()
            self._left -= size
            if self._left < 0:
                raise CellError(
                    f"a layer with /{shown(path)} has more than {_MOST >> 30} GiB of Python files"
                )
        elif is_library(path):
            part = Skeleton(size)
        else:
            return None
        self._taken.append(_Taken(path, mode, size, part))
        return part.feed

    def unclear(self) -> frozenset[str]:
        """Libraries that have to be kept whole: one reading was not enough for a skeleton."""
        return frozenset(one.path for one in self._taken if one.part.ranges() is None)

    def contents(self) -> tuple[list[Content], dict[str, Any]]:
        """The parts that were kept, libraries first, and notes: folders, and the sources of each RECORD."""
        contents, records = [], dict[str, list[str]]()
        for one in sorted(self._taken, key=lambda one: (is_source(one.path), one.path)):
            pieces = one.part.ranges()
            assert pieces is not None  # noqa: S101 - see unclear
            whole = isinstance(one.part, _Whole)
            digest = hashlib.sha256(pieces[0][1]).hexdigest() if whole else ""
            ranges = tuple((offset, len(data)) for offset, data in pieces)
            file = Packed(one.path, one.mode, one.size, digest, ranges)
            contents.append(Content(file, [data for _, data in pieces]))
            record = _RECORD.fullmatch(one.path)
            if record:
                records[record[1]] = _sources(pieces[0][1])
        return contents, {"folders": sorted(self.folders), "records": records}


def _sources(record: bytes) -> list[str]:
    """The Python files that a RECORD names, as the bytecode step reads it."""
    lines = io.StringIO(record.decode("utf-8", "surrogateescape"), newline="")
    try:
        return [row[0] for row in csv.reader(lines) if row and row[0].endswith(".py")]
    except csv.Error as problem:
        raise CellError(f"a RECORD of an installed package cannot be read: {problem}") from problem


def keep_excerpt(layer: Layer, excerpt: Excerpt, *, store: LayerStore, lease: Lease) -> None:
    """Keep the excerpt of a layer that was just made, unless a library in it needs another reading."""
    if not excerpt.unclear():
        keep_pack(_key(layer), _title(layer), excerpt.contents, store=store, lease=lease)


def excerpt_of(
    layer: Layer, blob: Callable[[Layer], Path], *, store: LayerStore, lease: Lease, cancel: threading.Event
) -> Pack:
    """The excerpt of a layer, taken from its ``blob`` if the store lacks it."""

    def make() -> tuple[Sequence[Content], Mapping[str, Any]]:
        path = blob(layer)
        first = _read(path, layer.media_type, frozenset(), cancel)
        unclear = first.unclear()
        return (_read(path, layer.media_type, unclear, cancel) if unclear else first).contents()

    found = find_pack(_key(layer), store=store, lease=lease)
    return found or keep_pack(_key(layer), _title(layer), make, store=store, lease=lease)


def _read(blob: Path, media_type: str, whole: frozenset[str], cancel: threading.Event) -> Excerpt:
    excerpt = Excerpt(whole=whole)
    with open_layer(blob, media_type) as archive:
        for entry in archive:
            if cancel.is_set():
                raise CancelledError("looking into a layer was not finished")
            if entry.kind == "folder":
                excerpt.folders.add(entry.name)
            feed = excerpt.take(entry.name, entry.mode, entry.size) if entry.kind == "file" else None
            if feed is not None:
                for piece in archive.content():
                    feed(piece)
    return excerpt


def _key(layer: Layer) -> str:
    return f"excerpt{FORMAT}-{layer.diff_id.removeprefix('sha256:')}"


def _title(layer: Layer) -> str:
    return f"what is looked at in {layer.title}"
