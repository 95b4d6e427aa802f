"""One cell's image: layers found or made, put together, and brought into engine, repository or folder."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from builder.errors import CellError, MissingToolError
from builder.image.compose import ComposedImage, compose_image, write_layout
from builder.image.finish import Assembly, Runner, Workbench
from builder.image.missing import MissingLayers
from builder.image.stack import Elsewhere, Plan, plan
from builder.layers.types import BaseLayers, Layer, SystemLayers
from builder.model import Image
from builder.oci.copying import push_image
from builder.oci.spec import MANIFEST
from builder.oci.staging import Staged, staged_tag
from builder.pipeline.events import Stage
from builder.pipeline.feeding import EngineFeed, Uploads, sign_pushed
from builder.pipeline.sharing import share_composed
from builder.pipeline.stacking import fetch_wheels, python_tar, rootfs_tar
from builder.pipeline.stages import image_of, refuse_large

if TYPE_CHECKING:
    from builder.engine.engine import Engine
    from builder.engine.images import StoredImage
    from builder.layers.store import Lease
    from builder.pipeline.schedule import Walk
    from builder.pipeline.site import Site
    from builder.recipe.values import Recipe


def runner_for(engine: Engine | None) -> Runner:
    """This machine's namespaces; the engine if the machine refuses them."""
    here = Runner()
    if engine is None:
        return here
    try:
        here.check()
    except MissingToolError:
        from builder.pipeline.enginework import EngineSteps

        return EngineSteps(engine)
    return here


@dataclass(frozen=True, kw_only=True)
class Maker:
    """Makes the images of a run's cells. Threads may share one."""

    site: Site
    bench: Workbench
    runner: Runner

    def make(self, walk: Walk, recipe: Recipe, log: Path, *, staged: Staged | None = None) -> Image:
        """The image of ``recipe``: in the engine, in the repository, in the layout, as the settings say.

        ``staged`` is an image of the same inputs that the repository has. Raises CellError and its kinds.
        """
        lease = self.site.layers.lease()
        try:
            return _Making(**vars(self), walk=walk, recipe=recipe, log=log, staged=staged, lease=lease).run()
        finally:
            lease.release()


