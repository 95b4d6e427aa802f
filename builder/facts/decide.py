"""Truth against table: what was read from the thing itself wins, and a difference is put on record."""

from __future__ import annotations

from typing import TYPE_CHECKING

from builder.facts.finding import Finding, Source, warns
from builder.facts.versions import agree, key

if TYPE_CHECKING:
    from builder.facts.finding import Value

CELL = Source("cell", "the matrix")
"""The source of what the matrix itself says."""


def decide(truth: Value | None, table: Value | None, notes: list[Finding]) -> Value | None:
    """Truth wins, and a table with another value is noted. If they agree, the more exact one counts."""
    if truth is None or table is None:
        return truth or table
    if agree(truth.text, table.text):
        return truth if len(key(truth.text)) >= len(key(table.text)) else table
    notes.append(
        warns(
            "disagreement",
            f"{truth.what}: {truth.text} was read from the {truth.source.kind}, the tables say "
            f"{table.text}; what was read decides",
            truth,
            table,
        )
    )
    return truth
