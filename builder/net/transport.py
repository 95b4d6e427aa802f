"""The connections below :class:`builder.net.http.Client`: the size and the duration of answers are bounded.

``requests`` bounds only the silence between two bytes: a server that sends a byte a second, or an endless
error page, would stop a run or fill its memory. It also reads the whole body of a redirect, and ``urllib3``
that of an answer before a retry.
"""

from __future__ import annotations

import http.client
import io
import socket
import time
from collections.abc import Iterator
from typing import Any

import requests
from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.util.retry import Retry

LARGEST = 32 << 20
"""Most bytes of an answer that is read whole; the page of a project with 10,000 files has a third of them."""
PATIENCE = 90.0
"""Seconds that any answer may take; a longer one must bring :data:`SLOWEST` bytes per further second."""
SLOWEST = 4 << 10
AROUND = 8 << 20
"""Most bytes that come without a piece of the body: headers, ``100 Continue``, trailers, empty blocks."""
_PIECE = 1 << 16


class TooLargeError(requests.RequestException):
    """An answer has more bytes than are read of one."""


class _Paced(io.RawIOBase):
    """A socket's bytes, as long as they come fast enough."""

    def __init__(self, raw: Any, sock: socket.socket) -> None:
        self._raw = raw
        self._sock = sock
        self._began = time.monotonic()
        self._received = 0
        self._taken = 0

    def taken(self) -> None:
        """A piece of the body has come out of the bytes so far."""
        self._taken = self._received

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        left = PATIENCE + self._received / SLOWEST - (time.monotonic() - self._began)
        if left <= 0 or self._received - self._taken > AROUND:
            raise TimeoutError("timed out: the server answers too slowly, or without an end")
        silence = self._sock.gettimeout()
        if silence is None or silence > left:
            self._sock.settimeout(left)
        try:
            count: int | None = self._raw.readinto(buffer)
        finally:
            self._sock.settimeout(silence)
        self._received += count or 0
        return count

    def close(self) -> None:
        self._raw.close()
        super().close()


class _PacedAnswer(http.client.HTTPResponse):
    def __init__(self, sock: socket.socket, *arguments: Any, **options: Any) -> None:
        super().__init__(sock, *arguments, **options)
        self.paced = _Paced(self.fp.detach(), sock)
        self.fp = io.BufferedReader(self.paced, _PIECE)


class _Http(HTTPConnection):
    response_class = _PacedAnswer


class _Https(HTTPSConnection):
    response_class = _PacedAnswer


class _HttpPool(HTTPConnectionPool):
    ConnectionCls = _Http


class _HttpsPool(HTTPSConnectionPool):
    ConnectionCls = _Https


_POOLS = {"http": _HttpPool, "https": _HttpsPool}


class _Again(Retry):
    """Retries without reading the refused answer to its end."""

    def increment(
        self, method: Any = None, url: Any = None, response: Any = None, *rest: Any, **more: Any
    ) -> _Again:
        left = super().increment(method, url, response, *rest, **more)
        if response is not None:
            response.close()
        return left


class _Answer(requests.Response):
    """``content`` has at most :data:`LARGEST` bytes; readers of pieces count them."""

    def iter_content(self, *arguments: Any, **options: Any) -> Iterator[Any]:
        answer: Any = self.raw._original_response  # noqa: SLF001 - requests takes cookies from it, too
        try:
            for piece in super().iter_content(*arguments, **options):
                answer.paced.taken()
                yield piece
        except requests.RequestException:
            raise
        except ValueError as problem:  # of urllib3, for a chunk of less than nothing
            raise requests.exceptions.ChunkedEncodingError(str(problem)) from problem

    @property
    def content(self) -> bytes:
        taken: bytes | bool | None = self._content
        if taken is False:
            body = bytearray()
            for piece in self.iter_content(_PIECE):
                body += piece
                if len(body) > LARGEST:
                    self.close()
                    raise TooLargeError(f"the answer has more than {LARGEST >> 20} MiB", response=self)
            self._content, self._content_consumed = bytes(body), True
        return self._content or b""


class Adapter(HTTPAdapter):
    """The adapter of a session, with these limits."""

    def __init__(self, *, retries: int, connection_retries: int, backoff: float) -> None:
        again = _Again(
            total=retries,
            connect=connection_retries,
            read=connection_retries,
            backoff_factor=backoff,
            backoff_max=10,
            status_forcelist=(429, 500, 502, 503, 504),
            # Without this a server may ask for a pause of hours, and urllib3 would take it.
            respect_retry_after_header=False,
            raise_on_status=False,
        )
        super().__init__(max_retries=again)

    def init_poolmanager(self, *arguments: Any, **options: Any) -> None:
        super().init_poolmanager(*arguments, **options)
        self.poolmanager.pool_classes_by_scheme = _POOLS

    def proxy_manager_for(self, proxy: str, **options: Any) -> Any:
        manager = super().proxy_manager_for(proxy, **options)
        manager.pool_classes_by_scheme = _POOLS
        return manager

    def build_response(self, req: requests.PreparedRequest, resp: Any) -> requests.Response:
        built = super().build_response(req, resp)
        built.__class__ = _Answer
        return built
