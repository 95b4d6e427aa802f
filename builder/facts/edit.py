"""Changing single values in a table of facts, while its comments, order and layout stay as they are.

A row is one line, an inline table, and so is what a person reviews of a change.
"""

from __future__ import annotations

import json
import re
import tomllib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from builder.facts.tables import FactsError

if TYPE_CHECKING:
    from collections.abc import Sequence

Plain = str | list[str]


@dataclass(frozen=True, kw_only=True)
class Change:
    """One value of one row that is not what was read."""

    file: str
    """``torch.toml``."""
    row: int
    """Counted from 0 in the file's ``rows``."""
    label: str
    """What a person calls the row."""
    key: str
    old: Plain | None
    new: Plain


@dataclass(frozen=True, kw_only=True)
class Origin:
    """The source that stands behind changed rows: an id in ``[sources]``, and what it says there."""

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
    wanted = tomllib.loads(text)
    lines = text.splitlines()
    places = _rows(lines)
    if len(places) != len(wanted["rows"]):
        raise FactsError("a table of facts has one row a line")
    for change in changes:
        _set(lines, places[change.row], wanted["rows"][change.row], change.key, change.new)
    for number in sorted({change.row for change in changes}):
        row = wanted["rows"][number]
        if origin.id not in row["sources"]:
            names = [origin.id, *row["sources"]] if origin.first else [*row["sources"], origin.id]
            _set(lines, places[number], row, "sources", names)
    if changes:
        lines = _dated(lines, wanted["sources"], origin)
    done = "\n".join(lines) + "\n"
    if tomllib.loads(done) != wanted:
        raise FactsError("a table of facts is laid out in a way that cannot be changed in place")
    return done


def _rows(lines: Sequence[str]) -> list[int]:
    start = lines.index("rows = [")
    end = lines.index("]", start)
    return [number for number in range(start + 1, end) if lines[number].lstrip().startswith("{")]


def _set(lines: list[str], place: int, row: dict[str, Any], key: str, value: Plain) -> None:
    entry = f"{key} = {json.dumps(value, ensure_ascii=False)}"
    string = r'"(?:[^"\\]|\\.)*"'
    pattern = rf"(?<=[{{,] ){key} = (?:{string}|\[(?:{string}|[^\]\"])*\])"
    if key in row:
        lines[place] = re.sub(pattern, lambda _: entry, lines[place], count=1)
    else:
        lines[place] = lines[place].replace(", sources =", f", {entry}, sources =", 1)
    row[key] = value


def _dated(lines: list[str], sources: dict[str, Any], origin: Origin) -> list[str]:
    """The lines with the source's date set, or with the source added at the end."""
    if origin.id not in sources:
        sources[origin.id] = {"reference": origin.reference, "date": origin.date}
        return [
            *lines,
            "",
            f"[sources.{origin.id}]",
            f"reference = {json.dumps(origin.reference)}",
            f'date = "{origin.date}"',
        ]
    sources[origin.id]["date"] = origin.date
    start = lines.index(f"[sources.{origin.id}]")
    for number in range(start + 1, len(lines)):
        if lines[number].startswith("date = "):
            lines[number] = f'date = "{origin.date}"'
            break
    return lines
