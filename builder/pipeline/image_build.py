"""One cell's image: layers found or made, put together, and brought into engine, repository or folder."""

import os
import re
import shutil
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path

from builder.core.errors import CellError, RegistryError
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
from builder.image.engine import Engine, SavedImage
from builder.image.layers import Layer, Lease, codec, tar_layer
from builder.image.recipe import Recipe, write
from builder.pipeline.events import Stage
from builder.pipeline.options import BuildOptions, EngineOptions
from builder.pipeline.run_context import RunContext
from builder.pipeline.schedule import CellRun
from builder.pipeline.stages import fetch_wheels, image_of, python_tar, refuse_large, rootfs_tar
from builder.pipeline.upload import EngineLoad, RegistryUpload, sign_pushed
from builder.sources.net import ca_bundle, proxies
from builder.sources.oci import Staged, plain_image, write_layout


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
