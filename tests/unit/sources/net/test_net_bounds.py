"""Answers without an end, in size and in time, by a server that speaks raw bytes."""

from __future__ import annotations

import gzip
import resource
import socket
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
import requests
from doubles.registry import registry_client

from builder.core.errors import RegistryError
from builder.sources.net import http
from builder.sources.net.http import Client
from builder.sources.oci.registry import Registry
from builder.sources.oci.wire import answer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Speak = Callable[[socket.socket], None]

ENDLESS = b"HTTP/1.1 %d X\r\nConnection: close\r\nContent-Type: application/json\r\n%s\r\n"


@contextmanager
def speaking(speak: Speak) -> Iterator[str]:
    """``host:port`` of a server that reads a request and lets ``speak`` answer; at most 50 connections."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.1)
        ended = threading.Event()

        def one(connection: socket.socket) -> None:
            connection.settimeout(5)
            try:
                while b"\r\n\r\n" not in connection.recv(1 << 16):
                    pass
                speak(connection)
            except OSError:
                return  # the client has had enough
            finally:
                connection.close()

        def run() -> None:
            for _ in range(50):
                while not ended.is_set():
                    try:
                        threading.Thread(target=one, args=(server.accept()[0],), daemon=True).start()
                        break
                    except TimeoutError:
                        continue

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield f"127.0.0.1:{server.getsockname()[1]}"
        finally:
            ended.set()
            thread.join()


def flood(status: int, headers: bytes = b"", piece: bytes = b"x" * (1 << 16)) -> Speak:
    def speak(connection: socket.socket) -> None:
        connection.sendall(ENDLESS % (status, headers))
        for _ in range(1 << 14):  # 1 GiB
            connection.sendall(piece)

    return speak


@pytest.fixture
def grown() -> Iterator[None]:
    """Fails if the process came to need 200 MB more."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    yield
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000


def client() -> Client:
    return Client(retries=1, backoff=0.01)


@pytest.mark.usefixtures("grown")
@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE"])
@pytest.mark.parametrize("status", [200, 404])
def test_no_verb_takes_a_body_without_an_end(method: str, status: int) -> None:
    with speaking(flood(status)) as host, pytest.raises(requests.RequestException, match="more than 32 MiB"):
        client().request(method, f"http://{host}/v2/")


@pytest.mark.usefixtures("grown")
@pytest.mark.parametrize("status", [429, 500, 503])
def test_nor_does_a_second_attempt(status: int) -> None:
    """urllib3 reads a refused answer to its end before it asks again."""
    with speaking(flood(status)) as host, pytest.raises(requests.RequestException, match="more than 32 MiB"):
        client().get(f"http://{host}/")


@pytest.mark.usefixtures("grown")
def test_nor_a_redirect() -> None:
    with speaking(flood(302, b"Location: /elsewhere\r\n")) as host, pytest.raises(requests.RequestException):
        client().get(f"http://{host}/")


@pytest.mark.usefixtures("grown")
def test_nor_a_bomb() -> None:
    bomb = gzip.compress(bytes(1 << 28), 1)

    def speak(connection: socket.socket) -> None:
        headers = b"Content-Encoding: gzip\r\nContent-Length: %d\r\n" % len(bomb)
        connection.sendall(ENDLESS % (404, headers) + bomb)

    with speaking(speak) as host, pytest.raises(requests.RequestException, match="more than 32 MiB"):
        client().get(f"http://{host}/")


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n"
NOTHING = b"\x1f\x8b\x08" + bytes(7)  # the head of a gzip file; then blocks of no bytes


