"""Nothing is possible: which two demands clash, why, and which one to give up."""

import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from builder.core.errors import CellError
from builder.plan.facts.rules import Outcome, check, summary
from builder.plan.resolve.solve import Demand, Proposal, Search, search

First = Callable[[Demand], Proposal | None]
_MOST = 1500
"""Candidates that the rules are asked about for each smaller question."""


def nothing(demand: Demand, found: Search, available: Mapping[str, Sequence[str]] | None = None) -> CellError:
    """The error for a demand that no cell meets."""
    ask = functools.partial(search, available=available, enough=1, most=_MOST)

    def first(smaller: Demand) -> Proposal | None:
        """The first possible cell, if there is one."""
        try:
            return next(iter(ask(smaller).possible), None) if smaller.frameworks else None
        except CellError:
            return None

    culprits = _culprits(demand, first)
    if culprits:
        only = _only(demand, culprits)
        asked = ask(only)
        reasons = _reasons(asked, only)
        names = " and ".join(culprits)
        head = f"possible: {names} clash" if len(culprits) == 2 else f"possible for {names}"
    else:
        asked, reasons = found, _reasons(found, demand)
        head = "possible for all of " + ", ".join(name for name, _ in demand.parts())
    if _left_open(asked, demand):
        head = head.replace("possible", "known to be possible", 1)
    lines = [f"nothing is {head}", *(f"  {reason}" for reason in reasons)]
    ways = list(_ways_out(demand, culprits, first))
    if ways:
        lines += ["give up one of them:", *(f"  {way}" for way in ways)]
    return CellError("\n".join(lines), hint=None if ways else "loosen a version, the Python or the GPU")


def _culprits(demand: Demand, first: First) -> list[str]:
    """The one demand, or the first two, that cannot be met even without the others."""
    names = [name for name, _ in demand.parts()]
    for some in itertools.chain(itertools.combinations(names, 1), itertools.combinations(names, 2)):
        only = _only(demand, some)
        if only.frameworks and first(only) is None:
            return list(some)
    return []


def _ways_out(demand: Demand, culprits: Sequence[str], first: First) -> Iterator[str]:
    """The cells that become possible without each demand, or with another version of it."""
    for name, without in demand.parts():
        if culprits and name not in culprits:
            continue
        freed = _any_version(demand, name)
        if freed is not None and (other := first(freed)) is not None:
            yield f"another version in place of {name}: {_said(other)}"
        elif (left := first(without)) is not None:
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
            open_ = (*demand.frameworks[:n], wish.bound(""), *demand.frameworks[n + 1 :])
            return replace(demand, frameworks=open_)
    return None


def _said(proposal: Proposal) -> str:
    cell = proposal.cell
    return f"{', '.join(cell.frameworks)} on Python {cell.python}"


def _left_open(found: Search, demand: Demand) -> bool:
    """Whether a candidate is refused by nothing, and only a value is not known that decides."""
    judged = (check(cell, driver=demand.driver, suggest=False) for cell in found.refused)
    return any(summary(findings) is Outcome.UNKNOWN for findings in judged)


def _reasons(found: Search, demand: Demand, most: int = 6) -> list[str]:
    """Why the candidates that came closest are refused, each reason once."""
    if not found.refused:
        return ["no Python and base on record suit all of them"]
    bad = {Outcome.IMPOSSIBLE, Outcome.UNKNOWN}
    judged = (check(cell, driver=demand.driver, suggest=False) for cell in found.refused)
    closest = sorted(([f for f in findings if f.outcome in bad] for findings in judged), key=len)[:8]
    return list(dict.fromkeys(finding.message for findings in closest for finding in findings))[:most]
