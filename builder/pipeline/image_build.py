"""One cell's image: layers found or made, put together, and brought into engine, repository or folder."""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path

from builder.core.errors import CellError, RegistryError
from builder.core.model import Image
from builder.image.compose import (
    BaseCache,
    ComposedImage,
    ComposeInput,
    LayerBuild,
    LayerSink,
    Plan,
    StepRunner,
    SystemLayers,
    compose_image,
    plan,
)
from builder.image.layers import Lease
from builder.image.recipe import Recipe
from builder.pipeline.events import Stage
from builder.pipeline.fetch import fetch_wheels, python_tar, rootfs_tar
from builder.pipeline.options import BuildOptions
from builder.pipeline.run_context import RunContext
from builder.pipeline.schedule import CellRun
from builder.pipeline.stages import image_of, refuse_large
from builder.pipeline.upload import EngineLoad, RegistryUpload, sign_pushed
from builder.sources.oci import Staged, write_layout


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
                upload = stack.enter_context(self._uploads(options.push))
            if context.engine is not None and context.engine.facts().store == "containerd":
                load = stack.enter_context(
                    EngineLoad(
                        context.engine, blob=self._lease.path, cancel=cell_run.cancel, span=cell_run.span
                    )
                )
            planned = self._layers([sink for sink in (upload, load) if sink is not None])
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

    def _layers(self, sinks: Sequence[LayerSink]) -> Plan:
        """The layers of base and wheels, all of them known: a wheel is converted while others arrive."""
        context, pinned, cell_run = self.context, self.recipe.pinned, self.cell_run

        def tell(title: str, done: int, total: int) -> None:
            if cell_run.current is Stage.LAYERS:
                cell_run.progress(f"layer of {title}", done, total)

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
                        cancel=cell_run.cancel,
                        span=cell_run.span,
                        sinks=sinks,
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
            from builder.pipeline.buildkit import system_layers

            with cell_run.span("packages in BuildKit"):
                system = system_layers(
                    cell_run,
                    context,
                    context.engine,
                    options=self.options,
                    recipe=recipe,
                    planned=planned,
                    log=self.log,
                )
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
            if self.context.layer_cache.target is not None:
                self.context.layer_cache.target.publish(image.own)
        except RegistryError as problem:
            text = f"its layers are not left for other machines: {problem.message}"
            self.cell_run.note(text, warning=True)

    @cached_property
    def _lease(self) -> Lease:
        """Keeps the layers of the image while it is made."""
        return self.context.stores.layers.lease(self.context.layer_cache.source, self.cell_run.counter)

    def _uploads(self, repository: str) -> RegistryUpload:
        context = self.context
        return RegistryUpload(
            repository,
            context.layer_cache.source,
            context.stores.layers,
            context.sources.writing,
            self.cell_run.span,
        )

    @property
    def _name(self) -> str:
        return self.context.stores.image_name(self.cell_run.cell)
