"""One cell's image: layers found or made, put together, and brought into engine, repository or folder; the
layers are on their way there while others are still made.
"""

import os
import re
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import count, takewhile
from pathlib import Path
from typing import Self

from builder.core.errors import CellError, RegistryError
from builder.core.items import WorkSpan
from builder.core.model import Cell, Image, RegistryBase
from builder.image.compose import (
    BaseCache,
    BaseLayers,
    ComposedImage,
    ComposeInput,
    LayerBuild,
    Plan,
    StepRunner,
    SystemLayers,
    compose_image,
    plan,
)
from builder.image.engine import Engine, SavedImage, passing_names
from builder.image.layers import Layer, LayerStore, Lease, codec, tar_layer
from builder.image.recipe import Recipe, write
from builder.pipeline.events import CellRun, Stage
from builder.pipeline.layer_cache import LayerRepository
from builder.pipeline.run_context import BuildOptions, EngineOptions, RunContext
from builder.pipeline.stages import fetch_wheels, image_of, python_tar, refuse_large, rootfs_tar
from builder.sources.net import ca_bundle, proxies
from builder.sources.oci import (
    INPUTS_LABEL,
    OciImage,
    Registry,
    Staged,
    plain_image,
    push_image,
    read_image,
    staged_reference,
    write_layout,
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


@dataclass(frozen=True, kw_only=True)
class ImageBuild:
    """Makes the image of one cell. Those of a run share ``base_cache`` and ``runner``."""

    context: RunContext
    options: BuildOptions
    base_cache: BaseCache
    runner: StepRunner
    cell_run: CellRun
    recipe: Recipe
    log: Path
    staged: Staged | None = None
    """An image of the same inputs that the repository has."""

    def make(self) -> Image:
        """The image: in the engine, in the repository, in the layout, as the options say. CellError."""
        context, options, cell_run = self.context, self.options, self.cell_run
        with ExitStack() as stack:
            stack.enter_context(self._lease)
            upload = load = None
            if options.push is not None:
                stores, registry = context.stores, context.sources.writing
                upload = stack.enter_context(
                    RegistryUpload(options.push, context.taken_from, stores.layers, registry, cell_run.span)
                )
            if context.engine is not None and context.engine.facts().store == "containerd":
                load = stack.enter_context(
                    EngineLoad(
                        context.engine, blob=self._lease.path, cancel=cell_run.cancel, span=cell_run.span
                    )
                )
            planned = self._layers(upload, load)
            with cell_run.stage(Stage.BUILD):
                image = self._composed(planned)
                if load is not None:
                    with cell_run.span("wait for the engine"):
                        load.finish()
                context.stores.made.remember(self.recipe.inputs, digest=image.digest, content=image.content)
                made = self._kept(image)
            if upload is not None:
                made = replace(made, pushed=self._pushed(image, upload))
            if options.output is not None:
                with cell_run.stage(Stage.PUSH):
                    loaded = f"docker.io/{self._name}"
                    write_layout(options.output, cell_run.cell.id, loaded, image, self._lease.path)
                    cell_run.done(f"oci:{options.output}:{cell_run.cell.id}")
        reference = made.pushed or f"oci:{options.output}:{cell_run.cell.id}"
        return made if context.engine is not None else replace(made, reference=reference)

    def _layers(self, upload: RegistryUpload | None, load: EngineLoad | None) -> Plan:
        """The layers of base and wheels, all of them known: a wheel is converted while others arrive.

        Each goes on its way as soon as it is made.
        """
        context, pinned, cell_run = self.context, self.recipe.pinned, self.cell_run

        def tell(title: str, done: int, total: int) -> None:
            if cell_run.current is Stage.LAYERS:
                cell_run.progress(f"layer of {title}", done, total)

        def ready(place: int, layers: tuple[Layer, ...]) -> None:
            if upload is not None:
                upload.add(layers)
            if load is not None:
                load.add(place, layers)

        with ExitStack() as stack:
            with cell_run.stage(Stage.FETCH):
                planned = plan(pinned, self._lease)
                if planned.missing:
                    self.runner.check()  # bytecode will have to be made: a refusal comes before gigabytes do
                python = None
                if pinned.python is not None and not planned.interpreter:
                    # First: one that does not fit is refused before gigabytes of wheels come.
                    python = python_tar(cell_run, context, pinned.python, pinned.base)
                missing = stack.enter_context(
                    LayerBuild(
                        given=planned,
                        rootfs=partial(rootfs_tar, cell_run, context),
                        python=python,
                        registry=context.sources.registry,
                        progress=tell,
                        warn=partial(cell_run.note, warning=True),
                        cancel=cell_run.cancel,
                        span=cell_run.span,
                        ready=ready,
                        lowest_first=load is not None,
                    )
                )
                fetch_wheels(cell_run, context, planned.missing, arrived=missing.wheel)
            with cell_run.stage(Stage.LAYERS):
                made = missing.finish()
                new = sum(one.new for one in made.every)
                cell_run.done(f"{new} made, {len(made.every) - new} there already")
        return made

    def _composed(self, planned: Plan) -> ComposedImage:
        context, cell_run, recipe, system = self.context, self.cell_run, self.recipe, SystemLayers()
        if recipe.pinned.installs and context.engine is not None:
            with cell_run.span("packages in BuildKit"):
                system = self._system_layers(context.engine, planned)
        return compose_image(
            ComposeInput(
                recipe=recipe,
                plan=planned,
                system=system,
                progress=lambda text: cell_run.progress(text, quiet=False),
                span=cell_run.span,
                cancel=cell_run.cancel,
                base_cache=self.base_cache,
                runner=self.runner,
            )
        )

    def _system_layers(self, engine: Engine, planned: Plan) -> SystemLayers:
        """Have apt-get install in a registry's base what the recipe asks for; its layers, in the store.

        That runs in the engine, in a stage of the recipe. Raises CommandError with the end of the log if it
        fails.
        """
        base, cell_run, cell = planned.base, self.cell_run, self.cell_run.cell
        buildx, authorities = self.options.engine or EngineOptions(), ca_bundle(os.environ)

        def tell(line: str) -> None:
            """Steps by name, their output without its time."""
            if text := re.sub(r"^#\d+ (\d+\.\d+ )?", "", line).strip():
                cell_run.progress(text[:120])

        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rtbuild-")))
            build_context = folder / cell.id
            write(replace(self.recipe, blobs={}), build_context, blobs={})
            saved = stack.enter_context(
                engine.built_stage(
                    log=self.log,
                    on_line=tell,
                    cancel=cell_run.cancel,
                    context=build_context,
                    target="system",
                    platform=cell.platform,
                    epoch=self.recipe.pinned.epoch,
                    build_contexts=self._stages_below(engine, base, folder / "base"),
                    secrets={"ca": authorities} if authorities is not None else {},
                    proxies=proxies(os.environ),
                    no_cache=self.options.no_cache,
                    cache_from=[text.replace("{cell}", cell.id) for text in buildx.cache_from],
                    cache_to=[text.replace("{cell}", cell.id) for text in buildx.cache_to],
                )
            )
            below = len(base.layers)
            if saved.diff_ids[:below] != tuple(layer.diff_id for layer in base.layers):
                raise CellError(
                    f"the engine built {cell.id} on another base than {cell.base} as it is locked"
                )
            layers = tuple(
                _packages(saved, number, cell, planned.lease) for number in range(below, len(saved.layers))
            )
            history = tuple(saved.config.get("history") or ())
            return SystemLayers(layers=layers, history=history[len(base.config.get("history") or ()) :])

    def _stages_below(self, engine: Engine, base: BaseLayers, layout: Path) -> Mapping[str, str]:
        """The base instead of every stage below ``system``: all of them, or BuildKit 0.13 looks up their
        images and sends their files although they are not built.
        """
        pinned = self.recipe.pinned.base
        if not isinstance(pinned, RegistryBase):
            raise TypeError("a rootfs has no such stage")
        if engine.facts().takes_layers:
            image = plain_image(base.layers, base.config)
            write_layout(layout, "base", "base:base", image, self._lease.path, link=True)
            place = f"oci-layout://{layout}:base"
        else:
            own = f"{pinned.reference.partition('@')[0]}@{pinned.digest}"
            place = f"docker-image://{self.context.sources.registry.at_mirror(pinned) or own}"
        return dict.fromkeys(("base", "installer", "wheels"), place)

    def _kept(self, image: ComposedImage) -> Image:
        """The image as a value; with an engine, as that has it."""
        engine, pinned, cell_run, name = self.context.engine, self.recipe.pinned, self.cell_run, self._name
        if engine is None:
            refuse_large(pinned, image.size)
            cell_run.done(f"{image.size / 1e9:.2f} GB unpacked {image.digest[:19]}")
            return image_of(cell_run.cell, "", image)
        with cell_run.span("load the image"):
            stored = engine.receive(
                image,
                self._lease.path,
                name,
                cancel=cell_run.cancel,
                progress=cell_run.counter("into the engine", sum(layer.size for layer in image.layers)),
            )
        if stored.digest not in (image.digest, image.config_digest) or stored.content != image.content:
            raise CellError(
                f"{name} is {stored.digest} in the engine, and {image.digest} was given to it: "
                "another took its name"
            )
        cell_run.done(f"{name} {stored.size / 1e9:.2f} GB in the engine {image.digest[:19]}")
        refuse_large(pinned, stored.size)
        return image_of(cell_run.cell, name, stored)

    def _pushed(self, image: ComposedImage, upload: RegistryUpload) -> str:
        """Push the image under its unlisted tag; its reference by digest."""
        context, cell_run, reference = self.context, self.cell_run, f"{upload.repository}@{image.digest}"
        with cell_run.stage(Stage.PUSH):
            if self.staged is not None and self.staged.digest == image.digest:
                said = f"there already, {image.digest[:19]}"
            else:
                cell_run.progress(upload.repository, quiet=False)
                with cell_run.span("wait for uploads"):
                    upload.finish()
                sent = upload.push(image, self.recipe.inputs, self._lease.path, cell_run.progress)
                said = f"{image.digest[:19]}, {sent} blobs sent"
                self._leave_layers(image)
            sign_pushed(context, reference)
            cell_run.done(said)
        return reference

    def _leave_layers(self, image: ComposedImage) -> None:
        """Leave the image's own layers for other machines, if there is a place; a failure is a warning."""
        try:
            if self.context.left_in is not None:
                self.context.left_in.publish(image.own)
        except RegistryError as problem:
            text = f"its layers are not left for other machines: {problem.message}"
            self.cell_run.note(text, warning=True)

    @cached_property
    def _lease(self) -> Lease:
        """Keeps the layers of the image while it is made."""
        return self.context.stores.layers.lease(self.context.taken_from, self.cell_run.counter)

    @property
    def _name(self) -> str:
        return self.context.stores.image_name(self.cell_run.cell)


def _packages(saved: SavedImage, number: int, cell: Cell, lease: Lease) -> Layer:
    """A layer of packages that an engine installed, in the store."""
    diff_id, compression = saved.diff_ids[number], cell.options.compression

    def make(target: Path) -> Layer:
        tar = target.with_suffix(".tar")
        try:
            with saved.stream(number) as stream, tar.open("wb") as file:
                shutil.copyfileobj(stream, file, 1 << 20)
            return tar_layer(tar, target, f"packages of {cell.base}", compression, lambda _size: None)
        finally:
            tar.unlink(missing_ok=True)

    key = f"system-{diff_id.removeprefix('sha256:')}-{codec(compression)}"
    layer = lease.obtain(key, make)
    if layer.diff_id != diff_id:
        raise CellError(f"the engine gave {layer.diff_id} for the layer {diff_id}")
    return layer
