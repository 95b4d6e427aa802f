"""Wheels → one layer, in one pass: inflate, check against ``RECORD``, lay out as tar, compress, hash."""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import BinaryIO

from builder.layers import tar
from builder.layers.blob import BlobWriter, Written
from builder.layers.types import Compression
from builder.wheels.archive import Archive
from builder.wheels.excerpt import Excerpt
from builder.wheels.fits import Listing, refuse_collisions
from builder.wheels.wheel import File, Tree, parents

LAYOUT = 1
"""Version of the form of a wheel's layer. Goes up with every change to the bytes of a tar stream, and is
part of the layers' keys."""


@dataclass(frozen=True, kw_only=True)
class InstalledWheel:
    """An open wheel and what installing it leaves."""

    archive: Archive
    tree: Tree


def write_layer(
    sources: Sequence[InstalledWheel],
    target: BinaryIO,
    compression: Compression,
    advance: Callable[[int], None],
    *,
    as_listed: bool = False,
    excerpt: Excerpt | None = None,
) -> tuple[Written, Listing]:
    """Write one layer with the trees of all ``sources``; ``advance`` is told of each piece's size in bytes.

    What the recipe's steps look at goes into ``excerpt``, too.

    Raises :class:`~builder.errors.CellError` for a file that is not what its ``RECORD`` says, and for two
    wheels that differ about a path, unless ``as_listed``: then it is the file that pip would leave.
    :class:`OSError` if the target cannot be written.
    """
    listing = _listing(sources)
    refuse_collisions([listing], as_listed=as_listed)
    last = sorted(sources, key=lambda source: source.tree.wheel.name, reverse=True)
    owners = {file.path: (source, file) for source in last for file in source.tree.files}
    folders = {folder for path in owners for folder in parents(path)}
    size = sum(len(tar.directory_header(folder)) for folder in folders) + len(tar.END)
    for _, file in owners.values():
        size += len(tar.file_header(file.path, mode=file.mode, size=file.size))
        size += file.size + len(tar.padding(file.size))
    writer = BlobWriter(target, compression, size)
    digests: dict[str, str] = {}
    try:
        for path in sorted(folders | owners.keys()):
            if path in folders:
                writer.write(tar.directory_header(path))
                continue
            source, file = owners[path]
            writer.write(tar.file_header(path, mode=file.mode, size=file.size))
            digest = hashlib.sha256()
            feed = excerpt.take(path, file.mode, file.size) if excerpt is not None else None
            for piece in _pieces(source, file):
                digest.update(piece)
                writer.write(piece)
                if feed is not None:
                    feed(piece)
                advance(len(piece))
            writer.write(tar.padding(file.size))
            digests[path] = digest.hexdigest()
            if file.sha256 not in (None, digests[path]):
                raise source.archive.error(f"/{path} is not what its RECORD says: the hash differs")
        writer.write(tar.END)
        written = writer.finish()
    finally:
        writer.close()
    return written, {
        source.tree.wheel.name: {
            file.path: listing[source.tree.wheel.name][file.path] or f"{file.mode:o} {digests[file.path]}"
            for file in source.tree.files
        }
        for source in sources
    }


def _listing(sources: Sequence[InstalledWheel]) -> Listing:
    """Every path of every wheel, with mode and hash if several wheels have the path."""
    count = Counter(file.path for source in sources for file in source.tree.files)
    return {
        source.tree.wheel.name: {
            file.path: _describe(source, file) if count[file.path] > 1 else "" for file in source.tree.files
        }
        for source in sources
    }


def _describe(source: InstalledWheel, file: File) -> str:
    digest = file.sha256 or hashlib.sha256(b"".join(_pieces(source, file))).hexdigest()
    return f"{file.mode:o} {digest}"


def _pieces(source: InstalledWheel, file: File) -> Iterator[bytes]:
    if isinstance(file.content, bytes):
        yield file.content
    else:
        yield from source.archive.chunks(file.content)
