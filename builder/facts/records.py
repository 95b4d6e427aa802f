"""Reading rows of facts, each with its sources. A test checks the types of the rows that rtbuild brings.

Every row names its sources by id; the file's ``[sources]`` table gives each id a public reference and the
day on which it was read. An unknown key, an unknown source id or a number where a version belongs is a
:class:`FactsError`: the tables ship with rtbuild, so one that does not read is a bug, not a user's mistake.
"""

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from packaging.specifiers import SpecifierSet

from builder.facts.finding import Source


class FactsError(ValueError):
    """A table that rtbuild ships does not read."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """The fields of every row."""

    sources: tuple[Source, ...]
    kept: str | None = None
    """Why a person fixed this row by hand; a refresh of the facts leaves such a row alone."""

    @property
    def source(self) -> Source:
        """The first source, which is the one that decided."""
        return self.sources[0]


R = TypeVar("R", bound=Row)


def document(path: Path) -> tuple[dict[str, Any], dict[str, Source]]:
    document = tomllib.loads(path.read_text("utf-8"))
    sources = {}
    for key, entry in document.pop("sources", {}).items():
        unknown = set(entry) - {"reference", "date", "kind"}
        if unknown or "reference" not in entry:
            raise FactsError(f"{path.name}: source {key!r} has unknown or missing keys: {sorted(unknown)}")
        sources[key] = Source("table", entry["reference"], entry["date"])
    return document, sources


def rows(
    kind: type[R], document: dict[str, Any], key: str, sources: dict[str, Source], where: str
) -> tuple[R, ...]:
    return tuple(row(kind, raw, sources, f"{where}.{key}[{n}]") for n, raw in enumerate(document[key]))


def row(kind: type[R], raw: dict[str, Any], sources: dict[str, Source], where: str) -> R:
    names = raw.pop("sources", None)
    if not names:
        raise FactsError(f"{where}: a row without a source")
    missing = [name for name in names if name not in sources]
    if missing:
        raise FactsError(f"{where}: no such source: {', '.join(missing)}")
    try:
        return kind(sources=tuple(sources[name] for name in names), **plain(raw, where))
    except TypeError as problem:
        raise FactsError(f"{where}: {problem}") from problem


def plain(raw: dict[str, Any], where: str) -> dict[str, Any]:
    """The values as dataclasses of facts have them: text, flags, and lists of text as tuples."""
    values: dict[str, Any] = {}
    for key, value in raw.items():
        if isinstance(value, list) and all(isinstance(item, str) for item in value):
            values[key] = tuple(value)
        elif isinstance(value, str | bool):
            values[key] = SpecifierSet(value) if key == "versions" and isinstance(value, str) else value
        else:
            raise FactsError(f"{where}.{key}: {value!r} is not text, a flag or a list of text")
    return values
