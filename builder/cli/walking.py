"""How the commands over cells run and end: events, summary, record, exit code."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from builder.cli.boundary import INTERRUPTED, command_line
from builder.cli.console import Terminal, case_of, print_json, reporter, run_summary, write_job_files
from builder.pipeline import (
    CellOutcome,
    CellResult,
    Event,
    Hooks,
    RunStarted,
    Stage,
    StageProgress,
    StageStarted,
    run_document,
    write_record,
)

Run = Callable[..., list[CellResult]]
_End = TypeVar("_End")


def walk(
    terminal: Terminal,
    run: Callable[..., list[_End]],
    *,
    trace: Path | None = None,
    cancel: threading.Event | None = None,
) -> list[_End]:
    """The results of ``run(hooks=…)``, its events reported as the terminal wants them, and traced.

    ``cancel`` is set if it was interrupted.
    """
    with ExitStack() as stack:
        record: Callable[[Event], None] | None = None
        if trace is not None:
            from builder.cli.console import Trace  # most runs need not pay for it

            record = stack.enter_context(Trace(trace, terminal))
        report = stack.enter_context(reporter(terminal))

        def emit(event: Event) -> None:
            if record is not None:
                record(event)
            report(event)

        return run(hooks=Hooks(emit=emit, cancel=cancel or threading.Event()))


@contextmanager
def noted(terminal: Terminal, name: str) -> Iterator[Callable[[str], None]]:
    """The function that reports each step of a search for cells, under the name of their matrix."""
    with reporter(terminal) as report:
        report(RunStarted(cells=(name,), stages=(Stage.CHECK,)))
        report(StageStarted(cell=name, stage=Stage.CHECK))
        yield lambda text: report(StageProgress(cell=name, stage=Stage.CHECK, text=text))


def finished(
    terminal: Terminal,
    run: Run,
    folder: Path | None = None,
    *,
    require_verified: bool = False,
    trace: Path | None = None,
    json: bool,
) -> int:
    """Run, write the record and the files for CI into ``folder``, and say how it ended; the exit code.

    An interrupted run is one, even if its last cell could not be stopped before its end: no step follows.
    """
    command, started, cancel = command_line(), datetime.now(UTC), threading.Event()
    results = walk(terminal, run, trace=trace, cancel=cancel)
    document = run_document(results, command=command, started=started)
    where = None if folder is None else record(document, folder)
    if json:
        print_json(document)
    terminal.say(run_summary(results, terminal))
    if folder is not None:
        terminal.say(f"report: {where}")
        write_job_files(list(map(case_of, results)), terminal, folder, command=command, started=started)
    return INTERRUPTED if cancel.is_set() else exit_code(results, require_verified=require_verified)


def exit_code(results: Sequence[CellResult], *, require_verified: bool = False) -> int:
    """The exit code of a run. A fault of an image outweighs one of the machine and a server's silence."""
    failed = {one.error.exit_code if one.error else 1 for one in results if one.outcome is CellOutcome.FAILED}
    of_cells = 5 if failed == {5} else 1
    codes = {CellOutcome.CANCELLED: INTERRUPTED, CellOutcome.FAILED: of_cells, CellOutcome.HOST: 5}
    if require_verified:
        codes[CellOutcome.UNVERIFIED] = 5
    outcomes = {result.outcome for result in results}
    return next((code for outcome, code in codes.items() if outcome in outcomes), 0)


def record(document: dict[str, Any], folder: Path) -> str:
    """The path of the run's record, or why there is none, which does not change the exit code."""
    try:
        return str(write_record(document, folder))
    except OSError as error:
        return f"not written: {error}"
