"""The lines that cells walk for ``lock`` and ``render``: how far, and what must hold first."""

import threading
from collections.abc import Sequence
from pathlib import Path

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
