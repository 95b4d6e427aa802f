"""Writes layers' blobs. Compressors are chosen once: ISA-L if it is installed, else zlib; and zstandard.

The bytes of a compressed layer depend on the library that made it. :func:`codec` names it, the name is part
of what a layer is looked up by, and so the same lock gives the same digests with the same libraries.
"""

import gzip
import hashlib
import importlib
import importlib.metadata
import lzma
import zlib
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import Any, BinaryIO

import zstandard

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
"""What a decompressor raises for content that is damaged, or is none; an OSError of the disk has an errno."""
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
