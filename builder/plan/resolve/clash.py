"""Nothing is possible: which two demands clash, why, and which one to give up."""

import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from packaging.requirements import Requirement

from builder.core.errors import NothingPossibleError, NotKnownError
from builder.core.versions import key, lower_bound, pinned, short
from builder.plan.facts.rules import Choice, Combination, Outcome, check, choices
from builder.plan.facts.tables import load
from builder.plan.resolve.requirements import NamedRequirement
from builder.plan.resolve.solve import Demand, Proposal, Search, closest, search

Available = Mapping[str, Sequence[str]] | None
First = Callable[[Demand, Mapping[str, str]], Proposal | None]
_MOST = 1500
"""Candidates that the rules are asked about for each smaller question."""


@dataclass(frozen=True, kw_only=True)
class WayOut:
    """A possible cell, and the demands that were given up for it."""

    given_up: tuple[str, ...]
    another_version: bool
    proposal: Proposal

    def __str__(self) -> str:
        cell, names = self.proposal.cell, " and ".join(self.given_up)
        kept = f"another version in place of {names}" if self.another_version else f"without {names}"
        arm = ", linux/arm64" if cell.platform == "linux/arm64" else ""
        return f"{kept}: {', '.join(cell.frameworks)} on Python {cell.python}{arm}"

    def as_json(self) -> dict[str, object]:
        """For ``rtbuild resolve --json``."""
        cell = self.proposal.cell
        return {
            "given_up": list(self.given_up),
            "another_version": self.another_version,
            "cell": cell.inputs() | {"gpus": list(cell.gpus)},
        }


def nothing(demand: Demand, found: Search, available: Available = None) -> NothingPossibleError:
    """The error for a demand that no cell meets; :class:`NotKnownError` if none is ruled out for certain."""
    first = functools.partial(closest, available=available, most=_MOST)
    if found.absent:
        culprits = [f"{one.wish} ({one.wish.place})" for one in found.absent]
        head = f"possible for {' and '.join(culprits)}"
        reasons = [one.reason for one in found.absent]
        left_open = all(one.outcome is Outcome.UNKNOWN for one in found.absent)
        ways = list(_close_releases(demand, culprits, first))
    else:
        left_open = _left_open(found, demand)
        ask = functools.partial(search, available=available, enough=1, most=_MOST)
        culprits = _culprits(demand, first, ask, left_open=left_open)
        if culprits:
            demanded = _only(demand, culprits)
            asked = ask(demanded)
            names = " and ".join(culprits)
            head = f"possible: {names} clash" if len(culprits) == 2 else f"possible for {names}"
        else:
            demanded, asked = demand, found
            parts = [name for name, _ in demand.parts()]
            head = f"possible for {'all of ' * (len(parts) > 1)}{', '.join(parts)}"
            head += " with what is asked for beside" * bool(demand.companions)
        reasons = _reasons(asked, demanded)
        if not found.refused and demanded != demand:
            reasons = list(dict.fromkeys((*reasons, *_without_candidate(demand))))
        ways = list(_ways_out(demand, culprits, first))
    lines = [f"nothing is {'known to be ' * left_open}{head}", *(f"  {reason}" for reason in reasons)]
    if ways:
        lines += [
            "the nearest on record:" if found.absent else "give up one of them:",
            *(f"  {way}" for way in ways),
        ]
    return (NotKnownError if left_open else NothingPossibleError)(
        "\n".join(lines),
        reasons=reasons,
        instead=[way.as_json() for way in ways],
        hint=None if ways else "loosen a version, the Python or the GPU",
    )


def against(demand: Demand, available: Available = None) -> str:
    """The first reason against the frameworks of a demand; empty if nothing is on record."""
    found = search(replace(demand, companions=()), available=available, enough=1, most=_MOST)
    if found.absent:
        return found.absent[0].reason
    return next(iter(_reasons(found, demand)), "") if not found.possible else ""


def _culprits(demand: Demand, first: First, ask: Callable[[Demand], Search], *, left_open: bool) -> list[str]:
    """The one demand, or the first two, that cannot be met even without the others.

    Unless the whole is ``left_open``, they are refused for certain, too: a driver that is too old for a card
    may do for one that nobody named.
    """
    names = [name for name, _ in demand.parts()]
    for some in itertools.chain(itertools.combinations(names, 1), itertools.combinations(names, 2)):
        only = _only(demand, some)
        if only.frameworks and first(only, {}) is None and (left_open or not _left_open(ask(only), only)):
            return list(some)
    return []


def _ways_out(demand: Demand, culprits: Sequence[str], first: First) -> Iterator[WayOut]:
    """The cells that become possible without each demand, or with another version of it."""
    for name, without in demand.parts():
        if culprits and name not in culprits:
            continue
        if other := list(_close_releases(demand, [name], first)):
            yield from other
        elif without.frameworks and (left := first(without, {})) is not None:
            yield WayOut(given_up=(name,), another_version=False, proposal=left)


