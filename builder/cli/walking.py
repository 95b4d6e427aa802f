"""How the commands over cells run and end: events, summary, record, exit code."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from builder.cli.boundary import INTERRUPTED, command_line
from builder.console import Terminal, print_json, reporter, run_summary
from builder.console.job import Case, case_of, write_job_files
from builder.pipeline.events import CellOutcome, CellResult
from builder.pipeline.record import run_document, write_record

if TYPE_CHECKING:
    Run = Callable[..., list[CellResult]]


def walk(terminal: Terminal, run: Run) -> list[CellResult]:
    """The results of ``run(emit=…, cancel=…)``, its events reported as the terminal wants them."""
    with reporter(terminal) as report:
        return run(emit=report, cancel=threading.Event())


def exit_code(results: Sequence[CellResult], *, require_verified: bool = False) -> int:
    """The exit code of a run. A fault of an image outweighs one of the machine."""
    outcomes = {result.outcome for result in results}
    if CellOutcome.CANCELLED in outcomes:
        return INTERRUPTED
    if CellOutcome.FAILED in outcomes:
        return 1
    if CellOutcome.HOST in outcomes or (require_verified and CellOutcome.UNVERIFIED in outcomes):
        return 5
    return 0


def finished(terminal: Terminal, run: Run, *, json: bool) -> int:
    """Run, and say how it ended; the exit code."""
    results = walk(terminal, run)
    if json:
        print_json(run_document(results, command=command_line(), started=datetime.now(UTC)))
    terminal.say(run_summary(results, terminal))
    return exit_code(results)


def recorded(terminal: Terminal, run: Run, folder: Path, *, require_verified: bool, json: bool) -> int:
    """Run, write the record and the files for CI into ``folder``, and say how it ended; the exit code."""
    command, started = command_line(), datetime.now(UTC)
    results = walk(terminal, run)
    document = run_document(results, command=command, started=started)
    where = record(document, folder)
    if json:
        print_json(document)
    terminal.say(run_summary(results, terminal))
    terminal.say(f"report: {where}")
    job_files(list(map(case_of, results)), terminal, folder, command=command, started=started)
    return exit_code(results, require_verified=require_verified)


def record(document: dict[str, Any], folder: Path) -> str:
    """The path of the run's record, or why there is none, which does not change the exit code."""
    try:
        return str(write_record(document, folder))
    except OSError as error:
        return f"not written: {error}"


def job_files(
    cases: Sequence[Case], terminal: Terminal, folder: Path, *, command: str, started: datetime
) -> None:
    """Write the files that CI systems read; if the folder takes none, only a warning says so."""
    try:
        write_job_files(cases, title=command, command=command, started=started, results=folder)
    except OSError as error:
        terminal.say(f"warning: no report for the job's page: {error}")
