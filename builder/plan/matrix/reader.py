"""Every key of a matrix file, by section (the tables of ``keys.toml``); and nodes to checked texts, in small
steps, each of which notes errors with their places.
"""

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

from builder.core.model import Span
from builder.plan.matrix import values
from builder.plan.matrix.nodes import (
    Hole,
    Items,
    Node,
    Problems,
    Scalar,
    Table,
    character,
    did_you_mean,
    is_empty,
    nearest,
)
from builder.plan.matrix.selection import BadGlob, braces
from builder.plan.matrix.values import APT, ENV_NAME, GLOB, BadValue, Syntax

Shape = Literal["text", "texts", "variables", "provider", "python", "builds"]


@dataclass(frozen=True, kw_only=True)
class Key:
    """One key. ``keys.toml`` says what its fields mean."""

    name: str
    summary: str
    syntax: Syntax
    shape: Shape = "text"
    required: bool = False
    adds: bool = False


_TABLES = tomllib.loads(Path(__file__).with_name("keys.toml").read_text("utf-8"))


def _keys(section: str) -> dict[str, Key]:
    table = _TABLES[section]
    return {
        name: Key(**row | {"name": name, "syntax": getattr(values, row["syntax"])})
        for name, row in table.items()
    }


HEAD, CELL, OPTIONS, PUBLISH = _keys("head"), _keys("cell"), _keys("options"), _keys("publish")
PROVIDER, PYTHON = _keys("provider"), _keys("python")
"""Keys of ``cuda`` and of ``python`` that are written as mappings."""
EXEMPT = _keys("exempt")
SECTIONS: dict[str, str] = _TABLES["sections"]
ELSEWHERE: dict[str, str] = {
    word: hint for words, hint in _TABLES["elsewhere"].items() for word in words.split()
}
"""By what people write and is no key anywhere: where it belongs."""


MOST_ITEMS = 2000
"""Entries in one list of a cell: every cell has a list of its own."""

_Shape = TypeVar("_Shape", Items, Table)
_KINDS = {Scalar: "a single value", Items: "a list", Table: "a mapping"}


