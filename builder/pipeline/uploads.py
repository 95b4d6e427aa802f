"""Layers on their way to the repository to push to, while others are still made."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Self

from builder.evidence.cosign import Signer
from builder.evidence.origin import sign_built
from builder.oci.staging import read_image

if TYPE_CHECKING:
    from builder.layers import Layer, LayerStore
    from builder.oci.registry import Registry
    from builder.pipeline.sharing import SharedLayers
    from builder.pipeline.site import Site

_CONNECTIONS = 4
"""Blobs that are uploaded at a time."""


class Uploads:
    """Sends layers as they are ready, several at a time; nothing if no repository is pushed to.

    What is left when the block ends is not begun: whoever pushes the image sends it.
    """

    def __init__(
        self, repository: str | None, shared: SharedLayers | None, store: LayerStore, registry: Registry
    ) -> None:
        self._repository = repository
        self._shared = shared
        self._store = store
        self._registry = registry
        self._pool = ThreadPoolExecutor(_CONNECTIONS, thread_name_prefix="upload")
        self._futures: list[Future[bool]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)

    def begin(self, layer: Layer) -> None:
        """Send a layer, unless the repository has it, or has it mounted later."""
        if self._repository is None or (self._shared is not None and self._shared.has(layer.digest)):
            return
        path = self._store.blob(layer.digest)
        self._futures.append(
            self._pool.submit(self._registry.push_blob, self._repository, layer.digest, path)
        )

    def wait(self) -> int:
        """Until all are there. How many were sent; raises what went wrong with one."""
        return sum(future.result() for future in self._futures)


def sign_pushed(site: Site, reference: str) -> None:
    """Sign an image that was pushed, if there is a key. Raises CommandError and RegistryError."""
    if site.own is not None:
        repository, _, digest = reference.partition("@")
        image = read_image(site.writing, repository, digest)
        sign_built(site.writing, image, Signer(key=site.settings.key), site.own)
