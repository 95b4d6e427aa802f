"""Events as a live board: one row per running cell, redrawn in place below the lines of finished cells."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass

from rich.console import RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from builder.console.fitting import shortened, wrapped
from builder.console.summary import failure_text, result_line
from builder.console.terminal import Terminal, human_seconds, seconds_left
from builder.pipeline.events import (
    CellFinished,
    Event,
    Note,
    RunStarted,
    Stage,
    StageFinished,
    StageProgress,
    StageStarted,
)

_BAR = 14
_WIDE = 100
"""Terminal width in columns from which a row shows a bar."""


@dataclass
class _BoardRow:
    stage: Stage
    since: float | None
    """When the stage began; None after it has ended, while the cell waits for its next stage."""
    text: str = ""
    done: int | None = None
    total: int | None = None


def _clock(row: _BoardRow, now: float) -> str:
    """The time that the stage has taken, and the time left at its pace so far."""
    if row.since is None:
        return ""
    taken = now - row.since
    left = seconds_left(taken, row.done, row.total)
    return human_seconds(taken) if left is None else f"{human_seconds(taken)}, {human_seconds(left)} left"


class Board:
    """A table of the running cells; the lines of finished cells scroll away above it."""

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal
        self._console = terminal.console()
        self._rows: dict[str, _BoardRow] = {}
        self._waiting: list[str] = []
        self._total = 0
        self._lock = threading.Lock()
        self._live = Live(
            console=self._console, refresh_per_second=8, get_renderable=self._table, transient=True
        )

    def __enter__(self) -> Board:
        self._live.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._live.stop()

    def __call__(self, event: Event) -> None:
        match event:
            case RunStarted():
                with self._lock:
                    self._waiting, self._total = list(event.cells), len(event.cells)
            case StageStarted():
                self._start(event)
            case StageProgress():
                with self._lock:
                    row = self._rows.get(event.cell)
                    if row is not None and row.stage == event.stage:
                        row.text, row.done, row.total = event.text, event.done, event.total
            case StageFinished():
                with self._lock:
                    row = self._rows.get(event.cell)
                    if row is not None:
                        row.text, row.done, row.total, row.since = event.text, None, None, None
            case CellFinished():
                self._finish(event)
            case Note():
                mark = "warning: " if event.warning else ""
                self._print((f"{event.cell}  " if event.cell else "") + mark + event.text)

    def _start(self, event: StageStarted) -> None:
        with self._lock:
            if event.cell in self._waiting:
                self._waiting.remove(event.cell)
            self._rows[event.cell] = _BoardRow(stage=event.stage, since=time.monotonic())

    def _finish(self, event: CellFinished) -> None:
        result = event.result
        with self._lock:
            self._rows.pop(result.cell.id, None)
            if result.cell.id in self._waiting:
                self._waiting.remove(result.cell.id)
        self._print(f"{result.cell.id}  {result_line(result, self._terminal)}")
        if failure := failure_text(result):
            self._print(failure)

    def _print(self, text: str) -> None:
        self._console.print(Text.from_ansi(wrapped(text, self._console.width)), soft_wrap=True)

    def _table(self) -> RenderableType:
        """On a narrow terminal ids are shortened first; stage and time are always whole."""
        table = Table.grid(padding=(0, 2), expand=True)
        table.add_column(no_wrap=True)
        table.add_column(no_wrap=True)
        table.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
        table.add_column(no_wrap=True, justify="right")
        now, width = time.monotonic(), self._console.width
        with self._lock:
            for cell, row in self._rows.items():
                table.add_row(
                    Text(shortened(cell, max(width * 2 // 5, 16)), style="bold"),
                    Text(row.stage, style="cyan"),
                    Text((self._bar(row) if width >= _WIDE else "") + row.text),
                    Text(_clock(row, now), style="dim"),
                )
            left = len(self._waiting)
        if left:
            table.add_row(Text(f"{left} of {self._total} waiting", style="dim"))
        return table

    def _bar(self, row: _BoardRow) -> str:
        if row.done is None or not row.total:
            return ""
        filled = min(_BAR, _BAR * row.done // row.total)
        full, empty = ("█", "░") if self._terminal.unicode else ("#", ".")
        return full * filled + empty * (_BAR - filled) + " "
