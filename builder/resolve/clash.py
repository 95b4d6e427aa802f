"""Nothing is possible: which two demands clash, why, and which one to give up."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from packaging.requirements import Requirement

from builder.errors import CellError
from builder.facts.check import check
from builder.facts.finding import Outcome
from builder.resolve.demand import Demand
from builder.resolve.solve import Proposal, Search, search

_MOST = 1500
"""Candidates that the rules are asked about for each smaller question."""


def nothing(demand: Demand, found: Search, available: Mapping[str, Sequence[str]] | None) -> CellError:
    """The error for a demand that no cell meets."""
    asked = _Asked(available)
    culprits = asked.culprits(demand)
    names = " and ".join(name for name, _ in culprits)
    if len(culprits) == 2:
        head = f"nothing is possible: {names} clash"
    elif culprits:
        head = f"nothing is possible for {names}"
    else:
        head = "nothing is possible for all of " + ", ".join(name for name, _ in demand.parts())
    if culprits:
        only = _only(demand, [name for name, _ in culprits])
        reasons = _reasons(asked.search(only), only)
    else:
        reasons = _reasons(found, demand)
    ways = list(asked.ways_out(demand, [name for name, _ in culprits]))
    lines = [head, *(f"  {reason}" for reason in reasons)]
    if ways:
        lines += ["give up one of them:", *(f"  {way}" for way in ways)]
    return CellError("\n".join(lines), hint=None if ways else "loosen a version, the Python or the GPU")


class _Asked:
    """Smaller questions of the same kind."""

    def __init__(self, available: Mapping[str, Sequence[str]] | None) -> None:
        self._available = available

    def search(self, demand: Demand) -> Search:
        return search(demand, available=self._available, enough=1, most=_MOST)

    def first(self, demand: Demand) -> Proposal | None:
        """The first possible cell, if there is one."""
        try:
            return next(iter(self.search(demand).possible), None) if demand.frameworks else None
        except CellError:
            return None

    def culprits(self, demand: Demand) -> list[tuple[str, Demand]]:
        """The one demand, or the first two, that cannot be met even without the others."""
        parts = list(demand.parts())
        for count in (1, 2):
            for some in itertools.combinations(parts, count):
                only = _only(demand, [name for name, _ in some])
                if only.frameworks and self.first(only) is None:
                    return list(some)
        return []

    def ways_out(self, demand: Demand, culprits: Sequence[str]) -> Iterator[str]:
        """The cells that become possible without each demand, or with another version of it."""
        for name, without in demand.parts():
            if culprits and name not in culprits:
                continue
            freed = _any_version(demand, name)
            if freed is not None and (other := self.first(freed)) is not None:
                yield f"another version in place of {name}: {_said(other)}"
            elif (left := self.first(without)) is not None:
                yield f"without {name}: {_said(left)}"


def _only(demand: Demand, names: Sequence[str]) -> Demand:
    """The demand without the parts that are not named."""
    kept = demand
    for name, _ in demand.parts():
        if name not in names:
            kept = next(without for part, without in kept.parts() if part == name)
    return replace(kept, companions=())


def _any_version(demand: Demand, name: str) -> Demand | None:
    """The demand with one framework's version left open; None if it is open, or no framework is meant."""
    for n, wish in enumerate(demand.frameworks):
        if name == f"{wish} ({wish.place})" and wish.parsed.specifier:
            extras = f"[{','.join(sorted(wish.parsed.extras))}]" if wish.parsed.extras else ""
            open_ = replace(wish, parsed=Requirement(f"{wish.parsed.name}{extras}"))
            return replace(demand, frameworks=(*demand.frameworks[:n], open_, *demand.frameworks[n + 1 :]))
    return None


def _said(proposal: Proposal) -> str:
    cell = proposal.cell
    return f"{', '.join(cell.frameworks)} on Python {cell.python}"


def _reasons(found: Search, demand: Demand, most: int = 6) -> list[str]:
    """Why the candidates that came closest are refused, each reason once."""
    if not found.refused:
        return ["no Python and base on record suit all of them"]
    bad = {Outcome.IMPOSSIBLE, Outcome.UNKNOWN}
    judged = (check(cell, driver=demand.driver, suggest=False) for cell in found.refused)
    closest = sorted(([f for f in findings if f.outcome in bad] for findings in judged), key=len)[:8]
    return list(dict.fromkeys(finding.message for findings in closest for finding in findings))[:most]
