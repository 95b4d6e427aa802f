"""Boards that are redrawn in place on a terminal: the running cells of a run, and the counts of states of
tasks.
"""

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from rich.console import Console, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from builder.cli.console.results import failure_text, result_line
from builder.cli.console.terminal import Terminal, human_seconds, seconds_left, shortened, wrapped
from builder.pipeline import (
    CellFinished,
    Event,
    Note,
    RunStarted,
    SpanFinished,
    SpanStarted,
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
    """The start of the stage; None after it has ended, while the cell waits for its next stage."""
    text: str = ""
    done: int | None = None
    total: int | None = None

    def clock(self, now: float) -> str:
        """The time that the stage has taken, and the time left at its pace so far."""
        if self.since is None:
            return ""
        taken = now - self.since
        left = seconds_left(taken, self.done, self.total)
        return human_seconds(taken) + ("" if left is None else f", {human_seconds(left)} left")

    def bar(self) -> str:
        if self.done is None or not self.total:
            return ""
        filled = min(_BAR, _BAR * self.done // self.total)
        return "█" * filled + "░" * (_BAR - filled) + " "


class Board:
    """A table of the running cells; the lines of finished cells scroll away above it."""

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal
        self._console = Console(  # which emits no escape sequence if colour is off
            stderr=True,
            force_terminal=True,
            color_system="auto" if terminal.color else None,
            no_color=not terminal.color,
            highlight=False,
        )
        self._rows: dict[str, _BoardRow] = {}
        self._waiting: set[str] = set()
        self._total = 0
        self._lock = threading.Lock()
        self._live = Live(
            console=self._console, refresh_per_second=8, get_renderable=self._table, transient=True
        )

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._live.stop()

    def __call__(self, event: Event) -> None:
        said = ""
        with self._lock:
            match event:
                case RunStarted():
                    self._waiting, self._total = set(event.cells), len(event.cells)
                case StageStarted():
                    self._waiting.discard(event.cell)
                    self._rows[event.cell] = _BoardRow(stage=event.stage, since=time.monotonic())
                case StageProgress():
                    row = self._rows.get(event.cell)
                    if row is not None and row.stage == event.stage:
                        row.text, row.done, row.total = event.text, event.done, event.total
                case StageFinished():
                    if event.cell in self._rows:
                        self._rows[event.cell] = _BoardRow(stage=event.stage, since=None, text=event.text)
                case CellFinished(result=result):
                    self._waiting.discard(result.cell.id)
                    self._rows.pop(result.cell.id, None)
                    line = f"{result.cell.id}  {result_line(result, self._terminal)}"
                    said = f"{line}\n{failure_text(result)}".rstrip()
                case SpanStarted() | SpanFinished():
                    pass  # for a trace
                case Note():
                    mark = "warning: " if event.warning else ""
                    said = (f"{event.cell}  " if event.cell else "") + mark + event.text
        if said:  # without the lock, which the table takes
            self._console.print(Text.from_ansi(wrapped(said, self._console.width)), soft_wrap=True)

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
                    Text((row.bar() if width >= _WIDE else "") + row.text),
                    Text(row.clock(now), style="dim"),
                )
            left = len(self._waiting)
        if left:
            table.add_row(Text(f"{left} of {self._total} waiting", style="dim"))
        return table


class CountTable:
    """A row for each class, a column for each state; what is said meanwhile scrolls above it."""

    def __init__(self, terminal: Terminal) -> None:
        console = Console(
            stderr=True, force_terminal=True, no_color=not terminal.color, highlight=False, markup=False
        )
        self._live = Live(console=console, auto_refresh=False, transient=True)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._live.stop()

    def draw(self, counts: Mapping[str, Mapping[str, int]]) -> None:
        """``counts[class][state]``."""
        states = sorted({state for row in counts.values() for state in row})
        table = Table("", box=None)
        for state in states:
            table.add_column(state, justify="right")
        for name, row in sorted(counts.items()):
            table.add_row(name, *(f"{row.get(state, 0):,}" for state in states))
        self._live.update(table, refresh=True)
