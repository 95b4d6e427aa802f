"""A folder as the tar stream that BuildKit makes of it, byte for byte: so the layer has the same diff id.

The differ of containerd walks a folder in the order of its names and writes with Go's ``archive/tar``
(https://github.com/containerd/containerd/blob/main/pkg/archive/tar.go). Its headers are those of
:mod:`builder.layers.tar`; only what does not fit into one has another form there
(``writePAXHeader`` in https://github.com/golang/go/blob/master/src/archive/tar/writer.go).
"""

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from builder.errors import CellError
from builder.layers import tar
from builder.layers.blob import CHUNK, BlobWriter, Written
from builder.layers.types import Compression

_NO_REST = b"\0" * 80
"""The header of extended records has no names and no device numbers."""


def write_folder(folder: Path, target: BinaryIO, compression: Compression) -> Written:
    """Write what is below ``folder`` as a layer that belongs to 0:0; times to the second.

    Raises :class:`~builder.errors.CellError` for what is neither file, folder nor symbolic link.
    """
    entries = [_Entry(path, folder) for path in _walk(folder)]
    size = len(tar.END)
    size += sum(len(entry.header) + entry.size + len(tar.padding(entry.size)) for entry in entries)
    writer = BlobWriter(target, compression, size)
    try:
        for entry in entries:
            writer.write(entry.header)
            if entry.size:
                with entry.path.open("rb") as source:
                    while piece := source.read(CHUNK):
                        writer.write(piece)
                writer.write(tar.padding(entry.size))
        writer.write(tar.END)
        return writer.finish()
    finally:
        writer.close()


def _walk(folder: Path) -> Iterator[Path]:
    """Each folder before what is in it, names in the order of their bytes."""
    for path in sorted(folder.iterdir(), key=lambda path: os.fsencode(path.name)):
        yield path
        if path.is_dir() and not path.is_symlink():
            yield from _walk(path)


class _Entry:
    """A file, folder or link with its header. ``size`` is in bytes."""

    def __init__(self, path: Path, root: Path) -> None:
        status = path.lstat()
        kind, link, self.size = b"0", b"", 0
        name = os.fsencode(path.relative_to(root))
        if stat.S_ISDIR(status.st_mode):
            kind, name = b"5", name + b"/"
        elif stat.S_ISLNK(status.st_mode):
            kind, link = b"2", os.fsencode(path.readlink())
        elif stat.S_ISREG(status.st_mode):
            self.size = status.st_size
        else:
            raise CellError(f"/{name.decode(errors='replace')} is no file, folder or link")
        self.path = path
        self.header = header(
            name,
            kind,
            mode=stat.S_IMODE(status.st_mode),
            size=self.size,
            mtime=int(status.st_mtime),
            link=link,
        )


def header(name: bytes, kind: bytes, *, mode: int, size: int, mtime: int, link: bytes = b"") -> bytes:
    """The header of one entry, with the records in front of it that it needs."""
    records = b""
    split = tar.split_name(name) if name.isascii() else None
    if len(link) > tar.NAME or not link.isascii():
        records += tar.pax_record(b"linkpath", link)
    if split is None or (records and len(name) > tar.NAME):
        records += tar.pax_record(b"path", name)
    if size > tar.MAX_SIZE:
        records += tar.pax_record(b"size", b"%d" % size)
    if not records and split is not None:
        return tar.block(split[1], split[0], kind, mode, size, mtime=mtime, link=link)
    folder, _, file = name.rpartition(b"/")
    beside = (folder + b"/" if folder else b"") + b"PaxHeaders.0" + (b"/" + file if file else b"")
    extended = tar.block(
        _ascii(beside)[: tar.NAME].rstrip(b"/"), b"", b"x", 0, len(records), mtime=0, rest=_NO_REST
    )
    # Old readers would take a file for a folder if its cut name ended in a slash.
    cut = _ascii(name)
    short = cut[: tar.NAME].rstrip(b"/") if len(cut) > tar.NAME else cut
    main = tar.block(
        short, b"", kind, mode, min(size, tar.MAX_SIZE), mtime=mtime, link=_ascii(link)[: tar.NAME]
    )
    return extended + records + tar.padding(len(records)) + main


def _ascii(text: bytes) -> bytes:
    return bytes(byte for byte in text if 0 < byte < 0x80)
