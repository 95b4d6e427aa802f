"""An image from the engine's store into a repository, under a tag that is taken off here again."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from builder.engine.images import said_by_engine, tag
from builder.engine.transfer import TRIES, error_in, follow, hint, refused
from builder.errors import RegistryError

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterable

    import docker

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
        for left in reversed(range(TRIES)):
            with said_by_engine(f"push {reference}"):
                lines = client.api.push(repository, tag=name, stream=True, decode=True)
                digest, error = _pushed(follow(lines, "push", progress=progress, cancel=cancel))
            if digest is not None:
                return digest
            if left == 0 or refused(error):
                break
        raise RegistryError(
            f"the engine could not push {reference}: {error}", hint=hint(error, repository, "push")
        )
    finally:
        with said_by_engine(f"take the name {reference} off"):
            client.api.remove_image(reference, noprune=True)


def _pushed(lines: Iterable[dict[str, Any]]) -> tuple[str | None, str]:
    """What the engine tells of a push, to its end: the digest, or why there is none."""
    digest, error = None, "it did not say which digest it pushed"
    for line in lines:
        if (failed := error_in(line)) is not None:
            return None, failed
        said = _DIGEST.search(str(line.get("status", "")))
        digest = said[1] if said else (line.get("aux") or {}).get("Digest") or digest
    return digest, error
