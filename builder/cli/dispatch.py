"""``rtbuild dispatch``: every claimed (cell, card) verified by a scheduler; and what runs on its nodes."""

from __future__ import annotations

import signal
import sys
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from builder.cli import options as opt
from builder.cli.boundary import INTERRUPTED, command_line
from builder.console import print_json
from builder.console.case import Case, CaseStatus
from builder.dispatch.builds import building
from builder.dispatch.fleet import load_fleet
from builder.dispatch.follow import Follower, exit_code
from builder.dispatch.plan import missing
from builder.dispatch.run import plan, verification
from builder.errors import MissingToolError, RegistryError
from builder.evidence.signatures import People
from builder.files import write_whole
from builder.oci.registry import Registry
from builder.recipe.bundle import bundle

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from builder.dispatch.fleet import Fleet
    from builder.dispatch.follow import TaskState
    from builder.dispatch.run import Work
    from builder.errors import RtbuildError
    from builder.model import Cell, Matrix

_SHORT = {"works": "works", "broken": "BROKEN", "unsupported-gpu": "UNSUPPORTED", "built": "built"}


def dispatch(
    matrices: opt.Matrices = None,
    fleet: Annotated[Path, opt.of("--fleet FILE: Scheduler and classes of GPUs.")] = Path("fleet.yaml"),
    select: opt.Select = None,
    skip: opt.Skip = None,
    from_: Annotated[str | None, opt.of("--from REPOSITORY: Where `build --push` put the images.")] = None,
    reported_by: opt.ReportedBy = None,
    build: Annotated[bool, opt.of("--build: Build what staging lacks, on nodes without a GPU.")] = False,
    dry_run: Annotated[
        bool, opt.of("--dry-run: Print the batch scripts or manifests; submit nothing.")
    ] = False,
    wait: Annotated[bool, opt.of("--wait: Stay until every task has a verdict.")] = False,
    every: Annotated[float, opt.of("--every: With --wait: seconds between looks.", min=0.2)] = 15,
    junit: Annotated[Path | None, opt.of("--junit: Write the outcome as JUnit XML.")] = None,
    json_: opt.Json = False,
) -> int:
    """Whatever has a verdict, or with --build an image, is left out; saying it twice submits once."""
    chosen, cells = opt.choose(matrices, select, skip)
    asked = load_fleet(fleet)
    registry = Registry.to_write()
    say = _Once()
    try:
        work: Work[Any] = _work(
            chosen,
            cells,
            asked,
            registry=registry,
            staging=from_,
            build=build,
            reporters=People.named(reported_by or (), "--reported-by"),
            warn=say.warn,
        )
        verdict_of = work.known(work.tasks)
    except RegistryError as error:  # nobody knows anything about an image yet
        raise MissingToolError(error.message, hint=error.hint) from error
    left = missing(work.tasks, verdict_of)
    if dry_run:
        sys.stdout.write("".join(work.rendered(left).values()))
        return 0
    done = "are built" if build else "have a verdict"
    _say(f"{len(work.tasks)} tasks: {len(verdict_of)} {done}, {len(left)} to run")
    refused = work.submit(left, _say)
    follower = Follower(tasks=work.tasks, known=work.known, under_way=work.under_way, refused=refused)
    cancel = threading.Event()
    if wait:
        before = signal.signal(signal.SIGINT, lambda *_: cancel.set())
        try:
            rows = follower.wait(cancel, seconds=every, say=_changes, warn=say.trouble)
        finally:
            signal.signal(signal.SIGINT, before)
    else:
        rows = follower.look()
    if json_:
        print_json({"schema": 1, "tasks": [_document(row) for row in rows]})
    else:
        sys.stdout.write(_table(rows))
    if junit is not None:
        _write_junit(junit, rows)
    if cancel.is_set():
        _say("the tasks go on; the same command follows them again")
        return INTERRUPTED
    return exit_code(rows) if wait else 5 if refused else 0


def _work(
    matrices: Sequence[Matrix],
    cells: Sequence[Cell],
    fleet: Fleet,
    *,
    registry: Registry,
    staging: str | None,
    build: bool,
    reporters: People | None,
    warn: Callable[[str], None],
) -> Work[Any]:
    if build:
        return building(registry, matrices, cells, fleet=fleet, staging=staging, probe=bundle())
    planned = plan(registry, matrices, cells, fleet=fleet, staging=staging, probe=bundle())
    return verification(registry, planned, fleet, reporters, warn)


class _Once:
    """Says a warning when it is new, and not at every look."""

    def __init__(self) -> None:
        self._said: set[str] = set()

    def warn(self, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            _say(f"warning: {text}")

    def trouble(self, error: RtbuildError | None) -> None:
        """A look that failed; None for the first that did not."""
        if error is None:
            self._said.clear()
            _say("registry and scheduler answer again")
        else:
            self.warn(f"{error.message}; it is asked again")


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def _changes(rows: Sequence[TaskState]) -> None:
    for row in rows:
        _say(f"{row.task.cell}, {row.task.column}: {_word(row)}")


def _word(row: TaskState) -> str:
    if row.verdict is None:
        return f"{row.state}: {row.word}"
    cause = f": {row.verdict.cause}" if row.verdict.cause else ""
    card = f" ({row.verdict.gpu}, driver {row.verdict.driver})" if row.verdict.gpu else ""
    return f"{row.verdict.verdict}{cause}{card}"


def _table(rows: Sequence[TaskState]) -> str:
    """Cells down, classes across."""
    classes = sorted({row.task.column for row in rows})
    cells = list(dict.fromkeys((row.task.matrix, row.task.cell) for row in rows))
    state = {(row.task.matrix, row.task.cell, row.task.column): _short(row) for row in rows}
    width = max((len(cell) for _, cell in cells), default=0)
    lines = [" ".join([" " * width, *(f"{name:>12}" for name in classes)])]
    for matrix, cell in cells:
        lines.append(
            " ".join(
                [f"{cell:<{width}}", *(f"{state.get((matrix, cell, name), '-'):>12}" for name in classes)]
            )
        )
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _short(row: TaskState) -> str:
    return row.state if row.verdict is None else _SHORT[row.verdict.verdict]


def _document(row: TaskState) -> dict[str, Any]:
    return {
        "key": row.task.key,
        "cell": row.task.cell,
        "matrix": row.task.matrix,
        "class": row.task.column,
        "image": row.task.image,
        "state": row.state,
        "verdict": row.verdict.verdict if row.verdict else None,
        "cause": row.verdict.cause if row.verdict else None,
        "gpu": row.verdict.gpu if row.verdict else None,
        "driver": row.verdict.driver if row.verdict else None,
        "scheduler": row.word,
    }


def _write_junit(path: Path, rows: Sequence[TaskState]) -> None:
    from builder.console.case import CaseStatus
    from builder.console.job import junit_xml

    def status(row: TaskState) -> CaseStatus:
        if row.verdict is None:
            return CaseStatus.SKIPPED if row.state == "waiting" else CaseStatus.ERROR
        return CaseStatus.PASSED if row.verdict.verdict in {"works", "built"} else CaseStatus.FAILED

    cases = [
        Case(
            suite=row.task.matrix,
            name=f"{row.task.cell}, {row.task.column}",
            status=status(row),
            word=_word(row),
            kind=(row.verdict.cause or row.verdict.verdict) if row.verdict else row.state,
        )
        for row in rows
    ]
    write_whole(path, junit_xml(cases, command=command_line(), started=datetime.now(UTC)))
