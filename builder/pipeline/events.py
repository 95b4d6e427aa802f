"""Runs one function for many cells, several at a time, and lets no cell's failure stop another; the events of
cells on their way, as values, of which a console makes a board or lines; and the versioned JSON document of a
run, made of the last event of each cell.
"""

import enum
import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from builder import __version__
from builder.core.documents import harmless
from builder.core.errors import CancelledError, CellError, CommandError, FaultError, RtbuildError
from builder.core.files import write_whole
from builder.core.items import item
from builder.core.model import Cell, DebianPackage, Image, Report

_SCHEMA = 1


class Stage(enum.StrEnum):
    """The stations of a cell, in order."""

    CHECK = "check"
    LOCK = "lock"
    FETCH = "fetch"
    LAYERS = "layers"
    RENDER = "render"
    BUILD = "build"
    PUSH = "push"
    PULL = "pull"
    VERIFY = "verify"
    REPORT = "report"
    GATE = "gate"
    COPY = "copy"
    EVIDENCE = "evidence"
    TAGS = "tags"


BUILDING = (
    Stage.CHECK, Stage.LOCK, Stage.FETCH, Stage.LAYERS, Stage.RENDER, Stage.BUILD, Stage.PUSH, Stage.VERIFY,
)  # fmt: skip
PUBLISHING = (Stage.GATE, Stage.COPY, Stage.EVIDENCE, Stage.TAGS)


class CellOutcome(enum.StrEnum):
    """How a cell ended."""

    DONE = "done"
    """All that was asked for, short of a verification."""
    WORKS = "works"
    UNVERIFIED = "unverified"
    """Built and sound as far as it goes without a GPU."""
    FAILED = "failed"
    """It did not lock or build, or a check in the image failed."""
    HOST = "host"
    """Nothing is known against the image: this machine could not verify it (verdicts ``host``, ``busy``)."""
    PUBLISHED = "published"
    REFUSED = "refused"
    """The gate let it not through: there is no report on it that counts."""
    CANCELLED = "cancelled"


@dataclass(frozen=True, kw_only=True)
class CellResult:
    """The end of one cell. ``stage`` is the last one entered; ``seconds`` has an entry for each."""

    cell: Cell
    outcome: CellOutcome
    stage: Stage
    seconds: dict[Stage, float] = field(default_factory=dict)
    image: Image | None = None
    report: Report | None = None
    error: RtbuildError | None = None
    log: str | None = None
    notes: tuple[str, ...] = ()
    packages: tuple[DebianPackage, ...] = ()
    """Packages of the base's distribution that the build took from its archives; no lock fixes them."""


@dataclass(frozen=True, kw_only=True)
class RunStarted:
    cells: tuple[str, ...]
    stages: tuple[Stage, ...]


@dataclass(frozen=True, kw_only=True)
class StageStarted:
    cell: str
    stage: Stage


@dataclass(frozen=True, kw_only=True)
class _Said:
    """A line for people: those of programs, servers and images among it."""

    text: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", harmless(self.text))


@dataclass(frozen=True, kw_only=True)
class StageProgress(_Said):
    """The progress of a stage: a line of text, and ``done`` of ``total`` bytes if that is known."""

    cell: str
    stage: Stage
    done: int | None = None
    total: int | None = None
    quiet: bool = False
    """True for what a live board shows and a log of lines does not."""


@dataclass(frozen=True, kw_only=True)
class StageFinished(_Said):
    cell: str
    stage: Stage
    seconds: float


@dataclass(frozen=True, kw_only=True)
class SpanStarted:
    """A piece of work begins in the thread that says so; ``cell`` is empty if it is for all of them."""

    name: str
    cell: str = ""


@dataclass(frozen=True, kw_only=True)
class SpanFinished:
    """A span ended, well or not, in the thread that began it. Spans of one thread are nested."""

    name: str
    cell: str = ""


@dataclass(frozen=True, kw_only=True)
class CellFinished:
    result: CellResult


@dataclass(frozen=True, kw_only=True)
class Note(_Said):
    """Something worth saying that belongs to no stage; ``cell`` is empty if it concerns all."""

    cell: str = ""
    warning: bool = False


Event = (
    RunStarted
    | StageStarted
    | StageProgress
    | StageFinished
    | SpanStarted
    | SpanFinished
    | CellFinished
    | Note
)


