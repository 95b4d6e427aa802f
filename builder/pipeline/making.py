"""One cell's image: layers found or made, put together, and brought into engine, repository or folder."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from builder.errors import CellError, MissingToolError
from builder.image.compose import archive_parts, compose_image, write_layout
from builder.image.finish import Assembly
from builder.image.missing import MissingLayers
from builder.image.runner import Namespaces
from builder.image.stack import plan
from builder.layers.types import SystemLayers
from builder.oci.copying import push_image
from builder.oci.spec import MANIFEST
from builder.oci.staging import staged_tag
from builder.pipeline.events import Stage
from builder.pipeline.feeding import EngineFeed
from builder.pipeline.sharing import share_composed
from builder.pipeline.stacking import fetch_wheels, python_tar, rootfs_tar
from builder.pipeline.stages import image_of, refuse_large
from builder.pipeline.uploads import Uploads, sign_pushed

if TYPE_CHECKING:
    from builder.engine.engine import Engine
    from builder.engine.images import StoredImage
    from builder.image.compose import ComposedImage
    from builder.image.finish import Workbench
    from builder.image.runner import Runner
    from builder.image.stack import Elsewhere, Plan
    from builder.layers import BaseLayers, Layer
    from builder.layers.store import Lease
    from builder.model import Image
    from builder.oci.staging import Staged
    from builder.pipeline.schedule import Walk
    from builder.pipeline.site import Site
    from builder.recipe.values import Recipe


def runner_for(engine: Engine | None) -> Runner:
    """This machine's namespaces; the engine if the machine refuses them."""
    here = Namespaces()
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
    runner: Runner = field(default_factory=Namespaces)

    def make(
        self,
        walk: Walk,
        recipe: Recipe,
        log: Path,
        *,
        staged: Staged | None = None,
    ) -> Image:
        """The image of ``recipe``: in the engine, in the repository, in the layout, as the settings say.

        ``staged`` is an image of the same inputs that the repository has. Raises CellError and its kinds.
        """
        site, settings = self.site, self.site.settings
        with ExitStack() as stack:
            lease = site.layers.lease()
            stack.callback(lease.release)
            uploads = stack.enter_context(Uploads(site.settings.push, site.shared, site.layers, site.writing))
            feed = stack.enter_context(
                EngineFeed(
                    site.engine,
                    recipe.inputs,
                    memory=settings.cache / "received",
                    blob=partial(self._blob, walk, lease),
                    cancel=walk.cancel,
                )
            )
            planned, base = self._layers(walk, recipe, lease, uploads, feed)
            with walk.stage(Stage.BUILD):
                image = self._composed(walk, recipe, planned, base, log)
                feed.stop()
                site.made.remember(recipe.inputs, image)
                made = self._kept(walk, recipe, image, lease)
            if settings.push is not None:
                made = replace(
                    made,
                    pushed=self._pushed(walk, recipe, image, uploads=uploads, lease=lease, staged=staged),
                )
            if settings.output is not None:
                self._written(walk, image, lease, settings.output)
        reference = made.pushed or f"oci:{settings.output}:{walk.cell.id}"
        return made if site.engine is not None else replace(made, reference=reference)

    def _layers(
        self, walk: Walk, recipe: Recipe, lease: Lease, uploads: Uploads, feed: EngineFeed
    ) -> tuple[Plan, BaseLayers]:
        """The layers of base and wheels, all of them known: a wheel is converted while others arrive."""
        site, pinned = self.site, recipe.pinned

        def tell(title: str, done: int, total: int) -> None:
            if walk.current is Stage.LAYERS:
                walk.progress(f"layer of {title}", done, total)

        with ExitStack() as stack:
            with walk.stage(Stage.FETCH):
                planned = plan(pinned, store=site.layers, lease=lease, elsewhere=self._elsewhere)
                if planned.missing:
                    self.runner.check()  # bytecode will have to be made: a refusal comes before gigabytes do
                # First: a Python that does not fit is refused before gigabytes of wheels come.
                python = python_tar(walk, site, pinned) if planned.needs_python else None
                missing = stack.enter_context(
                    MissingLayers(
                        planned,
                        rootfs=lambda: rootfs_tar(walk, site, pinned.base),
                        python=python,
                        registry=site.registry,
                        progress=tell,
                        cancel=walk.cancel,
                        ready=uploads.begin,
                        lowest=feed.lowest if feed.wanted else None,
                    )
                )
                fetch_wheels(walk, site, planned.missing, arrived=missing.wheel)
            with walk.stage(Stage.LAYERS):
                made, base = missing.finish()
                new = sum(one.new for one in made.every)
                walk.done(f"{new} made, {len(made.every) - new} there already")
        return made, base

    def _composed(
        self, walk: Walk, recipe: Recipe, planned: Plan, base: BaseLayers, log: Path
    ) -> ComposedImage:
        site, lease = self.site, planned.lease
        system = SystemLayers()
        if recipe.pinned.installs and site.engine is not None:
            from builder.pipeline.enginework import system_layers

            system = system_layers(walk, site, site.engine, recipe=recipe, base=base, lease=lease, log=log)
        return compose_image(
            Assembly(
                recipe=recipe,
                plan=planned,
                base=base,
                system=system,
                blob=partial(self._blob, walk, lease),
                elsewhere=self._elsewhere,
                progress=lambda text: walk.progress(text, quiet=False),
                cancel=walk.cancel,
                bench=self.bench,
                runner=self.runner,
            )
        )

    @property
    def _elsewhere(self) -> Elsewhere | None:
        return self.site.shared.find if self.site.shared is not None else None

    def _kept(self, walk: Walk, recipe: Recipe, image: ComposedImage, lease: Lease) -> Image:
        """The image as a value; with an engine, as that has it."""
        engine = self.site.engine
        if engine is None:
            refuse_large(recipe.pinned, image.size)
            walk.done(f"{image.size / 1e9:.2f} GB {image.digest[:19]}")
            return image_of(walk.cell, "", image)
        stored = self._received(walk, engine, image, lease)
        walk.done(f"{self._name(walk)} {stored.size / 1e9:.2f} GB {image.digest[:19]}")
        refuse_large(recipe.pinned, stored.size)
        return image_of(walk.cell, self._name(walk), stored)

    def _received(self, walk: Walk, engine: Engine, image: ComposedImage, lease: Lease) -> StoredImage:
        name = self._name(walk)
        blob = partial(self._blob, walk, lease)
        stored = engine.receive(
            image.manifest,
            lambda passing, without: archive_parts(image, passing, blob, without=without),
            name,
            memory=self.site.settings.cache / "received",
            cancel=walk.cancel,
            progress=walk.counter("into the engine", sum(layer.size for layer in image.layers)),
        )
        if stored.digest not in (image.digest, image.config_digest) or stored.content != image.content:
            raise CellError(
                f"{name} is {stored.digest} in the engine, and {image.digest} was given to it: "
                "another took its name"
            )
        return stored

    def _pushed(
        self,
        walk: Walk,
        recipe: Recipe,
        image: ComposedImage,
        *,
        uploads: Uploads,
        lease: Lease,
        staged: Staged | None,
    ) -> str:
        site = self.site
        repository = str(site.settings.push)
        with walk.stage(Stage.PUSH), tempfile.TemporaryDirectory(prefix="rtbuild-push-") as folder:
            if staged is not None and staged.digest == image.digest:
                sign_pushed(site, staged.reference)
                walk.done(f"there already, {staged.digest[:19]}")
                return staged.reference
            by_digest = {layer.digest: layer for layer in image.layers}
            config = Path(folder) / "config.json"
            config.write_bytes(image.config)
            walk.progress(repository, quiet=False)
            sent = uploads.wait()

            def file_of(digest: str) -> Path:
                return config if digest == image.config_digest else self._blob(walk, lease, by_digest[digest])

            def advance(how: str, size: int) -> None:
                nonlocal sent
                sent += how == "sent"
                walk.progress(f"{how} {size / 1e6:.0f} MB")

            shared = site.shared
            digest = push_image(
                site.writing,
                repository,
                image.manifest,
                MANIFEST,
                file_of,
                tag=staged_tag(recipe.inputs),
                mount_from={}
                if shared is None
                else {d: shared.repository for d in by_digest if shared.has(d)},
                advance=advance,
            )
            share_composed(walk, site.leaving, image.made_of)
            sign_pushed(site, f"{repository}@{digest}")
            walk.done(f"{digest[:19]}, {sent} blobs sent")
        return f"{repository}@{digest}"

    def _written(self, walk: Walk, image: ComposedImage, lease: Lease, folder: Path) -> None:
        with walk.stage(Stage.PUSH):
            loaded = f"docker.io/{self._name(walk)}"
            write_layout(folder, walk.cell.id, loaded, image, partial(self._blob, walk, lease))
            walk.done(f"oci:{folder}:{walk.cell.id}")

    def _blob(self, walk: Walk, lease: Lease, layer: Layer) -> Path:
        """The file of a layer: in the store, or brought there now."""
        shared = self.site.shared
        if shared is not None and shared.has(layer.digest):
            return shared.fetch(layer, lease, walk.counter(f"of {layer.title}", layer.size))
        return self.site.layers.blob(layer.digest)

    def _name(self, walk: Walk) -> str:
        return self.site.settings.image_name(walk.cell.matrix, walk.cell.id)
