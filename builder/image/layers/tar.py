"""Tar streams of layers: written so that they depend on nothing but their content, and read forward; and
the blobs that they are compressed into.

The form is POSIX ustar, with pax for what does not fit. Both are by hand because :mod:`tarfile` spends most
of its time on choices that are fixed here: of the 1.7 s of processor time that unpacking a small Debian into
memory took, 1.2 were its own.

A folder becomes the stream that BuildKit makes of it, byte for byte, so that the layer has the same diff id:
containerd walks it in the order of its names and writes with Go's ``archive/tar``
(https://github.com/containerd/containerd/blob/main/pkg/archive/tar.go), whose records in front of a header
have another form than a wheel's (``writePAXHeader`` in
https://github.com/golang/go/blob/master/src/archive/tar/writer.go).

Compressors are chosen once: ISA-L if it is installed, else zlib; and zstandard. The bytes of a compressed
layer depend on the library that made it. :func:`codec` names it, the name is part of what a layer is looked
up by, and so the same lock gives the same digests with the same libraries.
"""

import contextlib
import gzip
import hashlib
import importlib
import importlib.metadata
import lzma
import os
import re
import stat
import zlib
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import zstandard

from builder.core.documents import shown
from builder.core.errors import CellError
from builder.image.layers.store import MEDIA_TYPES, Compression, Layer

try:
    isal_zlib: Any = importlib.import_module("isal.isal_zlib")
    isal_gzip: Any = importlib.import_module("isal.igzip")
    _isal_version = importlib.metadata.version("isal")
    INFLATE_ERRORS: tuple[type[Exception], ...] = (isal_zlib.error, zlib.error)
except ImportError:  # not x86-64, or installed without it
    isal_zlib = isal_gzip = None
    _isal_version = ""
    INFLATE_ERRORS = (zlib.error,)

DAMAGED: tuple[type[Exception], ...] = (
    *INFLATE_ERRORS,
    zstandard.ZstdError,
    lzma.LZMAError,
    EOFError,
    OSError,
    ValueError,
)
"""Errors of a decompressor about content that is damaged, or is none; an OSError of the disk has an errno."""
ZSTD_LEVEL = 1
"""Twice as fast as level 3 on NVIDIA's libraries, for layers 5 to 10 % larger."""
_IGZIP_LEVEL = 2
_ZLIB_LEVEL = 1
_GZIP = 31  # window bits: a gzip header without name and time
CHUNK = 1 << 20
"""Bytes of the tar stream that are compressed at once. Fixed, so that the compressed bytes do not depend on
the pieces in which the stream arrived."""
_AHEAD = 4
"""Chunks that may wait for the compressor: enough to keep it busy, little enough to stay in the cache."""


def inflater() -> Any:
    """A decompressor of raw deflate; it raises one of :data:`INFLATE_ERRORS`."""
    return (isal_zlib or zlib).decompressobj(-15)


def crc32(data: bytes, value: int = 0) -> int:
    return int((isal_zlib or zlib).crc32(data, value))


def codec(compression: Compression) -> str:
    """The compressor with its version and level: ``zstd-1.5.7-1``."""
    if compression == "zstd":
        return f"zstd-{'.'.join(map(str, zstandard.ZSTD_VERSION))}-{ZSTD_LEVEL}"
    if isal_zlib is not None:
        return f"igzip-{_isal_version}-{_IGZIP_LEVEL}"
    return f"zlib-{zlib.ZLIB_RUNTIME_VERSION}-{_ZLIB_LEVEL}"


def decompressed(file: BinaryIO, media_type: str) -> Any:
    """The content of ``file`` as a stream: the file itself if its media type is neither zstd's nor gzip's.

    Reading it raises one of :data:`DAMAGED`.
    """
    if media_type.endswith("zstd"):
        return zstandard.ZstdDecompressor().stream_reader(file, read_size=1 << 20, read_across_frames=True)
    return (isal_gzip or gzip).GzipFile(fileobj=file, mode="rb") if media_type.endswith("gzip") else file


def plain(file: BinaryIO, media_type: str) -> Any:
    """:func:`decompressed` by the first bytes, as in containerd, or by the media type if they do not say."""
    start = file.read(4)
    file.seek(0)
    magic = {b"\x28\xb5\x2f\xfd": "zstd", b"\x1f\x8b": "gzip"}
    return decompressed(file, next((magic[one] for one in magic if start.startswith(one)), media_type))


def compressor(compression: Compression, size: int) -> Any:
    """A fresh compressor for a stream of ``size`` bytes: ``compress`` takes pieces, ``flush`` ends it."""
    if compression == "zstd":
        # One thread: more give other bytes, and less throughput here: the other core has its own layer.
        return zstandard.ZstdCompressor(level=ZSTD_LEVEL).compressobj(size=size)
    if isal_zlib is not None:
        return isal_zlib.compressobj(_IGZIP_LEVEL, isal_zlib.DEFLATED, _GZIP)
    return zlib.compressobj(_ZLIB_LEVEL, zlib.DEFLATED, _GZIP)


