"""Layers on their way while others are still made: to a repository, and the lowest ones into an engine."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

from builder.engine.receive import passing_names
from builder.errors import CellError
from builder.evidence.cosign import Signer
from builder.evidence.origin import sign_built
from builder.image.compose import base_image
from builder.layers.types import BaseLayers, Layer
from builder.oci.staging import read_image

if TYPE_CHECKING:
    from builder.engine.engine import Engine
    from builder.layers.store import LayerStore
    from builder.oci.registry import Registry
    from builder.pipeline.sharing import SharedLayers
    from builder.pipeline.site import Site

_CONNECTIONS = 4
"""Blobs that are uploaded at a time."""


@dataclass
class Uploads:
    """Sends layers as they are ready, several at a time; nothing if no repository is pushed to.

    What is left when the block ends is not begun: whoever pushes the image sends it.
    """

    repository: str | None
    shared: SharedLayers | None
    store: LayerStore
    registry: Registry

    def __post_init__(self) -> None:
        self._pool = ThreadPoolExecutor(_CONNECTIONS, thread_name_prefix="upload")
        self._futures: list[Future[bool]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)

    def begin(self, layer: Layer) -> None:
        """Send a layer, unless the repository has it, or has it mounted later."""
        if self.repository is None or (self.shared is not None and self.shared.has(layer.digest)):
            return
        path = self.store.blob(layer.digest)
        self._futures.append(self._pool.submit(self.registry.push_blob, self.repository, layer.digest, path))

    def wait(self) -> int:
        """Until all are there. How many were sent; raises what went wrong with one."""
        return sum(future.result() for future in self._futures)


def sign_pushed(site: Site, reference: str) -> None:
    """Sign an image that was pushed, if there is a key. Raises CommandError and RegistryError."""
    if site.own is not None:
        repository, _, digest = reference.partition("@")
        image = read_image(site.writing, repository, digest)
        sign_built(site.writing, image, Signer(key=site.settings.key), site.own)


LEAST = 64 << 20
"""Bytes of new layers, packed, below which a load of their own takes longer than it saves."""


class EngineFeed:
    """Gives an engine parts of an image, each the lower layers of the next, until it is given the whole: it
    unpacks along the chain.

    The parts have names of their own while the block lasts. What goes wrong with one is not said: the same
    goes wrong with the whole image, or it does not matter. Only a containerd store takes parts.
    """

    def __init__(
        self,
        engine: Engine | None,
        *,
        memory: Path,
        blob: Callable[[Layer], Path],
        cancel: threading.Event,
    ) -> None:
        self._engine = engine if engine is not None and engine.facts().store == "containerd" else None
        self._memory = memory
        self._blob = blob
        self._cancel = cancel
        self._wanted: tuple[Layer, ...] = ()
        self._named: Callable[[str], str] | None = None
        self._passing = ExitStack()
        self._changed = threading.Condition()
        self._done = self._engine is None
        self._thread = threading.Thread(target=self._feed, name="feed", daemon=True)

    def __enter__(self) -> Self:
        if self._engine is not None:
            self._named = self._passing.enter_context(passing_names(self._engine, self._memory))
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._passing.close()

    @property
    def wanted(self) -> bool:
        """Whether the engine takes parts."""
        return self._engine is not None

    def lowest(self, layers: tuple[Layer, ...]) -> None:
        """More of the image's lowest layers are known. From any thread."""
        with self._changed:
            if len(layers) > len(self._wanted):
                self._wanted = layers
                self._changed.notify()

    def stop(self) -> None:
        """Begin no more parts, and wait for the one that is on its way."""
        with self._changed:
            self._done = True
            self._changed.notify()
        self._thread.join()

    def _feed(self) -> None:
        given = 0
        while True:
            with self._changed:
                self._changed.wait_for(
                    lambda: self._done or sum(one.size for one in self._wanted[given:]) >= LEAST  # noqa: B023
                )
                if self._done:
                    return
                layers = self._wanted
            try:
                self._give(layers)
            except CellError:
                return
            given = len(layers)

    def _give(self, layers: Sequence[Layer]) -> None:
        engine, named = self._engine, self._named
        if engine is None or named is None:
            return
        name = named(str(len(layers)))
        labels = {"io.rtbuild.inputs": f"part of {name}"}  # by it the engine's blobs are known
        config = {"architecture": "amd64", "os": "linux", "config": {"Labels": labels}}
        engine.receive(
            base_image(BaseLayers(layers=tuple(layers), config=config)),
            self._blob,
            name,
            memory=self._memory,
            cancel=self._cancel,
            progress=lambda _size: None,
        )
