"""The terminal's abilities: colour, a live board, symbols. Data goes to stdout, messages to stderr."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sized
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from builder.console.fitting import speaks_unicode, terminal_width, wrapped

if TYPE_CHECKING:
    from rich.console import Console

ColorChoice = Literal["auto", "always", "never"]
ProgressChoice = Literal["auto", "tty", "plain", "json", "none"]


@dataclass(frozen=True, kw_only=True)
class Terminal:
    """How to write messages to stderr. ``progress`` is never ``auto`` here."""

    progress: Literal["tty", "plain", "json", "none"]
    color: bool
    github: bool
    """True in a GitHub Actions job: groups and annotations are understood there."""
    verbose: int = 0

    @classmethod
    def of(
        cls, *, progress: ProgressChoice = "auto", color: ColorChoice = "auto", verbose: int = 0
    ) -> Terminal:
        """Look at the stream and the environment. ``NO_COLOR`` wins over ``FORCE_COLOR``."""
        tty = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        if color == "auto":
            colored = "NO_COLOR" not in os.environ and (tty or "FORCE_COLOR" in os.environ)
        else:
            colored = color == "always"
        chosen: Literal["tty", "plain", "json", "none"]
        chosen = ("tty" if tty else "plain") if progress == "auto" else progress
        return cls(
            progress=chosen,
            color=colored,
            github=os.environ.get("GITHUB_ACTIONS") == "true",
            verbose=verbose,
        )

    @property
    def unicode(self) -> bool:
        return speaks_unicode(sys.stderr)

    def symbol(self, outcome: str) -> str:
        """A mark to put before a word, never in place of it."""
        fancy = {"ok": "✓", "bad": "✗", "skip": "⊘", "warn": "!", "run": "•"}
        plain = {"ok": "+", "bad": "x", "skip": "-", "warn": "!", "run": "*"}
        return (fancy if self.unicode else plain)[outcome]

    def console(self) -> Console:
        """A rich console on stderr that emits no escape sequence if colour is off."""
        from rich.console import Console

        live = self.progress == "tty"
        return Console(
            stderr=True,
            force_terminal=live or self.color or None,
            color_system="auto" if self.color else None,
            no_color=not self.color,
            highlight=False,
            soft_wrap=not live,
        )

    def say(self, text: str = "") -> None:
        """Write one line to stderr; on a terminal it is wrapped between words."""
        sys.stderr.write((wrapped(text, terminal_width()) if sys.stderr.isatty() else text) + "\n")
        sys.stderr.flush()

    def style(self, text: str, code: str) -> str:
        """``text`` in an ANSI style (``1`` bold, ``31`` red …) if colour is on."""
        return f"\x1b[{code}m{text}\x1b[0m" if self.color else text


def say(text: str) -> None:
    """Write a line to stderr, at once."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def show(*lines: str, hang: int | None = None) -> None:
    """Write lines to stdout; on a terminal they are wrapped between words if ``hang`` says how to indent."""
    for line in lines:
        fits = hang is None or not sys.stdout.isatty()
        sys.stdout.write((line if fits else wrapped(line, terminal_width(), hang or 0)) + "\n")


def counted(things: int | Sized, noun: str) -> str:
    """``1 cell``, ``2 cells``."""
    count = things if isinstance(things, int) else len(things)
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def print_json(document: Any) -> None:
    """The one document that ``--json`` puts on stdout."""
    sys.stdout.write(json.dumps(document, indent=2, ensure_ascii=not speaks_unicode(sys.stdout)) + "\n")
    sys.stdout.flush()


def print_json_rows(document: dict[str, Any], rows: str) -> None:
    """The same for a document with a long list: each entry of ``document[rows]`` takes one line.

    Indenting a thousand cells with their findings takes a third of a second.
    """
    plain = not speaks_unicode(sys.stdout)
    around = json.dumps(document | {rows: []}, indent=2, ensure_ascii=plain)
    lines = ",\n    ".join(json.dumps(row, ensure_ascii=plain) for row in document[rows])
    name = json.dumps(rows)
    sys.stdout.write(around.replace(f"{name}: []", f"{name}: [\n    {lines}\n  ]", 1) + "\n")
    sys.stdout.flush()


def human_bytes(count: float) -> str:
    """``1.6 GB``: decimal units, as registries and disks count."""
    for unit in ("B", "kB", "MB", "GB"):
        if abs(count) < 1000:
            return f"{count:.0f} {unit}" if unit in ("B", "kB") else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def human_seconds(seconds: float) -> str:
    """``0.4 s``, ``48 s``, ``3 min 05 s``."""
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    return f"{whole} s" if whole < 100 else f"{whole // 60} min {whole % 60:02d} s"


def seconds_left(taken: float, done: int | None, total: int | None) -> float | None:
    """Seconds left of a stage at its pace so far; None before a twentieth is done, and so the pace known."""
    if not done or not total or taken < 2 or done >= total or done * 20 < total:
        return None
    return taken * (total - done) / done
