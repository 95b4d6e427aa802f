"""Compressors, chosen once: ISA-L if it is installed, else zlib; and zstandard.

The bytes of a compressed layer depend on the library that made it. :func:`codec` names it, the name is part
of what a layer is looked up by, and so the same lock gives the same digests with the same libraries.
"""

import gzip
import importlib
import importlib.metadata
import zlib
from typing import Any, BinaryIO

import zstandard

from builder.layers.types import Compression

try:
    isal_zlib: Any = importlib.import_module("isal.isal_zlib")
    isal_gzip: Any = importlib.import_module("isal.igzip")
    _isal_version = importlib.metadata.version("isal")
    INFLATE_ERRORS: tuple[type[Exception], ...] = (isal_zlib.error, zlib.error)
except ImportError:  # not x86-64, or installed without it
    isal_zlib = isal_gzip = None
    _isal_version = ""
    INFLATE_ERRORS = (zlib.error,)

ZSTD_LEVEL = 1
"""Twice as fast as level 3 on NVIDIA's libraries, for layers 5 to 10 % larger."""
_IGZIP_LEVEL = 2
_ZLIB_LEVEL = 1
_GZIP = 31  # window bits: a gzip header without name and time


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
    """The content of ``file`` as a stream: the file itself if its media type is neither zstd's nor gzip's."""
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
