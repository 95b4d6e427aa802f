"""Text that fits a terminal of any encoding and width, with words kept whole."""

import codecs
import re
import shutil
import sys

_PLAIN = {
    "…": "...", "·": "-", "—": "-", "–": "-", "→": "->", "←": "<-", "≥": ">=", "≤": "<=", "×": "x",  # noqa: RUF001
    "✓": "+", "✗": "x", "⊘": "-", "•": "*", "█": "#", "░": ".", "│": "|", "─": "-", "└": "`", "├": "|",
}  # fmt: skip
_ERRORS = "rtbuild-plain"
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


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


def terminal_width() -> int:
    """Columns of the terminal; ``COLUMNS`` counts first."""
    return max(shutil.get_terminal_size().columns, 20)


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
