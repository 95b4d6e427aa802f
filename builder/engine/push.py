"""An image from the engine's store into a repository, under a tag that is taken off here again."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from builder.engine.images import said_by_engine, tag
from builder.errors import CancelledError, RegistryError

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterable

    import docker

_TRIES = 3
_REFUSED = re.compile("unauthorized|denied|forbidden|no basic auth|x509", re.IGNORECASE)
_DIGEST = re.compile(r"digest: (sha256:[0-9a-f]{64})")


def push(
    client: docker.DockerClient,
    image: str,
    reference: str,
    *,
    progress: Callable[[str, int, int], None],
    cancel: threading.Event | None = None,
) -> str:
    """Push ``image`` as ``reference`` (``repository:tag``); the digest of its manifest in the registry.

    The login is what ``docker login`` stored. With the containerd image store the digest is the engine's own;
    with a graph driver the engine compresses the layers anew, and only the push says what came of it.
    ``progress`` is told a layer's id, and how many bytes of how many have gone.

    Raises RegistryError where the registry refuses, or stays away through three tries.
    """
    repository, _, name = reference.rpartition(":")
    error = ""
    tag(client, image, reference)
    try:
        for left in reversed(range(_TRIES)):
            with said_by_engine(f"push {reference}"):
                lines = client.api.push(repository, tag=name, stream=True, decode=True)
                digest, error = _follow(lines, progress, cancel)
            if digest is not None:
                return digest
            if left == 0 or _final(error):
                break
        raise RegistryError(f"the engine could not push {reference}: {error}", hint=_hint(error, repository))
    finally:
        with said_by_engine(f"take the name {reference} off"):
            client.api.remove_image(reference, noprune=True)


def _follow(
    lines: Iterable[dict[str, Any]],
    progress: Callable[[str, int, int], None],
    cancel: threading.Event | None,
) -> tuple[str | None, str]:
    """What the engine tells of a push, to its end: the digest, or why there is none."""
    digest, error = None, "it did not say which digest it pushed"
    for line in lines:
        if cancel is not None and cancel.is_set():
            raise CancelledError("the push was cancelled")
        if "error" in line:
            return None, str(line["error"]).strip()
        detail = line.get("progressDetail") or {}
        if line.get("id") and detail.get("total"):
            progress(str(line["id"]), int(detail.get("current") or 0), int(detail["total"]))
        said = _DIGEST.search(str(line.get("status", "")))
        digest = said[1] if said else (line.get("aux") or {}).get("Digest") or digest
    return digest, error


def _final(error: str) -> bool:
    """A refusal that trying again does not change."""
    return _REFUSED.search(error) is not None


def _hint(error: str, repository: str) -> str:
    host = repository.partition("/")[0]
    if "x509" in error:
        return (
            "the engine does not know the registry's certificate authority: put it into "
            f"/etc/docker/certs.d/{host}/ca.crt on the engine's machine"
        )
    if _final(error):
        return f"docker login {host}, as a user who may push there"
    return "try again: layers that have arrived are not sent twice"
