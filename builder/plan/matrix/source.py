"""A matrix file as text, and the list of its errors."""

import codecs
import difflib
import re
import unicodedata
from collections.abc import Iterable, Iterator
from pathlib import Path

from builder.core import resources
from builder.core.documents import MalformedError, read_file, shown
from builder.core.errors import Diagnostic, MatrixError, UsageError
from builder.core.model import Span

MAX_BYTES = 1 << 20
MAX_LINE = 2_000
"""Characters in a line: an error shows its line."""

# What YAML allows in a stream (YAML 1.2.2, 5.1, production c-printable); a BOM counts only at the start.
_NOT_YAML = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]")

_CREDENTIALS = re.compile(r"(?<=://)[^/\s'\"]+(?=@)")
_BREAK = re.compile("\r\n|[\n\r\x85\u2028\u2029]")
"""YAML 1.1's line breaks, which PyYAML counts by."""


class Problems:
    """Collects every error of one file; nothing is raised before the file is read through."""

    def __init__(self, path: Path, text: str) -> None:
        self.path = path
        self._lines = _BREAK.split(text)
        self._found: dict[Diagnostic, None] = {}
        self.noted = 0
        """How often something was noted: whether it grew tells whether a part of the file is sound."""

    def span(self, line: int, column: int, width: int = 1) -> Span:
        return Span(file=str(self.path), line=line, column=column, width=width)

    def add(self, message: str, span: Span, hint: str | None = None) -> None:
        """Notes an error. The same one again, as from an anchor that is used twice, counts once."""
        hint = None if hint is None else _printable(hint)
        self.noted += 1
        self._found.setdefault(Diagnostic(message=_printable(message), span=span, hint=hint))

    def extend(self, others: Iterable[Diagnostic]) -> None:
        for other in others:
            self.add(other.message, other.span, other.hint)

    def __iter__(self) -> Iterator[Diagnostic]:
        return iter(self._found)

    def error(self) -> MatrixError:
        """All of it as one error, with the lines of the file as they can be shown."""
        shown = "\n".join(_shown(line[:MAX_LINE]) for line in self._lines)
        return MatrixError(self.path, tuple(self._found), shown)


def _shown(line: str) -> str:
    """A line with one character for each of its own, so that carets stay under what they point at, and with
    nothing in it that could steer the terminal or turn the reading direction."""
    line = _masked(line).replace("\t", " ")
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in line)


def _masked(text: str) -> str:
    """Hides the user and password of URLs, at equal length: errors end up in logs that others read."""
    return _CREDENTIALS.sub(lambda found: "*" * len(found[0]), text)


def _printable(text: str) -> str:
    """Escapes what a file may hold to steer a terminal or to hide, and masks credentials."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in _masked(text))


def nearest(name: str, valid: Iterable[str]) -> str | None:
    """The valid name that was probably meant: ``pyhton`` → ``python``."""
    by_folded = {_fold(candidate): candidate for candidate in valid}
    close = difflib.get_close_matches(_fold(name), by_folded, n=1)
    return by_folded[close[0]] if close else None


def closest(name: str, valid: Iterable[str]) -> list[str]:
    """The valid names that are most like a name or a glob, the best first."""
    return difflib.get_close_matches(name.replace("*", ""), list(dict.fromkeys(valid)), n=3, cutoff=0.3)


def _fold(name: str) -> str:
    return name.lower().replace("_", "-")


def did_you_mean(name: str, valid: Iterable[str]) -> str:
    """A hint with the closest valid name, if one is close, and all the valid ones."""
    names = tuple(valid)
    close = nearest(name, names)
    listed = f"valid here: {', '.join(names)}"
    return f"did you mean '{close}'? {listed}" if close else listed


def character(char: str) -> str:
    """A character that cannot be shown, by number and name: ``U+00A0 (no-break space)``."""
    names = {"\n": "line break", "\t": "tab", "\r": "carriage return", "\x1b": "escape", "\0": "null"}
    name = names.get(char) or unicodedata.name(char, "").lower() or "control character"
    return f"U+{ord(char):04X} ({name})"


def read(path: Path) -> tuple[str, Problems]:
    """A matrix file as text. Raises UsageError if there is no file, MatrixError if it is no text."""
    name = str(path)
    if "\n" in name or name != shown(name, most=len(name)):
        raise UsageError(f"{shown(name)!r} is no name for a matrix: it moves the cursor of a terminal")
    try:
        data = read_file(path, most=MAX_BYTES + 1, cut=True)
    except FileNotFoundError as error:
        raise UsageError(f"no matrix file {path}", hint=_neighbours(path)) from error
    except (OSError, MalformedError) as error:
        reason = "it is a directory" if path.is_dir() else getattr(error, "strerror", None) or error
        raise UsageError(f"cannot read the matrix file {path}: {reason}") from error
    content = data.removeprefix(codecs.BOM_UTF8)
    text = content.decode(errors="replace")
    problems = Problems(path, text)
    try:
        content.decode()
    except UnicodeDecodeError as error:
        rows = _BREAK.split(content[: error.start].decode())
        span = problems.span(len(rows), len(rows[-1]) + 1)
        problems.add(f"the byte 0x{content[error.start]:02x} is not UTF-8", span, "save the file as UTF-8")
    if len(data) > MAX_BYTES:
        hint = "a matrix is axes and rules; split what describes different images into several files"
        problems.add(f"the file is larger than {MAX_BYTES // 1024} KiB", problems.span(1, 1), hint)
        raise problems.error()
    if not problems.noted:
        _check_characters(text, problems)
    if problems.noted:
        raise problems.error()
    return text, problems


def _neighbours(path: Path) -> str:
    folder = path.parent
    own = resources.matrices() / path.name
    if own.is_file():
        return f"rtbuild brings one of that name: {own}"
    if not folder.is_dir():
        return f"there is no folder {folder}"
    files = sorted(shown(p.name) for p in folder.iterdir() if p.suffix in {".yaml", ".yml"})
    if not files:
        return f"there is no *.yaml file in {folder}"
    by_stem = {file.rpartition(".")[0]: file for file in files}
    close = nearest(path.name, files) or by_stem.get(nearest(path.stem, by_stem) or "")
    listed = f"in {folder}: {', '.join(files)}"
    return f"did you mean '{folder / close}'? {listed}" if close else listed


def _check_characters(text: str, problems: Problems) -> None:
    for number, line in enumerate(_BREAK.split(text), 1):
        if len(line) > MAX_LINE:
            message = f"the line is {len(line):,} characters long; the limit is {MAX_LINE:,}"
            problems.add(message, problems.span(number, 1))
        elif bad := _NOT_YAML.search(line):
            message = f"{character(bad.group())} cannot stand in a YAML file"
            hint = "take it out, or write it as an escape inside double quotes"
            problems.add(message, problems.span(number, bad.start() + 1), hint)
        elif (tab := re.split("(?:^| )#", line, maxsplit=1)[0].find("\t")) >= 0:
            # YAML allows some tabs; PyYAML's two loaders do not agree on which.
            problems.add("a tab", problems.span(number, tab + 1), "indent and separate with spaces")
