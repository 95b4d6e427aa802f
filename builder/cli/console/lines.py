"""Events as lines: plain ones for a pipe or a CI log, or JSON for a program that watches a run."""

import json
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Self

from builder.cli.console.results import failure_text, result_line
from builder.cli.console.terminal import Terminal, human_seconds, say, seconds_left
from builder.pipeline import (
    CellFinished,
    CellOutcome,
    CellResult,
    Event,
    Note,
    RunStarted,
    SpanFinished,
    SpanStarted,
    StageFinished,
    StageProgress,
    StageStarted,
)

_REPEAT_AFTER = 10.0
"""Seconds between two lines of progress of one cell's stage."""
_SILENCE = 30.0
"""Seconds after which a silent stage is named again, so that the log does not look hung."""


def reporter(terminal: Terminal) -> AbstractContextManager[Callable[[Event], None]]:
    """The function that reports events in the terminal's way; several threads may call it."""
    if terminal.progress == "tty":
        from builder.cli.console.board import Board  # rich.live costs start-up time that lines need not pay

        return Board(terminal)
    if terminal.progress == "plain":
        return Lines(terminal)
    return nullcontext(_json_line if terminal.progress == "json" else lambda _event: None)


def _json_line(event: Event) -> None:
    """Write an event as JSON to stderr: ``event`` is its kind, ``time`` is in seconds since 1970."""
    if isinstance(event, CellFinished):
        result = event.result
        fields: dict[str, object] = {"cell": result.cell.id, "outcome": result.outcome, "stage": result.stage}
        fields["error"] = None if result.error is None else result.error.message
    else:
        fields = vars(event)
    say(json.dumps({"event": type(event).__name__, "time": round(time.time(), 3), **fields}))


class Lines:
    """Prints each event as a line; progress is thinned out so that a log stays readable."""

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal
        self._width = 0
        self._said: dict[tuple[str, str], float] = {}
        self._begun: dict[tuple[str, str], float] = {}
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._pulse = threading.Thread(target=self._name_the_silent, daemon=True)

    def __enter__(self) -> Self:
        self._pulse.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._over.set()
        self._pulse.join()

    def __call__(self, event: Event) -> None:
        with self._lock:
            match event:
                case RunStarted():
                    self._width = max((len(cell) for cell in event.cells), default=0)
                case StageStarted():
                    key = event.cell, event.stage
                    self._said[key] = self._begun[key] = time.monotonic()
                case StageProgress():
                    self._progress(event)
                case StageFinished():
                    self._begun.pop((event.cell, event.stage), None)
                    self._say(event.cell, f"{event.stage}: {event.text} ({human_seconds(event.seconds)})")
                case CellFinished(result=result):
                    self._begun = {key: at for key, at in self._begun.items() if key[0] != result.cell.id}
                    self._finish(result)
                case SpanStarted() | SpanFinished():
                    pass  # for a trace
                case Note():
                    self._say(event.cell, ("warning: " if event.warning else "") + event.text)

    def _say(self, cell: str, text: str) -> None:
        self._terminal.say((f"{cell:<{self._width}}  " if cell else "") + text)

    def _name_the_silent(self) -> None:
        while not self._over.wait(1.0):
            with self._lock:
                now = time.monotonic()
                for (cell, stage), begun in self._begun.items():
                    if now - self._said[cell, stage] >= _SILENCE:
                        self._said[cell, stage] = now
                        self._say(cell, f"{stage}: under way for {human_seconds(now - begun)}")

    def _progress(self, event: StageProgress) -> None:
        key, now = (event.cell, event.stage), time.monotonic()
        due = now - self._said.get(key, 0.0) >= _REPEAT_AFTER
        if event.quiet and not due and not self._terminal.verbose:
            return
        self._said[key] = now
        left = seconds_left(now - self._begun.get(key, now), event.done, event.total)
        more = "" if left is None else f", {human_seconds(left)} left"
        self._say(event.cell, f"{event.stage}: {event.text}{more}")

    def _finish(self, result: CellResult) -> None:
        cell, failure = result.cell.id, failure_text(result)
        self._say(cell, result_line(result, self._terminal))
        lines = [failure] if failure else []
        if failure and self._terminal.github and result.outcome is CellOutcome.FAILED:
            first = failure.splitlines()[0]
            lines = [f"::group::{cell}: {first}", failure, "::endgroup::", f"::error title={cell}::{first}"]
        for line in lines:
            self._terminal.say(line)