def _close_releases(demand: Demand, names: Sequence[str], first: First) -> Iterator[WayOut]:
    """The cell with the closest releases in place of the named ones."""
    bound = [wish for wish in demand.frameworks if wish.parsed.specifier]
    named = [wish for wish in bound if f"{wish} ({wish.place})" in names]
    tried = list[Demand]()
    for opened in zip(*map(_opened, named), strict=True):
        others = dict(zip(named, opened, strict=True))
        near = {other.name: _meant_version(wish.parsed) for wish, other in others.items()}
        freed = replace(demand, frameworks=tuple(others.get(wish, wish) for wish in demand.frameworks))
        if freed in tried:
            continue
        if (proposal := first(freed, near)) is not None:
            yield WayOut(given_up=tuple(names), another_version=True, proposal=proposal)
            return
        tried.append(freed)


def _opened(wish: NamedRequirement) -> Iterator[NamedRequirement]:
    """Any release with the same extras, with any, and under any name of the framework's."""
    yield wish.bound("")
    yield wish.bound("", extras=False)
    yield replace(wish, parsed=Requirement(load().table_name(wish.name)))


def _meant_version(parsed: Requirement) -> str:
    """The version that a requirement is about: the one that it pins, else its lower bound, else any other."""
    bound = pinned(parsed) or lower_bound(parsed)
    return bound or min(clause.version.removesuffix(".*") for clause in parsed.specifier)


def _only(demand: Demand, names: Sequence[str]) -> Demand:
    """The demand without the parts that are not named."""
    kept = demand
    for name, _ in demand.parts():
        if name not in names:
            kept = next(without for part, without in kept.parts() if part == name)
    return replace(kept, companions=())


def _left_open(found: Search, demand: Demand) -> bool:
    """Whether a candidate is refused by nothing, and only a value is not known that decides."""
    judged = (check(cell, driver=demand.driver, suggest=False) for cell in found.refused)
    return any(Outcome.of(findings) is Outcome.UNKNOWN for findings in judged)


def _reasons(found: Search, demand: Demand, most: int = 6) -> list[str]:
    """Why the candidates that came closest are refused, each reason once."""
    if not found.refused:
        return list(_without_candidate(demand)) or ["no Python and base on record suit all of them"]
    bad = {Outcome.IMPOSSIBLE, Outcome.UNKNOWN}
    judged = (check(cell, driver=demand.driver, suggest=False) for cell in found.refused)
    nearest = sorted(([f for f in findings if f.outcome in bad] for findings in judged), key=len)[:8]
    return list(dict.fromkeys(finding.message for findings in nearest for finding in findings))[:most]


def _without_candidate(demand: Demand) -> Iterator[str]:
    """Why no cell was put together: no wheel with CUDA, or for the Python, no such CUDA, or pins apart."""
    pythons: dict[str, set[str]] = {}
    first: list[Choice] = []
    for wish in demand.frameworks:
        ways = [choice for choice in choices(wish.parsed) if demand.built_for in choice.row.platforms]
        if not ways:
            continue
        table, exact = load().table(wish.name), pinned(wish.parsed)
        label = f"{table.title} {exact}" if exact is not None else table.title
        with_cuda = [choice for choice in ways if demand.built_for not in choice.row.cpu_only]
        first += with_cuda[:1]
        pythons[label] = {python for choice in with_cuda for python in choice.row.python}
        if not with_cuda:
            others = (row for row in table.of(ways[0].row.version) if demand.built_for not in row.cpu_only)
            has = "".join(f"; {row.distribution} {row.version} has it" for row in itertools.islice(others, 1))
            yield f"the wheel of {label} for {demand.built_for} was built without CUDA{has}"
        elif not any(map(demand.takes_python, pythons[label])):
            there = ", ".join(sorted(pythons[label], key=key))
            yield f"{label} has no wheel for Python {demand.python} (it has {there})"
        elif not any(_has_cell(choice, demand) for choice in with_cuda):
            cuda = short(with_cuda[0].row.cuda or "0", 2)
            gone = "of which no image and no wheels of NVIDIA's are on record"
            yield f"{label} was compiled for CUDA {cuda}, {gone}"
        else:
            continue
        return
    if len(pythons) > 1 and all(pythons.values()) and not set.intersection(*pythons.values()):
        each = (f"{label} for {', '.join(sorted(found, key=key))}" for label, found in pythons.items())
        yield f"no Python has wheels of all: there are {'; '.join(each)}"
        return
    clash = Combination(first).clash
    if clash is not None:
        package, pinned_to = clash
        yield " and ".join(f"{text} pins {package}=={version}" for text, version in pinned_to.items())


def _has_cell(choice: Choice, demand: Demand) -> bool:
    alone = Combination((choice,))
    every = (cell for python in alone.pythons for cell in alone.cells(python, demand.gpus, demand.built_for))
    return next(every, None) is not None
