"""The log of one build as plain text: each step with a number, its output, its time."""

from __future__ import annotations

import re
import time
from collections import deque
from typing import TYPE_CHECKING, Self

from builder.engine.events import BuildEvent, StepFinished, StepOutput, StepStarted, Transfer
from builder.errors import CellError

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

TAIL_LINES = 40

_WORTH_A_LINE = 1 << 20
"""Bytes; smaller transfers (the Dockerfile, .dockerignore) would only fill the log."""


class BuildLog:
    """Writes a build's log, one line at a time, and keeps the last lines of each step."""

    def __init__(self, path: Path) -> None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("w", encoding="utf-8", buffering=1)
        except OSError as error:
            raise CellError(f"the build's log cannot be written: {error}") from error
        self._began = time.monotonic()
        self._numbers: dict[str, int] = {}
        self._tails: dict[str, deque[str]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def line(self, text: str) -> None:
        """A line of the tool's own: the command, an error, the end."""
        self._remember("", text)
        self._file.write(text + "\n")

    def event(self, event: BuildEvent) -> None:
        """What an event says, in the manner of ``--progress=plain``."""
        match event:
            case StepStarted():
                self._write(event.name, one_line(event.name))
            case StepOutput():
                self._remember(event.step, event.line)
                self._write(event.step, event.line, stamped=True)
            case Transfer():
                # Known only when it is over: how much it was, and without a length only that it happened.
                exported = event.step.startswith("exporting") and event.total is None and event.done == 0
                if event.finished and (event.done >= _WORTH_A_LINE or exported):
                    size = f": {event.done / 1e6:.1f} MB" if event.done else ""
                    self._write(event.step, f"{event.what}{size}", stamped=True)
            case StepFinished():
                if event.error:
                    self._write(event.name, f"ERROR: {event.error}")
                else:
                    self._write(event.name, "CACHED" if event.cached else f"DONE {event.seconds:.1f}s")

    def tail(self, step: str | None) -> tuple[str, ...]:
        """The last lines of ``step`` and what the tool itself said after it, :data:`TAIL_LINES` in all."""
        own = [line for line in self._tails.get("", ()) if not line.startswith("+ ")]
        lines = [*self._tails.get(step or "", ()), *own] if step else own
        return tuple(lines[-TAIL_LINES:])

    def _remember(self, step: str, line: str) -> None:
        self._tails.setdefault(step, deque(maxlen=TAIL_LINES)).append(line)

    def _write(self, step: str, text: str, *, stamped: bool = False) -> None:
        number = self._numbers.setdefault(step, len(self._numbers) + 1)
        stamp = f"{time.monotonic() - self._began:.2f} " if stamped else ""
        self._file.write(f"#{number} {stamp}{text}\n")


def one_line(name: str) -> str:
    """A step's name without the newlines of a heredoc or a continued line."""
    return re.sub(r"\s+", " ", name).strip()


def shorten(text: str, width: int) -> str:
    """``text`` in at most ``width`` characters, its end cut off with an ellipsis."""
    return text if len(text) <= width else text[: width - 1] + "…"
