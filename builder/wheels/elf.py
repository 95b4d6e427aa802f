"""As much of a shared library as ``ldconfig`` reads: who it is, and what it was built for.

Its answer depends on the ELF header, the dynamic section with its names, and a few notes
(``process_elf_file`` in https://sourceware.org/git/?p=glibc.git;a=blob;f=elf/readelf.c), which are kilobytes
of a file of hundreds of megabytes. The rest of such a file need not be on a disk to make a loader's cache.
"""

from __future__ import annotations

from builder import elf

_PROPERTY = 0x6474E553
_KEPT = frozenset({elf.DYNAMIC_SEGMENT, elf.INTERP_SEGMENT, elf.NOTE_SEGMENT, _PROPERTY})
_HEAD = 32 << 20
"""Bytes at the start that are held in memory: a table of names is usually there, before what points to it."""
_LARGEST_PART, _LARGEST_NAMES = 1 << 20, 128 << 20
"""Bytes of a library's dynamic section and notes, and of its names: 20 MiB in PyTorch's."""

Range = tuple[int, int]
"""Offset and length, in bytes."""


class Skeleton:
    """Takes a library of ``size`` bytes in pieces, from its start, and keeps what ``ldconfig`` reads."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._first: list[bytes] = []
        self._held = 0
        self._position = 0
        self._head = b""
        """The start, as long as the names may stand in it."""
        self._segments: list[elf.Segment] = []
        self._wanted: list[Range] = []
        self._dynamic: Range | None = None
        self._found = b""
        self._names: Range | None = None
        self._given_up = False
        self._kept: list[tuple[int, bytes]] = []

    def feed(self, piece: bytes) -> None:
        """Take the next piece."""
        if self._position == 0:
            self._first.append(piece)
            self._held += len(piece)
            if self._held < min(self._size, _HEAD):
                return
            piece = self._head = b"".join(self._first)
            self._first = []
            self._begin(piece)
        self._scan(piece)
        self._position += len(piece)

    def ranges(self) -> list[tuple[int, bytes]] | None:
        """The parts that were kept, by offset, after the last piece.

        None if one reading was not enough: the names stand too far in front of what points to them, or
        the file is an ELF file of an unusual kind. Of what is no ELF file only its start is kept, as
        ``ldconfig`` passes it over.
        """
        if self._given_up or (self._dynamic is not None and self._names is None):
            return None
        return self._kept

    def _begin(self, head: bytes) -> None:
        if head[:4] != b"\x7fELF":
            self._wanted = [(0, min(elf.ELF_HEADER, len(head)))]
            return
        segments = _segments(head)
        if segments is None or sum(one.length for one in segments if one.kind in _KEPT) > _LARGEST_PART:
            self._given_up = True
            return
        self._segments = segments
        self._wanted = [(0, elf.ELF_HEADER + elf.ELF_SEGMENT * len(segments))]
        self._wanted += [(one.offset, one.length) for one in segments if one.kind in _KEPT]
        self._dynamic = next(
            ((one.offset, one.length) for one in segments if one.kind == elf.DYNAMIC_SEGMENT), None
        )

    def _scan(self, piece: bytes) -> None:
        for one in self._wanted:
            self._keep(one, piece)
        if self._dynamic is not None and self._names is None and not self._given_up:
            self._found += _overlap(self._dynamic, self._position, piece)
            if len(self._found) == self._dynamic[1]:
                names = _names(self._found, self._segments)
                behind = names is not None and sum(names) > len(self._head) and names[0] < self._position
                if names is None or names[1] > _LARGEST_NAMES or behind:
                    self._given_up = True
                    return
                self._names = names
                if self._position:
                    self._kept.append((names[0], _overlap(names, 0, self._head)))
                self._head = b""
        if self._names is not None:
            self._keep(self._names, piece)

    def _keep(self, wanted: Range, piece: bytes) -> None:
        data = _overlap(wanted, self._position, piece)
        if data:
            self._kept.append((max(wanted[0], self._position), data))


def _overlap(wanted: Range, position: int, piece: bytes) -> bytes:
    """The part of ``piece``, which stands at ``position``, that is in the range."""
    start, end = max(wanted[0], position), min(sum(wanted), position + len(piece))
    return piece[start - position : end - position] if start < end else b""


def _segments(head: bytes) -> list[elf.Segment] | None:
    """The table of segments; None if it does not stand right behind the header, as it usually does."""
    read = elf.reader_of(head)
    try:
        behind = elf.elf_machine(read) is not None and int.from_bytes(read(32, 8), "little") == elf.ELF_HEADER
        return elf.elf_segments(read) if behind else None
    except ValueError:
        return None


def _names(dynamic: bytes, segments: list[elf.Segment]) -> Range | None:
    """Where the dynamic section's names stand in the file."""
    values = dict(elf.dynamic_entries(dynamic))
    try:
        return elf.place_in_file(values[elf.DT_STRTAB], segments), values[elf.DT_STRSZ]
    except (KeyError, ValueError):
        return None
