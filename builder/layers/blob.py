"""Writes a layer's blob: compressed and hashed in a thread of its own, while the caller makes more of it."""

import hashlib
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from typing import BinaryIO, Self

from builder.layers.codec import compressor
from builder.layers.types import MEDIA_TYPES, Compression, Layer

CHUNK = 1 << 20
"""Bytes of the tar stream that are compressed at once. Fixed, so that the compressed bytes do not depend on
the pieces in which the stream arrived."""
_AHEAD = 4
"""Chunks that may wait for the compressor: enough to keep it busy, little enough to stay in the cache."""


class BlobWriter:
    """Within a ``with`` block: takes a tar stream of ``size`` bytes and writes it, compressed, to ``target``.

    Without :meth:`finish` the blob is of no use.
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

    def __enter__(self) -> Self:
        return self

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
