"""A proxy in front of a registry that fails where a test wants it to: 5xx, silence, half bodies, tokens."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

from http_double import serving

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Fault = Literal["503", "429", "cut", "half", "lost"] | None
"""``cut``: the connection ends before the request goes through; ``lost``: after it went through, before its
answer; ``half``: after half of its body went through."""
_PASSED_ON = frozenset(
    {
        "location",
        "docker-content-digest",
        "content-type",
        "content-length",
        "range",
        "www-authenticate",
        "date",
    }
)


@dataclass
class Proxy:
    """Change ``fault`` to make it fail; it is asked with the number of the request, its method and path."""

    upstream: str
    host: str = ""
    fault: Callable[[int, str, str], Fault] = lambda _number, _method, _path: None
    after: Callable[[int, str], None] | None = None
    """Called when a request went through, before it is answered."""
    token_lasts: int | None = None
    """Demand a token; each is good for this many requests."""
    requests: list[str] = field(default_factory=list)
    tokens: int = 0
    left: dict[str, int] = field(default_factory=dict)
    """For each token, how many requests it is still good for."""
    date: str | None = None
    """What the registry's clock says, in place of the truth."""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def writes(self) -> list[str]:
        """What was asked beyond reading."""
        return [line for line in self.requests if line.split()[0] not in {"GET", "HEAD"}]


@contextlib.contextmanager
def before(upstream: str) -> Iterator[Proxy]:
    """Stand in front of ``upstream`` (``host:port``, plain http) until the block ends."""
    state = Proxy(upstream=upstream)

    class Handler(_Handler):
        proxy = state

    server = _Server(("127.0.0.1", 0), Handler)
    state.host = f"127.0.0.1:{server.server_address[1]}"
    with serving(server):
        yield state


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Nothing: clients that are killed leave their connections."""


class _Handler(BaseHTTPRequestHandler):
    proxy: Proxy
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *args: Any) -> None:
        """Nothing: pytest's output is not for access logs."""

    def _answer(self) -> None:
        state = self.proxy
        length = int(self.headers.get("Content-Length") or 0)
        with contextlib.suppress(OSError):
            if urlsplit(self.path).path == "/token":
                with state.lock:
                    state.tokens += 1
                    token = f"token-{state.tokens}"
                    state.left[f"Bearer {token}"] = state.token_lasts or 0
                return self._send(200, json.dumps({"token": token}).encode(), {})
            with state.lock:
                state.requests.append(f"{self.command} {self.path}")
                number = len(state.requests)
            fault = state.fault(number, self.command, self.path)
            if fault in {"503", "429"}:
                self.rfile.read(length)
                return self._send(int(fault or 0), b"{}", {"Retry-After": "0"})
            if fault == "cut":
                return self._hang_up()
            if not self._allowed():
                self.rfile.read(length)
                challenge = f'Bearer realm="http://{state.host}/token",service="test",scope="x"'
                return self._send(401, b"{}", {"WWW-Authenticate": challenge})
            if fault == "half":
                self._pass_on(self.rfile.read(length // 2), length)
                return self._hang_up()
            status, headers, body = self._pass_on(self.rfile.read(length), length)
            if state.after is not None:
                state.after(number, self.command)
            if fault == "lost":
                return self._hang_up()
            return self._send(status, body, headers)
        return None

    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = _answer

    def _allowed(self) -> bool:
        state = self.proxy
        if state.token_lasts is None:
            return True
        with state.lock:
            given = self.headers.get("Authorization", "")
            state.left[given] = state.left.get(given, 0) - 1
            return state.left[given] >= 0

    def _pass_on(self, body: bytes, length: int) -> tuple[int, dict[str, str], bytes]:
        """To the registry and back. A body shorter than its length is what a push cut in half looks like."""
        connection = http.client.HTTPConnection(self.proxy.upstream, timeout=30)
        try:
            connection.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                if name.lower() not in {"content-length", "authorization", "connection"}:
                    connection.putheader(name, value)
            connection.putheader("Content-Length", str(length))
            connection.endheaders(body)
            if len(body) < length:
                connection.sock.shutdown(socket.SHUT_WR)
                connection.sock.recv(1)  # until the registry has seen that no more comes
                return 0, {}, b""
            response = connection.getresponse()
            content = b"" if self.command == "HEAD" else response.read()
            headers = {k: v for k, v in response.getheaders() if k.lower() in _PASSED_ON}
            return response.status, headers, content
        finally:
            connection.close()

    def _hang_up(self) -> None:
        self.close_connection = True
        self.connection.close()

    def _send(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response_only(status)
        given = {name.title(): value for name, value in headers.items()}
        if self.proxy.date is not None:
            given["Date"] = self.proxy.date
        if self.command != "HEAD":
            given["Content-Length"] = str(len(body))
        for name, value in given.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
