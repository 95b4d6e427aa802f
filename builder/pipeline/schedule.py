"""Runs one function for many cells, several at a time, and lets no cell's failure stop another."""

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from builder.core.errors import CancelledError, CellError, FaultError, RtbuildError
from builder.core.items import item
from builder.core.model import Cell
from builder.pipeline import events
from builder.pipeline.events import CellOutcome, CellResult, Note, Stage

R = TypeVar("R")
Emit = Callable[[events.Event], None]


@dataclass(frozen=True, kw_only=True)
class Hooks:
    """Between a run and whoever started it: the events of one, and the word of the other to end."""

    emit: Emit
    cancel: threading.Event


@contextmanager
def span(emit: Emit, name: str, cell: str = "") -> Iterator[None]:
    """Emit that a piece of work begins, and that it ends."""
    emit(events.SpanStarted(name=name, cell=cell))
    try:
        yield
    finally:
        emit(events.SpanFinished(name=name, cell=cell))


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
        self.emit(events.StageStarted(cell=self.cell.id, stage=stage))
        start = time.monotonic()
        try:
            yield
        finally:
            self.seconds[stage] = self.seconds.get(stage, 0.0) + time.monotonic() - start
        seconds = self.seconds[stage]
        self.emit(events.StageFinished(cell=self.cell.id, stage=stage, seconds=seconds, text=self._said))

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
        said = events.StageProgress(cell=cell, stage=stage, text=text, done=done, total=total, quiet=quiet)
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
            emit(events.CellFinished(result=result))
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
    hooks.emit(events.RunStarted(cells=tuple(cell.id for cell in cells), stages=stages))
    cell_runs = [CellRun(cell, hooks.emit, hooks.cancel) for cell in cells]
    return each(cell_runs, function, hooks, jobs=jobs)
