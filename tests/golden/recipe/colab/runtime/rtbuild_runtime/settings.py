"""What the environment asks of a start, checked once."""

from __future__ import annotations

import os
import re
import secrets
from dataclasses import dataclass
from typing import Mapping

COLAB = "https://colab.research.google.com"
"""The page whose scripts may talk to this server: https://research.google.com/colaboratory/local-runtimes.html"""

PORT = 8888
ALL = "0.0.0.0"
LOOPBACK = "127.0.0.1"


class StartError(Exception):
    """Why nothing was started: what happened, and a line that says what to do."""

    def __init__(self, message: str, hint: str, status: int = 2) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.status = status
        """The exit status: 2 for what was asked wrongly, 5 for what is missing here."""


@dataclass(frozen=True)
class Settings:
    """How to start. ``bind`` None: decided by :mod:`.network`."""

    port: int
    bind: str | None
    token: str
    token_note: str | None
    """What is to be said about the token; None where it is random, as by default."""


def read(environment: Mapping[str, str]) -> Settings:
    """``RTBUILD_PORT``, ``RTBUILD_BIND`` and ``JUPYTER_TOKEN``. Raises StartError."""
    given = environment.get("JUPYTER_TOKEN")
    note = None
    if given is not None and not given.strip():
        note = "JUPYTER_TOKEN is empty: a random token was made; nothing here listens without one"
    elif given is not None and not re.fullmatch(r"[A-Za-z0-9._~-]{16,}", given):
        raise StartError(
            "JUPYTER_TOKEN is too short, or has characters that an address cannot hold",
            "16 or more of A-Z a-z 0-9 . _ ~ -, or leave it out for a random one",
        )
    return Settings(
        port=port(environment),
        bind=_bind(environment),
        token=given if given and note is None else secrets.token_hex(24),
        token_note=note,
    )


def port(environment: Mapping[str, str] = os.environ) -> int:
    """The port that Jupyter listens on, in the container as outside. Raises StartError."""
    text = environment.get("RTBUILD_PORT") or str(PORT)
    if not text.isdecimal() or not 1024 <= int(text) <= 65535:
        raise StartError("RTBUILD_PORT is '%s'" % text, "a port is a number from 1024 to 65535")
    return int(text)


def _bind(environment: Mapping[str, str]) -> str | None:
    text = environment.get("RTBUILD_BIND") or None
    if text not in (None, ALL, LOOPBACK):
        raise StartError(
            "RTBUILD_BIND is '%s'" % text,
            "%s, or %s inside a container that has a network of its own" % (LOOPBACK, ALL),
        )
    return text
