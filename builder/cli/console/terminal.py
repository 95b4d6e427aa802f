"""Text for people and programs: a live board on a terminal, plain lines in a pipe, JSON lines.

Data goes to stdout, messages to stderr. A terminal of any encoding and width will do, with words kept whole.
"""

import codecs
import json
import os
import re
import shutil
import sys
import weakref
from collections.abc import Sized
from dataclasses import dataclass
from typing import Any, Literal, Self, TextIO

from builder.core.documents import CONTROL, readable, redact

Progress = Literal["auto", "tty", "plain", "json", "none"]
_PLAIN = {
    "…": "...", "·": "-", "—": "-", "–": "-", "→": "->", "←": "<-", "≥": ">=", "≤": "<=", "×": "x",  # noqa: RUF001
    "✓": "+", "✗": "x", "⊘": "-", "•": "*", "█": "#", "░": ".", "│": "|", "─": "-", "└": "`", "├": "|",
}  # fmt: skip
_ERRORS = "rtbuild-plain"
_COLOUR = re.compile(r"(\x1b\[(?:0|1|3[0-7](?:;1)?)m)")
"""The codes that :meth:`Terminal.style` writes, and nothing else that a terminal obeys."""


def accept_any_encoding() -> None:
    """Make stdout and stderr replace characters that their encoding lacks, so that no run ends on one."""
    codecs.register_error(_ERRORS, _plain)
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:  # a test's stream may be none of Python's own
            reconfigure(errors=_ERRORS)


def _plain(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(_PLAIN.get(char, "?") for char in error.object[error.start : error.end]), error.end


@dataclass(frozen=True, kw_only=True)
class Terminal:
    """How to write messages. ``progress`` is never ``auto`` here."""

    progress: Progress
    color: bool
    github: bool
    """True in a GitHub Actions job: groups and annotations are understood there."""
    verbose: int = 0

    @classmethod
    def of(
        cls,
        progress: Progress = "auto",
        *,
        verbose: int = 0,
        quiet: bool = False,
        stream: TextIO | None = None,
    ) -> Self:
        """Look at the stream, stderr if none is named, and the environment. ``NO_COLOR`` wins."""
        tty = (stream or sys.stderr).isatty() and os.environ.get("TERM") != "dumb"
        chosen: Progress = ("tty" if tty else "plain") if progress == "auto" else progress
        return cls(
            progress="none" if quiet else chosen,
            color="NO_COLOR" not in os.environ and (tty or "FORCE_COLOR" in os.environ),
            github=os.environ.get("GITHUB_ACTIONS") == "true",
            verbose=verbose,
        )

    def say(self, text: str = "") -> None:
        """Write one line to stderr; on a terminal it is wrapped between words."""
        say(wrapped(text, terminal_width()) if sys.stderr.isatty() else text)

    def style(self, text: str, code: str) -> str:
        """``text`` in an ANSI style (``1`` bold, ``31`` red …) if colour is on."""
        return f"\x1b[{code}m{text}\x1b[0m" if self.color else text


def say(text: str) -> None:
    """Write a line to stderr, at once."""
    sys.stderr.write(printable(text) + "\n")
    sys.stderr.flush()


def printable(text: str) -> str:
    """Text as every message and page is written: no login of a URL, no control character of foreign text.

    The styles of :meth:`Terminal.style` stay.
    """
    parts = _COLOUR.split(redact(text))
    parts[::2] = map(readable, parts[::2])
    return "".join(parts)


def show(*lines: str, hang: int | None = None) -> None:
    """Write lines to stdout; on a terminal they are wrapped between words if ``hang`` says how to indent."""
    for line in lines:
        fits = hang is None or not sys.stdout.isatty()
        sys.stdout.write(printable(line if fits else wrapped(line, terminal_width(), hang or 0)) + "\n")


def print_json(document: Any, rows: str | None = None) -> None:
    """Print the document of ``--json`` to stdout; each entry of ``document[rows]`` takes one line.

    Indenting a thousand cells with their findings takes a third of a second.
    """
    encoding = getattr(sys.stdout, "encoding", None) or "ascii"
    plain = not encoding.lower().startswith("utf")
    text = json.dumps(document | {rows: []} if rows else document, indent=2, ensure_ascii=plain)
    if rows:
        lines = ",\n    ".join(json.dumps(row, ensure_ascii=plain) for row in document[rows])
        text = text.replace(f'"{rows}": []', f'"{rows}": [\n    {lines}\n  ]', 1)
    # JSON has a control character within a text alone, where an escape is the same text
    sys.stdout.write(CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", redact(text)) + "\n")
    sys.stdout.flush()
    _WITH_DOCUMENT.add(sys.stdout)


_WITH_DOCUMENT: weakref.WeakSet[TextIO] = weakref.WeakSet()
"""Streams that have one: a reader of ``--json`` can parse no second document, such as that of an error."""


def document_printed() -> bool:
    """Whether this stdout has its document."""
    return sys.stdout in _WITH_DOCUMENT


def counted(things: int | Sized, noun: str) -> str:
    """``1 cell``, ``2 cells``."""
    count = things if isinstance(things, int) else len(things)
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


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


def terminal_width() -> int:
    """Columns of the terminal; ``COLUMNS`` counts first."""
    return max(shutil.get_terminal_size().columns, 20)


def shortened(text: str, width: int) -> str:
    """``text`` in at most ``width`` characters; the middle is cut, because ids differ at their ends.

    >>> shortened("tensorflow2.8.4-py3.9-bullseye-cudnn8.6.0.163", 24)
    'tensorflow2.…nn8.6.0.163'
    """
    if len(text) <= width:
        return text
    kept = max(width - 1, 2)
    return f"{text[: (kept + 1) // 2]}…{text[-(kept // 2) :]}"


def wrapped(text: str, width: int, hang: int = 2) -> str:
    """Each line wrapped between words, its continuation indented by ``hang`` more columns.

    A word longer than the line stays whole, so that a digest or a command can be copied. Colours take no
    room.
    """
    return "\n".join(_wrapped(line, width, hang) for line in text.split("\n"))


def _wrapped(line: str, width: int, hang: int) -> str:
    if _columns(line) <= width:
        return line
    margin = " " * (len(line) - len(line.lstrip(" ")) + hang)
    lines: list[str] = []
    for word in re.findall(r" *[^ ]+", line):  # with the spaces before it
        if lines and _columns(lines[-1] + word) <= width:
            lines[-1] += word
        else:
            lines.append(margin + word.lstrip(" ") if lines else word)
    return "\n".join(lines)


def _columns(line: str) -> int:
    return len(_COLOUR.sub("", line))
