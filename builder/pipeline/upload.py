"""Layers on their way while others are still made: to a repository, and the large ones into an engine."""

import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, nullcontext, suppress
from dataclasses import dataclass
from itertools import count, takewhile
from pathlib import Path
from typing import Self

from builder.core.errors import CellError
from builder.core.items import WorkSpan
from builder.image.engine import Engine, passing_names
from builder.image.layers import Layer, LayerStore
from builder.pipeline.layer_cache import LayerRepository
from builder.pipeline.run_context import RunContext
from builder.sources.oci import (
    INPUTS_LABEL,
    OciImage,
    Registry,
    plain_image,
    push_image,
    read_image,
    staged_reference,
)
from builder.verify.evidence import sign_built

_CONNECTIONS = 4
"""Blobs that are uploaded at a time."""


@dataclass
class RegistryUpload:
    """An image on its way into a repository: layers as they are ready, several at a time, then the rest.

    What is left when the block ends is not begun.
    """

    repository: str
    shared: LayerRepository | None
    store: LayerStore
    registry: Registry
    span: WorkSpan = nullcontext

    def __post_init__(self) -> None:
        self._pool = ThreadPoolExecutor(_CONNECTIONS, thread_name_prefix="upload")
        self._futures: list[Future[bool]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)

    def add(self, layers: Iterable[Layer]) -> None:
        """Send layers, unless the repository has them, or has them mounted later. From any thread."""
        for layer in layers:
            if self.shared is None or not self.shared.has(layer.digest):
                self._futures.append(self._pool.submit(self._push, layer))

    def _push(self, layer: Layer) -> bool:
        with self.span(f"push {layer.title}"):
            return self.registry.push_blob(self.repository, layer.digest, self.store.blob(layer.digest))

    def finish(self) -> int:
        """Wait until all are there. How many were sent; raises what went wrong with one."""
        return sum(future.result() for future in self._futures)

    def push(
        self,
        image: OciImage[Layer],
        inputs: str,
        blob: Callable[[Layer], Path],
        progress: Callable[[str], None],
    ) -> int:
        """Have all of the image there under the unlisted tag of its ``inputs``; how many blobs were sent.

        Raises RegistryError.
        """
        sent = self.finish()

        def advance(how: str, size: int) -> None:
            nonlocal sent
            sent += how == "sent"
            progress(f"{how} {size / 1e6:.0f} MB")

        digests, shared = [layer.digest for layer in image.layers], self.shared
        there = {one: shared.repository for one in digests if shared.has(one)} if shared else {}
        reference = staged_reference(self.repository, inputs)
        push_image(self.registry, reference, image, blob, mount_from=there, advance=advance)
        return sent


def sign_pushed(context: RunContext, reference: str) -> None:
    """Sign an image that was pushed, if there is a key. Raises CommandError and RegistryError."""
    if context.signer is not None and context.own is not None:
        repository, _, digest = reference.partition("@")
        registry = context.sources.writing
        sign_built(registry, read_image(registry, repository, digest), context.signer, context.own)


LEAST = 64 << 20
"""Bytes of new layers, packed, below which a load of their own takes longer than it saves."""


class EngineLoad:
    """Gives an engine the layers of an image before the image.

    A layer is sent as soon as it is ready, whatever its place. The engine unpacks along the chain, so it is
    also given parts of the image, each the lower layers of the next: it unpacks them meanwhile.

    Layers and parts have names of their own while the block lasts. An error with one of them ends its kind
    and is not reported: the same goes wrong with the whole image, or it does not matter. Only a containerd
    store takes them.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        blob: Callable[[Layer], Path],
        cancel: threading.Event,
        span: WorkSpan = nullcontext,
    ) -> None:
        self._engine = engine
        self._blob = blob
        self._cancel = cancel
        self._span = span
        self._passing = ExitStack()
        self._layers = ThreadPoolExecutor(1, thread_name_prefix="load-layers")
        self._parts = ThreadPoolExecutor(1, thread_name_prefix="load-parts")
        self._guard = threading.Lock()
        self._begun: set[str] = set()
        self._known: dict[int, tuple[Layer, ...]] = {}
        self._waits_for: set[str] = set()
        self._given = 0
        self._keeps = self._gives = True

    def __enter__(self) -> Self:
        self._named = self._passing.enter_context(passing_names(self._engine))
        return self

    def __exit__(self, *_: object) -> None:
        self.finish()
        self._engine.forget(self._begun)
        self._passing.close()

    def add(self, place: int, layers: tuple[Layer, ...]) -> None:
        """Give the engine layers, and the lowest as a part of the image. From any thread."""
        for layer in layers:  # first, so that no part is made with a layer that is on its way
            self._begin(layer)
        with self._guard:
            self._known[place] = layers
        with suppress(RuntimeError):  # it was stopped
            self._parts.submit(self._give)

    def finish(self) -> None:
        """Begin no more, and wait for the layer and the part that are on their way."""
        for wait in (False, True):  # neither begins anything while the other is waited for
            for pool in (self._layers, self._parts):
                pool.shutdown(wait=wait, cancel_futures=True)

    def _begin(self, layer: Layer) -> None:
        with self._guard:
            if layer.size < LEAST or layer.digest in self._begun:
                return
            self._waits_for.add(layer.digest)
            self._begun.add(layer.digest)
        self._layers.submit(self._keep, layer)

    def _keep(self, layer: Layer) -> None:
        if self._keeps:
            name = self._named(layer.digest.removeprefix("sha256:"))
            try:
                with self._span(f"load {layer.title}"):
                    self._engine.keep(layer, self._blob, name, cancel=self._cancel)
            except CellError:
                self._keeps = False
        self._waits_for.discard(layer.digest)
        with suppress(RuntimeError):  # it was stopped
            self._parts.submit(self._give)

    def _lowest(self) -> Iterator[Layer]:
        """The lowest layers of the image, as far as all of them are known."""
        with self._guard:
            known = dict(self._known)
        for place in takewhile(known.__contains__, count()):
            yield from known[place]

    def _give(self) -> None:
        """Give the engine the lowest layers, as far as none of them is still being sent."""
        layers = tuple(takewhile(lambda one: one.digest not in self._waits_for, self._lowest()))
        if not self._gives or sum(one.size for one in layers[self._given :]) < LEAST:
            return
        self._given = len(layers)
        name = self._named(str(len(layers)))
        labels = {INPUTS_LABEL: f"part of {name}"}  # by it the engine's blobs are known
        config = {"architecture": "amd64", "os": "linux", "config": {"Labels": labels}}
        try:
            with self._span(f"load and unpack the lowest {len(layers)} layers"):
                self._engine.receive(
                    plain_image(layers, config),
                    self._blob,
                    name,
                    cancel=self._cancel,
                    progress=lambda _size: None,
                )
        except CellError:
            self._gives = False
