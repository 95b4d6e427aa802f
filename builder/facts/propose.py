"""From requirements to cells: which combinations are possible for ``tensorflow==2.15.*``, the best first.

Every candidate goes through the same rules as a cell of a matrix; nothing is proposed that they refuse.
"""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from builder.errors import CellError
from builder.facts import tables
from builder.facts.candidates import cells, choices
from builder.facts.check import check
from builder.facts.entry import entry
from builder.facts.finding import Outcome, summary
from builder.facts.versions import key

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from builder.facts.candidates import Choice
    from builder.facts.finding import Finding
    from builder.facts.tables import Facts
    from builder.model import Cell

MOST = 4000
"""Candidates that are checked at most."""


@dataclass(frozen=True, kw_only=True)
class Proposal:
    """A possible cell, and what the rules say about it."""

    cell: Cell
    findings: tuple[Finding, ...]

    @property
    def outcome(self) -> Outcome:
        return summary(self.findings)


def propose(
    requirements: Sequence[str],
    python: str | None = None,
    gpu: str | None = None,
    driver: str | None = None,
    *,
    available: Mapping[str, Sequence[str]] | None = None,
    facts: Facts | None = None,
    limit: int = 5,
) -> list[Proposal]:
    """Possible cells for ``requirements``: first those without warnings, the newest release, Python, system.

    ``available`` are the versions that the package index has, by distribution; without it the newest release
    of each line that the facts know is taken. There is one cell for each release, Python and CUDA provider.

    Raises:
        UsageError: A requirement does not parse, or names a framework that the facts do not cover.
        CellError: Nothing is possible. The message holds the reasons of the candidate that came closest.
    """
    known = facts or tables.load()
    ways = [list(choices(text, known, available or {})) for text in requirements]
    for text, way in zip(requirements, ways, strict=True):
        if not way:
            offered = " that the package index has" if available else ""
            raise CellError(
                f"no release on record{offered} fits {text}", hint="`docs/facts.md` lists what is on record"
            )
    possible: list[tuple[tuple[object, ...], Proposal]] = []
    refused: list[tuple[int, Proposal]] = []
    for number, (combination, cell) in enumerate(itertools.islice(cells(ways, python, gpu, known), MOST)):
        findings = check(cell, driver=driver, facts=known, suggest=False)
        proposal = Proposal(cell=cell, findings=findings)
        if proposal.outcome in {Outcome.POSSIBLE, Outcome.WARNS}:
            possible.append((_rank(proposal, combination, number), proposal))
        else:
            bad = sum(finding.outcome.severity > 1 for finding in findings)
            refused.append((bad, proposal))
    if not possible:
        raise CellError(
            _why_not(requirements, refused, python), hint="loosen a version, the Python or the GPU"
        )
    possible.sort(key=lambda pair: pair[0])
    return _distinct([proposal for _, proposal in possible])[:limit]


def _rank(proposal: Proposal, combination: tuple[Choice, ...], number: int) -> tuple[object, ...]:
    warnings = sum(finding.outcome is Outcome.WARNS for finding in proposal.findings)
    releases = [tuple(-part for part in key(choice.row.latest)) for choice in combination]
    foreign = sum(bool(choice.index) for choice in combination)
    pinned = sum(not choice.brings for choice in combination)
    return (
        min(warnings, 1),
        releases,
        foreign,
        pinned,
        [-part for part in key(proposal.cell.python)],
        number,
    )


def _distinct(proposals: list[Proposal]) -> list[Proposal]:
    """The first of those that differ only in the point release of the base or of cuDNN."""
    seen = set()
    kept = []
    for proposal in proposals:
        cell = proposal.cell
        same = (cell.frameworks, cell.python, cell.cuda.provider, cell.base.kind)
        if same not in seen:
            seen.add(same)
            kept.append(proposal)
    return kept


def _why_not(requirements: Sequence[str], refused: list[tuple[int, Proposal]], python: str | None) -> str:
    wanted = " and ".join(requirements) + (f" on Python {python}" if python else "")
    if not refused:
        return f"no base on record has both the Python and the CUDA that {wanted} needs"
    _, closest = min(refused, key=lambda pair: pair[0])
    reasons = [f for f in closest.findings if f.outcome in {Outcome.IMPOSSIBLE, Outcome.UNKNOWN}]
    # pins that clash are what a person can act on, whichever candidate shows them
    clashes = {f.message: f for _, proposal in refused for f in proposal.findings if f.rule == "pins"}
    lines = dict.fromkeys([*(f.message for f in reasons), *clashes])
    return f"nothing is possible for {wanted}; the closest candidate fails because:\n" + "\n".join(
        f"  {line}" for line in list(lines)[:8]
    )


def to_matrix_yaml(proposals: Proposal | Sequence[Proposal], name: str = "resolved") -> str:
    """A matrix file that holds the proposed cells. Every value is quoted, so nothing in it can be misread."""
    chosen = [proposals] if isinstance(proposals, Proposal) else list(proposals)
    frameworks = ", ".join(dict.fromkeys(text for proposal in chosen for text in proposal.cell.frameworks))
    lines = [
        "version: 1",
        f"name: {json.dumps(name)}",
        f"description: {json.dumps(frameworks)}",
        "",
        "include:",
    ]
    for proposal in chosen:
        lines += entry(proposal.cell)
    return "\n".join(lines) + "\n"