class BlobWriter(AbstractContextManager["BlobWriter"]):
    """Within a ``with`` block: takes a tar stream of ``size`` bytes and writes it, compressed, to ``target``.

    It is compressed and hashed in a thread of its own, while the caller makes more. Without :meth:`finish`
    the blob is of no use.
    """

    def __init__(self, target: BinaryIO, title: str, compression: Compression, size: int) -> None:
        self._target = target
        self._title, self._compression = title, compression
        self._stream = compressor(compression, size)
        self._diff_id = hashlib.sha256()
        self._digest = hashlib.sha256()
        self._size = 0
        self._unpacked = 0
        self._pieces: list[bytes] = []
        self._held = 0
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="layer-compressor")
        self._waiting: deque[Future[None]] = deque()

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(cancel_futures=True)

    def write(self, data: bytes) -> None:
        """Take the next piece. Raises what went wrong with an earlier one, as a full disk."""
        start = 0
        while self._held + len(data) - start >= CHUNK:
            end = start + CHUNK - self._held
            self._send(b"".join([*self._pieces, memoryview(data)[start:end]]))
            self._pieces, self._held, start = [], 0, end
        if start < len(data):
            self._pieces.append(data[start:] if start else data)
            self._held += len(data) - start

    def finish(self) -> Layer:
        """Write what is left and wait for the compressor."""
        self._send(b"".join(self._pieces))
        while self._waiting:
            self._waiting.popleft().result()
        self._emit(self._stream.flush())
        return Layer(
            title=self._title,
            digest="sha256:" + self._digest.hexdigest(),
            diff_id="sha256:" + self._diff_id.hexdigest(),
            size=self._size,
            unpacked=self._unpacked,
            media_type=MEDIA_TYPES[self._compression],
        )

    def _send(self, chunk: bytes) -> None:
        if len(self._waiting) > _AHEAD:
            self._waiting.popleft().result()
        self._waiting.append(self._pool.submit(self._take, chunk))

    def _take(self, chunk: bytes) -> None:
        self._unpacked += len(chunk)
        self._diff_id.update(chunk)
        self._emit(self._stream.compress(chunk))

    def _emit(self, data: bytes) -> None:
        self._digest.update(data)
        self._target.write(data)
        self._size += len(data)


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


_BUFFER = 1 << 20
_FILES = frozenset(b"0\x007")
"""A plain file in ustar, in older archives, and in those for machines that knew contiguous files."""
_KINDS = {b"1": "hardlink", b"2": "symlink", b"3": "device", b"4": "device", b"6": "device"}
_LARGEST_STREAM = 256 << 30
"""Bytes of a whole layer."""
_DEEPEST, _LONGEST = 128, 4096
"""Folders and letters of a path."""


@dataclass(frozen=True, slots=True)
class TarEntry:
    """One file, folder or link. ``name`` is as it stands in the archive, without ``./`` and closing slash."""

    name: str
    kind: str
    """``file``, ``folder``, ``symlink``, ``hardlink``, or ``device`` for whatever else has no content."""
    mode: int
    size: int
    link: str


