"""The line of ``rtbuild build``: which cells there is something to do for, and how each ends."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from builder.errors import CellError, UsageError
from builder.model import Cell, DebianPackage, Image, Matrix, Pinned
from builder.pipeline import stages
from builder.pipeline.events import BUILDING, CellOutcome, CellResult, RunStarted, Stage
from builder.pipeline.locks import refuse_stale
from builder.pipeline.schedule import Talk, Walk, each
from builder.pipeline.site import Site, open_site
from builder.pipeline.skipping import built_before, end_staged, reuse, same_image, staged_before

if TYPE_CHECKING:
    from builder.engine.engine import Engine
    from builder.engine.images import StoredImage
    from builder.pipeline.making import Maker
    from builder.pipeline.settings import Settings
    from builder.recipe.values import Recipe


def build(
    matrices: Sequence[Matrix], cells: Sequence[Cell], *, settings: Settings, **talk: Unpack[Talk]
) -> list[CellResult]:
    """Check, lock, build and verify every cell; without an engine nothing is verified.

    All cells are locked before the first is built, so that the disk is checked against all of them. Raises
    MissingToolError before anything is done if no engine answers or the disk is too small, StaleLockError if
    ``locked`` forbids to go on, and UsageError if an image would have nowhere to go.
    """
    if settings.push is not None:
        from builder.oci.staging import repository_of

        repository_of(settings.push)
    engine = _engine(settings)
    site = open_site(matrices, settings, talk["emit"], engine=engine)
    site.layers.sweep()
    if settings.locked:
        refuse_stale(site.keepers, cells)
    skipped = {
        Stage.PUSH: settings.push is None and settings.output is None,
        Stage.VERIFY: engine is None or not settings.verify,
    }
    order = tuple(stage for stage in BUILDING if not skipped.get(stage))
    site.emit(RunStarted(cells=tuple(cell.id for cell in cells), stages=order))
    recipes: dict[str, Recipe] = {}

    def settle(walk: Walk) -> None:
        stages.check_cell(walk, site)
        pinned = stages.lock_cell(walk, site)
        if engine is None and pinned.installs:
            _refuse_engine_work(pinned)
        recipes[walk.cell.id] = stages.render_cell(walk, site, pinned)

    walks = [Walk(cell, **talk) for cell in cells]
    early = each(walks, settle, jobs=settings.jobs, **talk)
    going = [walk for walk, result in zip(walks, early, strict=True) if result is None]
    staged = staged_before(site, recipes.values()) if settings.output is None else {}
    here = built_before(site, recipes.values())

    def wanted_there(recipe: Recipe) -> StoredImage | None:
        """The engine's image, if it is also where it is to be pushed."""
        there, pushed = here.get(recipe.inputs), staged.get(recipe.inputs)
        if there is None or settings.push is None or (pushed is not None and same_image(pushed, there)):
            return there
        return None

    def make(walk: Walk) -> CellResult:
        recipe = recipes[walk.cell.id]
        there, pushed = wanted_there(recipe), staged.get(recipe.inputs)
        log = log_path(settings.results, walk.cell)
        if there is not None:
            return _finished(walk, site, recipe, log, partial(reuse, walk, site, there, pushed))
        if pushed is not None and recipe.inputs not in here:
            return end_staged(walk, site, pushed)
        return _finished(walk, site, recipe, log, partial(maker().make, walk, recipe, log, staged=pushed))

    with ExitStack() as stack:
        new = [recipe.pinned for recipe in recipes.values() if recipe.inputs not in {*here, *staged}]
        maker = cache(partial(_maker, site, stack, new))
        if new or any(wanted_there(recipe) is None for recipe in recipes.values() if recipe.inputs in here):
            maker()  # a full disk is said before the first cell goes on
        made = iter(each(going, make, jobs=settings.jobs, **talk))
    return [result or next(made) for result in early]  # type: ignore[misc]  # make always ends a cell


def _engine(settings: Settings) -> Engine | None:
    if settings.engine:
        from builder.engine.engine import Engine  # with Docker's client: a tenth of a second

        return Engine.connect(context=settings.context, builder=settings.builder)
    if settings.push is None and settings.output is None:
        raise UsageError(
            "without an engine there is no store to keep an image in",
            hint="say where it goes: --push REPOSITORY, or --output FOLDER",
        )
    return None


def _refuse_engine_work(pinned: Pinned) -> None:
    """Raise CellError, before anything is fetched, for a cell that only an engine can build."""
    cell = pinned.cell
    packages = f"the packages {', '.join(cell.apt)}" if cell.apt else ""
    python = "Python if the base lacks it" if pinned.python is None else ""
    raise CellError(
        f"{cell.id} stands on {cell.base}, where apt-get has to install "
        f"{', and '.join(filter(None, (packages, python)))}: that runs in the base, which needs an engine",
        hint="build it where Docker is (leave out `--engine none`), or take a base of "
        "rootfs:debian/<suite>, whose packages are in the lock",
    )


def _maker(site: Site, stack: ExitStack, missing: Sequence[Pinned]) -> Maker:
    """Who makes images, while ``stack`` is open, once the disk has room for those that are ``missing``."""
    from builder.image.finish import Workbench
    from builder.pipeline.disk import check_room
    from builder.pipeline.making import Maker, runner_for

    if site.engine is not None:
        from builder.engine.receive import sweep_passing

        sweep_passing(site.engine, site.settings.cache / "received")
        if any(one.installs for one in missing):
            _ = site.engine.buildx  # a lack of it is said before gigabytes are fetched
    check_room(site, missing)
    bench = stack.enter_context(Workbench())
    return Maker(site=site, bench=bench, runner=runner_for(site.engine))


def _finished(
    walk: Walk, site: Site, recipe: Recipe, log: Path, image_of_cell: Callable[[], Image]
) -> CellResult:
    """The end of a cell: its image, the packages in it, its verification."""
    image = None
    packages: tuple[DebianPackage, ...] = ()
    try:
        image = image_of_cell()
        if site.engine is None:
            outcome = CellOutcome.UNVERIFIED if site.settings.verify else CellOutcome.DONE
            return walk.ended(outcome, image=image)
        if recipe.pinned.installs:  # a rootfs is made of the lock's own packages
            from builder.pipeline.apt import read_packages, remember

            packages = read_packages(site.engine, image)
            drifted = remember(site.settings.results / "apt", walk.cell, image, packages)
            if drifted is not None:
                walk.note(drifted, warning=True)
        if not site.settings.verify:
            return walk.ended(CellOutcome.DONE, image=image, log=log, packages=packages)
        report = stages.verify_cell(walk, site, image, recipe.pinned)
    except CellError as error:
        return walk.failed(error, log=log, image=image, packages=packages)
    return walk.ended(stages.outcome_of(report), image=image, report=report, log=log, packages=packages)


def log_path(results: Path, cell: Cell) -> Path:
    """Where the build log of a cell goes; ids are legal tags, so they are legal file names too."""
    return results / "logs" / re.sub(r"[^A-Za-z0-9._-]", "-", cell.matrix) / f"{cell.id}.log"
