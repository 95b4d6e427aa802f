"""NVIDIA's own builds of old releases, for its later CUDA and cards: no package index has them, so no matrix
does, and a refusal tells how they are installed, with what of a project goes with them.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from packaging.requirements import Requirement

from builder.core.errors import NothingPossibleError, NotKnownError
from builder.core.model import Base, Cell, Cuda
from builder.core.versions import at_least, canonical, contains, key, names_of, release
from builder.plan.facts.tables import VendorBuildRow, card_of, load, to_type
from builder.plan.lock import pip_install
from builder.plan.resolve.loosening import NearestDemand, loosened
from builder.plan.resolve.native_code import of_compiled
from builder.plan.resolve.resolver import SECONDS
from builder.plan.resolve.solve import Demand, Proposal, closest
from builder.plan.resolve.wishes import NamedRequirement
from builder.sources.index import Index

_BASE = "debian/bullseye"
"""Stands for the system of the builds: it has the same glibc, and what has sources alone is compiled."""


def refused_for_vendor(
    problem: NothingPossibleError,
    demand: Demand,
    available: Mapping[str, Sequence[str]],
    index: Index | None,
    note: Callable[[str], None],
    *,
    only_proven: bool = False,
) -> NothingPossibleError | None:
    """The refusal that leads with NVIDIA's build of a framework, with the rest of the project beside; None
    where there is no such build for the machine, or where another release of the same major does.
    ``only_proven``: of frameworks alone whose releases the project's own sources bound.
    """
    for wish in demand.frameworks if not only_proven else [one for one in demand.frameworks if one.proven]:
        rows = [*_fitting(wish, demand)]
        if not rows or _has_release(wish, row := rows[0], demand, available):
            continue
        note(f"looking for what goes with NVIDIA's build of {load().table(wish.name).title} {row.version}")
        return _refusal(problem, wish, rows, demand, _rest(wish, row, demand, index))
    return None


def _fitting(wish: NamedRequirement, demand: Demand) -> Iterator[VendorBuildRow]:
    """NVIDIA's builds of a release of the major that is meant, which the cards, the driver and the Python
    take.
    """
    cards = [card_of(gpu) for gpu in demand.gpus]
    for row in load().vendor_builds:
        family = load().families.get(row.cuda.partition(".")[0])
        floor = family.floor if family is not None else None
        if (
            load().table_name(wish.name) == row.name
            and demand.built_for == "linux/amd64"
            and contains(wish.proven, row.version)
            and _admits_major(wish, row.version)
            and cards
            and all(c and at_least(c.capability, row.cards[0]) for c in cards)
            and all(c and at_least(row.cards[1], c.capability) for c in cards)
            and (demand.driver is None or (floor is not None and at_least(demand.driver, floor)))
            and (demand.glibc is None or at_least(demand.glibc, row.glibc))
        ):
            yield row


def _admits_major(wish: NamedRequirement, version: str) -> bool:
    """Whether a requirement means releases of a version's major: ``==1.14.0`` and ``<2`` do, of 1.15.5."""
    every = {row.version for row in load().table(wish.name).rows} | {version}
    mine = [one for one in every if contains(wish.parsed.specifier, one)]
    bounds = [clause.version.removesuffix(".*") for clause in wish.parsed.specifier]
    return key(max(mine or bounds, key=release, default="0"))[0] == key(version)[0]


def _has_release(
    wish: NamedRequirement, row: VendorBuildRow, demand: Demand, available: Mapping[str, Sequence[str]]
) -> bool:
    """Whether an index has a release of that major for the machine."""
    major = key(row.version)[0]
    bounded = wish.bound(f">={major},<{major + 1}", extras=False)
    free = replace(demand, frameworks=(bounded,), companions=(), python=None, wheels_for=None)
    return closest(free, {}, available=available) is not None


