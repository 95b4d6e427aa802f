"""As much of a shared library as ``ldconfig`` reads: who it is, and what it was built for.

Its answer depends on the ELF header, the dynamic section with its names, and a few notes
(``process_elf_file`` in https://sourceware.org/git/?p=glibc.git;a=blob;f=elf/readelf.c), which are kilobytes
of a file of hundreds of megabytes. The rest of such a file need not be on a disk to make a loader's cache.
"""

from __future__ import annotations

import struct
from typing import BinaryIO, Protocol

_LOAD, _DYNAMIC, _INTERP, _NOTE, _PROPERTY = 1, 2, 3, 4, 0x6474E553
_KEPT = frozenset({_DYNAMIC, _INTERP, _NOTE, _PROPERTY})
_STRTAB, _STRSZ = 5, 10
_HEADER, _SEGMENT = 64, 56
_HEAD = 32 << 20
"""Bytes at the start that are held in memory: a table of names is usually there, before what points to it."""
_PIECE = 1 << 20

Range = tuple[int, int]
"""Offset and length, in bytes."""


class Source(Protocol):
    """A stream that can be read forward only."""

    def read(self, size: int, /) -> bytes: ...


def write_skeleton(source: Source, size: int, target: BinaryIO) -> bool:
    """Copy what ``ldconfig`` reads to the same places of ``target``, a sparse file of ``size`` bytes.

    False where one reading was not enough: the names stand too far in front of what points to them, or the
    file is an ELF file of an unusual kind. What is no ELF file is left empty, as ``ldconfig`` passes it over.
    """
    head = source.read(min(size, _HEAD))
    target.truncate(size)
    if head[:4] != b"\x7fELF":
        _put(target, 0, head[:_HEADER])
        return True
    segments = _segments(head)
    if segments is None:
        return False
    wanted = [(0, _HEADER + _SEGMENT * len(segments))]
    wanted += [(offset, length) for kind, offset, _, length in segments if kind in _KEPT]
    dynamic = next(((offset, length) for kind, offset, _, length in segments if kind == _DYNAMIC), None)
    names: Range | None = None
    found = b""
    position, piece = 0, head
    while piece:
        for one in wanted:
            _put(target, max(one[0], position), _overlap(one, position, piece))
        if dynamic is not None and names is None:
            found += _overlap(dynamic, position, piece)
            if len(found) == dynamic[1]:
                names = _names(found, segments)
                if names is None or (sum(names) > len(head) and names[0] < position):
                    return False
                _put(target, names[0], _overlap(names, 0, head))
        if names is not None:
            _put(target, max(names[0], position), _overlap(names, position, piece))
        position += len(piece)
        piece = source.read(min(_PIECE, size - position))
    return dynamic is None or names is not None


def _overlap(wanted: Range, position: int, piece: bytes) -> bytes:
    """The part of ``piece``, which stands at ``position``, that is in the range."""
    start, end = max(wanted[0], position), min(sum(wanted), position + len(piece))
    return piece[start - position : end - position] if start < end else b""


def _segments(head: bytes) -> list[tuple[int, int, int, int]] | None:
    """Kind, offset, address and length in the file of each segment; None where this cannot tell."""
    if len(head) < _HEADER or head[4:6] != b"\x02\x01":  # 64 bits, little-endian
        return None
    (table,) = struct.unpack_from("<Q", head, 32)
    entry, count = struct.unpack_from("<HH", head, 54)
    if table != _HEADER or entry != _SEGMENT or table + entry * count > len(head):
        return None
    fields = (struct.unpack_from("<IIQQQQ", head, table + entry * number) for number in range(count))
    return [(kind, offset, address, length) for kind, _, offset, address, _, length in fields]


def _names(dynamic: bytes, segments: list[tuple[int, int, int, int]]) -> Range | None:
    """Where the dynamic section's names stand in the file."""
    values = dict(struct.iter_unpack("<QQ", dynamic[: len(dynamic) // 16 * 16]))
    address, length = values.get(_STRTAB), values.get(_STRSZ)
    if address is None or length is None:
        return None
    for kind, offset, start, size in segments:
        if kind == _LOAD and start <= address < start + size:
            return offset + address - start, length
    return None


def _put(target: BinaryIO, offset: int, data: bytes) -> None:
    if data:
        target.seek(offset)
        target.write(data)
