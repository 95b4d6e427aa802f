"""A matrix file as nodes that know their places, and the list of its errors.

Every scalar stays the string that was written. PyYAML's events are used and not its constructors: those read
``3.10`` as 3.1 and keep the last of two equal keys without a word.
"""

from __future__ import annotations

import codecs
import difflib
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import yaml

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
        hint = f"its files, each by its name: {path}/*.yaml" if path.is_dir() else None
        raise UsageError(f"cannot read the matrix file {path}: {reason}", hint=hint) from error
    return decoded(path, data)


def decoded(path: Path, data: bytes) -> tuple[str, Problems]:
    """A matrix bytes, which need not be on the disk yet, as text. Raises MatrixError if they are no text."""
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


MAX_DEPTH = 12
MAX_NODES = 100_000
"""Nodes in a file, with every alias counted as large as what it stands for."""

_TAGS = frozenset({"!", *(f"tag:yaml.org,2002:{kind}" for kind in ("str", "seq", "map"))})


@dataclass(frozen=True, slots=True)
class Scalar:
    text: str
    span: Span
    style: str
    """``'``, ``"``, ``|``, ``>``, or empty for a plain one."""


@dataclass(frozen=True, slots=True)
class Items:
    nodes: tuple[Node, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class Table:
    entries: Mapping[str, tuple[Scalar, Node]]
    """Key → (the key where it stands, its value); keys of ``<<`` are merged in."""
    span: Span
    partial: bool = False
    """True if ``<<`` should have merged in keys and could not."""

    def get(self, name: str) -> Node | None:
        """The value of a key."""
        return self.entries[name][1] if name in self.entries else None


@dataclass(frozen=True, slots=True)
class Hole:
    """A node with an error that was noted already; readers pass over it."""

    span: Span


Node = Scalar | Items | Table | Hole


def is_empty(node: Node) -> bool:
    """Whether nothing at all stands after a key or a dash, as in ``zip:``."""
    return isinstance(node, Scalar) and not node.text and not node.style


def compose(text: str, path: Path, problems: Problems) -> Node:
    """The root node of a file. Raises :class:`MatrixError` if the file is not one YAML document."""
    failure: Exception | None = None
    # libyaml's is ten times as fast. If it fails, the loader in Python says why: its words are the better
    # ones, and so a file's errors read the same on a machine without libyaml (a '? ' inside brackets apart,
    # which libyaml takes as text).
    for loader in (getattr(yaml, "CSafeLoader", yaml.SafeLoader), yaml.SafeLoader):
        attempt = Problems(path, text)
        try:
            root = _Composer(yaml.parse(text, Loader=loader), attempt).document()
        except (yaml.MarkedYAMLError, ValueError, OverflowError) as error:
            # The latter two: the loader in Python on an escape such as "\\UFFFFFFFF".
            failure = error
        else:
            problems.extend(attempt)
            return root
    _explain(failure, text, problems)
    raise problems.error()


class _Composer:
    def __init__(self, events: Iterator[yaml.Event], problems: Problems) -> None:
        self._events = events
        self._problems = problems
        self._anchors: dict[str, tuple[Node, int] | None] = {}
        """Each with the size of its node; None inside it."""
        self._count = 0

    def document(self) -> Node:
        next(self._events)
        event = next(self._events)
        if isinstance(event, yaml.StreamEndEvent):
            self._fatal("the file is empty", self._problems.span(1, 1), "start with 'version: 1'")
        root = self._node(next(self._events), 0)
        next(self._events)
        event = next(self._events)
        if not isinstance(event, yaml.StreamEndEvent):
            hint = "a matrix file holds one document; put the other one into a file of its own"
            self._fatal("a second document starts here", self._span(event), hint)
        return root

    def _node(self, event: yaml.Event, depth: int) -> Node:
        """The node that starts with an event."""
        if depth > MAX_DEPTH:
            hint = "nothing in a matrix is nested deeper than the packages of a CUDA provider"
            self._fatal(f"nested more than {MAX_DEPTH} levels deep", self._span(event), hint)
        self._count += 1
        if isinstance(event, yaml.AliasEvent):
            return self._alias(event)
        if not isinstance(event, yaml.ScalarEvent | yaml.CollectionStartEvent):
            raise TypeError(f"{event} starts no node")
        before = self._count
        if event.anchor is not None:
            self._anchors.setdefault(event.anchor, None)
        node = self._content(event, depth)
        if event.anchor is not None:
            self._anchors[event.anchor] = (node, self._count - before + 1)
        if event.tag is None or event.tag in _TAGS:
            return node
        written = event.tag.replace("tag:yaml.org,2002:", "!!")
        hint = "take it out: every scalar is read as the text that stands there"
        self._problems.add(f"the tag {written} has no meaning in a matrix", node.span, hint)
        return Hole(node.span)

    def _content(self, event: yaml.Event, depth: int) -> Node:
        if isinstance(event, yaml.ScalarEvent):
            self._bound(event)
            return Scalar(event.value, self._span(event), event.style or "")
        if isinstance(event, yaml.SequenceStartEvent):
            nodes = []
            while not isinstance(child := next(self._events), yaml.SequenceEndEvent):
                nodes.append(self._node(child, depth + 1))
            return Items(tuple(nodes), self._span(event, child))
        return self._table(event, depth)

    def _table(self, start: yaml.Event, depth: int) -> Table:
        entries: dict[str, tuple[Scalar, Node]] = {}
        merges: list[Node] = []
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            key = self._node(event, depth + 1)
            value = self._node(next(self._events), depth + 1)
            if is_empty(value):
                # Without a value only the key can be pointed at.
                value = Scalar("", key.span, "")
            if isinstance(key, Hole):
                continue
            if not isinstance(key, Scalar):
                self._problems.add("a key must be a plain word", key.span, "a key in brackets wants quotes")
            elif key.text == "<<" and not key.style:
                merges += value.nodes if isinstance(value, Items) else (value,)
            elif key.text in entries:
                hint = f"the first one is in line {entries[key.text][0].span.line}; keep one of them"
                self._problems.add(f"the key '{key.text}' is given twice", key.span, hint)
            else:
                entries[key.text] = (key, value)
        partial = False
        for merged in merges:
            if isinstance(merged, Table):
                entries = {**merged.entries, **entries}
            elif not isinstance(merged, Hole):
                message = "'<<' merges a mapping or a list of mappings"
                self._problems.add(message, merged.span, "put an alias here, as in '<<: *name'")
            partial |= not isinstance(merged, Table) or merged.partial
        return Table(entries, self._span(start, event), partial)

    def _alias(self, event: yaml.AliasEvent) -> Node:
        name, span = event.anchor or "", self._span(event)
        if (known := self._anchors.get(name)) is not None:
            self._count += known[1]
            self._bound(event)
            return known[0]
        if name in self._anchors:
            self._problems.add(f"the alias *{name} stands inside the very node it names", span)
        else:
            close = nearest(name, (above for above, closed in self._anchors.items() if closed))
            hint = f'a value that starts with * wants quotes: "*{name}"'
            hint = f"did you mean *{close}? {hint}" if close else hint
            self._problems.add(f"no anchor &{name} stands above this alias", span, hint)
        return Hole(span)

    def _bound(self, event: yaml.Event) -> None:
        if self._count > MAX_NODES:
            message = f"the file unfolds to more than {MAX_NODES:,} values"
            self._fatal(message, self._span(event), "aliases of aliases multiply; write shorter lists")

    def _span(self, event: yaml.Event, end: yaml.Event | None = None) -> Span:
        start, stop = event.start_mark, (end or event).end_mark
        if start is None or stop is None:
            return self._problems.span(1, 1)
        # Where a collection without brackets ends, the two loaders do not agree.
        bounded = end is None or bool(getattr(event, "flow_style", False))
        width = max(1, stop.column - start.column) if bounded and start.line == stop.line else 1
        return self._problems.span(start.line + 1, start.column + 1, width)

    def _fatal(self, message: str, span: Span, hint: str) -> NoReturn:
        self._problems.add(message, span, hint)
        raise self._problems.error()


_ALIGN = "lines that belong together start in the same column"
_COLON = f"a value with ': ' in it wants quotes; {_ALIGN}"
_FRONT = "a value that starts with one of {}[],&*#?|-<>=!%@` wants quotes"
_INSIDE = "between brackets and braces, a value with one of [ ] {} , or ': ' in it wants quotes"
_GLOB = 'a glob that starts with * wants quotes: "*-py3.9-*"'
_BACKSLASH = "inside single quotes a \\ is only a \\"
_UNCLOSED = "close it where the value ends"

# Part of PyYAML's context, part of its problem, what to say instead, what to do. The first that fits counts.
_WORDS = (
    ("", "cannot start any token", "this character cannot start a value", _FRONT),
    ("alias", "", "a '*' in front makes an alias of a value", _GLOB),
    ("anchor", "", "a '&' in front makes an anchor of a value", _FRONT),
    ("quoted scalar", "end of stream", "this quote is never closed", _UNCLOSED),
    ("quoted scalar", "document separator", "this quote is never closed", _UNCLOSED),
    ("double-quoted", "", "an escape that YAML does not know", _BACKSLASH),
    ("flow sequence", "<stream end>", "this '[' is never closed", "close it with ']'"),
    ("flow mapping", "<stream end>", "this '{{' is never closed", "close it with '}'"),
    ("flow sequence", "", "the '[' of line {line} needs a ',' or its ']' before this", _INSIDE),
    ("flow mapping", "", "the '{{' of line {line} needs a ',' or its '}}' before this", _INSIDE),
    ("", "mapping values are not allowed", "a ':' where no key can stand", _COLON),
    ("", "expected <block end>", "this line is indented unlike the lines it belongs to", _ALIGN),
    ("", "sequence entries are not allowed", "a list cannot start here", "start it on the next line"),
    ("simple key", "could not find expected ':'", "a key without its ':'", _COLON),
)  # fmt: skip


def _explain(failure: Exception | None, text: str, problems: Problems) -> None:
    """Notes why a file is no YAML, at the place where one would look for it."""
    if not isinstance(failure, yaml.MarkedYAMLError):
        # PyYAML in Python lets these through to chr(), which knows no place.
        for number, line in enumerate(text.splitlines(), 1):
            for found in re.finditer(r"\\U(?!000|0010)[0-9A-Fa-f]{8}", line):
                span = problems.span(number, found.start() + 1, len(found[0]))
                problems.add("this escape names no character", span, _BACKSLASH)
        if not problems.noted:
            problems.add(f"the file is not YAML: {failure}", problems.span(1, 1))
        return
    mark, context = failure.problem_mark, failure.context or ""
    problem = failure.problem or "it cannot be read"
    if failure.context_mark is not None and (mark is None or mark.index >= len(text.rstrip())):
        mark = failure.context_mark
    span = problems.span(mark.line + 1, mark.column + 1) if mark is not None else problems.span(1, 1)
    opened = failure.context_mark.line + 1 if failure.context_mark is not None else span.line
    for in_context, in_problem, message, hint in _WORDS:
        if in_context in context and in_problem in problem:
            problems.add(message.format(line=opened), span, hint)
            return
    problems.add(f"the file is not YAML: {problem}{f' {context}' if context else ''}", span)
