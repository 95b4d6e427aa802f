"""Counts of states, redrawn in place on a terminal."""

from collections.abc import Mapping
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.table import Table

from builder.cli.console.terminal import Terminal


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
