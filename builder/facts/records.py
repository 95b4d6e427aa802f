"""Reading rows of facts: typed and strict, each with its sources.

Every row names its sources by id; the file's ``[sources]`` table gives each id a public reference and the
day on which it was read. An unknown key, an unknown source id or a number where a version belongs is a
:class:`FactsError`: the tables ship with rtbuild, so one that does not read is a bug, not a user's mistake.
"""

from __future__ import annotations

import functools
import sys
import tomllib
import types
import typing
from dataclasses import MISSING, dataclass, fields
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from packaging.specifiers import SpecifierSet

from builder.facts.finding import Source

if TYPE_CHECKING:
    from pathlib import Path


class FactsError(ValueError):
    """A table that rtbuild ships does not read."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """What every row has."""

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
    values = plain(kind, raw, where, besides={"sources"})
    names = raw.get("sources")
    if not names:
        raise FactsError(f"{where}: a row without a source")
    missing = [name for name in names if name not in sources]
    if missing:
        raise FactsError(f"{where}: no such source: {', '.join(missing)}")
    return kind(sources=tuple(sources[name] for name in names), **values)


def plain(kind: type, raw: dict[str, Any], where: str, besides: set[str]) -> dict[str, Any]:
    """The values of ``raw`` as the dataclass wants them; anything else is an error."""
    types_of, required = _shape(kind)
    unknown = set(raw) - set(types_of) - besides
    missing = required - set(raw) - besides
    if unknown or missing:
        raise FactsError(f"{where}: unknown keys {sorted(unknown)}, missing keys {sorted(missing)}")
    return {
        key: _value(types_of[key], value, f"{where}.{key}")
        for key, value in raw.items()
        if key not in besides
    }


@functools.cache
def _shape(kind: type) -> tuple[dict[str, Any], frozenset[str]]:
    required = frozenset(f.name for f in fields(kind) if f.default is MISSING)
    names = {"Mapping": dict, "Source": Source, "SpecifierSet": SpecifierSet}
    return typing.get_type_hints(kind, {**vars(sys.modules[kind.__module__]), **names}), required


def _value(wanted: Any, value: Any, where: str) -> Any:
    if typing.get_origin(wanted) in {typing.Union, types.UnionType}:
        wanted = next(part for part in typing.get_args(wanted) if part is not type(None))
    if wanted is SpecifierSet:
        return SpecifierSet(value)
    if typing.get_origin(wanted) is Literal:
        if value in typing.get_args(wanted):
            return value
    elif typing.get_origin(wanted) is tuple:
        if isinstance(value, list) and all(isinstance(item, str) for item in value):
            return tuple(value)
    elif isinstance(value, wanted):
        return value
    raise FactsError(f"{where}: {value!r} is not {wanted}")
