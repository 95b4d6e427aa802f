"""The commands whose cells walk: lock, render, build, verify. One call of the pipeline, one exit code."""

from __future__ import annotations

import sys
import threading
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from builder.cli import options as opt
from builder.cli.boundary import INTERRUPTED, command_line
from builder.console import print_json, reporter, run_summary
from builder.console.case import Case, cases_of
from builder.console.job import write_job_files
from builder.pipeline import run as pipeline
from builder.pipeline.events import CellOutcome, CellResult
from builder.pipeline.locks import LockKeeper, refuse_stale
from builder.pipeline.record import run_document, write_record
from builder.pipeline.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from builder.console import Terminal
    from builder.model import Matrix
    from builder.pipeline.schedule import Emit


def lock_cells(
    matrices: list[Matrix],
    select: list[str] | None,
    skip: list[str] | None,
    *,
    check: bool,
    upgrade: bool | frozenset[str],
    mirrors: dict[str, str],
    terminal: Terminal,
    json: bool,
) -> int:
    """``rtbuild lock``. With ``check``: exit 4 where a lock is missing or stale, and nothing is changed."""
    cells = opt.choose(matrices, select, skip).chosen
    if check:
        refuse_stale({matrix.name: LockKeeper(matrix) for matrix in matrices}, cells)
        sys.stderr.write(f"{len(cells)} cell{'s' if len(cells) != 1 else ''}: the lock is up to date\n")
        if json:
            print_json({"schema": 1, "cells": [{"id": cell.id, "locked": True} for cell in cells]})
        return 0
    settings = Settings(upgrade=upgrade, mirrors=mirrors)
    results = _walk(
        terminal,
        lambda emit, cancel: pipeline.lock(matrices, cells, settings=settings, emit=emit, cancel=cancel),
    )
    return _finish(results, terminal, json=json)


def render_cells(
    matrices: list[Matrix],
    select: list[str] | None,
    skip: list[str] | None,
    *,
    output: Path,
    locked: bool,
    text_only: bool,
    mirrors: dict[str, str],
    terminal: Terminal,
    json: bool,
) -> int:
    """``rtbuild render``."""
    cells = opt.choose(matrices, select, skip).chosen
    settings = Settings(locked=locked, mirrors=mirrors)
    results = _walk(
        terminal,
        lambda emit, cancel: pipeline.render(
            matrices, cells, output, settings=settings, text_only=text_only, emit=emit, cancel=cancel
        ),
    )
    return _finish(results, terminal, json=json)


def build_cells(
    matrices: list[Matrix],
    select: list[str] | None,
    skip: list[str] | None,
    *,
    settings: Settings,
    terminal: Terminal,
    require_verified: bool,
    json: bool,
) -> int:
    """``rtbuild build``."""
    cells = opt.choose(matrices, select, skip).chosen
    return _recorded(
        terminal,
        settings,
        lambda emit, cancel: pipeline.build(matrices, cells, settings=settings, emit=emit, cancel=cancel),
        require_verified=require_verified,
        json=json,
    )


def verify_cells(
    matrices: list[Matrix],
    select: list[str] | None,
    skip: list[str] | None,
    *,
    settings: Settings,
    terminal: Terminal,
    json: bool,
) -> int:
    """``rtbuild verify``: unlike ``build``, exits 5 where a cell stays unverified."""
    cells = opt.choose(matrices, select, skip).chosen
    return _recorded(
        terminal,
        settings,
        lambda emit, cancel: pipeline.verify(matrices, cells, settings=settings, emit=emit, cancel=cancel),
        require_verified=True,
        json=json,
    )


def exit_code(results: Sequence[CellResult], *, require_verified: bool = False) -> int:
    """What a run comes to. An image's fault outweighs a machine's."""
    outcomes = {result.outcome for result in results}
    if CellOutcome.CANCELLED in outcomes:
        return INTERRUPTED
    if CellOutcome.FAILED in outcomes:
        return 1
    if CellOutcome.HOST in outcomes or (require_verified and CellOutcome.UNVERIFIED in outcomes):
        return 5
    return 0


def _walk(terminal: Terminal, line: Callable[[Emit, threading.Event], list[CellResult]]) -> list[CellResult]:
    with reporter(terminal) as report:
        return line(report, threading.Event())


def _finish(results: Sequence[CellResult], terminal: Terminal, *, json: bool) -> int:
    if json:
        print_json(_document(results, datetime.now(UTC)))
    terminal.say(run_summary(results, terminal))
    return exit_code(results)


def _document(results: Sequence[CellResult], started: datetime) -> dict[str, Any]:
    return run_document(results, command=command_line(), started=started)


def _recorded(
    terminal: Terminal,
    settings: Settings,
    line: Callable[[Emit, threading.Event], list[CellResult]],
    *,
    require_verified: bool,
    json: bool,
) -> int:
    started = datetime.now(UTC)
    results = _walk(terminal, line)
    document = _document(results, started)
    where = record(document, settings.results)
    if json:
        print_json(document)
    terminal.say(run_summary(results, terminal))
    terminal.say(f"report: {where}")
    job_files(cases_of(results), terminal, settings.results, command=document["command"], started=started)
    return exit_code(results, require_verified=require_verified)


def record(document: dict[str, Any], folder: Path) -> str:
    """Where the run's record lies, or why it does not: a run is what it is without one."""
    try:
        return str(write_record(document, folder))
    except OSError as error:
        return f"not written: {error}"


def job_files(
    cases: Sequence[Case], terminal: Terminal, folder: Path, *, command: str, started: datetime
) -> None:
    """What CI systems read. A run is what it is without them, so a folder that takes none is only said."""
    try:
        write_job_files(cases, title=command, command=command, started=started, results=folder)
    except OSError as error:
        terminal.say(f"warning: no report for the job's page: {error}")
