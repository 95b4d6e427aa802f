"""Which compressors do the work, chosen once: ISA-L where it is installed, else zlib; and zstandard.

The bytes of a compressed layer depend on the library that made it. :func:`codec` names it, the name is part
of what a layer is looked up by, and so the same lock gives the same digests with the same libraries.
"""

from __future__ import annotations

import gzip
import importlib
import importlib.metadata
import zlib
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol

import zstandard

if TYPE_CHECKING:
    from builder.layers.types import Compression

try:
    isal_zlib: Any = importlib.import_module("isal.isal_zlib")
    isal_gzip: Any = importlib.import_module("isal.igzip")
    _isal_version = importlib.metadata.version("isal")
except ImportError:  # not x86-64, or installed without it
    isal_zlib = isal_gzip = None
    _isal_version = ""

ZSTD_LEVEL = 1
"""Twice as fast as level 3 on NVIDIA's libraries, for layers 5 to 10 % larger."""
_IGZIP_LEVEL = 2
_ZLIB_LEVEL = 1
_GZIP = 31  # window bits: a gzip header without name and time
_RAW = -15


class Inflater(Protocol):
    """A decompressor of raw deflate."""

    error: type[Exception]

    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, /) -> bytes: ...
    def flush(self) -> bytes: ...


class Compressor(Protocol):
    """Takes a stream in pieces and gives back what is ready of the compressed one."""

    def compress(self, data: bytes, /) -> bytes: ...
    def flush(self) -> bytes: ...


class _Inflater:
    def __init__(self) -> None:
        library: Any = isal_zlib or zlib
        self.error: type[Exception] = library.error
        self._stream = library.decompressobj(_RAW)
        self.decompress = self._stream.decompress
        self.flush = self._stream.flush

    @property
    def eof(self) -> bool:
        return bool(self._stream.eof)

    @property
    def unused_data(self) -> bytes:
        return bytes(self._stream.unused_data)


def inflater() -> Inflater:
    return _Inflater()


def crc32(data: bytes, value: int = 0) -> int:
    return int((isal_zlib or zlib).crc32(data, value))


def codec(compression: Compression) -> str:
    """The compressor with its version and level: ``zstd-1.5.7-1``."""
    if compression == "zstd":
        return f"zstd-{'.'.join(map(str, zstandard.ZSTD_VERSION))}-{ZSTD_LEVEL}"
    if isal_zlib is not None:
        return f"igzip-{_isal_version}-{_IGZIP_LEVEL}"
    return f"zlib-{zlib.ZLIB_RUNTIME_VERSION}-{_ZLIB_LEVEL}"


def gzip_reader(file: BinaryIO) -> BinaryIO:
    """The content of a gzip file as a stream."""
    stream: BinaryIO = (isal_gzip or gzip).GzipFile(fileobj=file, mode="rb")
    return stream


def compressor(compression: Compression, size: int) -> Compressor:
    """A fresh compressor for a stream of ``size`` bytes."""
    if compression == "zstd":
        # One thread: more give other bytes, and less throughput here, where the other core has its own layer.
        stream: Compressor = zstandard.ZstdCompressor(level=ZSTD_LEVEL).compressobj(size=size)
    elif isal_zlib is not None:
        stream = isal_zlib.compressobj(_IGZIP_LEVEL, isal_zlib.DEFLATED, _GZIP)
    else:
        stream = zlib.compressobj(_ZLIB_LEVEL, zlib.DEFLATED, _GZIP)
    return stream
