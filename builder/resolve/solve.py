"""From demands to cells: which combinations are possible for ``tensorflow==2.15.*``, the best first.

Every candidate goes through the same rules as a cell of a matrix; nothing is proposed that they refuse.
"""

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from builder.errors import CellError
from builder.facts.base import has_own_python, system_of
from builder.facts.candidates import Choice, cells, choices, combinations, common_pythons
from builder.facts.check import until_refused
from builder.facts.finding import Finding, Outcome, entry, summary
from builder.facts.framework import table_name
from builder.facts.rules import devices
from builder.facts.stack import stack_of
from builder.facts.tables import load
from builder.facts.versions import key
from builder.model import Cell
from builder.resolve.demand import Demand
from builder.resolve.requirements import NamedRequirement

MOST = 6000
"""Candidates that the rules are asked about at most."""
ENOUGH = 200
"""Possible cells after which no older ones are looked for."""


@dataclass(frozen=True, kw_only=True)
class Proposal:
    """A possible cell, and the findings on it."""

    cell: Cell
    findings: tuple[Finding, ...]

    @property
    def outcome(self) -> Outcome:
        return summary(self.findings)


@dataclass(kw_only=True)
class Search:
    """The possible cells, best first, and the refused candidate that came closest."""

    possible: list[Proposal]
    refused: list[Cell]
    """One for each combination of frameworks, in the order in which they were tried."""


def search(
    demand: Demand,
    *,
    available: Mapping[str, Sequence[str]] | None = None,
    enough: int = ENOUGH,
    most: int = MOST,
) -> Search:
    """Possible cells for a demand: first those without warnings, the newest release, Python, system.

    ``available`` are the versions that the package index has, by distribution; without it the releases that
    the facts know are taken. There is one cell for each release, Python and CUDA provider.

    Raises:
        CellError: No release on record fits one of the requirements.
    """
    ways = [_ways(wish, available) for wish in demand.frameworks]
    ranked: list[tuple[tuple[object, ...], Proposal]] = []
    refused: dict[tuple[Choice, ...], Cell] = {}
    hopeless = None
    for number, (combination, sketch) in enumerate(itertools.islice(_candidates(demand, ways), most)):
        if combination is hopeless:
            continue
        cell = _with_companions(sketch, demand)
        proposal = Proposal(cell=cell, findings=until_refused(cell, demand.driver))
        if proposal.outcome.severity < Outcome.UNKNOWN.severity:
            ranked.append((_rank(proposal, combination, number), proposal))
        else:
            refused.setdefault(combination, cell)
            hopeless = combination if _whatever_it_stands_on(proposal) else None
        if len(ranked) >= enough:
            break
    ranked.sort(key=lambda pair: pair[0])
    return Search(possible=distinct([proposal for _, proposal in ranked]), refused=list(refused.values()))


def _ways(wish: NamedRequirement, available: Mapping[str, Sequence[str]] | None) -> list[Choice]:
    found = list(choices(wish.parsed, available))
    if not found:
        offered = " that the package index has" if available else ""
        latest = sorted((row.version for row in load().frameworks[table_name(wish.name)].rows), key=key)
        raise CellError(
            f"no release on record{offered} fits {wish} ({wish.place})",
            hint=f"on record are {latest[0]} to {latest[-1]}: `docs/facts.md` lists them",
        )
    return found


def _candidates(demand: Demand, ways: list[list[Choice]]) -> Iterator[tuple[tuple[Choice, ...], Cell]]:
    fitting = [[choice for choice in way if _alone(choice, demand)] or way for way in ways]
    for combination in combinations(fitting):
        for python in common_pythons(combination):
            if demand.takes_python(python):
                for cell in cells(combination, python, demand.gpus):
                    yield combination, cell


def _whatever_it_stands_on(proposal: Proposal) -> bool:
    """Whether the frameworks refuse each other on every Python and base: they are for several CUDA majors."""
    last = proposal.findings[-1]
    return last.rule == "cuda-provider" and last.outcome is Outcome.IMPOSSIBLE


def _alone(choice: Choice, demand: Demand) -> bool:
    """Whether the machine lets one framework run at all: saves asking about its every Python and base."""
    for python in common_pythons((choice,)):
        for cell in cells((choice,), python, demand.gpus):
            stack = stack_of(cell, driver=demand.driver)
            found = (*devices.driver(stack), *devices.gpus(stack))
            return summary(found) is not Outcome.IMPOSSIBLE
    return False


def _with_companions(cell: Cell, demand: Demand) -> Cell:
    beside = [str(wish).partition(";")[0].strip() for wish in demand.companions if wish.holds(cell.python)]
    return replace(
        cell,
        pip=tuple(dict.fromkeys((*beside, *cell.pip))),
        index=tuple(dict.fromkeys((*demand.index, *cell.index))),
    )


def _rank(proposal: Proposal, combination: tuple[Choice, ...], number: int) -> tuple[object, ...]:
    warnings = sum(finding.outcome is Outcome.WARNS for finding in proposal.findings)
    releases = [tuple(-part for part in key(choice.row.version)) for choice in combination]
    foreign = sum(bool(choice.index) for choice in combination)
    pinned = sum(not choice.brings for choice in combination)
    return (
        min(warnings, 1),
        releases,
        foreign,
        pinned,
        needs_standalone(proposal.cell),
        [-part for part in key(proposal.cell.python)],
        number,
    )


def needs_standalone(cell: Cell) -> bool:
    """Whether the base has no Python of that version."""
    return not has_own_python(cell, system_of(cell))


def distinct(proposals: list[Proposal]) -> list[Proposal]:
    """The first of those that differ only in the point release of the base or of cuDNN."""
    kept: dict[object, Proposal] = {}
    for proposal in proposals:
        cell = proposal.cell
        kept.setdefault((cell.frameworks, cell.python, cell.cuda.provider, cell.base.kind), proposal)
    return list(kept.values())


def to_matrix_yaml(proposals: Sequence[Proposal], name: str = "resolved") -> str:
    """A matrix file that holds the proposed cells."""
    frameworks = ", ".join(dict.fromkeys(text for proposal in proposals for text in proposal.cell.frameworks))
    lines = [
        "version: 1",
        f"name: {json.dumps(name)}",
        f"description: {json.dumps(frameworks)}",
        "",
        "include:",
    ]
    for proposal in proposals:
        lines += entry(proposal.cell)
    return "\n".join(lines) + "\n"
