"""Tar streams that depend on nothing but their content: POSIX ustar, with pax for what does not fit.

Written by hand because :mod:`tarfile` spends most of its time on choices that are fixed here. A folder
becomes the stream that BuildKit makes of it, byte for byte, so that the layer has the same diff id:
containerd walks it in the order of its names and writes with Go's ``archive/tar``
(https://github.com/containerd/containerd/blob/main/pkg/archive/tar.go), whose records in front of a header
have another form than a wheel's (``writePAXHeader`` in
https://github.com/golang/go/blob/master/src/archive/tar/writer.go).
"""

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from builder.core.errors import CellError
from builder.image.layers.compression import CHUNK, BlobWriter
from builder.image.layers.types import Compression, Layer

MTIME = 315619200
"""1980-01-02T00:00:00Z, the time of every entry. A constant, so that a wheel's layer depends on the wheel
alone; not 0, because zip files begin in 1980 and a file with an older time cannot be put into one by
:mod:`zipfile` (in any time zone: hence the second of January)."""

_BLOCK = 512
_NAME = 100
_PREFIX = 155
_MAX_SIZE = 8**11 - 1
_REST = b"\0" * 64 + b"0000000\0" * 2  # user and group names, device numbers

END = b"\0" * (2 * _BLOCK)
"""The end of an archive."""


def padding(size: int) -> bytes:
    """The zeros between a file's content of ``size`` bytes and the next header."""
    return b"\0" * (-size % _BLOCK)


def file_header(path: str, *, mode: int, size: int) -> bytes:
    return _header(path, b"0", mode, size)


def directory_header(path: str) -> bytes:
    return _header(path + "/", b"5", 0o755, 0)


def _header(path: str, kind: bytes, mode: int, size: int) -> bytes:
    name = path.encode()
    split = _split_name(name)
    if split is not None and size <= _MAX_SIZE:
        return _block(split[1], split[0], kind, mode, size)
    records = b"" if split is not None else _record(b"path", name)
    if size > _MAX_SIZE:
        records += _record(b"size", b"%d" % size)
    extended = _block(b"pax-header", b"", b"x", 0o644, len(records)) + records + padding(len(records))
    # A reader without pax sees the end of the name: enough to recognise the file by.
    return extended + _block(name[-_NAME:], b"", kind, mode, min(size, _MAX_SIZE))


def go_header(name: bytes, kind: bytes, *, mode: int, size: int, mtime: int, link: bytes = b"") -> bytes:
    """The header of one entry as Go writes it, with the records in front of it that it needs."""
    records = b""
    split = _split_name(name)
    if len(link) > _NAME or not link.isascii():
        records += _record(b"linkpath", link)
    if split is None or (records and len(name) > _NAME):
        records += _record(b"path", name)
    if size > _MAX_SIZE:
        records += _record(b"size", b"%d" % size)
    if not records and split is not None:
        return _block(split[1], split[0], kind, mode, size, mtime=mtime, link=link)
    folder, slash, file = name.rpartition(b"/")
    beside = folder + slash + b"PaxHeaders.0" + (b"/" + file if file else b"")
    # The header of records has no names and no device numbers.
    short = _ascii(beside)[:_NAME].rstrip(b"/")
    extended = _block(short, b"", b"x", 0, len(records), mtime=0, rest=b"\0" * 80)
    # Old readers would take a file for a folder if its cut name ended in a slash.
    cut = _ascii(name)
    short = cut[:_NAME].rstrip(b"/") if len(cut) > _NAME else cut
    main = _block(short, b"", kind, mode, min(size, _MAX_SIZE), mtime=mtime, link=_ascii(link)[:_NAME])
    return extended + records + padding(len(records)) + main


def _ascii(text: bytes) -> bytes:
    return bytes(byte for byte in text if 0 < byte < 0x80)


