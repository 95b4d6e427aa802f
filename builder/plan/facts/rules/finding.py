"""A rule's finding on a cell: outcome, message, the values it weighed, their sources, and a way out."""

import enum
import functools
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from builder.core.model import Cell
from builder.core.versions import agree, key
from builder.plan.facts.tables import Source


class Outcome(enum.StrEnum):
    """The judgement of a rule, or of all rules together, on a cell before anything is built."""

    POSSIBLE = "possible"
    WARNS = "warns"
    """Possible, with a reservation that the message names."""
    UNKNOWN = "unknown"
    """A value that decides is not known. Never counted as a yes."""
    IMPOSSIBLE = "impossible"

    @classmethod
    def of(cls, findings: Iterable["Finding"]) -> "Outcome":
        """The worst outcome among findings; ``possible`` where there is none."""
        return max(
            (finding.outcome for finding in findings), key=lambda one: one.severity, default=cls.POSSIBLE
        )

    @property
    def severity(self) -> int:
        """0 for possible up to 3 for impossible: the worst finding decides for the cell."""
        return _SEVERITY[self]

    @property
    def is_possible(self) -> bool:
        """Nothing refuses it, and no value that decides is unknown."""
        return self in (Outcome.POSSIBLE, Outcome.WARNS)

    @property
    def answer(self) -> str:
        """``possible``, ``impossible`` or ``unknown``: the word for a whole cell.

        ``works`` is said of a convolution that ran, and of nothing else.
        """
        return "possible" if self is Outcome.WARNS else self.value


_SEVERITY = {Outcome.POSSIBLE: 0, Outcome.WARNS: 1, Outcome.UNKNOWN: 2, Outcome.IMPOSSIBLE: 3}


CELL = Source("cell", "the matrix")
"""The source of values that the matrix itself states."""


@dataclass(frozen=True)
class Value:
    """One value that a rule weighed."""

    what: str
    text: str
    source: Source


@dataclass(frozen=True, kw_only=True)
class Nearest:
    """A possible cell close to the refused one: the same rules were asked about it."""

    changes: tuple[tuple[str, str], ...]
    """``(key of the matrix, new value)``: ``("base", "nvidia/cuda:12.6.3-cudnn-runtime-ubuntu22.04")``."""
    cell: Cell

    def __str__(self) -> str:
        return ", ".join(f"{key}: {value}" for key, value in self.changes)

    @property
    def yaml(self) -> str:
        from builder.plan.matrix import entry  # with all that reads a matrix: few runs have a way out to show

        return "\n".join(entry(self.cell)) + "\n"


@dataclass(frozen=True)
class Finding:
    """One rule's finding on one cell."""

    outcome: Outcome
    message: str
    values: tuple[Value, ...] = ()
    rule: str = ""
    """A stable id, documented in ``docs/compatibility.md``; :mod:`.checking` has them."""
    nearest: Nearest | None = None
    apt: tuple[str, ...] = ()
    """Debian packages with which this is not refused."""
    bounds: tuple[str, ...] = ()
    """Requirements with each of which a resolver keeps from this, as far as the cell leaves it free to:
    ``numpy<2``; the first is the one that :attr:`message` names."""
    lacked: tuple[str, ...] = ()
    """Distributions whose lack is found: a requirement of :attr:`bounds` may bring one."""

    def as_json(self) -> dict[str, Any]:
        """For ``rtbuild check --json``: plain values only, in a fixed order."""
        document: dict[str, Any] = {
            "rule": self.rule,
            "outcome": self.outcome.value,
            "answer": self.outcome.value,
            "message": self.message,
            "values": [
                {
                    "what": value.what,
                    "value": value.text,
                    "source": {name: text for name, text in vars(value.source).items() if text},
                }
                for value in self.values
            ],
        }
        if self.nearest is not None:
            document["nearest"] = dict(self.nearest.changes)
            document["nearest_yaml"] = self.nearest.yaml
        return document


def _finding(outcome: Outcome, message: str, *values: Value, rule: str = "") -> Finding:
    return Finding(outcome, message, values, rule)


possible = functools.partial(_finding, Outcome.POSSIBLE)
warns = functools.partial(_finding, Outcome.WARNS)
unknown = functools.partial(_finding, Outcome.UNKNOWN)
impossible = functools.partial(_finding, Outcome.IMPOSSIBLE)


def decide(truth: Value | None, table: Value | None, notes: list[Finding]) -> Value | None:
    """Truth wins, and a table with another value is noted. If they agree, the more exact one counts."""
    if truth is None or table is None:
        return truth or table
    if agree(truth.text, table.text):
        return truth if len(key(truth.text)) >= len(key(table.text)) else table
    said = f"{truth.text} was read from the {truth.source.kind}, the tables say {table.text}"
    notes.append(warns(f"{truth.what}: {said}; what was read decides", truth, table, rule="disagreement"))
    return truth
