"""What the environment asks of a start, checked once."""

from __future__ import annotations

import os
import re
import secrets
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
    """How to start. ``bind`` None: decided by :mod:`.network`."""

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
