"""The dynamic section of one library of a wheel on an index, without unpacking the whole of it into memory.

The header lies at the beginning of a library; its dynamic section and the names in it near the beginning or,
as linkers and patchelf put them, near the end. So the ends are read first, in growing parts, and only then
all of it goes by.
"""

from collections.abc import Callable, Iterable
from zipfile import ZipInfo

from builder.core.elf import elf_segments, reader_of
from builder.core.link_set import LinkFile, link_file
from builder.sources.index import RemoteZip, UnknownError

SMALL = 1 << 19
"""Packed bytes of a library that is read whole."""
_EDGES = (1 << 18, 1 << 20)
"""Packed bytes of each end of a larger one, in turn: of OpenCV's 30 libraries 256 KiB tell 28, of gmsh's one
1 MiB."""
_LARGEST = 48 << 20
"""Packed bytes of a library of which all is unpacked in passing, and its tables kept."""
_UNPACKED = 512 << 20
_KEPT, _SMALL_SEGMENT = 12 << 20, 4 << 20
"""Bytes of the beginning and of the end of such a library, and of each segment up to this size."""
_MOST_SEGMENTS = 64
_ROOM = 64 << 10


def link_tables(archive: RemoteZip, entry: ZipInfo) -> LinkFile | None:
    """What the loader goes by of a library; None for what is none, or if that cannot be read.

    The bytes that it takes are beside those that the archive's limit allows.
    """
    for read in _ways(archive, entry):
        try:
            return link_file(read())
        except (UnknownError, ValueError):
            continue
    return None


def _ways(archive: RemoteZip, entry: ZipInfo) -> Iterable[Callable[[], Callable[[int, int], bytes]]]:
    size = entry.compress_size
    for edge in _EDGES if size > SMALL else ():
        if 2 * edge >= size:
            break
        yield lambda edge=edge: read_whole_or_ends(archive, entry, edge, edge)  # type: ignore[misc]
    if size <= _LARGEST and entry.file_size <= _UNPACKED:
        archive.limit += size + _ROOM
        yield lambda: _tables(archive.pieces(entry), entry.file_size)


def read_whole_or_ends(
    archive: RemoteZip, entry: ZipInfo, begin: int, end: int
) -> Callable[[int, int], bytes]:
    """A ``read`` of a library, or of its ends in so many packed bytes, beside those that the archive's limit
    allows. Raises UnknownError.
    """
    archive.limit += begin + end + 2 * _ROOM
    if entry.compress_size <= begin + end:
        return reader_of(archive.content(entry))
    return of_ends(archive.content(entry, begin), archive.ending(entry, end), entry.file_size)


def of_ends(begin: bytes, end: bytes, size: int) -> Callable[[int, int], bytes]:
    """A ``read`` of a library of which the middle is not known: it is empty, which is taken for cut off."""
    start = size - len(end)
    return lambda at, length: end[at - start :][:length] if at >= start else begin[at : at + length]


def _tables(pieces: Iterable[bytes], size: int) -> Callable[[int, int], bytes]:
    """A ``read`` of the beginning, the end and the small segments of a library that passes by.

    What was not kept is empty, which the reader of a library takes for cut off.
    """
    kept: list[tuple[int, bytes]] = []
    wanted = [(0, _KEPT), (max(size - _KEPT, 0), size)]
    at = 0
    for piece in pieces:
        if at == 0:
            segments = elf_segments(reader_of(piece))
            wanted += [
                (one.offset, one.offset + one.length)
                for one in segments[:_MOST_SEGMENTS]
                if one.length <= _SMALL_SEGMENT
            ]
            wanted = _joined(wanted)
        for start, end in wanted:
            first, last = max(start, at), min(end, at + len(piece))
            if first < last:
                kept.append((first, piece[first - at : last - at]))
        at += len(piece)
    parts = {start: b"".join(part for place, part in kept if start <= place < end) for start, end in wanted}

    def read(place: int, length: int) -> bytes:
        start = max((one for one in parts if one <= place), default=0)
        return parts[start][place - start : place - start + length]

    return read


def _joined(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Spans that overlap, as one."""
    found: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if found and start <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], end)
        else:
            found.append((start, end))
    return found
