"""What is possible by the rules, sent through the resolver: every other package has a say, too."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from packaging.requirements import Requirement

from builder.errors import CellError, NoSolutionError, PackageIndexError
from builder.facts import availability
from builder.facts.tables import load
from builder.facts.versions import canonical, key, pinned, requirement
from builder.lock.resolve import requirements
from builder.resolve.solve import distinct, search

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from builder.facts.tables import Facts
    from builder.index.client import Index
    from builder.model import Cell
    from builder.resolve.demand import Demand
    from builder.resolve.solve import Proposal

SECONDS = 12.0
"""After which no further proposal is tried."""
MOST = 60
"""Proposals whose own indexes are asked."""
_AT_ONCE = 4
_TURNS = 6
"""How often the resolver is asked for older versions than the rules refuse."""


@dataclass(frozen=True, kw_only=True)
class Proof:
    """What the resolver made of one proposal."""

    proposal: Proposal
    wheels: int | None = None
    """How many wheels the solution has; None if the resolver could not be asked."""
    unasked: str | None = None
    """Why it could not be: the index did not answer, or nobody was to be asked."""


@dataclass(frozen=True, kw_only=True)
class Proofs:
    """Proposals that stand, in their order, and the resolver's reasons against others."""

    standing: tuple[Proof, ...]
    refused: tuple[str, ...] = ()


def unproven(proposals: Sequence[Proposal], why: str) -> Proofs:
    """All of them, with the reason why no resolver was asked."""
    return Proofs(standing=tuple(Proof(proposal=proposal, unasked=why) for proposal in proposals))


def prove(proposals: Sequence[Proposal], demand: Demand, known: Facts, index: Index, limit: int) -> Proofs:
    """The first ``limit`` proposals for which there is a set of wheels, by the resolver that locks use."""
    started = time.monotonic()
    standing: list[Proof] = []
    refused: dict[str, None] = {}
    silent = _silent(proposals, demand, index)
    narrowed = (
        [] if not silent.keys().isdisjoint(demand.index) else _narrowed(proposals, demand, known, index)
    )
    ordered = distinct([*narrowed, *proposals])
    unasked = [
        Proof(proposal=proposal, unasked=why)
        for proposal in ordered[:MOST]
        if (why := next((silent[url] for url in proposal.cell.index if url in silent), None))
    ]
    queue = [proposal for proposal in ordered if silent.keys().isdisjoint(proposal.cell.index)]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        while queue and len(standing) < limit and time.monotonic() - started < SECONDS:
            batch, queue = queue[:_AT_ONCE], queue[_AT_ONCE:]
            for answer in pool.map(lambda proposal: _ask(proposal, index), batch):
                if isinstance(answer, Proof):
                    (standing if answer.unasked is None else unasked).append(answer)
                else:
                    refused[answer] = None
    if standing:
        # what the resolver was asked about comes first; of the rest, only what is better keeps a place
        place = {id(proposal): n for n, proposal in enumerate(ordered)}
        best = place[id(standing[0].proposal)]
        unasked = [one for one in unasked if place[id(one.proposal)] < best]
        standing = standing[: limit - 1 if unasked and limit > 1 else limit]
    elif refused and demand.companions:
        unasked = []  # what the resolver says against the others, it would say against these
    return Proofs(standing=(*standing, *unasked[: limit - len(standing)]), refused=tuple(refused))


def _silent(proposals: Sequence[Proposal], demand: Demand, index: Index) -> dict[str, str]:
    """The indexes that cells name and that do not answer, each with the reason; each is asked once."""
    urls = dict.fromkeys((*demand.index, *(url for p in proposals[:MOST] for url in p.cell.index)))
    name = demand.frameworks[0].name
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        offers = pool.map(lambda url: availability.offer(name, index, url), urls)
        return {url: o.unknown for url, o in zip(urls, offers, strict=True) if o.unknown is not None}


