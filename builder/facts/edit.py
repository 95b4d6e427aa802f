"""Changing single values in a table of facts, while its comments, order and layout stay as they are.

A row is one line, an inline table, so a reviewed change is one line, too.
"""

import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from builder.facts.tables import FactsError

Plain = str | list[str]


@dataclass(frozen=True, kw_only=True)
class Change:
    """One value of one row that differs from the value read."""

    file: str
    """``torch.toml``."""
    row: int
    """Counted from 0 in the file's ``rows``."""
    label: str
    """The row's name in messages."""
    key: str
    old: Plain | None
    new: Plain


@dataclass(frozen=True, kw_only=True)
class Origin:
    """The source of changed rows: its id in ``[sources]``, and its entry there."""

    id: str
    reference: str
    date: str
    """``YYYY-MM-DD``, the day of the reading."""
    first: bool = False
    """True if it decides before the row's other sources."""


def apply(text: str, changes: Sequence[Change], origin: Origin) -> str:
    """The table with ``changes`` made, each changed row naming ``origin``, dated.

    Raises:
        FactsError: The text is not laid out as one row a line, so that something else would change, too.
    """
    if not changes:
        return text
    document = tomllib.loads(text)
    rows, lines = document["rows"], text.splitlines()
    places = [number for number, line in enumerate(lines) if line.startswith("  { ")]
    if [lines[place] for place in places] != [_line(row) for row in rows]:
        raise FactsError("a table of facts is laid out in a way that cannot be changed in place")
    for change in changes:
        row = rows[change.row]
        row[change.key] = change.new
        sources = row.pop("sources")  # which stay the last
        if origin.id not in sources:
            sources = [origin.id, *sources] if origin.first else [*sources, origin.id]
        lines[places[change.row]] = _line(row | {"sources": sources})
        row["sources"] = sources
    done = "\n".join(lines) + "\n"
    head = f"[sources.{origin.id}]\n"
    if origin.id not in document["sources"]:
        return f'{done}\n{head}reference = {json.dumps(origin.reference)}\ndate = "{origin.date}"\n'
    within = rf'(?m)^({re.escape(head)}(?:(?!\[).*\n)*?date = ")[^"]*'
    done, dated = re.subn(within, rf"\g<1>{origin.date}", done, count=1)
    if not dated:
        raise FactsError(f"the source {origin.id} has no date that can be changed in place")
    return done


def _line(row: Mapping[str, Any]) -> str:
    """A row as these tables have it."""
    return "  { " + ", ".join(f"{k} = {json.dumps(v, ensure_ascii=False)}" for k, v in row.items()) + " },"
