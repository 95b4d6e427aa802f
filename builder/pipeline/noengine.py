"""A cell without an engine: its image is put together from layers and documents, then pushed or written."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from builder.errors import CellError, UsageError
from builder.layers.context import base_of
from builder.layers.finish import Workbench
from builder.layers.image import MANIFEST, ComposedImage, compose_image, write_layout
from builder.layers.stack import make_missing
from builder.model import Image, RegistryBase
from builder.oci.copying import push_image
from builder.oci.staging import staged_tag
from builder.pipeline import stages
from builder.pipeline.disk import estimate, fetched, ready, refuse_full
from builder.pipeline.events import BUILDING, CellResult, Outcome, RunStarted, Stage
from builder.pipeline.locks import refuse_stale
from builder.pipeline.run import open_site
from builder.pipeline.schedule import Walk, each
from builder.pipeline.sharing import share_composed
from builder.pipeline.skipping import end_staged, staged_before
from builder.pipeline.stacking import fetch_missing, plan_layers
from builder.pipeline.stages import refuse_large
from builder.pipeline.uploads import Uploads
from builder.recipe.render import ROOTFS
from builder.sandbox import require

if TYPE_CHECKING:
    import threading
    from collections.abc import Sequence

    from builder.layers import Layer
    from builder.layers.store import Lease
    from builder.model import Cell, Matrix, Pinned
    from builder.pipeline.schedule import Emit
    from builder.pipeline.settings import Settings
    from builder.pipeline.stages import Site
    from builder.recipe.values import Recipe


def refuse_engine_work(pinned: Pinned) -> None:
    """Raise CellError, before anything is fetched, for a cell that only an engine can build."""
    cell = pinned.cell
    if isinstance(pinned.base, RegistryBase):
        packages = f"the packages {', '.join(cell.apt)}, and " if cell.apt else ""
        raise CellError(
            f"{cell.id} stands on {cell.base}, where apt-get has to install {packages}Python where the base "
            "lacks it: that runs in the base, which needs an engine",
            hint="build it where Docker is (leave out `--engine none`), or take a base of "
            "rootfs:debian/<suite>, whose packages are in the lock",
        )


def compose_cell(walk: Walk, site: Site, recipe: Recipe, bench: Workbench) -> Image:
    """Put the image of ``recipe`` together, push it and write it out, as the settings say."""
    settings, pinned = site.settings, recipe.pinned
    store = site.layers
    assert store is not None  # noqa: S101 - every site for building has one
    with ExitStack() as stack:
        lease = store.lease()
        stack.callback(lease.release)
        with walk.stage(Stage.FETCH):
            planned = plan_layers(site, pinned, lease)
            if planned.missing:
                require()  # bytecode will have to be made: say now that it cannot be, and not after gigabytes
            paths = fetch_missing(walk, site, planned)
        uploads = stack.enter_context(Uploads(site, lease))
        with walk.stage(Stage.LAYERS):
            made = make_missing(
                planned,
                wheel_paths=paths,
                rootfs_tar=paths.get(ROOTFS),
                progress=lambda title, done, total: walk.progress(f"layer of {title}", done, total),
                cancel=walk.cancel,
                ready=uploads.begin,
            )
            base, _ = base_of(made, None, fetch=False)
            new = sum(one.new for one in made.every)
            walk.done(f"{new} made, {len(made.every) - new} there already")

        def blob(layer: Layer) -> Path:
            return _blob(walk, site, lease, layer)

        with walk.stage(Stage.BUILD):
            image = compose_image(
                recipe,
                made,
                base,
                blob=blob,
                fetched=site.shared.find if site.shared is not None else lambda _key, _lease: None,
                progress=lambda text: walk.progress(text, quiet=False),
                cancel=walk.cancel,
                bench=bench,
            )
            walk.done(f"put together without an engine, {image.size / 1e9:.2f} GB {image.digest[:19]}")
        refuse_large(recipe.pinned, image.size)
        pushed = None
        if settings.push is not None:
            pushed = _push(walk, site, recipe, image, uploads)
        if settings.output is not None:
            with walk.stage(Stage.PUSH):
                loaded = f"docker.io/{settings.image_name(recipe.cell.matrix, recipe.cell.id)}"
                write_layout(settings.output, recipe.cell.id, loaded, image, blob)
                walk.done(f"oci:{settings.output}:{recipe.cell.id}")
    return Image(
        cell=recipe.cell,
        reference=pushed or f"oci:{settings.output}:{recipe.cell.id}",
        digest=image.digest,
        content=image.content,
        size=image.size,
        pushed=pushed,
    )


def _push(walk: Walk, site: Site, recipe: Recipe, image: ComposedImage, uploads: Uploads) -> str:
    repository = site.settings.push
    assert repository is not None  # noqa: S101 - see compose_cell
    by_digest = {layer.digest: layer for layer in image.layers}
    with walk.stage(Stage.PUSH), tempfile.TemporaryDirectory(prefix="rtbuild-push-") as folder:
        config = Path(folder) / "config.json"
        config.write_bytes(image.config)
        walk.progress(repository, quiet=False)
        blobs = uploads.wait()

        def file_of(digest: str) -> Path:
            if digest == image.config_digest:
                return config
            return _blob(walk, site, uploads.lease, by_digest[digest])

        def advance(how: str, size: int) -> None:
            nonlocal blobs
            blobs += how == "sent"
            walk.progress(f"{how} {size / 1e6:.0f} MB")

        shared = site.shared
        sources = {} if shared is None else {d: shared.repository for d in by_digest if shared.has(d)}
        digest = push_image(
            site.writing,
            repository,
            image.manifest,
            MANIFEST,
            file_of,
            tag=staged_tag(recipe.inputs),
            mount_from=sources,
            advance=advance,
        )
        share_composed(walk, site, image.made_of)
        walk.done(f"{digest[:19]}, {blobs} blobs sent")
    return f"{repository}@{digest}"


def _blob(walk: Walk, site: Site, lease: Lease, layer: Layer) -> Path:
    """The file of a layer: in the store, or brought there now."""
    if site.shared is not None and site.shared.has(layer.digest):
        return site.shared.fetch(layer, lease, walk.counter(f"of {layer.title}", layer.size))
    assert site.layers is not None  # noqa: S101 - see compose_cell
    return site.layers.blob(layer.digest)


def build_without_engine(
    matrices: Sequence[Matrix],
    cells: Sequence[Cell],
    *,
    settings: Settings,
    emit: Emit,
    cancel: threading.Event,
) -> list[CellResult]:
    """Check, lock and put together every cell; nothing is verified, for nothing runs an image here.

    Raises UsageError where the settings say nowhere to put images, MissingToolError where the disk is too
    small, and StaleLockError where ``locked`` forbids to go on.
    """
    if settings.push is None and settings.output is None:
        raise UsageError(
            "without an engine there is no store to keep an image in",
            hint="say where it goes: --push REPOSITORY, or --output FOLDER",
        )
    site = open_site(matrices, settings, emit)
    if settings.locked:
        refuse_stale(site.keepers, cells)
    order = tuple(stage for stage in BUILDING if stage is not Stage.VERIFY)
    emit(RunStarted(cells=tuple(cell.id for cell in cells), stages=order))
    recipes: dict[str, Recipe] = {}

    def settle(walk: Walk) -> None:
        stages.check_cell(walk, site)
        pinned = stages.lock_cell(walk, site)
        refuse_engine_work(pinned)
        recipes[walk.cell.id] = stages.render_cell(walk, site, pinned)

    walks = [Walk(cell, emit, cancel) for cell in cells]
    early = each(walks, settle, jobs=settings.jobs, emit=emit, cancel=cancel)
    staged = staged_before(site, recipes.values(), emit) if settings.output is None else {}
    wanted = [recipe.pinned for recipe in recipes.values() if recipe.inputs not in staged]
    need = estimate(wanted, layers=True, cached=fetched(wanted, site), ready=ready(wanted, site))
    refuse_full(replace(need, engine=0), engine_free=None, engine_root="", cache=settings.cache)

    def make(walk: Walk) -> CellResult:
        recipe = recipes[walk.cell.id]
        there = staged.get(recipe.inputs)
        if there is not None:
            return end_staged(walk, site, there)
        image = compose_cell(walk, site, recipe, bench)
        return stages.ended(walk, Outcome.UNVERIFIED if settings.verify else Outcome.DONE, image=image)

    going = [walk for walk, result in zip(walks, early, strict=True) if result is None]
    assert site.layers is not None  # noqa: S101 - every site for building has one
    with Workbench(site.layers) as bench:
        made = iter(each(going, make, jobs=settings.jobs, emit=emit, cancel=cancel))
    return [result or next(made) for result in early]  # type: ignore[misc]  # make always ends a cell
