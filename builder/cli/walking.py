"""How the commands whose cells walk end: summary, record, exit code."""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from builder.cli.boundary import INTERRUPTED, command_line
from builder.console import print_json, reporter, run_summary
from builder.console.case import Case, cases_of
from builder.console.job import write_job_files
from builder.pipeline.events import CellOutcome, CellResult
from builder.pipeline.record import run_document, write_record

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from builder.console import Terminal
    from builder.pipeline.schedule import Emit
    from builder.pipeline.settings import Settings


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


def finish(results: Sequence[CellResult], terminal: Terminal, *, json: bool) -> int:
    """Say how a run ended; the exit code."""
    if json:
        print_json(_document(results, datetime.now(UTC)))
    terminal.say(run_summary(results, terminal))
    return exit_code(results)


def _document(results: Sequence[CellResult], started: datetime) -> dict[str, Any]:
    return run_document(results, command=command_line(), started=started)


def recorded(
    terminal: Terminal,
    settings: Settings,
    line: Callable[[Emit, threading.Event], list[CellResult]],
    *,
    require_verified: bool,
    json: bool,
) -> int:
    """Run ``line``, write its record and the files for CI, and say how it ended; the exit code."""
    started = datetime.now(UTC)
    with reporter(terminal) as report:
        results = line(report, threading.Event())
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