def _split_name(name: bytes) -> tuple[bytes, bytes] | None:
    """``name`` as (prefix, name) of a ustar header; None if it does not fit."""
    if not name.isascii():
        return None
    if len(name) <= _NAME:
        return b"", name
    # The last slash that leaves a prefix short enough; a directory's own closing slash is none.
    cut = name.rfind(b"/", 0, min(_PREFIX + 1, len(name) - 1))
    rest = name[cut + 1 :]
    return (name[:cut], rest) if cut > 0 and 0 < len(rest) <= _NAME else None


def _record(key: bytes, value: bytes) -> bytes:
    """``<length> key=value\\n``, where the length counts its own digits."""
    body = b" %b=%b\n" % (key, value)
    length = len(body)
    while length != len(body) + len(str(length)):
        length = len(body) + len(str(length))
    return b"%d%b" % (length, body)


def _block(
    name: bytes,
    prefix: bytes,
    kind: bytes,
    mode: int,
    size: int,
    *,
    mtime: int = MTIME,
    link: bytes = b"",
    rest: bytes = _REST,
) -> bytes:
    """One header, with its checksum. ``rest``: user and group names, device numbers."""
    front = name.ljust(_NAME, b"\0") + b"%07o\0%07o\0%07o\0%011o\0%011o\0" % (mode, 0, 0, size, mtime)
    back = kind + link.ljust(_NAME, b"\0") + b"ustar\x0000" + rest + prefix.ljust(_PREFIX, b"\0") + b"\0" * 12
    checksum = sum(front) + sum(back) + 8 * 0x20
    return front + b"%06o\0 " % checksum + back


def tar_layer(
    tar: Path, target: Path, title: str, compression: Compression, advance: Callable[[int], None]
) -> Layer:
    """Write a tar file as a layer; ``advance`` is told of each piece's size in bytes."""
    size = tar.stat().st_size
    with (
        tar.open("rb") as source,
        target.open("wb") as blob,
        BlobWriter(blob, title, compression, size) as writer,
    ):
        while piece := source.read(CHUNK):
            writer.write(piece)
            advance(len(piece))
        return writer.finish()


def write_folder(folder: Path, target: BinaryIO, title: str, compression: Compression) -> Layer:
    """Write what is below ``folder`` as a layer that belongs to 0:0; times to the second.

    Raises :class:`~builder.core.errors.CellError` for what is neither file, folder nor symbolic link.
    """
    entries = [_entry(path, folder) for path in _walk(folder)]
    whole = len(END) + sum(len(head) + size + len(padding(size)) for _, head, size in entries)
    with BlobWriter(target, title, compression, whole) as writer:
        for path, head, size in entries:
            writer.write(head)
            if size:
                with path.open("rb") as source:
                    while piece := source.read(CHUNK):
                        writer.write(piece)
                writer.write(padding(size))
        writer.write(END)
        return writer.finish()


def _walk(folder: Path) -> Iterator[Path]:
    """Each folder before what is in it, names in the order of their bytes."""
    for path in sorted(folder.iterdir(), key=lambda path: os.fsencode(path.name)):
        yield path
        if path.is_dir() and not path.is_symlink():
            yield from _walk(path)


def _entry(path: Path, root: Path) -> tuple[Path, bytes, int]:
    """A file, folder or link with its header, and the bytes of its content."""
    status, name = path.lstat(), os.fsencode(path.relative_to(root))
    kind, link, size = b"0", b"", 0
    if stat.S_ISDIR(status.st_mode):
        kind, name = b"5", name + b"/"
    elif stat.S_ISLNK(status.st_mode):
        kind, link = b"2", os.fsencode(path.readlink())
    elif stat.S_ISREG(status.st_mode):
        size = status.st_size
    else:
        raise CellError(f"/{name.decode(errors='replace')} is no file, folder or link")
    mode, mtime = stat.S_IMODE(status.st_mode), int(status.st_mtime)
    return path, go_header(name, kind, mode=mode, size=size, mtime=mtime, link=link), size