def run_document(results: Sequence[CellResult], *, command: str, started: datetime) -> dict[str, Any]:
    """The document; its schema is ``docs/run.schema.json``."""
    return {**heading("run", command, started), "cells": [_cell_document(result) for result in results]}


def heading(kind: str, command: str, started: datetime) -> dict[str, Any]:
    """The part that every document about a command has."""
    return {
        "schema": _SCHEMA,
        "kind": kind,
        "rtbuild": __version__,
        "command": command,
        "started": started.isoformat(timespec="seconds"),
        "seconds": round((datetime.now(UTC) - started).total_seconds(), 1),
    }


def error_document(error: RtbuildError) -> dict[str, Any]:
    return {
        "kind": type(error).__name__,
        "message": error.message,
        "hint": error.hint,
        "exit_code": error.exit_code,
    }


def _cell_document(result: CellResult) -> dict[str, Any]:
    image, report, error = result.image, result.report, result.error
    command: dict[str, Any] = {}
    if isinstance(error, CommandError):
        command = {"command": list(error.command), "returncode": error.returncode, "tail": list(error.tail)}
    return {
        "id": result.cell.id,
        "matrix": result.cell.matrix,
        "outcome": result.outcome.value,
        "stage": result.stage.value,
        "seconds": {stage.value: round(seconds, 2) for stage, seconds in result.seconds.items()},
        "notes": list(result.notes),
        "log": result.log,
        "image": image and {name: value for name, value in vars(image).items() if name != "cell"},
        "packages": [vars(package) for package in result.packages],
        "verification": report
        and {
            "verdict": report.verdict.value,
            "cause": report.cause,
            "summary": report.summary,
            "remedy": report.remedy,
            "differences": [vars(difference) for difference in report.differences],
            "test_double": report.test_double,
            "reused": report.reused,
            "report": report.document,
        },
        "error": error and error_document(error) | command,
    }


def write_record(document: dict[str, Any], folder: Path) -> Path:
    """Put the document into ``folder``, beside and renamed: ``<kind>-<UTC time>-<pid>.json``. OSError."""
    stamp = document["started"].replace("+00:00", "Z").replace(":", "").replace("-", "")
    path = folder / f"{document['kind']}-{stamp}-{os.getpid()}.json"
    write_whole(path, (json.dumps(document, indent=2, ensure_ascii=False) + "\n").encode())
    return path


R = TypeVar("R")
Emit = Callable[[Event], None]


@dataclass(frozen=True, kw_only=True)
class Hooks:
    """Between a run and whoever started it: the events of one, and the word of the other to end."""

    emit: Emit
    cancel: threading.Event


@contextmanager
def span(emit: Emit, name: str, cell: str = "") -> Iterator[None]:
    """Emit that a piece of work begins, and that it ends."""
    emit(SpanStarted(name=name, cell=cell))
    try:
        yield
    finally:
        emit(SpanFinished(name=name, cell=cell))


