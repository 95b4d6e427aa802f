"""Layers on their way to the repository to push to, while others are still made."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from builder.layers import Layer
    from builder.layers.store import Lease
    from builder.pipeline.stages import Site

_CONNECTIONS = 4
"""Blobs that are uploaded at a time."""


class Uploads:
    """Sends layers as they are ready, several at a time; nothing where no repository is pushed to.

    What is left when the block ends is not begun: whoever pushes the image sends it.
    """

    def __init__(self, site: Site, lease: Lease) -> None:
        self.lease = lease
        self._site = site
        self._pool = ThreadPoolExecutor(_CONNECTIONS, thread_name_prefix="upload")
        self._futures: list[Future[bool]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)

    def begin(self, layer: Layer) -> None:
        """Send a layer, unless the repository has it, or has it mounted later."""
        repository, shared, store = self._site.settings.push, self._site.shared, self._site.layers
        if repository is None or store is None or (shared is not None and shared.has(layer.digest)):
            return
        push, path = self._site.writing.push_blob, store.blob(layer.digest)
        self._futures.append(self._pool.submit(push, repository, layer.digest, path))

    def wait(self) -> int:
        """Until all are there. How many were sent; raises what went wrong with one."""
        return sum(future.result() for future in self._futures)
