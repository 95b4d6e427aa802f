"""Runs every rule over a cell, and tells the outcome as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from builder.compat.finding import Finding, Outcome, summary
from builder.compat.truth import Truth

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from builder.model import Cell

    Rule = Callable[[Cell, Truth], Iterable[Finding]]

RULES: tuple[Rule, ...] = ()


def check(cell: Cell, truth: Truth | None = None, *, driver: str | None = None) -> tuple[Finding, ...]:
    """All findings on a cell, in the order of the rules.

    ``truth`` is what was read from wheels and the base image; without it the tables alone decide.
    ``driver`` is the driver of the machine that is to run the image, ``535`` or ``535.104.05``.
    """
    del driver
    known = truth or Truth()
    return tuple(finding for rule in RULES for finding in rule(cell, known))


def explain(cell: Cell, findings: Sequence[Finding]) -> str:
    """Why the verdict on this cell is what it is, as text that a person follows."""
    lines = [f"{cell.id}: {summary(findings).value}"]
    for finding in sorted(findings, key=lambda f: -f.outcome.severity):
        lines.append(f"  [{finding.outcome.value}] {finding.rule}: {finding.message}")
        lines += [f"      {value.what}: {value.text}  ({value.source})" for value in finding.values]
        if finding.nearest is not None and finding.outcome is not Outcome.WORKS:
            lines.append(f"      would work: {finding.nearest}")
    return "\n".join(lines) + "\n"
