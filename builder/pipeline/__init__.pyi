from .build import build_cells
from .events import (
    PUBLISHING,
    CellFinished,
    CellOutcome,
    CellResult,
    Event,
    Note,
    RunStarted,
    SpanFinished,
    SpanStarted,
    Stage,
    StageFinished,
    StageProgress,
    StageStarted,
)
from .options import BuildOptions, EngineOptions, LayerSource, LockOptions, RenderOptions, VerifyOptions
from .record import error_document, heading, run_document, write_record
from .reproduce import Comparison, check_reproducible
from .run_context import LAYER_LIMIT, Locks, MadeImages
from .schedule import CellRun, Hooks, each
from .stages import lock_cells, render_cells
from .verifying import verify_cells

__all__ = [
    "LAYER_LIMIT",
    "PUBLISHING",
    "BuildOptions",
    "CellFinished",
    "CellOutcome",
    "CellResult",
    "CellRun",
    "Comparison",
    "EngineOptions",
    "Event",
    "Hooks",
    "LayerSource",
    "LockOptions",
    "Locks",
    "MadeImages",
    "Note",
    "RenderOptions",
    "RunStarted",
    "SpanFinished",
    "SpanStarted",
    "Stage",
    "StageFinished",
    "StageProgress",
    "StageStarted",
    "VerifyOptions",
    "build_cells",
    "check_reproducible",
    "each",
    "error_document",
    "heading",
    "lock_cells",
    "render_cells",
    "run_document",
    "verify_cells",
    "write_record",
]
