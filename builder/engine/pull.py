"""An image out of a repository into the engine's store, by digest."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import docker

from builder.engine.images import said_by_engine
from builder.engine.transfer import TRIES, error_in, follow, hint, refused
from builder.errors import ImageMissingError, RegistryError

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable

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
    for _ in range(TRIES):
        with said_by_engine(f"pull {reference}"):
            try:
                lines = client.api.pull(repository, tag=digest, stream=True, decode=True)
                said = map(error_in, follow(lines, "pull", progress=progress, cancel=cancel))
                error = next(filter(None, said), "")
            except docker.errors.APIError as refusal:  # before the first layer it is a status, not a line
                error = str(refusal.explanation or refusal).strip()
        if not error:
            return
        if refused(error) or _MISSING.search(error) or _FULL.search(error):
            break
    kind = ImageMissingError if _MISSING.search(error) else RegistryError
    raise kind(f"the engine could not pull {reference}: {error}", hint=_hint(error, repository))


def _hint(error: str, repository: str) -> str:
    if _FULL.search(error):
        return "the engine's disk is full: docker system df, then docker image prune"
    if _MISSING.search(error) and not refused(error):
        return "push it again: rtbuild build --push"
    return hint(error, repository, "pull")
