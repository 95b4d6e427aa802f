"""One HTTP server for all doubles, on loopback or a Unix socket: requests and answers are values.

A double is a function from :class:`Request` to :class:`Answer`, or a table of them by path.
"""

from __future__ import annotations

import contextlib
import socket
import socketserver
import threading
from dataclasses import dataclass, field
from functools import cached_property
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING, Any, BinaryIO, Self
from urllib.parse import parse_qs, unquote, urlsplit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@dataclass
class Request:
    """What a client sent; the body is read when somebody asks for it, and else before the answer."""

    method: str
    target: str
    """Path and query, as they came."""
    path: str
    """Unquoted, without the query."""
    query: dict[str, list[str]]
    headers: dict[str, str]
    """By their names in small letters."""
    stream: BinaryIO = field(repr=False)

    @property
    def length(self) -> int:
        """Bytes of the body, as its header states them."""
        return int(self.headers.get("content-length") or 0)

    @cached_property
    def body(self) -> bytes:
        # requests sends both for an empty stream whose length is given, and then no chunk
        if "content-length" in self.headers or self.headers.get("transfer-encoding") != "chunked":
            return self.stream.read(self.length)
        found = b""
        while size := int(self.stream.readline().split(b";")[0], 16):
            found += self.stream.read(size)
            self.stream.readline()
        self.stream.readline()
        return found


@dataclass
class Answer:
    """``Content-Length`` and ``Date`` are added to ``headers`` if they are not there."""

    status: int = 200
    """0 ends the connection without an answer, and with what was not read of the request."""
    body: bytes | Iterator[bytes] = b""
    """A stream needs its own ``Content-Length``."""
    headers: dict[str, str] = field(default_factory=dict)
    break_after: int | None = None
    """Cut the connection after this many bytes of the body."""


HANG_UP = Answer(0)
NOT_FOUND = Answer(404, b"nothing here", {"Content-Type": "text/plain"})


class Server:
    """Answers by path from a table, and otherwise by ``answer``. Every request is kept in ``requests``.

    An answer that raises ``ConnectionError`` hangs up.

    :raises ExceptionGroup: by :meth:`stop`, if ``answer`` or a route failed.
    """

    def __init__(
        self, answer: Callable[[Request], Answer] = lambda _request: NOT_FOUND, *, socket: Path | None = None
    ) -> None:
        self.requests: list[Request] = []
        self.failures: list[Exception] = []
        self._answer = answer
        self._routes: dict[str, Callable[[Request], Answer]] = {}
        handler = type("Handler", (_Handler,), {"owner": self})
        self._http = _OnSocket(str(socket), handler) if socket else _OnPort(("127.0.0.1", 0), handler)
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self._http.server_address[1]}"

    @property
    def url(self) -> str:
        return f"http://{self.host}"

    def on(self, path: str, answer: Callable[[Request], Answer] | Answer) -> None:
        self._routes[path] = answer if callable(answer) else lambda _request: answer

    def file(self, path: str, content: bytes, *, ranges: bool = True) -> str:
        """Serve a file, with Range if ``ranges``; its address."""

        def serve(request: Request) -> Answer:
            wanted = request.headers.get("range")
            if not (wanted and ranges):
                return Answer(200, content, {"Content-Type": "application/octet-stream"})
            first, _, last = wanted.removeprefix("bytes=").partition("-")
            # without a first byte it is a number of last ones: RFC 9110, 14.1.2
            start = int(first) if first else max(0, len(content) - int(last))
            if start >= len(content):
                return Answer(416)
            return Answer(
                206, content[start:], {"Content-Range": f"bytes {start}-{len(content) - 1}/{len(content)}"}
            )

        self.on(path, serve)
        return self.url + path

    def route(self, path: str) -> Callable[[Request], Answer]:
        return self._routes[path]

    def asked(self, path: str) -> list[Request]:
        return [request for request in self.requests if request.path == path]

    def respond(self, request: Request) -> Answer:
        """The answer to a request, which is kept; a failure of the double is one of the test, too."""
        self.requests.append(request)
        try:
            return self._routes.get(request.path, self._answer)(request)
        except ConnectionError:
            return HANG_UP
        except Exception as error:  # noqa: BLE001 - raised by stop
            self.failures.append(error)
            return HANG_UP

    def stop(self) -> None:
        self._http.shutdown()
        self._http.server_close()
        for connection in self._http.connections:
            with contextlib.suppress(OSError):  # the client closed it
                connection.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        if self.failures:
            raise ExceptionGroup("the double of a server failed", self.failures)


class _KeepsConnections(socketserver.ThreadingMixIn):
    """Knows its connections: a server that is gone answers on none that a client kept."""

    daemon_threads = True

    def __init__(self, *args: Any) -> None:
        self.connections: list[socket.socket] = []
        super().__init__(*args)

    def process_request(self, request: Any, client_address: Any) -> None:
        self.connections.append(request)
        super().process_request(request, client_address)


class _OnPort(_KeepsConnections, HTTPServer):
    def handle_error(self, request: object, client_address: object) -> None:
        """Nothing: clients that hang up or are killed are a part of some tests."""


class _OnSocket(_KeepsConnections, socketserver.UnixStreamServer):
    """On a Unix socket."""


class _Handler(BaseHTTPRequestHandler):
    owner: Server
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # in one packet, or each answer waits 40 ms for the client to acknowledge its headers

    def log_message(self, *args: object) -> None:
        """Nothing: pytest's output is not for access logs."""

    def _serve(self) -> None:
        parts = urlsplit(self.path)
        headers = {key.lower(): value for key, value in self.headers.items()}
        query = parse_qs(parts.query)
        request = Request(self.command, self.path, unquote(parts.path), query, headers, self.rfile)
        answer = self.owner.respond(request)
        if answer.status == 0:
            self.close_connection = True
            self.connection.close()
            return
        _ = request.body  # what is left of it would be the next request
        self.send_response_only(answer.status)
        given = {"Date": self.date_time_string()} | answer.headers
        framed = "Transfer-Encoding" in given or given.get("Connection") == "close"
        if isinstance(answer.body, bytes) and not framed:
            given.setdefault("Content-Length", str(len(answer.body)))
        for key, value in given.items():
            self.send_header(key, value)
        self.end_headers()
        if self.command != "HEAD":
            self._send(answer)
        if answer.break_after is not None or given.get("Connection") == "close":
            self.close_connection = True

    def _send(self, answer: Answer) -> None:
        if isinstance(answer.body, bytes):
            self.wfile.write(answer.body[: answer.break_after])
            return
        for block in answer.body:
            self.wfile.write(block)

    do_CONNECT = do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = _serve
