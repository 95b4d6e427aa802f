"""A few files in one blob of the store, whole or in parts, with an index that can be read alone.

::

    length of the index, 8 bytes, big-endian
    index: JSON, compressed
    contents, one after another, compressed

Not a tar file, because a library of a gigabyte of which some kilobytes are kept would be one of zeros there.
"""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import zstandard

from builder.core.digests import canonical_json, sha256_of
from builder.core.errors import CellError
from builder.image.layers.compression import ZSTD_LEVEL
from builder.image.layers.store import Layer, Lease

FORMAT = 1
"""Part of every key that a pack is looked up by. To be raised with every change to what is in one."""
_LENGTH = 8


@dataclass(frozen=True, slots=True)
class Packed:
    """A file in a pack, or on its way there. ``path`` is relative to the image's root, ``size`` that of the
    whole file in bytes.
    """

    path: str
    mode: int
    size: int
    sha256: str
    """Of the content, in hexadecimal; empty if it is not all here."""
    ranges: tuple[tuple[int, int], ...]
    """Offsets and lengths of the parts that are here."""
    pieces: Sequence[bytes] = ()
    """One for each of these, where they are at hand."""

    @classmethod
    def whole(cls, path: str, mode: int, content: bytes) -> Self:
        """A file of which all is at hand."""
        size, digest = len(content), hashlib.sha256(content).hexdigest()
        return cls(path, mode, size, digest, ((0, size),), (content,))


class Pack:
    """A pack that the store found sound; its index is read at once."""

    def __init__(self, path: Path) -> None:
        with path.open("rb") as blob:
            length = int.from_bytes(blob.read(_LENGTH), "big")
            index = json.loads(zstandard.decompress(blob.read(length)))
        self.path = path
        self.files = tuple(
            Packed(name, mode, size, sha256, tuple((start, end) for start, end in ranges))
            for name, mode, size, sha256, ranges in index["files"]
        )
        """In the order of their contents."""
        self.notes: Mapping[str, Any] = index["notes"]
        """The maker's notes, read with the index."""
        self._start = _LENGTH + length

    def contents(self, wanted: Callable[[Packed], bool] = lambda _file: True) -> Iterator[Packed]:
        """The files that are ``wanted``, with their pieces; nothing is read beyond the last of them."""
        left = sum(map(wanted, self.files))
        with self.path.open("rb") as blob:
            blob.seek(self._start)
            with zstandard.ZstdDecompressor().stream_reader(blob) as stream:
                for file in self.files:
                    if not left:
                        return
                    pieces = [stream.read(length) for _, length in file.ranges]
                    if [len(piece) for piece in pieces] != [length for _, length in file.ranges]:
                        raise CellError(f"{self.path.name[:12]} in the layer cache is cut short")
                    if wanted(file):
                        left -= 1
                        yield replace(file, pieces=pieces)


def keep_pack(
    key: str, title: str, make: Callable[[], tuple[Sequence[Packed], Mapping[str, Any]]], lease: Lease
) -> Pack:
    """The pack of ``key``, made of the files and notes that ``make`` gives, if nobody has made it yet."""

    def write(target: Path) -> Layer:
        files, notes = make()
        entries = [[one.path, one.mode, one.size, one.sha256, one.ranges] for one in files]
        index = _compressed([canonical_json({"files": entries, "notes": notes})])
        data = _compressed([piece for one in files for piece in one.pieces])
        blob = len(index).to_bytes(_LENGTH, "big") + index + data
        target.write_bytes(blob)
        digest, size, kind = sha256_of(blob), len(blob), "application/vnd.rtbuild.pack"
        return Layer(title=title, digest=digest, diff_id=digest, size=size, unpacked=0, media_type=kind)

    return Pack(lease.blob(lease.obtain(key, write).digest))


def find_pack(key: str, lease: Lease) -> Pack | None:
    """The pack of ``key``, kept by ``lease``; None if it must be made."""
    found = lease.find(key)
    return None if found is None else Pack(lease.blob(found.digest))


def _compressed(pieces: Sequence[bytes]) -> bytes:
    return zstandard.ZstdCompressor(level=ZSTD_LEVEL).compress(b"".join(pieces))
