"""One cell's image: layers found or made, put together, and brought into engine, repository or folder."""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path

from builder.core.errors import CellError, RegistryError
from builder.core.model import Image
from builder.image.compose import (
    Assembly,
    ComposedImage,
    Elsewhere,
    LayerSink,
    MissingLayers,
    Plan,
    StepRunner,
    Workbench,
    compose_image,
    plan,
)
from builder.image.layers import BaseLayers, Layer, Lease, SystemLayers
from builder.image.recipe import Recipe
from builder.pipeline.events import Stage
from builder.pipeline.fetch import fetch_wheels, python_tar, rootfs_tar
from builder.pipeline.options import BuildOptions
from builder.pipeline.schedule import Walk
from builder.pipeline.site import Site
from builder.pipeline.stages import image_of, refuse_large
from builder.pipeline.upload import EngineFeed, Uploads, sign_pushed
from builder.sources.oci import MANIFEST, Manifest, Staged, push_image, staged_tag, write_layout


@dataclass(frozen=True, kw_only=True)
class Maker:
    """Makes the image of one cell. The makers of a run share ``bench`` and ``runner``."""

    site: Site
    options: BuildOptions
    bench: Workbench
    runner: StepRunner
    walk: Walk
    recipe: Recipe
    log: Path
    staged: Staged | None = None
    """An image of the same inputs that the repository has."""

    def make(self) -> Image:
        """The image: in the engine, in the repository, in the layout, as the options say. CellError."""
        site, options, walk = self.site, self.options, self.walk
        with ExitStack() as stack:
            stack.enter_context(self._lease)
            uploads = feed = None
            if options.push is not None:
                uploads = stack.enter_context(self._uploads(options.push))
            if site.engine is not None and site.engine.facts().store == "containerd":
                feed = stack.enter_context(EngineFeed(site.engine, blob=self._blob, cancel=walk.cancel))
            planned, base = self._layers([sink for sink in (uploads, feed) if sink is not None])
            with walk.stage(Stage.BUILD):
                image = self._composed(planned, base)
                if feed is not None:
                    feed.finish()
                site.stores.made.remember(self.recipe.inputs, digest=image.digest, content=image.content)
                made = self._kept(image)
            if uploads is not None:
                made = replace(made, pushed=self._pushed(image, uploads))
            if options.output is not None:
                with walk.stage(Stage.PUSH):
                    loaded = f"docker.io/{self._name}"
                    write_layout(options.output, walk.cell.id, loaded, image, self._blob)
                    walk.done(f"oci:{options.output}:{walk.cell.id}")
        reference = made.pushed or f"oci:{options.output}:{walk.cell.id}"
        return made if site.engine is not None else replace(made, reference=reference)

    def _layers(self, sinks: Sequence[LayerSink]) -> tuple[Plan, BaseLayers]:
        """The layers of base and wheels, all of them known: a wheel is converted while others arrive."""
        site, pinned, walk = self.site, self.recipe.pinned, self.walk

        def tell(title: str, done: int, total: int) -> None:
            if walk.current is Stage.LAYERS:
                walk.progress(f"layer of {title}", done, total)

        with ExitStack() as stack:
            with walk.stage(Stage.FETCH):
                planned = plan(pinned, self._lease, self._elsewhere)
                if planned.missing:
                    self.runner.check()  # bytecode will have to be made: a refusal comes before gigabytes do
                python = None
                if pinned.python is not None and planned.python is None:
                    # First: one that does not fit is refused before gigabytes of wheels come.
                    python = python_tar(walk, site, pinned.python, pinned.base)
                missing = stack.enter_context(
                    MissingLayers(
                        given=planned,
                        rootfs=partial(rootfs_tar, walk, site),
                        python=python,
                        registry=site.sources.registry,
                        progress=tell,
                        cancel=walk.cancel,
                        sinks=sinks,
                    )
                )
                fetch_wheels(walk, site, planned.missing, arrived=missing.wheel)
            with walk.stage(Stage.LAYERS):
                made, base = missing.finish()
                new = sum(one.new for one in made.every)
                walk.done(f"{new} made, {len(made.every) - new} there already")
        return made, base

    def _composed(self, planned: Plan, base: BaseLayers) -> ComposedImage:
        site, walk, recipe, system = self.site, self.walk, self.recipe, SystemLayers()
        if recipe.pinned.installs and site.engine is not None:
            from builder.pipeline.buildkit import system_layers

            system = system_layers(
                walk,
                site,
                site.engine,
                options=self.options,
                recipe=recipe,
                base=base,
                lease=self._lease,
                log=self.log,
            )
        return compose_image(
            Assembly(
                recipe=recipe,
                plan=planned,
                base=base,
                system=system,
                blob=self._blob,
                elsewhere=self._elsewhere,
                progress=lambda text: walk.progress(text, quiet=False),
                cancel=walk.cancel,
                bench=self.bench,
                runner=self.runner,
            )
        )

    def _kept(self, image: ComposedImage) -> Image:
        """The image as a value; with an engine, as that has it."""
        engine, pinned, walk, name = self.site.engine, self.recipe.pinned, self.walk, self._name
        if engine is None:
            refuse_large(pinned, image.size)
            walk.done(f"{image.size / 1e9:.2f} GB {image.digest[:19]}")
            return image_of(walk.cell, "", image)
        stored = engine.receive(
            image,
            self._blob,
            name,
            cancel=walk.cancel,
            progress=walk.counter("into the engine", sum(layer.size for layer in image.layers)),
        )
        if stored.digest not in (image.digest, image.config_digest) or stored.content != image.content:
            raise CellError(
                f"{name} is {stored.digest} in the engine, and {image.digest} was given to it: "
                "another took its name"
            )
        walk.done(f"{name} {stored.size / 1e9:.2f} GB {image.digest[:19]}")
        refuse_large(pinned, stored.size)
        return image_of(walk.cell, name, stored)

    def _pushed(self, image: ComposedImage, uploads: Uploads) -> str:
        """Push the image under its unlisted tag; its reference by digest."""
        repository = uploads.repository
        site, walk, shared = self.site, self.walk, self.site.layer_cache.source
        with walk.stage(Stage.PUSH):
            if self.staged is not None and self.staged.digest == image.digest:
                sign_pushed(site, self.staged.reference)
                walk.done(f"there already, {self.staged.digest[:19]}")
                return self.staged.reference
            by_digest = {layer.digest: layer for layer in image.layers}
            walk.progress(repository, quiet=False)
            sent = uploads.finish()

            def advance(how: str, size: int) -> None:
                nonlocal sent
                sent += how == "sent"
                walk.progress(f"{how} {size / 1e6:.0f} MB")

            push_image(
                site.sources.writing,
                repository,
                Manifest(digest=image.digest, media_type=MANIFEST, content=image.manifest),
                lambda one: image.config if one == image.config_digest else self._blob(by_digest[one]),
                tag=staged_tag(self.recipe.inputs),
                mount_from={d: shared.repository for d in by_digest if shared.has(d)} if shared else {},
                advance=advance,
            )
            try:
                if site.layer_cache.target is not None:
                    site.layer_cache.target.publish(image.records)
            except RegistryError as problem:
                walk.note(f"its layers are not left for other machines: {problem.message}", warning=True)
            sign_pushed(site, f"{repository}@{image.digest}")
            walk.done(f"{image.digest[:19]}, {sent} blobs sent")
        return f"{repository}@{image.digest}"

    def _blob(self, layer: Layer) -> Path:
        """The file of a layer: in the store, or brought there now."""
        shared = self.site.layer_cache.source
        if shared is not None and shared.has(layer.digest):
            return shared.fetch(layer, self._lease, self.walk.counter(f"of {layer.title}", layer.size))
        return self.site.stores.layers.blob(layer.digest)

    @cached_property
    def _lease(self) -> Lease:
        """Keeps the layers of the image while it is made."""
        return self.site.stores.layers.lease()

    def _uploads(self, repository: str) -> Uploads:
        site = self.site
        return Uploads(repository, site.layer_cache.source, site.stores.layers, site.sources.writing)

    @property
    def _elsewhere(self) -> Elsewhere | None:
        return self.site.layer_cache.source.find if self.site.layer_cache.source is not None else None

    @property
    def _name(self) -> str:
        return self.site.stores.image_name(self.walk.cell)
