"""What the environment asks of a start, checked once; and which address to listen on, so that a container
never opens a port on all interfaces of its host.

A container with a network of its own has to listen on all of *its* interfaces, or the engine cannot forward a
published port to it. One that shares the network of its host (``--network host``, Apptainer) must not: there
the same interfaces are the host's.
"""

from __future__ import annotations

import os
import re
import secrets
import socket
from typing import Mapping, NamedTuple

COLAB = "https://colab.research.google.com"
"""The page whose scripts may talk to this server: https://research.google.com/colaboratory/local-runtimes.html"""

ALL = "0.0.0.0"
LOOPBACK = "127.0.0.1"


class StartError(Exception):
    """Why nothing was started: what happened, and a line that says what to do.

    The exit status is 2 for what was asked wrongly, 5 for what is missing here.
    """

    def __init__(self, message: str, hint: str, status: int = 2) -> None:
        super().__init__(message)
        self.message, self.hint, self.status = message, hint, status


class Settings(NamedTuple):
    """How to start. ``bind`` None: decided by :func:`address`."""

    port: int
    bind: str | None
    token: str
    token_note: str | None
    """What is to be said about the token; None where it is random, as by default."""


def read(environment: Mapping[str, str]) -> Settings:
    """``RTBUILD_PORT``, ``RTBUILD_BIND`` and ``JUPYTER_TOKEN``. Raises StartError."""
    given, bind = environment.get("JUPYTER_TOKEN"), environment.get("RTBUILD_BIND") or None
    token, note = given or "", None
    if not token.strip():
        token = secrets.token_hex(24)
        if given is not None:
            note = "JUPYTER_TOKEN is empty: a random token was made; nothing here listens without one"
    elif not re.fullmatch(r"[A-Za-z0-9._~-]{16,}", token):
        raise StartError(
            "JUPYTER_TOKEN is too short, or has characters that an address cannot hold",
            "16 or more of A-Z a-z 0-9 . _ ~ -, or leave it out for a random one",
        )
    number = port(environment)
    if bind not in (None, ALL, LOOPBACK):
        hint = f"{LOOPBACK}, or {ALL} inside a container that has a network of its own"
        raise StartError(f"RTBUILD_BIND is '{bind}'", hint)
    return Settings(number, bind, token, note)


def port(environment: Mapping[str, str] = os.environ) -> int:
    """The port that Jupyter listens on, in the container as outside. Raises StartError."""
    text = environment.get("RTBUILD_PORT") or "8888"
    if not text.isdecimal() or not 1024 <= int(text) <= 65535:
        raise StartError(f"RTBUILD_PORT is '{text}'", "a port is a number from 1024 to 65535")
    return int(text)


def address(interfaces: str = "/sys/class/net") -> str:
    """``0.0.0.0`` where the network is the container's own without a doubt, else ``127.0.0.1``."""
    try:
        names = [name for name in os.listdir(interfaces) if name != "lo"]
        own = bool(names) and all(_is_an_end(os.path.join(interfaces, name)) for name in names)
    except (OSError, ValueError):
        return LOOPBACK
    return ALL if own else LOOPBACK


def _is_an_end(folder: str) -> bool:
    """Whether an interface is one end of a pair whose other end is elsewhere, as engines make them.

    ``iflink`` is the other end's number (veth, ipvlan, macvlan), and an interface's own for a network card or
    a bridge: https://www.kernel.org/doc/Documentation/ABI/testing/sysfs-class-net. Rootless engines make a
    tap instead (https://github.com/rootless-containers/slirp4netns).
    """
    if os.path.exists(os.path.join(folder, "tun_flags")):
        return True
    numbers = set()
    for name in ("iflink", "ifindex"):
        with open(os.path.join(folder, name)) as stream:
            numbers.add(int(stream.read()))
    return len(numbers) == 2


def refuse_taken(bind: str, port: int) -> None:
    """Raise StartError where something listens on the port already."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((bind, port))
        except OSError as error:
            raise StartError(
                f"port {port} is taken: {error.strerror}",
                "stop what listens there, or name another one by RTBUILD_PORT (rtbuild run --port)",
                5,
            )