def _rest(
    wish: NamedRequirement, row: VendorBuildRow, demand: Demand, index: Index | None
) -> NearestDemand | None:
    """What goes with the build of the other requirements, on its Python; None if nothing was found, or
    nothing else is asked for.
    """
    others = tuple(one for one in demand.frameworks if one is not wish)
    mine = {canonical(Requirement(text).name) for text in row.requires}
    if index is None or others or not demand.companions:
        return None
    cell = Cell(
        id="proposal",
        matrix="resolved",
        frameworks=(),
        python=row.python,
        base=Base(kind="rootfs", name=_BASE),
        cuda=Cuda(provider="none"),
        pip=row.requires,
    )
    beside = replace(demand, frameworks=(), imports=(), gpus=(), driver=None, python=row.python)
    proposal = Proposal(cell=cell, findings=())
    until = time.monotonic() + SECONDS
    try:
        found = loosened(proposal, demand=beside, index=index, until=until, moved=True)
    except NotKnownError:  # the time is over: the build itself stands
        return None
    asked = {one.name for one in demand.companions}
    if found is None:
        return None
    own = mine - asked  # the build brings what it asks for
    kept = tuple(text for text in found.proposal.cell.pip if names_of([text]).isdisjoint(own))
    return replace(found, proposal=replace(found.proposal, cell=replace(found.proposal.cell, pip=kept)))


def _refusal(
    problem: NothingPossibleError,
    wish: NamedRequirement,
    rows: Sequence[VendorBuildRow],
    demand: Demand,
    rest: NearestDemand | None,
) -> NothingPossibleError:
    """The refusal with the first of the ``rows``, which fit, and the first container among them."""
    row, image = rows[0], next((one for one in rows if one.image), None)
    title = load().table(wish.name).title
    cards = " and ".join(map(to_type, demand.gpus))
    major = key(row.version)[0]
    why = f", which the code needs: {wish.use}" if wish.use else ""
    first, *reasons = problem.message.splitlines()
    lines = [
        f"no build of {title} {major} on the package indexes runs on {cards}{why}",
        (
            f"what would do: NVIDIA's own build of {title} {row.version}, for CUDA {row.cuda}, on Python "
            f"{row.python} and {row.system} [{row.source}]"
        ),
    ]
    commands = [pip_install((text,), ()) for text in row.pip]
    others = [*rest.proposal.cell.pip] if rest is not None else []
    beside = pip_install(others, ()) if others else ""
    if commands:
        lines.append(f"  by pip, on Python {row.python}: {' && '.join((*commands, *filter(None, [beside])))}")
        lines.append(
            f"  Python {row.python}, where the system has another: `uv venv --seed --python {row.python}`"
        )
    if image is not None:
        then = f", and in it `{beside}`" if beside else ""
        which = f"NVIDIA's container of it for CUDA {image.cuda}" if image is not row else "its container"
        lines.append(f"  {'or in' if commands else 'in'} {which}: `docker pull {image.image}`{then}")
    if rest is not None:
        lines += (f"  {change}" for change in rest.changes)
        by_hand = [text for one in rest.changes if (text := one.by_hand) is not None]
        if by_hand:
            lines.append(f"  then, by hand: {pip_install(('--no-build-isolation', *by_hand), ())}")
        lines += (f"  {source.partition(';')[0]}; pip builds it" for source in rest.proposal.sources)
        compiled = [text.partition(":")[0].replace(" ", "==", 1) for text in rest.proposal.sources]
        lines += (f"  {line}" for line in of_compiled([*compiled, *by_hand]))
    elif demand.companions:
        named = ", ".join(map(str, demand.companions[:4]))
        lines.append(f"  which releases of {named} go with it was not found: those of its time")
    kept = [line for line in reasons if line != "give up one of them:" and line not in problem.ways]
    lines += [f"why no other: {first}", *kept]
    hint = None if wish.use else "--nearest takes the nearest release of an index: code for another major"
    return type(problem)("\n".join(lines), reasons=problem.reasons, instead=problem.instead, hint=hint)