@dataclass(eq=False)
class CellRun:
    """One cell on its way: emits its events, times its stages, remembers the current one."""

    cell: Cell
    emit: Emit
    cancel: threading.Event
    current: Stage = Stage.CHECK
    seconds: dict[Stage, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    _said: str = ""

    @contextmanager
    def stage(self, stage: Stage) -> Iterator[None]:
        """Enter a stage; what :meth:`done` was given closes it. A cancelled run enters none."""
        self.go_on(f"before {stage}")
        self.current, self._said = stage, "done"
        self.emit(StageStarted(cell=self.cell.id, stage=stage))
        start = time.monotonic()
        try:
            yield
        finally:
            self.seconds[stage] = self.seconds.get(stage, 0.0) + time.monotonic() - start
        seconds = self.seconds[stage]
        self.emit(StageFinished(cell=self.cell.id, stage=stage, seconds=seconds, text=self._said))

    def go_on(self, place: str | None = None) -> None:
        """Between two pieces of work: raise CancelledError if the run is to end."""
        if self.cancel.is_set():
            raise CancelledError(f"{self.cell.id}: interrupted {place or f'at {self.current}'}")

    def span(self, name: str) -> AbstractContextManager[None]:
        """A piece of the cell's work; in any thread."""
        return span(self.emit, name, self.cell.id)

    def done(self, text: str) -> None:
        self._said = text

    def progress(
        self, text: str, done: int | None = None, total: int | None = None, *, quiet: bool = True
    ) -> None:
        cell, stage = self.cell.id, self.current
        said = StageProgress(cell=cell, stage=stage, text=text, done=done, total=total, quiet=quiet)
        self.emit(said)

    def counter(self, what: str, total: int) -> Callable[[int], None]:
        """A function that is told of each piece's bytes, for progress: ``12 of 34 MB of wheels``."""
        arrived = 0

        def advance(count: int) -> None:
            nonlocal arrived
            arrived += count
            self.progress(f"{arrived / 1e6:.0f} of {total / 1e6:.0f} MB {what}", arrived, total)

        return advance

    def note(self, text: str, *, warning: bool = False) -> None:
        self.notes.append(text)
        self.emit(Note(cell=self.cell.id, text=text, warning=warning))

    def ended(self, outcome: CellOutcome, *, log: Path | None = None, **known: Any) -> CellResult:
        """The end of the cell, with whatever else of a :class:`CellResult` is known.

        ``log`` is named if it was written.
        """
        return CellResult(
            cell=self.cell,
            outcome=outcome,
            stage=self.current,
            seconds=dict(self.seconds),
            log=str(log) if log is not None and log.is_file() else None,
            notes=tuple(self.notes),
            **known,
        )

    def failed(self, error: RtbuildError, **known: Any) -> CellResult:
        """The end of a cell by an error; ``known`` as in :meth:`ended`."""
        outcome = CellOutcome.CANCELLED if isinstance(error, CancelledError) else CellOutcome.FAILED
        return self.ended(outcome, error=error, **known)


def each(
    cell_runs: Sequence[CellRun],
    function: Callable[[CellRun], R],
    hooks: Hooks,
    *,
    jobs: int | None = None,
) -> list[R | CellResult]:
    """Call ``function`` for every cell in ``jobs`` threads; results in their order.

    ``jobs`` None: as many as there are cores, at most four.

    A result that is no CellResult says that the cell is not at its end. An error ends its own cell only,
    unless it is about the machine or the project (:func:`builder.core.items.item`), which cancels the rest
    and is raised when all have stopped. Ctrl-C sets ``cancel``, waits for the cells at work to stop, and
    keeps what has finished.
    """

    emit, cancel = hooks.emit, hooks.cancel

    def one(cell_run: CellRun) -> R | CellResult:
        result: R | CellResult
        try:
            with item(cell_run.cell.id):
                result = function(cell_run)
        except CellError as error:
            result = cell_run.failed(_ended_by(error, cell_run))
        if isinstance(result, CellResult):
            emit(CellFinished(result=result))
        return result

    with ThreadPoolExecutor(jobs or min(4, os.cpu_count() or 1), thread_name_prefix="cell") as pool:
        futures = [pool.submit(one, cell_run) for cell_run in cell_runs]
        try:
            pending = set(futures)
            while pending:  # in turns: Ctrl-C that reaches another thread ends no wait of this one
                ended, pending = wait(pending, timeout=0.2, return_when=FIRST_COMPLETED)
                if any(future.exception() is not None for future in ended):
                    cancel.set()
        except KeyboardInterrupt:
            emit(Note(text="interrupted: stopping what is running; what has finished is kept", warning=True))
            cancel.set()
    return [future.result() for future in futures]


def _ended_by(error: CellError, cell_run: CellRun) -> CellError:
    """The error that ended a cell; cancelled if the run was, since an interruption ends its children, too."""
    if not cell_run.cancel.is_set() or isinstance(error, (CancelledError, FaultError)):
        return error
    return CancelledError(f"{cell_run.cell.id}: interrupted at {cell_run.current}")


def walk_all(
    cells: Sequence[Cell],
    stages: tuple[Stage, ...],
    function: Callable[[CellRun], CellResult],
    hooks: Hooks,
    *,
    jobs: int | None = None,
) -> list[CellResult]:
    """:func:`each` from the first of these stages of every cell to its end."""
    hooks.emit(RunStarted(cells=tuple(cell.id for cell in cells), stages=stages))
    cell_runs = [CellRun(cell, hooks.emit, hooks.cancel) for cell in cells]
    return each(cell_runs, function, hooks, jobs=jobs)