def _ask(proposal: Proposal, index: Index) -> Proof | str:
    cell = proposal.cell
    try:
        wheels = index.with_extra(cell.index).resolve(
            requirements(cell), python=cell.python, platform=cell.platform, glibc=_glibc(cell)
        )
    except NoSolutionError as problem:
        return problem.message
    except PackageIndexError as problem:
        return Proof(proposal=proposal, unasked=problem.message.partition("\n")[0])
    return Proof(proposal=proposal, wheels=len(wheels))


def _glibc(cell: Cell) -> str:
    """The glibc of a proposed base, which is always one of the tables' systems."""
    system = next((row for name, row in load().systems.items() if cell.base.name.endswith(name)), None)
    return system.glibc if system is not None else "2.17"


def _narrowed(proposals: Sequence[Proposal], demand: Demand, known: Facts, index: Index) -> list[Proposal]:
    """Proposals with the versions that the resolver takes, the frameworks' versions left open.

    Packages that go together say so in their own metadata: torchvision pins torch.
    The resolver knows that, the rules know CUDA; each is asked in turn, until they agree.
    """
    if not demand.companions and len(demand.frameworks) < 2:
        return []
    for python in list(dict.fromkeys(proposal.cell.python for proposal in proposals))[:3]:
        mine = [proposal for proposal in proposals if proposal.cell.python == python]
        bounds: list[str] = []
        for _ in range(_TURNS):
            versions = _versions(mine, demand, bounds, index)
            exact = _pinned(demand, versions)
            if exact is None:
                break
            agreed = [p for p in _searched(exact, known) if p.cell.python == python]
            if agreed:
                return agreed
            free = [wish.name for wish in demand.frameworks if pinned(wish.parsed) is None]
            if not free:
                break
            bounds.append(f"{free[-1]}<{versions[free[-1]]}")
    return []


def _searched(demand: Demand, known: Facts) -> list[Proposal]:
    try:
        return search(demand, known, enough=20, most=400).possible
    except CellError:
        return []  # a release that no table has


def _versions(
    proposals: Sequence[Proposal], demand: Demand, bounds: Sequence[str], index: Index
) -> dict[str, str]:
    """The versions in the newest solution for the demand below the bounds; empty if there is none."""
    newest: dict[str, str] = {}
    extras: dict[str, str] = {}
    for proposal in proposals:
        for parsed in filter(None, map(requirement, proposal.cell.frameworks)):
            name, version = canonical(parsed.name), (pinned(parsed) or "").partition("+")[0]
            newest[name] = max(newest.get(name, "0"), version, key=key)
            extras.setdefault(name, f"[{','.join(sorted(parsed.extras))}]" if parsed.extras else "")
    cell = proposals[0].cell
    open_ = [f"{name}{extras[name]}<={version}" for name, version in newest.items()]
    open_ += [str(wish).partition(";")[0] for wish in demand.frameworks if wish.name in newest]
    try:
        wheels = index.with_extra(demand.index).resolve(
            [*open_, *bounds, *cell.pip], python=cell.python, platform=cell.platform, glibc=_glibc(cell)
        )
    except PackageIndexError:
        return {}  # each proposal is asked about on its own, and says why not
    return {canonical(wheel.name): wheel.version.partition("+")[0] for wheel in wheels}


def _pinned(demand: Demand, versions: Mapping[str, str]) -> Demand | None:
    """The demand for these versions of its frameworks; None if one of them has none."""
    exact = []
    for wish in demand.frameworks:
        version = versions.get(wish.name)
        if version is None:
            return None
        extras = f"[{','.join(sorted(wish.parsed.extras))}]" if wish.parsed.extras else ""
        exact.append(replace(wish, parsed=Requirement(f"{wish.parsed.name}{extras}=={version}")))
    return replace(demand, frameworks=tuple(exact))


def brought(names: Sequence[str], index: Index, demand: Demand, python: str) -> list[str]:
    """Distributions in the newest solution for the companions alone: faster-whisper brings ctranslate2.

    Raises:
        NoSolutionError: There is none; the resolver says why.
        PackageIndexError: The index did not answer.
    """
    wheels = index.with_extra(demand.index).resolve(
        [str(wish) for wish in demand.companions], python=python, platform="linux/amd64", glibc="2.36"
    )
    return [wheel.name for wheel in wheels if wheel.name in names]
