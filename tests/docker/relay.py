"""Passes bytes on between two sockets: into another network namespace, or to an engine's own BuildKit.

As a program: ``python3 relay.py LISTEN CONNECT``, each ``unix:PATH`` or ``tcp:HOST:PORT``. It prints a line
once it listens.
"""

from __future__ import annotations

import contextlib
import socket
import sys
import threading
from pathlib import Path

GRPC = b"POST /grpc HTTP/1.1\r\nHost: docker\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n"
"""How buildx asks an engine for its BuildKit; what then comes is the protocol that buildkitd speaks
(https://github.com/moby/moby/blob/v26.1.5/api/server/router/grpc/grpc_routes.go)."""


def listener(place: str) -> socket.socket:
    """A socket that listens at ``place``; ``tcp:127.0.0.1:0`` takes any free port."""
    kind, _, rest = place.partition(":")
    if kind == "unix":
        Path(rest).unlink(missing_ok=True)
        door = socket.socket(socket.AF_UNIX)
        door.bind(rest)
        door.listen(64)
        return door
    host, _, port = rest.rpartition(":")
    return socket.create_server((host, int(port)), backlog=64)


def connection(place: str) -> socket.socket:
    kind, _, rest = place.partition(":")
    if kind == "unix":
        found = socket.socket(socket.AF_UNIX)
        found.connect(rest)
        return found
    host, _, port = rest.rpartition(":")
    return socket.create_connection((host, int(port)))


def serve(door: socket.socket, target: str, *, preface: bytes = b"") -> None:
    """Accept until the socket is closed. With a ``preface``: send it first, and pass on after its answer."""
    while True:
        try:
            client, _ = door.accept()
        except OSError:
            return
        threading.Thread(target=_one, args=(client, target, preface), daemon=True).start()


@contextlib.contextmanager
def running(listen: str, target: str, *, preface: bytes = b""):
    """The relay in a thread of this process; gives the socket that listens."""
    door = listener(listen)
    threading.Thread(target=serve, args=(door, target), kwargs={"preface": preface}, daemon=True).start()
    try:
        yield door
    finally:
        with contextlib.suppress(OSError):
            door.shutdown(socket.SHUT_RDWR)  # wakes accept
        door.close()


def _one(client: socket.socket, target: str, preface: bytes) -> None:
    try:
        server = connection(target)
    except OSError:
        client.close()
        return
    with client, server:
        if preface:
            server.sendall(preface)
            head = b""
            while not head.endswith(b"\r\n\r\n"):
                byte = server.recv(1)
                if not byte:
                    return
                head += byte
        back = threading.Thread(target=_pass, args=(server, client), daemon=True)
        back.start()
        _pass(client, server)
        back.join()


def _pass(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while block := source.recv(1 << 16):
            sink.sendall(block)
    with contextlib.suppress(OSError):
        sink.shutdown(socket.SHUT_WR)


if __name__ == "__main__":
    entrance = listener(sys.argv[1])
    print("listening", flush=True)
    serve(entrance, sys.argv[2])
