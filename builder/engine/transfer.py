"""What a push and a pull have in common: the engine's lines, and being refused by a registry."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from builder.errors import CancelledError

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterable, Iterator

TRIES = 3
_REFUSED = re.compile("unauthorized|denied|forbidden|no basic auth|x509", re.IGNORECASE)


def follow(
    lines: Iterable[dict[str, Any]],
    verb: str,
    *,
    progress: Callable[[str, int, int], None],
    cancel: threading.Event | None,
) -> Iterator[dict[str, Any]]:
    """The engine's lines, each after ``progress`` was told of the layer in it. Raises CancelledError."""
    for line in lines:
        if cancel is not None and cancel.is_set():
            raise CancelledError(f"the {verb} was cancelled")
        detail = line.get("progressDetail") or {}
        if line.get("id") and detail.get("total"):
            progress(str(line["id"]), int(detail.get("current") or 0), int(detail["total"]))
        yield line


def error_in(line: dict[str, Any]) -> str | None:
    """Why it failed, in the engine's words, if this is the line that says so."""
    return str(line["error"]).strip() if "error" in line else None


def refused(error: str) -> bool:
    """Whether a registry refused, which trying again does not change."""
    return _REFUSED.search(error) is not None


def hint(error: str, repository: str, verb: str) -> str:
    """What to do about an error that pushing and pulling may both meet."""
    host = repository.partition("/")[0]
    if "x509" in error:
        return (
            "the engine does not know the registry's certificate authority: put it into "
            f"/etc/docker/certs.d/{host}/ca.crt on the engine's machine"
        )
    if refused(error):
        return f"docker login {host}, as a user who may {verb} there"
    return "try again: layers that have arrived are not sent twice"