@pytest.mark.usefixtures("grown")
@pytest.mark.parametrize(
    ("start", "again"),
    [
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
        (CHUNKED, b"T: x\r\n"),
        (ENDLESS % (200, b"Content-Encoding: gzip\r\n") + NOTHING, b"\x00\x00\x00\xff\xff"),
    ],
    ids=["continue", "trailers", "gzip"],
)
def test_what_is_no_body_has_an_end(start: bytes, again: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "AROUND", 1 << 20)
    sent = 0

    def speak(connection: socket.socket) -> None:
        nonlocal sent
        connection.sendall(start)
        for _ in range(100):
            connection.sendall(again * ((1 << 20) // len(again)))
            sent += 1  # MiB

    once = Client(retries=0, backoff=0.01)
    with speaking(speak) as host, pytest.raises(requests.RequestException):
        assert not once.get(f"http://{host}/").content
    assert sent < 50


@pytest.mark.parametrize("in_headers", [True, False])
def test_an_answer_that_drips_has_an_end(in_headers: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each byte comes long before the time limit of one silence."""
    monkeypatch.setattr(http, "PATIENCE", 0.5)
    dried = threading.Event()

    def drip(connection: socket.socket) -> None:
        connection.sendall(
            b"HTTP/1.1 200 OK\r\n" + (b"" if in_headers else b"Content-Length: 999999\r\n\r\n")
        )
        for _ in range(600):
            connection.sendall(b"x")
            time.sleep(0.1)
        dried.set()

    with speaking(drip) as host, pytest.raises(requests.RequestException):
        Client(retries=0).get(f"http://{host}/")
    assert not dried.is_set()


def test_a_long_download_that_comes_fast_enough_is_not_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each piece pays for 30 further seconds; all of them take longer than the first patience."""
    monkeypatch.setattr(http, "PATIENCE", 0.3)
    monkeypatch.setattr(http, "SLOWEST", (1 << 14) // 30)

    def speak(connection: socket.socket) -> None:
        head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (10 << 14)
        for number in range(10):
            connection.sendall((b"" if number else head) + b"x" * (1 << 14))
            time.sleep(0.08)

    with speaking(speak) as host:
        assert len(client().get(f"http://{host}/").content) == 10 << 14


def test_the_time_that_a_server_asks_for_is_not_waited(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr("time.sleep", slept.append)

    def speak(connection: socket.socket) -> None:
        headers = b"Retry-After: 999999999999\r\nContent-Length: 0\r\n"
        connection.sendall(ENDLESS % (503, headers))

    with speaking(speak) as host:
        assert client().get(f"http://{host}/").status_code == 503
    assert max(slept, default=0) <= 30


@pytest.mark.parametrize("asked", ["²", "\uff11", "-5", "1e9", "9" * 12, "Wed, 21 Oct 2015 07:28:00 GMT"])
def test_a_strange_pause_is_none(asked: str, monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr("time.sleep", slept.append)

    def speak(connection: socket.socket) -> None:
        headers = f"Retry-After: {asked}\r\nContent-Length: 0\r\n".encode("latin-1", "replace")
        connection.sendall(ENDLESS % (503, headers))

    with speaking(speak) as host:
        registry = Registry(client=client(), login=lambda _host: None)
        place = registry._wire.place(f"{host}/team/app")
        found = registry._wire.persist(lambda: registry._wire.send("POST", place, f"http://{host}/x"), place)
    assert found.status_code == 503
    assert max(slept, default=0) <= 30


@pytest.mark.usefixtures("grown")
@pytest.mark.parametrize("status", [200, 401, 404, 500])
def test_a_registry_that_floods_fails_its_question(status: int) -> None:
    with speaking(flood(status)) as host:
        registry = Registry(client=client(), login=lambda _host: None)
        with pytest.raises(RegistryError):
            registry.manifest(f"{host}/team/app:1")
        with pytest.raises(RegistryError):
            registry.put_manifest(f"{host}/team/app:1", b"{}", "application/json")


MALFORMED = {
    "chunk below nothing": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-5\r\nabc",
    "chunk of letters": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nabc",
    "half an address": b"HTTP/1.1 307 x\r\nContent-Length: 0\r\nLocation: http://[\r\n\r\n",
    "address with NUL": b"HTTP/1.1 307 x\r\nContent-Length: 0\r\nLocation: http://\x00/\r\n\r\n",
    "a file": b"HTTP/1.1 307 x\r\nContent-Length: 0\r\nLocation: file:///etc/passwd\r\n\r\n",
    "a port that is none": b"HTTP/1.1 307 x\r\nContent-Length: 0\r\nLocation: http://a:99999999/\r\n\r\n",
    "length below nothing": b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n{}",
    "status": b"HTTP/1.1 99999 OK\r\n\r\n",
    "no status": b"\0\xff" * 50 + b"\r\n\r\n",
    "headers": b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 100_000 + b"\r\n",
    "header": b"HTTP/1.1 200 OK\r\nX: " + b"a" * 1_000_000 + b"\r\n\r\n",
    "encodings": b"HTTP/1.1 200 OK\r\nContent-Encoding: "
    + b"gzip, " * 2000
    + b"gzip\r\nContent-Length: 1\r\n\r\nx",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", MALFORMED)
def test_an_answer_that_is_none(name: str) -> None:
    with speaking(lambda connection: connection.sendall(MALFORMED[name])) as host:
        registry = registry_client()
        with pytest.raises(RegistryError):
            registry.manifest(f"{host}/a:t")


def test_a_challenge_of_one_long_word() -> None:
    """It was searched from each of its 60,000 letters on, for a minute."""
    began = time.process_time()
    for word in ("a" * 60_000, 'a="b",' * 10_000, "a=" * 30_000, '="' * 30_000):
        with pytest.raises(RegistryError, match="not known"):
            answer(client(), f"Bearer {word}", (), lambda: None, "r.example", own="https://r.example/v2/")
    assert time.process_time() - began < 10
