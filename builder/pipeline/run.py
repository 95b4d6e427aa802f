"""The lines that cells walk for ``lock``, ``render`` and ``verify``: how far, and what must hold first."""

import threading
from collections.abc import Sequence
from pathlib import Path

from builder.errors import CellError
from builder.model import Cell, Matrix
from builder.pipeline import stages
from builder.pipeline.events import CellOutcome, CellResult, Stage
from builder.pipeline.locks import refuse_stale
from builder.pipeline.schedule import Emit, Walk, walk_all
from builder.pipeline.settings import Settings
from builder.pipeline.site import open_site


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

    def one(walk: Walk) -> CellResult:
        stages.lock_cell(walk, site)
        return walk.ended(CellOutcome.DONE)

    return walk_all(cells, (Stage.LOCK,), one, jobs=settings.jobs, emit=emit, cancel=cancel)


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

    def one(walk: Walk) -> CellResult:
        pinned = stages.lock_cell(walk, site)
        recipe = stages.render_cell(walk, site, pinned)
        stages.write_recipe(walk, site, recipe, folder, text_only=text_only)
        return walk.ended(CellOutcome.DONE)

    order = (Stage.LOCK, Stage.RENDER)
    return walk_all(cells, order, one, jobs=settings.jobs, emit=emit, cancel=cancel)


def verify(
    matrices: Sequence[Matrix],
    cells: Sequence[Cell],
    *,
    settings: Settings,
    emit: Emit,
    cancel: threading.Event,
) -> list[CellResult]:
    """Run the probe in images that are in the engine's store already, or come from a staging repository.

    Raises MissingToolError if no engine answers, and StaleLockError if images come from elsewhere and
    the lock does not say which.
    """
    from builder.engine.engine import Engine
    from builder.oci.staging import repository_of
    from builder.pipeline.staged import verify_staged

    source = repository_of(settings.source) if settings.source is not None else None
    engine = Engine.connect(context=settings.context)
    site = open_site(matrices, settings, emit, engine=engine)
    order: tuple[Stage, ...] = (Stage.VERIFY,)
    if source is not None:
        refuse_stale(site.keepers, cells)
        order = (Stage.LOCK, Stage.RENDER, Stage.PULL, Stage.VERIFY, Stage.REPORT)

    def one(walk: Walk) -> CellResult:
        if source is not None:
            return verify_staged(walk, site, source)
        name = settings.image_name(walk.cell.matrix, walk.cell.id)
        stored = engine.inspect(name)
        if stored is None:
            raise CellError(f"there is no image {name}", hint="build it first: rtbuild build")
        image = stages.image_of(walk.cell, name, stored, reused=True)
        pinned = site.keepers[walk.cell.matrix].pinned(walk.cell)
        report = stages.verify_cell(walk, site, image, pinned)
        return walk.ended(stages.outcome_of(report), image=image, report=report)

    return walk_all(cells, order, one, jobs=settings.jobs, emit=emit, cancel=cancel)
