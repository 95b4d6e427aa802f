"""Text for people and programs: a live board on a terminal, plain lines in a pipe, JSON lines."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

from builder.console.summary import error_text, run_summary
from builder.console.terminal import (
    Terminal,
    counted,
    human_bytes,
    human_seconds,
    print_json,
    print_json_rows,
    say,
    show,
)
from builder.pipeline.events import Event

__all__ = [
    "Terminal",
    "counted",
    "error_text",
    "human_bytes",
    "human_seconds",
    "print_json",
    "print_json_rows",
    "reporter",
    "run_summary",
    "say",
    "show",
]


def reporter(terminal: Terminal) -> AbstractContextManager[Callable[[Event], None]]:
    """The function that reports events in the terminal's way; several threads may call it."""
    match terminal.progress:
        case "tty":
            from builder.console.board import Board  # rich.live costs start-up time that lines need not pay

            return Board(terminal)
        case "plain":
            from builder.console.lines import Lines

            return Lines(terminal)
        case "json":
            from builder.console.lines import json_line

            return nullcontext(json_line)
        case "none":
            return nullcontext(lambda _event: None)