class TarReader:
    """The entries of a stream, each with its content if that is asked for before the next one is."""

    def __init__(self, stream: Any, what: str, *, most: int = _LARGEST_STREAM) -> None:
        self._stream = stream
        self._what = what
        self._most = self._room = most
        self._buffer = b""
        self._at = 0
        self._left = 0
        """Bytes of the entry's content that nobody has read, without the padding behind it."""
        self._padding = 0

    def __iter__(self) -> Iterator[TarEntry]:
        """Raises :class:`~builder.core.errors.CellError` for what is no tar stream, or is cut short."""
        extended: dict[str, str] = {}
        before = 0
        while True:
            self._skip(self._left + self._padding)
            self._left = self._padding = 0
            header = self._take(_BLOCK)
            if not any(header):
                return
            self._check(header)
            size = self._size(header, extended)
            kind = header[156:157]
            if kind in (b"x", b"g", b"L", b"K"):
                before += size
                if before > 1 << 20:  # of names and attributes; Linux takes paths of 4,096 bytes
                    raise self.error(f"its extended headers have {before} bytes")
                content = self._take(size)
                self._skip(-size % _BLOCK)
                if kind == b"x":
                    extended |= self._records(content)
                elif kind != b"g":
                    extended.setdefault("path" if kind == b"L" else "linkpath", _text(content))
                continue
            self._left = 0 if kind == b"5" or kind in _KINDS else size
            self._padding = -self._left % _BLOCK
            yield self._entry(header, kind, extended)
            extended, before = {}, 0

    def content(self) -> Iterator[bytes]:
        """The unread rest of the last entry's content, in pieces."""
        while self._left:
            piece = self._take(min(self._left, _BUFFER))
            self._left -= len(piece)
            yield piece

    def read(self) -> bytes:
        """The whole content at once."""
        size, self._left = self._left, 0
        return self._take(size)

    def _entry(self, header: bytes, kind: bytes, extended: dict[str, str]) -> TarEntry:
        prefix = _text(header[345:500]) if header[257:263] == b"ustar\0" else ""
        own = _text(header[:100])  # empty below a prefix: a folder, as for Go's archive/tar
        name = extended.get("path", f"{prefix}/{own}" if prefix else own)
        if name.count("/") > _DEEPEST or len(name) > _LONGEST:
            raise self.error(f"it holds a path of {name.count('/')} folders and {len(name)} letters")
        link = extended.get("linkpath", _text(header[157:257]))
        folder = kind == b"5" or (kind[0] in _FILES and name.endswith("/"))
        if kind not in _KINDS and not folder and kind[0] not in _FILES:
            raise self.error(f"{name} is of a kind ({kind!r}) that no layer needs")
        return TarEntry(
            name.removeprefix("./").strip("/"),
            "folder" if folder else _KINDS.get(kind, "file"),
            _number(header[100:108]) & 0o7777,
            self._left,
            link,
        )

    def _size(self, header: bytes, extended: dict[str, str]) -> int:
        stated = extended.get("size")
        if stated is None:
            return _number(header[124:136])
        if not re.fullmatch(r"[0-9]{1,18}", stated):
            raise self.error(f"an extended header says a size of {shown(stated, most=40)!r}")
        return int(stated)

    def _check(self, header: bytes) -> None:
        try:
            for field in (header[100:108], header[124:136]):
                _number(field)
            # The sum is taken with blanks in its own place.
            right = sum(header) - sum(header[148:156]) + 8 * 0x20 == _number(header[148:156])
        except ValueError:
            right = False
        if not right:
            raise self.error("an entry's checksum differs")

    def _records(self, content: bytes) -> dict[str, str]:
        """https://pubs.opengroup.org/onlinepubs/9699919799/utilities/pax.html#tag_20_92_13_03"""
        found: dict[str, str] = {}
        try:
            while content:
                length = int(content[: content.index(b" ", 0, 20)])
                if not 0 < length <= len(content):
                    raise ValueError(length)  # noqa: TRY301 - told below
                key, _, value = content[content.index(b" ") + 1 : length - 1].partition(b"=")
                found[key.decode()] = _text(value)
                content = content[length:]
        except ValueError:
            raise self.error("an extended header is damaged") from None
        if any(key.startswith("GNU.sparse") for key in found):
            raise self.error("it holds a sparse file, which no layer needs")
        return found

    def error(self, problem: str) -> CellError:
        return CellError(f"{self._what} cannot be unpacked: {problem}")

    def _take(self, size: int) -> bytes:
        """The next ``size`` bytes, all of them."""
        have = self._buffer[self._at : self._at + size]
        self._at += len(have)
        if len(have) == size:
            return have
        pieces, missing = [have], size - len(have)
        while missing:
            self._buffer, self._at = self._fill(), 0
            pieces.append(self._buffer[:missing])
            self._at = len(pieces[-1])
            missing -= self._at
        return b"".join(pieces)

    def _skip(self, size: int) -> None:
        while size > len(self._buffer) - self._at:
            size -= len(self._buffer) - self._at
            self._buffer, self._at = self._fill(), 0
        self._at += size

    def _fill(self) -> bytes:
        try:
            found = bytes(self._stream.read(_BUFFER))
        except DAMAGED as problem:
            if isinstance(problem, OSError) and problem.errno is not None:
                raise  # the disk's, and not the decompressor's
            raise self.error(str(problem)) from problem
        if not found:
            raise self.error("it is cut short")
        self._room -= len(found)
        if self._room < 0:
            raise self.error(f"it unpacks to more than {self._most >> 20} MiB")
        return found


def _number(field: bytes) -> int:
    """Octal digits, or for what does not fit a number of 255 bits behind a set one, as GNU's tar writes."""
    if field[0] & 0x80:
        return int.from_bytes(field, "big") & ((1 << (8 * len(field) - 1)) - 1)
    return int(field.strip(b" \0") or b"0", 8)


def _text(field: bytes) -> str:
    return field.partition(b"\0")[0].decode("utf-8", "surrogateescape")


@contextlib.contextmanager
def open_layer(blob: Path, media_type: str, *, most: int = _LARGEST_STREAM) -> Iterator[TarReader]:
    """The entries of a layer's blob, of ``most`` bytes unpacked."""
    with blob.open("rb") as file:
        yield TarReader(plain(file, media_type), f"the layer {blob.name[:12]}", most=most)
