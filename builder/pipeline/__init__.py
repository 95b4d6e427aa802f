"""Walks cells from a matrix to reports, several at a time, and tells what happens as events."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .build import build_cells as build_cells
    from .events import (
        PUBLISHING as PUBLISHING,
        CellFinished as CellFinished,
        CellOutcome as CellOutcome,
        CellResult as CellResult,
        Event as Event,
        Note as Note,
        RunStarted as RunStarted,
        SpanFinished as SpanFinished,
        SpanStarted as SpanStarted,
        Stage as Stage,
        StageFinished as StageFinished,
        StageProgress as StageProgress,
        StageStarted as StageStarted,
        error_document as error_document,
        heading as heading,
        run_document as run_document,
        write_record as write_record,
    )
    from .run_context import (
        BuildOptions as BuildOptions,
        EngineOptions as EngineOptions,
        LayerSource as LayerSource,
        LockOptions as LockOptions,
        RenderOptions as RenderOptions,
        VerifyOptions as VerifyOptions,
    )
    from .reproduce import Comparison as Comparison, check_reproducible as check_reproducible
    from .run_context import LAYER_LIMIT as LAYER_LIMIT, Locks as Locks, MadeImages as MadeImages
    from .events import CellRun as CellRun, Hooks as Hooks, each as each
    from .stages import lock_cells as lock_cells, render_cells as render_cells
    from .verifying import verify_cells as verify_cells
else:
    from builder.core import faces

    __getattr__, __dir__, __all__ = faces.attach(__name__, __file__)
