"""Text that fits a terminal of any encoding and width, with words kept whole."""

from __future__ import annotations

import codecs
import re
import shutil
import sys
import textwrap

_PLAIN = {
    "…": "...", "·": "-", "—": "-", "–": "-", "→": "->", "←": "<-", "≥": ">=", "≤": "<=", "×": "x",  # noqa: RUF001
    "✓": "+", "✗": "x", "⊘": "-", "•": "*", "█": "#", "░": ".", "│": "|", "─": "-", "└": "`", "├": "|",
}  # fmt: skip
_ERRORS = "rtbuild-plain"


def _plain(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(_PLAIN.get(char, "?") for char in error.object[error.start : error.end]), error.end


def accept_any_encoding() -> None:
    """Make stdout and stderr replace characters that their encoding lacks, so that no run ends on one."""
    codecs.register_error(_ERRORS, _plain)
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:  # a test's stream may be none of Python's own
            reconfigure(errors=_ERRORS)


def speaks_unicode(stream: object) -> bool:
    """True if the stream's encoding has every character."""
    encoding = getattr(stream, "encoding", None) or "ascii"
    return str(encoding).lower().replace("-", "").startswith("utf")


def shortened(text: str, width: int) -> str:
    """``text`` in at most ``width`` characters; the middle is cut, because ids differ at their ends.

    >>> shortened("tensorflow2.8.4-py3.9-bullseye-cudnn8.6.0.163", 24)
    'tensorflow2.…nn8.6.0.163'
    """
    if len(text) <= width:
        return text
    kept = max(width - 1, 2)
    return f"{text[: (kept + 1) // 2]}…{text[-(kept // 2) :]}"


def terminal_width(default: int = 80) -> int:
    """Columns of the terminal; ``COLUMNS`` counts first."""
    return max(shutil.get_terminal_size((default, 24)).columns, 20)


def wrapped(text: str, width: int) -> str:
    """Each line wrapped between words, its continuation indented by two more columns.

    A word longer than the line stays whole, so that a digest or a command can be copied. Lines with terminal
    escapes stay as they are, because their width is not their length.
    """
    return "\n".join(_wrapped(line, width) for line in text.split("\n"))


def _wrapped(line: str, width: int) -> str:
    if len(line) <= width or "\x1b" in line:
        return line
    indent = re.match(r" *", line)
    margin = " " * (len(indent[0]) if indent else 0)
    return textwrap.fill(
        line.strip(),
        width,
        initial_indent=margin,
        subsequent_indent=margin + "  ",
        break_long_words=False,
        break_on_hyphens=False,
    )
