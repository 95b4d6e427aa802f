"""Events as plain lines, for a pipe or a CI log: one line a fact, prefixed with its cell."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from builder.console.summary import failure_text, result_line
from builder.console.terminal import human_seconds
from builder.pipeline.events import (
    CellFinished,
    Event,
    Note,
    Outcome,
    RunStarted,
    StageFinished,
    StageProgress,
    StageStarted,
)

if TYPE_CHECKING:
    from builder.console.terminal import Terminal

_REPEAT_AFTER = 10.0
"""Seconds between two lines of progress of one cell's stage."""


class Lines:
    """Prints each event as a line; progress is thinned out so that a log stays readable."""

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal
        self._width = 0
        self._said: dict[tuple[str, str], float] = {}

    def __enter__(self) -> Lines:
        return self

    def __exit__(self, *exc: object) -> None:
        return None

    def __call__(self, event: Event) -> None:
        say = self._terminal.say
        match event:
            case RunStarted():
                self._width = max((len(cell) for cell in event.cells), default=0)
            case StageStarted():
                self._said[event.cell, event.stage] = time.monotonic()
            case StageProgress():
                now = time.monotonic()
                due = now - self._said.get((event.cell, event.stage), 0.0) >= _REPEAT_AFTER
                if not event.quiet or due or self._terminal.verbose:
                    self._said[event.cell, event.stage] = now
                    say(f"{self._prefix(event.cell)}{event.stage}: {event.text}")
            case StageFinished():
                say(f"{self._prefix(event.cell)}{event.stage}: {event.text} ({human_seconds(event.seconds)})")
            case CellFinished():
                self._finish(event)
            case Note():
                mark = "warning: " if event.warning else ""
                say(f"{self._prefix(event.cell)}{mark}{event.text}")

    def _finish(self, event: CellFinished) -> None:
        result, terminal = event.result, self._terminal
        line = result_line(result, terminal)
        failure = failure_text(result)
        terminal.say(f"{self._prefix(result.cell.id)}{line}")
        if not failure:
            return
        if terminal.github and result.outcome is Outcome.FAILED:
            first = failure.splitlines()[0]
            terminal.say(f"::group::{result.cell.id}: {first}")
            terminal.say(failure)
            terminal.say("::endgroup::")
            terminal.say(f"::error title={result.cell.id}::{first}")
        else:
            terminal.say(failure)

    def _prefix(self, cell: str) -> str:
        return f"{cell:<{self._width}}  " if cell else ""
