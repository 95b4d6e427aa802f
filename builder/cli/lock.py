"""``rtbuild lock``: bases by digest, wheels and Debian packages by hash."""

from collections.abc import Sequence
from functools import partial
from typing import Annotated

from builder.cli import options as opt
from builder.cli.walking import finished
from builder.console import Terminal, counted, print_json, say
from builder.model import Cell, Matrix
from builder.pipeline import run as pipeline
from builder.pipeline.locks import LockKeeper, refuse_stale
from builder.pipeline.settings import Settings


def lock(
    matrices: opt.Matrices = None,
    select: opt.Select = None,
    skip: opt.Skip = None,
    check_: Annotated[bool, opt.of("--check: Change nothing; exit 4 if a lock is missing or stale.")] = False,
    upgrade: Annotated[bool, opt.of("--upgrade: Lock everything anew.")] = False,
    upgrade_package: Annotated[list[str] | None, opt.of("--upgrade-package NAME: Lock these anew.")] = None,
    mirror: opt.Mirror = None,
    progress: opt.Progress = "auto",
    color: opt.Color = "auto",
    json_: opt.Json = False,
) -> int:
    """Exit 4 with ``--check`` if a lock is missing or stale; then nothing is changed."""
    loaded, cells = opt.choose(matrices, select, skip)
    if check_:
        refuse_stale({matrix.name: LockKeeper(matrix) for matrix in loaded}, cells)
        say(f"{counted(cells, 'cell')}: the lock is up to date")
        if json_:
            print_json({"schema": 1, "cells": [{"id": cell.id, "locked": True} for cell in cells]})
        return 0
    settings = Settings(upgrade=upgrade or frozenset(upgrade_package or ()), mirrors=opt.mirrors(mirror))
    return lock_cells(loaded, cells, settings=settings, terminal=opt.terminal(progress, color), json=json_)


def lock_cells(
    matrices: Sequence[Matrix],
    cells: Sequence[Cell],
    *,
    settings: Settings,
    terminal: Terminal,
    json: bool = False,
) -> int:
    """Bring the locks of these cells up to date; the exit code."""
    return finished(terminal, partial(pipeline.lock, matrices, cells, settings=settings), json=json)
