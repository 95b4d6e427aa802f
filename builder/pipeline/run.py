"""The lines that cells walk, for each command: how far, and what must hold before the first step."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from builder.debian.archive import Debian
from builder.errors import CellError, UsageError
from builder.index.client import Index
from builder.layers import LayerStore
from builder.layers.finish import Workbench
from builder.model import RegistryBase
from builder.oci.registry import Registry
from builder.oci.staging import repository_of
from builder.pipeline import stages
from builder.pipeline.apt import read_packages, remember
from builder.pipeline.disk import estimate, fetched, ready, refuse_full
from builder.pipeline.events import (
    BUILDING,
    CellOutcome,
    CellResult,
    InstalledPackage,
    Note,
    RunStarted,
    Stage,
)
from builder.pipeline.locks import LockKeeper, refuse_stale
from builder.pipeline.making import Maker, refuse_engine_work, runner_for
from builder.pipeline.schedule import Walk, each
from builder.pipeline.sharing import SharedLayers
from builder.pipeline.site import Site
from builder.pipeline.skipping import built_before, end_staged, staged_before
from builder.pipeline.staged import verify_staged
from builder.verify import Expectation, ReportStore

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from builder.engine import Engine, StoredImage
    from builder.model import Cell, Image, Matrix, Pinned
    from builder.oci.staging import Staged
    from builder.pipeline.schedule import Emit
    from builder.pipeline.settings import Settings
    from builder.recipe.values import Recipe


def open_site(
    matrices: Sequence[Matrix],
    settings: Settings,
    emit: Emit,
    *,
    engine: Engine | None = None,
) -> Site:
    """The outer world and rtbuild's stores, as ``settings`` and the user's configuration say."""

    def note(text: str) -> None:
        emit(Note(text=text))

    layers = LayerStore(settings.cache / "layers", limit=settings.layer_limit)
    writing = Registry.to_write()

    def shared_in(repository: str | None) -> SharedLayers | None:
        if repository is None:
            return None
        return SharedLayers(
            registry=writing,
            repository=repository_of(repository),
            store=layers,
            warn=lambda text: emit(Note(text=text, warning=True)),
        )

    leaving = shared_in(settings.push)
    return Site(
        settings=settings,
        registry=Registry.from_user(settings.mirrors),
        debian=Debian.from_user(cache=settings.cache, note=note),
        index=Index.from_user(note=note),
        keepers={matrix.name: LockKeeper(matrix) for matrix in matrices},
        engine=engine,
        layers=layers,
        shared=shared_in(settings.layers_from),
        leaving=leaving,
        writing=writing,
        reports=ReportStore(settings.results / "reports"),
    )


def lock(
    matrices: Sequence[Matrix],
    cells: Sequence[Cell],
    *,
    settings: Settings,
    emit: Emit,
    cancel: threading.Event,
) -> list[CellResult]:
    """Bring the lock of every cell up to date."""
    site = open_site(matrices, settings, emit)
    emit(RunStarted(cells=tuple(cell.id for cell in cells), stages=(Stage.LOCK,)))

    def one(walk: Walk) -> CellResult:
        stages.lock_cell(walk, site)
        return stages.ended(walk, CellOutcome.DONE)

    return _all(cells, one, settings=settings, emit=emit, cancel=cancel)


def render(
    matrices: Sequence[Matrix],
    cells: Sequence[Cell],
    folder: Path,
    *,
    settings: Settings,
    text_only: bool,
    emit: Emit,
    cancel: threading.Event,
) -> list[CellResult]:
    """Write the recipe of every cell below ``folder``."""
    site = open_site(matrices, settings, emit)
    if settings.locked:
        refuse_stale(site.keepers, cells)
    emit(RunStarted(cells=tuple(cell.id for cell in cells), stages=(Stage.LOCK, Stage.RENDER)))

    def one(walk: Walk) -> CellResult:
        pinned = stages.lock_cell(walk, site)
        recipe = stages.render_cell(walk, site, pinned)
        stages.write_recipe(walk, site, recipe, folder, text_only=text_only)
        return stages.ended(walk, CellOutcome.DONE)

    return _all(cells, one, settings=settings, emit=emit, cancel=cancel)


def build(
    matrices: Sequence[Matrix],
    cells: Sequence[Cell],
    *,
    settings: Settings,
    emit: Emit,
    cancel: threading.Event,
) -> list[CellResult]:
    """Check, lock, build and verify every cell; without an engine nothing is verified.

    All cells are locked before the first is built, so that the disk is checked against all of them. Raises
    MissingToolError before anything is done if no engine answers or the disk is too small, StaleLockError if
    ``locked`` forbids to go on, and UsageError if an image would have nowhere to go.
    """
    if settings.push is not None:
        repository_of(settings.push)
    engine = _engine(settings)
    site = open_site(matrices, settings, emit, engine=engine)
    if settings.locked:
        refuse_stale(site.keepers, cells)
    skipped = {
        Stage.PUSH: settings.push is None and settings.output is None,
        Stage.VERIFY: engine is None or not settings.verify,
    }
    order = tuple(stage for stage in BUILDING if not skipped.get(stage))
    emit(RunStarted(cells=tuple(cell.id for cell in cells), stages=order))
    recipes: dict[str, Recipe] = {}

    def settle(walk: Walk) -> None:
        stages.check_cell(walk, site)
        pinned = stages.lock_cell(walk, site)
        if engine is None:
            refuse_engine_work(pinned)
        recipes[walk.cell.id] = stages.render_cell(walk, site, pinned)

    walks = [Walk(cell, emit, cancel) for cell in cells]
    early = each(walks, settle, jobs=settings.jobs, emit=emit, cancel=cancel)
    going = [walk for walk, result in zip(walks, early, strict=True) if result is None]
    staged = staged_before(site, recipes.values(), emit) if settings.output is None else {}
    here = built_before(site, recipes.values())
    _refuse_full(site, [r.pinned for r in recipes.values() if r.inputs not in here.keys() | staged.keys()])

    def make(walk: Walk) -> CellResult:
        recipe = recipes[walk.cell.id]
        if recipe.inputs in staged and recipe.inputs not in here:
            return end_staged(walk, site, staged[recipe.inputs])
        return _build_one(walk, maker, recipe, here.get(recipe.inputs), staged.get(recipe.inputs))

    with Workbench(site.layers) as bench:
        maker = Maker(site=site, bench=bench, runner=runner_for(engine))
        made = iter(each(going, make, jobs=settings.jobs, emit=emit, cancel=cancel))
    return [result or next(made) for result in early]  # type: ignore[misc]  # make always ends a cell


def _engine(settings: Settings) -> Engine | None:
    if settings.engine:
        from builder.engine import Engine  # with Docker's client: a tenth of a second, for engines only

        return Engine.connect(context=settings.context, builder=settings.builder)
    if settings.push is None and settings.output is None:
        raise UsageError(
            "without an engine there is no store to keep an image in",
            hint="say where it goes: --push REPOSITORY, or --output FOLDER",
        )
    return None


def _refuse_full(site: Site, missing: Sequence[Pinned]) -> None:
    if not missing:
        return
    engine = site.engine
    need = estimate(missing, cached=fetched(missing, site), ready=ready(missing, site))
    refuse_full(
        need if engine is not None else replace(need, engine=0),
        engine_free=engine.disk_free() if engine is not None else None,
        engine_root=engine.facts().root if engine is not None else "",
        cache=site.settings.cache,
    )


def _build_one(
    walk: Walk, maker: Maker, recipe: Recipe, there: StoredImage | None, staged: Staged | None
) -> CellResult:
    site = maker.site
    log = log_path(site.settings.results, walk.cell)
    image = None
    packages: tuple[InstalledPackage, ...] = ()
    try:
        image = maker.make(walk, recipe, log, there=there, staged=staged)
        if site.engine is None:
            return stages.ended(
                walk, CellOutcome.UNVERIFIED if site.settings.verify else CellOutcome.DONE, image=image
            )
        packages = _packages(walk, site, image, recipe)
        if not site.settings.verify:
            return replace(stages.ended(walk, CellOutcome.DONE, image=image, log=log), packages=packages)
        report = stages.verify_cell(walk, site, image, Expectation.of(recipe.pinned))
    except CellError as error:
        failed = walk.failed(error, log=str(log) if log.is_file() else None)
        return replace(failed, image=image, packages=packages)
    done = stages.ended(walk, stages.outcome_of(report), image=image, report=report, log=log)
    return replace(done, packages=packages)


def _packages(walk: Walk, site: Site, image: Image, recipe: Recipe) -> tuple[InstalledPackage, ...]:
    """What apt brought into the image, with a note where that is another than the last time."""
    if site.engine is None or not isinstance(recipe.pinned.base, RegistryBase):
        return ()  # a rootfs is made of the lock's own packages
    found = read_packages(site.engine, image)
    drifted = remember(site.settings.results / "apt", walk.cell, image, found)
    if drifted is not None:
        walk.note(drifted, warning=True)
    return found


def verify(
    matrices: Sequence[Matrix],
    cells: Sequence[Cell],
    *,
    settings: Settings,
    emit: Emit,
    cancel: threading.Event,
) -> list[CellResult]:
    """Run the probe in images that are in the engine's store already, or come from a staging repository.

    Raises MissingToolError where no engine answers, and StaleLockError where images come from elsewhere and
    the lock does not say which.
    """
    from builder.engine import Engine

    source = repository_of(settings.source) if settings.source is not None else None
    engine = Engine.connect(context=settings.context)
    site = open_site(matrices, settings, emit, engine=engine)
    order: tuple[Stage, ...] = (Stage.VERIFY,)
    if source is not None:
        refuse_stale(site.keepers, cells)
        order = (Stage.LOCK, Stage.RENDER, Stage.PULL, Stage.VERIFY, Stage.REPORT)
    emit(RunStarted(cells=tuple(cell.id for cell in cells), stages=order))

    def one(walk: Walk) -> CellResult:
        if source is not None:
            return verify_staged(walk, site, source)
        name = settings.image_name(walk.cell.matrix, walk.cell.id)
        stored = engine.inspect(name)
        if stored is None:
            raise CellError(f"there is no image {name}", hint="build it first: rtbuild build")
        image = stages.image_of(walk.cell, name, stored, reused=True)
        pinned = site.keepers[walk.cell.matrix].pinned(walk.cell)
        expect = Expectation.of(pinned) if pinned is not None else Expectation()
        report = stages.verify_cell(walk, site, image, expect)
        return stages.ended(walk, stages.outcome_of(report), image=image, report=report)

    return _all(cells, one, settings=settings, emit=emit, cancel=cancel)


def _all(
    cells: Sequence[Cell],
    one: Callable[[Walk], CellResult],
    *,
    settings: Settings,
    emit: Emit,
    cancel: threading.Event,
) -> list[CellResult]:
    walks = [Walk(cell, emit, cancel) for cell in cells]
    results = each(walks, one, jobs=settings.jobs, emit=emit, cancel=cancel)
    return [result for result in results if result is not None]


def log_path(results: Path, cell: Cell) -> Path:
    """Where the build log of a cell goes; ids are legal tags, so they are legal file names too."""
    matrix = re.sub(r"[^A-Za-z0-9._-]", "-", cell.matrix)
    return results / "logs" / matrix / f"{cell.id}.log"
