"""A proxy in front of a registry that fails where a test wants it to: 5xx, silence, half bodies, tokens."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from doubles.http_server import HANG_UP, Answer, Request, Server

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

    def answer(request: Request) -> Answer:
        try:
            return _answer(state, request)
        except OSError:  # a client that was killed, or a registry that was
            return HANG_UP

    with Server(answer) as server:
        state.host = server.host
        yield state


def _answer(state: Proxy, request: Request) -> Answer:
    if request.path == "/token":
        with state.lock:
            state.tokens += 1
            token = f"token-{state.tokens}"
            state.left[f"Bearer {token}"] = state.token_lasts or 0
        return Answer(200, json.dumps({"token": token}).encode())
    with state.lock:
        state.requests.append(f"{request.method} {request.target}")
        number = len(state.requests)
    fault = state.fault(number, request.method, request.target)
    if fault in {"503", "429"}:
        return Answer(int(fault or 0), b"{}", {"Retry-After": "0"})
    if fault == "cut":
        return HANG_UP
    if not _allowed(state, request):
        challenge = f'Bearer realm="http://{state.host}/token",service="test",scope="x"'
        return Answer(401, b"{}", {"WWW-Authenticate": challenge})
    if fault == "half":
        _pass_on(state, request, request.stream.read(request.length // 2))
        return HANG_UP
    answer = _pass_on(state, request, request.body)
    if state.after is not None:
        state.after(number, request.method)
    if fault == "lost":
        return HANG_UP
    if state.date is not None:
        answer.headers["Date"] = state.date
    return answer


def _allowed(state: Proxy, request: Request) -> bool:
    if state.token_lasts is None:
        return True
    with state.lock:
        given = request.headers.get("authorization", "")
        state.left[given] = state.left.get(given, 0) - 1
        return state.left[given] >= 0


def _pass_on(state: Proxy, request: Request, body: bytes) -> Answer:
    """To the registry and back. A body shorter than its length is what a push cut in half looks like."""
    connection = http.client.HTTPConnection(state.upstream, timeout=30)
    try:
        connection.putrequest(request.method, request.target, skip_host=True, skip_accept_encoding=True)
        for name, value in request.headers.items():
            if name not in {"content-length", "authorization", "connection"}:
                connection.putheader(name, value)
        connection.putheader("Content-Length", str(request.length))
        connection.endheaders(body)
        if len(body) < request.length:
            connection.sock.shutdown(socket.SHUT_WR)
            connection.sock.recv(1)  # until the registry has seen that no more comes
            return HANG_UP
        response = connection.getresponse()
        content = b"" if request.method == "HEAD" else response.read()
        headers = {k.title(): v for k, v in response.getheaders() if k.lower() in _PASSED_ON}
        if request.method != "HEAD":
            headers.pop("Content-Length", None)
        return Answer(response.status, content, headers)
    finally:
        connection.close()