@dataclass(frozen=True, kw_only=True)
class _Making(Maker):
    """One image on its way."""

    walk: Walk
    recipe: Recipe
    log: Path
    staged: Staged | None
    lease: Lease

    def run(self) -> Image:
        site, settings, walk = self.site, self.site.settings, self.walk
        with ExitStack() as stack:
            uploads = stack.enter_context(Uploads(settings.push, site.shared, site.layers, site.writing))
            feed = None
            if site.engine is not None and site.engine.facts().store == "containerd":
                memory = settings.cache / "received"
                feed = EngineFeed(site.engine, memory=memory, blob=self._blob, cancel=walk.cancel)
                stack.enter_context(feed)
            planned, base = self._layers(uploads, feed)
            with walk.stage(Stage.BUILD):
                image = self._composed(planned, base)
                if feed is not None:
                    feed.stop()
                site.made.remember(self.recipe.inputs, image)
                made = self._kept(image)
            if settings.push is not None:
                made = replace(made, pushed=self._pushed(image, settings.push, uploads))
            if settings.output is not None:
                with walk.stage(Stage.PUSH):
                    loaded = f"docker.io/{self._name}"
                    write_layout(settings.output, walk.cell.id, loaded, image, self._blob)
                    walk.done(f"oci:{settings.output}:{walk.cell.id}")
        reference = made.pushed or f"oci:{settings.output}:{walk.cell.id}"
        return made if site.engine is not None else replace(made, reference=reference)

    def _layers(self, uploads: Uploads, feed: EngineFeed | None) -> tuple[Plan, BaseLayers]:
        """The layers of base and wheels, all of them known: a wheel is converted while others arrive."""
        site, pinned, walk = self.site, self.recipe.pinned, self.walk

        def tell(title: str, done: int, total: int) -> None:
            if walk.current is Stage.LAYERS:
                walk.progress(f"layer of {title}", done, total)

        def ready(layer: Layer) -> None:
            uploads.begin(layer)
            if feed is not None:
                feed.begin(layer)

        with ExitStack() as stack:
            with walk.stage(Stage.FETCH):
                planned = plan(pinned, self.lease, self._elsewhere)
                if planned.missing:
                    self.runner.check()  # bytecode will have to be made: a refusal comes before gigabytes do
                # First: a Python that does not fit is refused before gigabytes of wheels come.
                wanted = pinned.python is not None and planned.python is None
                python = python_tar(walk, site, pinned) if wanted else None
                missing = stack.enter_context(
                    MissingLayers(
                        given=planned,
                        rootfs=lambda: rootfs_tar(walk, site, pinned.base),
                        python=python,
                        registry=site.registry,
                        progress=tell,
                        cancel=walk.cancel,
                        ready=ready,
                        lowest=feed.lowest if feed is not None else None,
                    )
                )
                fetch_wheels(walk, site, planned.missing, arrived=missing.wheel)
            with walk.stage(Stage.LAYERS):
                made, base = missing.finish()
                new = sum(one.new for one in made.every)
                walk.done(f"{new} made, {len(made.every) - new} there already")
        return made, base

    def _composed(self, planned: Plan, base: BaseLayers) -> ComposedImage:
        site, walk, system = self.site, self.walk, SystemLayers()
        if self.recipe.pinned.installs and site.engine is not None:
            from builder.pipeline.enginework import system_layers

            system = system_layers(
                walk, site, site.engine, recipe=self.recipe, base=base, lease=self.lease, log=self.log
            )
        return compose_image(
            Assembly(
                recipe=self.recipe,
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
        engine, pinned, walk = self.site.engine, self.recipe.pinned, self.walk
        if engine is None:
            refuse_large(pinned, image.size)
            walk.done(f"{image.size / 1e9:.2f} GB {image.digest[:19]}")
            return image_of(walk.cell, "", image)
        stored = self._received(engine, image)
        walk.done(f"{self._name} {stored.size / 1e9:.2f} GB {image.digest[:19]}")
        refuse_large(pinned, stored.size)
        return image_of(walk.cell, self._name, stored)

    def _received(self, engine: Engine, image: ComposedImage) -> StoredImage:
        stored = engine.receive(
            image,
            self._blob,
            self._name,
            memory=self.site.settings.cache / "received",
            cancel=self.walk.cancel,
            progress=self.walk.counter("into the engine", sum(layer.size for layer in image.layers)),
        )
        if stored.digest not in (image.digest, image.config_digest) or stored.content != image.content:
            raise CellError(
                f"{self._name} is {stored.digest} in the engine, and {image.digest} was given to it: "
                "another took its name"
            )
        return stored

    def _pushed(self, image: ComposedImage, repository: str, uploads: Uploads) -> str:
        """Push the image under its unlisted tag; its reference by digest."""
        site, walk, shared = self.site, self.walk, self.site.shared
        with walk.stage(Stage.PUSH), tempfile.TemporaryDirectory(prefix="rtbuild-push-") as folder:
            if self.staged is not None and self.staged.digest == image.digest:
                sign_pushed(site, self.staged.reference)
                walk.done(f"there already, {self.staged.digest[:19]}")
                return self.staged.reference
            by_digest = {layer.digest: layer for layer in image.layers}
            config = Path(folder) / "config.json"
            config.write_bytes(image.config)
            walk.progress(repository, quiet=False)
            sent = uploads.wait()

            def advance(how: str, size: int) -> None:
                nonlocal sent
                sent += how == "sent"
                walk.progress(f"{how} {size / 1e6:.0f} MB")

            digest = push_image(
                site.writing,
                repository,
                image.manifest,
                MANIFEST,
                lambda one: config if one == image.config_digest else self._blob(by_digest[one]),
                tag=staged_tag(self.recipe.inputs),
                mount_from={}
                if shared is None
                else {d: shared.repository for d in by_digest if shared.has(d)},
                advance=advance,
            )
            share_composed(walk, site.leaving, image.made_of)
            sign_pushed(site, f"{repository}@{digest}")
            walk.done(f"{digest[:19]}, {sent} blobs sent")
        return f"{repository}@{digest}"

    def _blob(self, layer: Layer) -> Path:
        """The file of a layer: in the store, or brought there now."""
        shared = self.site.shared
        if shared is not None and shared.has(layer.digest):
            return shared.fetch(layer, self.lease, self.walk.counter(f"of {layer.title}", layer.size))
        return self.site.layers.blob(layer.digest)

    @property
    def _elsewhere(self) -> Elsewhere | None:
        return self.site.shared.find if self.site.shared is not None else None

    @property
    def _name(self) -> str:
        return self.site.settings.image_name(self.walk.cell.matrix, self.walk.cell.id)
