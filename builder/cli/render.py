"""``rtbuild render``: recipes as folders."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Annotated

import typer

from builder.cli import options as opt
from builder.cli.walking import finish
from builder.console import reporter
from builder.pipeline import run as pipeline
from builder.pipeline.settings import Settings


def render(
    matrices: opt.Matrices = None,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Where recipes go, a folder for each cell.")
    ] = Path("recipes"),
    select: opt.Select = None,
    skip: opt.Skip = None,
    locked: opt.Locked = False,
    text_only: Annotated[
        bool, typer.Option("--text-only", help="Without the large files that docker build would need.")
    ] = False,
    mirror: opt.Mirror = None,
    progress: opt.Progress = "auto",
    color: opt.Color = "auto",
    json_: opt.Json = False,
) -> int:
    """Exit 1 if a recipe could not be written."""
    loaded = opt.load_all(matrices)
    cells = opt.choose(loaded, select, skip).chosen
    settings = Settings(locked=locked, mirrors=opt.mirrors(mirror))
    terminal = opt.terminal(progress, color)
    with reporter(terminal) as report:
        results = pipeline.render(
            loaded,
            cells,
            output,
            settings=settings,
            text_only=text_only,
            emit=report,
            cancel=threading.Event(),
        )
    return finish(results, terminal, json=json_)