@dataclass(frozen=True, slots=True)
class Setting:
    """The value of one key, checked. A list whatever its key: one item for a scalar, ``NAME=value`` items for
    ``env``, for ``cuda`` the provider and then its packages, for ``python`` the version and then where it is
    from, ``name`` or ``name: needs`` for builds."""

    items: tuple[str, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class CellSettings:
    """Keys of a cell: those of ``defaults``, or of one entry of ``include``."""

    settings: Mapping[str, Setting]
    given: frozenset[str]
    """Also the keys that are misspelt or whose values are wrong, so that they are not called missing."""
    span: Span
    sound: bool
    """False if an error was noted in it: no cells are made of it, so no error follows from another."""


@dataclass(frozen=True, slots=True)
class Glob:
    text: str
    span: Span


class Reader:
    """Reads parts of a file. A wrong value is noted, and left out of the result."""

    def __init__(self, problems: Problems) -> None:
        self.problems = problems

    # -- shapes

    def wrong_kind(self, node: Node | None, what: str, wanted: str, hint: str | None = None) -> None:
        """Notes that a node is of another kind than wanted. An absent or already noted one is no error."""
        if node is None or isinstance(node, Hole):
            return
        if is_empty(node):
            self.problems.add(f"{what} has no value", node.span, hint or f"it wants {wanted}")
            return
        self.problems.add(f"{what} wants {wanted}, not {_KINDS[type(node)]}", node.span, hint)

    def shaped(
        self,
        kind: type[_Shape],
        node: Node | None,
        what: str,
        wanted: str = "a mapping",
        hint: str | None = None,
    ) -> _Shape | None:
        """A list or a mapping; None, and noted, if the node is something else."""
        if isinstance(node, kind):
            return node
        self.wrong_kind(node, what, wanted, hint)
        return None

    def tables(self, node: Node | None, name: str, wanted: str) -> list[Table]:
        """The mappings in a section that is a list of them."""
        items = self.shaped(Items, node, f"'{name}'", f"a list of {wanted}", "start each with '- '")
        entries = items.nodes if items is not None else ()
        tables = [self.shaped(Table, entry, f"an entry of '{name}'") for entry in entries]
        return [table for table in tables if table is not None]

    def unknown(self, table: Table, valid: Iterable[str], where: str, kind: str = "key") -> None:
        """Notes the keys of a mapping that mean nothing there."""
        valid = tuple(valid)
        for name, (key, _) in table.entries.items():
            if name not in valid:
                hint = _misplaced(name, valid) or did_you_mean(name, valid)
                self.problems.add(f"unknown {kind} '{name}'{where}", key.span, hint)

    # -- values

    def text(
        self, node: Node, syntax: Syntax, what: str, *, hint: str | None = None, if_empty: str | None = None
    ) -> str | None:
        if not isinstance(node, Scalar):
            colon = "a value with ': ' in it wants quotes" if isinstance(node, Table) else None
            self.wrong_kind(node, what, "a single value", hint or colon)
            return None
        if is_empty(node):
            hint = if_empty or "take the line out, or write a value"
            self.problems.add(f"{what} has no value", node.span, hint)
            return None
        text = " ".join(node.text.split()) if syntax.prose else node.text
        if not text.isprintable():
            bad = character(next(char for char in text if not char.isprintable()))
            self.problems.add(f"{what} holds {bad}", node.span, "values are one line of printable text")
            return None
        if len(text) > syntax.longest:
            message = f"{what} is {len(text):,} characters long; the limit is {syntax.longest:,}"
            self.problems.add(message, node.span)
            return None
        try:
            return syntax.check(text)
        except BadValue as bad_value:
            self.problems.add(bad_value.message, self._inside(node, bad_value), bad_value.hint)
            return None

    def plain(self, table: Table, valid: Mapping[str, Key]) -> dict[str, str | None]:
        """The values of those keys of a mapping that are single texts."""
        return {
            name: self.text(table.entries[name][1], key.syntax, f"'{name}'")
            for name, key in valid.items()
            if name in table.entries and key.shape == "text"
        }

    def glob(self, node: Node, what: str, example: str, hint: str | None = None) -> Glob | None:
        text = self.text(node, GLOB, what, hint=hint)
        try:
            if text is not None and braces(text):
                return Glob(text, node.span)
        except BadGlob as error:
            self.problems.add(str(error), node.span, f"braces list alternatives: '{example}'")
        return None

    def texts(self, node: Node, syntax: Syntax, what: str) -> tuple[str, ...]:
        entries, entry = self._entries(node, what)
        found = (self.text(child, syntax, entry) for child in entries)
        return tuple(dict.fromkeys(text for text in found if text is not None))

    def _entries(self, node: Node, what: str) -> tuple[tuple[Node, ...], str]:
        """The entries of a list, or the one value in its place, and the name of an entry in messages."""
        if isinstance(node, Table):
            self.wrong_kind(node, what, "a list or a single value", "start each entry with '- '")
            return (), what
        if not isinstance(node, Items):
            return (node,), what
        if self._too_many(len(node.nodes), node, what):
            return (), what
        return tuple(node.nodes), f"an entry of {what}"

    def setting(self, node: Node, key: Key, hint: str | None = None) -> Setting | None:
        """The value of a cell's key. ``hint`` is for a list instead of one value."""
        before = self.problems.noted
        what = f"'{key.name}'"
        items: tuple[str, ...]
        if isinstance(node, Hole):
            return None
        match key.shape:
            case "text":
                text = self.text(node, key.syntax, what, hint=hint if isinstance(node, Items) else None)
                items = () if text is None else (text,)
            case "texts":
                items = self.texts(node, key.syntax, what)
                if isinstance(node, Items) and not node.nodes and not key.adds:
                    self.problems.add(f"{what} is an empty list", node.span, "name at least one")
            case "variables":
                items = self._variables(node, key.syntax, what)
            case "provider":
                items = self._provider(node)
            case "python":
                items = self._python(node, key.syntax, hint if isinstance(node, Items) else None)
            case "builds":
                items = self._builds(node, key.syntax, what)
        return Setting(items, node.span) if self.problems.noted == before else None

    def layer(self, table: Table, where: str) -> CellSettings:
        """Keys of a cell, as in ``defaults`` and in an entry of ``include``."""
        before = self.problems.noted
        self.unknown(table, CELL, f" {where}")
        settings: dict[str, Setting] = {}
        for name, key in CELL.items():
            if name in table.entries:
                hint = "several values are an axis: put them under 'axes'"
                setting = self.setting(table.entries[name][1], key, hint)
                if setting is not None:
                    settings[name] = setting
        sound = self.problems.noted == before and not holes(table)
        return CellSettings(settings, meant(table), table.span, sound)

    def _variables(self, node: Node, syntax: Syntax, what: str) -> tuple[str, ...]:
        wanted, hint = "a mapping of names to values", "as in {TF_CPP_MIN_LOG_LEVEL: 1}"
        table = self.shaped(Table, node, what, wanted, hint)
        found: list[str] = []
        if table is None or self._too_many(len(table.entries), table, what):
            return ()
        for name, (key, value) in table.entries.items():
            checked = self.text(key, ENV_NAME, "the name")
            text = self.text(value, syntax, f"'{name}'", if_empty='for an empty value write ""')
            if checked is not None and text is not None:
                found.append(f"{checked}={text}")
        return tuple(found)

    def _provider(self, node: Node) -> tuple[str, ...]:
        hint = "base, wheels, none, or {from: wheels, packages: […]}"
        if isinstance(node, Scalar):
            text = self.text(node, CELL["cuda"].syntax, "'cuda'")
            return () if text is None else (text,)
        table = self.shaped(Table, node, "'cuda'", "a provider", hint)
        if table is None or not self._has(table, "from", PROVIDER, "'cuda'", hint):
            return ()
        name, packages = self.plain(table, PROVIDER)["from"], table.entries.get("packages")
        required = self.texts(packages[1], PROVIDER["packages"].syntax, "'packages'") if packages else ()
        if packages and name not in {None, "wheels"}:
            hint = "they are NVIDIA's wheels: write 'from: wheels', or take them out"
            self.problems.add(f"'packages' has no meaning with 'from: {name}'", packages[0].span, hint)
        return () if name is None else (name, *required)

    def _python(self, node: Node, syntax: Syntax, hint: str | None) -> tuple[str, ...]:
        """The version; behind it ``base`` or ``standalone``, if that is said."""
        if not isinstance(node, Table):
            text = self.text(node, syntax, "'python'", hint=hint)
            return () if text is None else (text,)
        example = "as in {version: 3.12, from: standalone}"
        if not self._has(node, "version", PYTHON, "'python'", example):
            return ()
        said = self.plain(node, PYTHON)
        version, name = said["version"], said.get("from")
        if version is not None and version.count(".") > 1 and name == "base":
            message = f"which patch release of {version.rpartition('.')[0]} a base has is not chosen here"
            hint = "write 'from: standalone', or the minor version alone"
            self.problems.add(message, node.entries["from"][1].span, hint)
        return tuple(text for text in (version, name) if text is not None)

    def _has(self, table: Table, name: str, valid: Mapping[str, Key], what: str, hint: str) -> bool:
        """Whether a value that is written as a mapping has the key that it needs; notes its unknown ones."""
        self.unknown(table, valid, f" in {what}")
        if name not in meant(table, valid):
            self.problems.add(f"{what} has no '{name}'", table.span, hint)
        return name in table.entries

    def _builds(self, node: Node, syntax: Syntax, what: str) -> tuple[str, ...]:
        """Names; the Debian packages of its build follow a compiled one: ``psycopg2: libpq-dev``."""
        found: dict[str, tuple[str, Span]] = {}
        entries, called = self._entries(node, what)
        for entry in entries:
            if (build := self._build(entry, syntax, called)) is None:
                continue
            name, text = build
            if name in found and found[name][0] != text:
                hint = f"the first time in line {found[name][1].line}; keep one of them"
                self.problems.add(f"{what} names {name} twice, to be built in two ways", entry.span, hint)
            found.setdefault(name, (text, entry.span))
        return tuple(text for text, _ in found.values())

    def _build(self, node: Node, syntax: Syntax, what: str) -> tuple[str, str] | None:
        """The name of a package, and how it stands in a setting."""
        if not isinstance(node, Table):
            name = self.text(node, syntax, what)
            return None if name is None else (name, name)
        if len(node.entries) != 1:
            hint = "one name and its Debian packages, as in 'psycopg2: [libpq-dev]'"
            if not holes(node):
                message = f"{what} wants one name, not {len(node.entries)}"
                self.problems.add(message, node.span, f"{hint}; a further name is an entry")
            return None
        key, value = next(iter(node.entries.values()))
        name = self.text(key, syntax, "the name")
        if is_empty(value):
            hint = "where a compiler alone is needed write '[]'"
            self.problems.add(f"'{key.text}' has no Debian packages", value.span, hint)
            return None
        needs = self.texts(value, APT, f"'{key.text}'")
        return None if name is None else (name, f"{name}: {' '.join(needs)}".rstrip())

    def _too_many(self, count: int, node: Node, what: str) -> bool:
        if count > MOST_ITEMS:
            self.problems.add(f"{what} has {count:,} entries; the limit is {MOST_ITEMS}", node.span)
        return count > MOST_ITEMS

    def _inside(self, node: Scalar, bad: BadValue) -> Span:
        """The place of the wrong part of a scalar that is written without escapes."""
        quotes = {"": 0, "'": 1, '"': 1}.get(node.style)
        if not bad.width or quotes is None or node.span.width != len(node.text) + 2 * quotes:
            return node.span
        return self.problems.span(node.span.line, node.span.column + quotes + bad.offset, bad.width)


def meant(table: Table, valid: Iterable[str] = tuple(CELL)) -> frozenset[str]:
    """The keys that a mapping gives, misspelt ones under their right name: none of them is missing."""
    valid = frozenset(valid)
    if table.partial:
        return valid
    return frozenset(
        name if name in valid else nearest(name, sorted(valid)) or name for name in table.entries
    )


def holes(node: Node) -> bool:
    """Whether an error was noted inside a node while it was composed."""
    match node:
        case Hole():
            return True
        case Items():
            return any(holes(child) for child in node.nodes)
        case Table():
            return node.partial or any(holes(value) for _, value in node.entries.values())
        case Scalar():
            return False


def _misplaced(name: str, valid: Iterable[str]) -> str | None:
    """A hint for a key that is right in another place."""
    homes: Mapping[str, str] = {
        **dict.fromkeys(OPTIONS, "goes under 'options'"),
        **dict.fromkeys(
            CELL, "is a key of a cell: it goes under 'defaults', or with a list of values under 'axes'"
        ),
        **dict.fromkeys((*HEAD, *SECTIONS), "stands at the top of the file"),
    }
    if name in homes and name not in valid:
        return f"'{name}' {homes[name]}"
    return ELSEWHERE.get(name.lower().replace("_", "-"))
