"""Makes text of events: a live board on a terminal, plain lines in a pipe, JSON lines for programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from builder.console.summary import error_text, run_summary
from builder.console.terminal import Terminal, human_bytes, human_seconds, print_json, print_json_rows

if TYPE_CHECKING:
    from types import TracebackType

    from builder.pipeline.events import Event

__all__ = [
    "Reporter",
    "Terminal",
    "error_text",
    "human_bytes",
    "human_seconds",
    "print_json",
    "print_json_rows",
    "reporter",
    "run_summary",
]


class Reporter(Protocol):
    """Takes events while its context is open. May be called from several threads."""

    def __enter__(self) -> Reporter: ...

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...

    def __call__(self, event: Event) -> None: ...


def reporter(terminal: Terminal) -> Reporter:
    """The reporter that fits the terminal."""
    match terminal.progress:
        case "tty":
            from builder.console.board import Board  # rich.live costs start-up time that lines need not pay

            return Board(terminal)
        case "plain":
            from builder.console.lines import Lines

            return Lines(terminal)
        case "json":
            from builder.console.machine import JsonLines

            return JsonLines()
        case "none":
            from builder.console.machine import Silence

            return Silence()
