"""An image out of a repository into the engine's store, by digest."""

import re
import threading
from collections.abc import Callable, Iterable
from typing import Any

import docker

from builder.engine.images import said_by_engine
from builder.errors import CancelledError, ImageMissingError, RegistryError

_TRIES = 3
_REFUSED = re.compile("unauthorized|denied|forbidden|no basic auth|x509", re.IGNORECASE)
"""Refusals, which trying again does not change."""
_MISSING = re.compile("not found|manifest unknown|name unknown", re.IGNORECASE)
_FULL = re.compile("no space left", re.IGNORECASE)


def pull(
    client: docker.DockerClient,
    reference: str,
    *,
    progress: Callable[[str, int, int], None],
    cancel: threading.Event | None = None,
) -> None:
    """Pull ``repository@sha256:…``; layers that the engine has are not sent again.

    The login is what ``docker login`` stored on this machine, wherever the engine is. ``progress`` is told a
    layer's id, and how many bytes of how many have come. Raises ImageMissingError if the repository has no
    such image, RegistryError if it refuses or stays away through three tries, and CancelledError.
    """
    repository, _, digest = reference.rpartition("@")
    error = ""
    for _ in range(_TRIES):
        with said_by_engine(f"pull {reference}"):
            try:
                lines = client.api.pull(repository, tag=digest, stream=True, decode=True)
                error = _follow(lines, progress, cancel)
            except docker.errors.APIError as refusal:  # before the first layer it is a status, not a line
                error = str(refusal.explanation or refusal).strip()
        if not error:
            return
        if any(pattern.search(error) for pattern in (_REFUSED, _MISSING, _FULL)):
            break
    kind = ImageMissingError if _MISSING.search(error) else RegistryError
    raise kind(f"the engine could not pull {reference}: {error}", hint=_hint(error, repository))


def _follow(
    lines: Iterable[dict[str, Any]],
    progress: Callable[[str, int, int], None],
    cancel: threading.Event | None,
) -> str:
    """Read the engine's lines to the end, or to the one that says why it failed: its words."""
    for line in lines:
        if cancel is not None and cancel.is_set():
            raise CancelledError("the pull was cancelled")
        detail = line.get("progressDetail") or {}
        if line.get("id") and detail.get("total"):
            progress(str(line["id"]), int(detail.get("current") or 0), int(detail["total"]))
        if line.get("error"):
            return str(line["error"]).strip()
    return ""


def _hint(error: str, repository: str) -> str:
    host = repository.partition("/")[0]
    if _FULL.search(error):
        return "the engine's disk is full: docker system df, then docker image prune"
    if "x509" in error:
        return (
            "the engine does not know the registry's certificate authority: put it into "
            f"/etc/docker/certs.d/{host}/ca.crt on the engine's machine"
        )
    if _REFUSED.search(error):
        return f"docker login {host}, as a user who may pull there"
    if _MISSING.search(error):
        return "push it again: rtbuild build --push"
    return "try again: layers that have arrived are not sent twice"
