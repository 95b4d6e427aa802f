"""The nearest requirements that the rules and the resolver accept, for some that they refuse.

Frameworks move first, to the nearest release that is possible; then, Python by Python, each other package
that the resolver names gives up its bounds, and is brought back as near as it goes. The Python that leaves
out the fewest, and needs the fewest and smallest changes, is taken.
"""

import functools
import itertools
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from builder.core.errors import CellError, FaultError, NotKnownError
from builder.core.items import item
from builder.core.versions import (
    canonical,
    contains,
    key,
    pinned,
    release,
)
from builder.plan.facts.rules import Outcome, by_compat
from builder.plan.facts.tables import load
from builder.plan.resolve.dates import OLDEST_PYTHON
from builder.plan.resolve.loosening import (
    COMPILED,
    NearestDemand,
    Substitution,
    compiles,
    is_of_another_major,
    loosened,
    release_line,
)
from builder.plan.resolve.refusals import against
from builder.plan.resolve.resolver import SECONDS
from builder.plan.resolve.silent_pages import rest_of
from builder.plan.resolve.solve import (
    Demand,
    Proposal,
    every_python,
    judged,
    lacks_extras,
    meant_version,
    needs_standalone,
    wheel_pythons,
)
from builder.plan.resolve.wishes import TYPED, NamedRequirement
from builder.sources.index import Index

_OLDER = 10
"""Older releases that are asked about, if no newer one will do."""
_CANDIDATES = 1500
_PYTHONS, _AT_ONCE = 6, 2
_Suits = Callable[[Proposal], bool]


def nearest_demand(
    demand: Demand,
    index: Index | None,
    available: Mapping[str, Sequence[str]],
    note: Callable[[str], None] = lambda _text: None,
) -> NearestDemand | None:
    """The nearest demand that is possible and has a set of wheels; None if none was found.

    Without ``index`` the rules alone are asked. Where an index that a build is on does not answer, the same
    release on the default index is tried. ``note`` is told each step.

    If none was found, raises FaultError if one was brought out, and NotKnownError if the time of the last
    resort was over.
    """
    sources = _Sources(index=index, available=available, until=time.monotonic() + SECONDS, note=note)
    found = _nearest(demand, sources)
    if index is None or found is None or found.proposal.unasked is None:
        return found
    plain, swapped = _on_default_index(demand, found.proposal.unasked)
    other = _nearest(plain, sources) if swapped else None
    if other is None or other.proposal.unasked is not None:  # a release whose default build will do
        swapped = [one for one in swapped if one.asked in demand.companions]
        plain = replace(plain, frameworks=demand.frameworks)
        other = _nearest(plain, sources, only=_on_the_default_index)
    if other is None or other.proposal.unasked is not None:
        rest = rest_of(found.proposal, demand, index)
        return found if isinstance(rest, str) else replace(found, proposal=rest)
    cell, silent = other.proposal.cell, found.proposal.unasked
    swapped = [one for one in swapped if one.asked.holds(cell.python, cell.platform)]
    moved = (replace(one, reason=one.reason or silent) for one in other.changes)
    return replace(other, changes=tuple(joined([*swapped, *moved])))


@dataclass(frozen=True, kw_only=True)
class _Sources:
    """Whom the search asks, until when, and who is told of it."""

    index: Index | None
    available: Mapping[str, Sequence[str]]
    until: float
    note: Callable[[str], None]


def _nearest(demand: Demand, asked: _Sources, only: _Suits = lambda _: True) -> NearestDemand | None:
    """The nearest way; one that the driver serves itself, if there is one, before one by ``cuda-compat``."""
    if demand.driver is not None:
        served = _nearest_of(demand, asked, lambda one: only(one) and by_compat(one.findings) is None)
        if served is not None:
            return served
    return _nearest_of(demand, asked, only)


def _nearest_of(demand: Demand, asked: _Sources, only: _Suits) -> NearestDemand | None:
    single, dropped = _one_of_each(demand)
    ways, why = list[NearestDemand](), ""
    for suits in (only, lambda one: only(one) and compiles(one)):
        moved = _with_frameworks(single, asked.available, suits)
        if ways and moved is not None and any(map(is_of_another_major, moved[1])):
            break  # a compiler for one package is not worth code for another major release of the framework
        moved, freed = _without_derived(moved) if moved is not None else (None, [])
        way = _way(moved, asked, suits) if moved is not None else None
        if way is not None and freed:
            added = (*way.proposal.added, _told_derived(freed, way.proposal))
            way = replace(way, proposal=replace(way.proposal, added=added))
        sources = (
            [one.asked.name for one in way.changes if one.reason.startswith(COMPILED)]
            if way is not None
            else []
        )
        if way is not None:
            told = tuple(replace(one, reason=one.reason or why) for one in way.changes)
            ways.append(replace(way, changes=told))
        if not sources:
            break  # else another release, on a system that has a compiler, may keep all
        why = f"its images have no compiler, and of {', '.join(sources)} the index has only sources"
    if not ways:
        return None
    best = min(ways, key=functools.partial(_distance, demand=demand))
    # the bare release is by pip its default build, which may be another than the cell's
    builds = {text.partition("+")[0]: text for text in best.proposal.cell.frameworks}
    changes = (replace(one, instead=builds.get(one.instead or "", one.instead)) for one in best.changes)
    return replace(best, changes=(*dropped, *changes))


def _without_derived(
    moved: tuple[Demand, list[Substitution]],
) -> tuple[tuple[Demand, list[Substitution]], list[NamedRequirement]]:
    """A way without the pins that an exported list has of what the frameworks themselves pin, where these
    move: NVIDIA's wheels and Triton of PyTorch. And those pins.
    """
    wider, changes = moved
    freed = [
        wish
        for wish in wider.companions
        if _DERIVED.fullmatch(wish.name) and pinned(wish.parsed) and wish.place != TYPED
    ]
    if not changes or not freed:
        return moved, []
    rest = tuple(wish for wish in wider.companions if wish not in freed)
    return (replace(wider, companions=rest), changes), freed


_DERIVED = re.compile(r"nvidia-[\w-]+-cu\d+|triton")
"""Names of what PyTorch, TensorFlow and JAX ask for themselves, by their metadata."""


def _told_derived(freed: Sequence[NamedRequirement], proposal: Proposal) -> str:
    more = f" and {len(freed) - 1} more" if len(freed) > 1 else ""
    names = ", ".join(proposal.cell.frameworks)
    return (
        f"{freed[0].name}{freed[0].parsed.specifier} ({freed[0].place}){more} give way: {names} brings others"
    )


def _on_default_index(demand: Demand, silent: str) -> tuple[Demand, list[Substitution]]:
    """The demand for the same releases without the mark of a build, ``+cu128``, and without indexes."""
    changes: list[Substitution] = []

    def plain(wish: NamedRequirement) -> NamedRequirement:
        exact = pinned(wish.parsed)
        if exact is None or "+" not in exact:
            return wish
        other = wish.bound(f"=={exact.partition('+')[0]}")
        other = replace(other, parsed=Requirement(f"{other}{_marked(wish)}"))
        changes.append(Substitution(asked=wish, instead=str(other), reason=silent))
        return other

    frameworks, companions = tuple(map(plain, demand.frameworks)), tuple(map(plain, demand.companions))
    return replace(demand, frameworks=frameworks, companions=companions, index=()), changes


def _marked(wish: NamedRequirement) -> str:
    return f" ; {wish.parsed.marker}" if wish.parsed.marker is not None else ""


def joined(changes: Sequence[Substitution]) -> list[Substitution]:
    """One change for a requirement that was changed twice: to another distribution, and to its release."""
    found: list[Substitution] = []
    for change in changes:
        before = next((n for n, one in enumerate(found) if one.instead == str(change.asked)), None)
        if before is None:
            found.append(change)
        else:
            found[before] = replace(change, asked=found[before].asked)
    return found


def _on_the_default_index(proposal: Proposal) -> bool:
    return not proposal.cell.index


def _way(moved: tuple[Demand, list[Substitution]], asked: _Sources, suits: _Suits) -> NearestDemand | None:
    """The nearest way for a demand whose frameworks are possible; None if none was found."""
    wider, changes = moved
    proposals = _one_for_each_python(wider, asked.available, suits, asked.index)

    problems: list[CellError] = []

    def ask(proposal: Proposal) -> NearestDemand | None:
        try:
            with item(proposal.cell.id):
                return loosened(
                    proposal, demand=wider, index=asked.index, until=asked.until, moved=bool(changes)
                )
        except CellError as problem:
            problems.append(problem)
            return None  # the others may have an answer

    found = list[NearestDemand]()
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        while proposals:
            batch = proposals[:_AT_ONCE]
            first = ", ".join(batch[0][0].cell.frameworks)
            named = " and ".join(f"Python {one.cell.python}" for one, _ in batch)
            asked.note(f"looking for what goes with {first} on {named}")
            found += filter(None, pool.map(ask, (one for one, _ in batch)))
            resolved = [len(one.changes) for one in found if one.proposal.unasked is None]
            # where more lack a wheel than change already, nothing nearer is found
            proposals = [one for one in proposals[_AT_ONCE:] if not resolved or one[1] < min(resolved)]
            if any(_left_out(one) == 0 for one in found if one.proposal.unasked is None):
                proposals = [one for one in proposals if not _is_gone(one[0].cell.python)]
    if not found:
        for kind in (FaultError, NotKnownError):
            for problem in problems:
                if isinstance(problem, kind):
                    raise problem
        return None
    best = min(found, key=functools.partial(_distance, demand=wider))
    return replace(best, changes=(*changes, *best.changes))


def _left_out(found: NearestDemand) -> int:
    return sum(one.instead is None for one in found.changes)


def _distance(found: NearestDemand, demand: Demand) -> tuple[object, ...]:
    """Whether an index was silent, how many are left out, whether the Python is one that no system has any
    more, how many are changed, by how many majors and minors, and whether the base has no such Python; at
    last, how far the Python is from those of the project's time.
    """
    pairs = [(release_line(str(one.asked)), release_line(one.instead or "")) for one in found.changes]
    apart = [[abs(a - b) for a, b in zip(old, new, strict=True)] for old, new in pairs if old and new]
    left_out = _left_out(found)
    silent = found.proposal.unasked is not None
    majors, minors = (sum(row[place] for row in apart) for place in (0, 1))
    cell = found.proposal.cell
    changed = (len(found.changes), majors, minors)
    python = (needs_standalone(cell), demand.python_rank(cell.python))
    return silent, left_out, _is_gone(cell.python), *changed, *python


def _is_gone(python: str) -> bool:
    """Whether no system that is still served has such a Python: https://devguide.python.org/versions/"""
    return key(python) < OLDEST_PYTHON


def _one_of_each(demand: Demand) -> tuple[Demand, list[Substitution]]:
    """The demand with one distribution of each framework, what is typed before what a file has, and a pin
    before what is open: those of TensorFlow write the same files.
    """
    kept: dict[str, NamedRequirement] = {}
    dropped: list[Substitution] = []

    def rank(one: NamedRequirement) -> tuple[bool, bool, bool]:
        return one.place != TYPED, pinned(one.parsed) is None, one.name not in load().frameworks

    for wish in sorted(demand.frameworks, key=rank):
        first = kept.setdefault(load().table_name(wish.name), wish)
        if first is not wish and not load().table(wish.name).named_by_cuda:
            dropped.append(
                Substitution(
                    asked=wish, instead=None, reason=f"{first.name} stays, and both write the same files"
                )
            )
    for wish in demand.companions:
        build = load().without.get(wish.name)
        same = kept.get(load().table_name(build.instead)) if build is not None else None
        if same is not None and any(wish.holds(one, demand.built_for) for one in _pythons(same, demand)):
            dropped.append(
                Substitution(
                    asked=wish, instead=None, reason=f"{same.name} stays, and both write the same files"
                )
            )
    gone = [one.asked for one in dropped]
    frameworks = tuple(one for one in demand.frameworks if one not in gone)
    companions = tuple(one for one in demand.companions if one not in gone)
    return replace(demand, frameworks=frameworks, companions=companions), dropped


def _pythons(framework: NamedRequirement, demand: Demand) -> Iterator[str]:
    """The demand's Pythons for which a release on record of one of its frameworks has wheels."""
    every = {python for row in load().table(framework.name).rows for python in row.python}
    return filter(demand.takes_python, every)


def _with_frameworks(
    demand: Demand, available: Mapping[str, Sequence[str]], suits: _Suits
) -> tuple[Demand, list[Substitution]] | None:
    """The demand with possible releases of its frameworks, and what was changed; None if there are none."""
    if _possible(demand, available, suits) is not None:
        return demand, []
    wishes = demand.frameworks
    for number in range(1, len(wishes) + 1):
        for some in itertools.combinations(range(len(wishes)), number):
            found = _moved(demand, some, available, suits)
            if found is not None:
                return found
    return None


def _moved(
    demand: Demand, some: Sequence[int], available: Mapping[str, Sequence[str]], suits: _Suits
) -> tuple[Demand, list[Substitution]] | None:
    """The demand with the nearest releases of the frameworks at these places, one after the other."""
    changes: list[Substitution] = []
    whole = against(demand, available)
    for n in some:
        wish = demand.frameworks[n]
        why = against(replace(demand, frameworks=(wish,)), available) or whole
        rest = [m for m in some if m > n]
        had = lacks_extras(wish)
        near = (wish.bound(f"=={version}", extras=not had) for version in _neighbours(wish, available))
        for other in itertools.chain(_siblings(wish), near):
            moved = other
            frameworks = (*demand.frameworks[:n], moved, *demand.frameworks[n + 1 :])
            # those that are still to move are left out of the question
            asked = tuple(one for m, one in enumerate(frameworks) if m not in rest)
            found = _possible(replace(demand, frameworks=asked), available, suits)
            if found is not None:
                if had:  # a build for another CUDA, by the extra that brings it
                    texts = (Requirement(text) for text in found.cell.frameworks)
                    moved = replace(
                        moved, parsed=next(one for one in texts if canonical(one.name) == wish.name)
                    )
                    frameworks = (*demand.frameworks[:n], moved, *demand.frameworks[n + 1 :])
                demand = replace(demand, frameworks=frameworks)
                changes.append(Substitution(asked=wish, instead=str(moved), reason=why))
                break
        else:
            return None
    return demand, changes


def _siblings(wish: NamedRequirement) -> Iterator[NamedRequirement]:
    """The same release by another distribution of the framework's, with CUDA: tensorflow-gpu 1.15.2."""
    exact, table = pinned(wish.parsed), load().table(wish.name)
    for row in table.rows if exact is not None and not table.named_by_cuda else ():
        with_cuda = not set(row.platforms) <= set(row.cpu_only)
        if row.version == exact and row.distribution != wish.name and with_cuda:
            yield wish.named(row.distribution)


def _neighbours(wish: NamedRequirement, available: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Releases with CUDA by their distance from the one asked for, newer first: old CUDA is gone for good.

    Another order than :func:`~builder.core.versions.closest_first`, by which a refusal names the closest
    release on either side: what is taken here moves forward as long as anything newer will do.
    """
    table = load().table(wish.name)
    offered = {version.partition("+")[0] for version in available.get(wish.name, ())}
    mine = (row for row in table.rows if row.distribution == wish.name or table.named_by_cuda)
    rows = {row.version for row in mine if not set(row.platforms) <= set(row.cpu_only)}
    there = rows & offered if offered else rows
    versions = sorted((one for one in there if contains(wish.proven, one)), key=release)
    asked = pinned(wish.parsed)
    bounds = [spec.version for spec in SpecifierSet(str(wish.parsed.specifier)) if "*" not in spec.version]
    had = lacks_extras(wish)
    start = release(
        (asked or (meant_version(wish) if had else max(bounds, key=release, default="0"))).partition("+")[0]
    )
    if had or (asked is not None and "+" in asked):
        yield from (version for version in versions if release(version) == start)  # another build of it
    newer = [version for version in versions if release(version) > start]
    older = [version for version in reversed(versions) if release(version) <= start]
    lines: dict[tuple[int, ...], str] = {}
    for version in newer:  # of each later line its last release, of the same one all
        digits = release(version).release
        whole = digits[0] == 0 or digits[:2] == start.release[:2]
        lines[digits if whole else digits[:2]] = version
    yield from lines.values()
    yield from older[:_OLDER]


def _possible(demand: Demand, available: Mapping[str, Sequence[str]], suits: _Suits) -> Proposal | None:
    return next(filter(suits, _proposals(demand, available)), None)


def _proposals(demand: Demand, available: Mapping[str, Sequence[str]]) -> Iterator[Proposal]:
    """Possible cells of the frameworks alone."""
    alone = replace(demand, companions=())
    for _, proposal in judged(alone, available=available, most=_CANDIDATES):
        if proposal.possible:
            yield proposal


def _one_for_each_python(
    demand: Demand, available: Mapping[str, Sequence[str]], suits: _Suits, index: Index | None
) -> list[tuple[Proposal, int]]:
    """The first proposal for each Python, on a Debian release if possible: only there code is compiled. With
    how many of the companions have no wheel for that Python.

    The Pythons that are nearest to those that the companions have wheels for come first, and such as no
    system has any more, last.
    """
    has = wheel_pythons(demand.companions, index, demand.built_for) if index is not None else {}
    usual = dict.fromkeys(one.cell.python for one in itertools.islice(_proposals(demand, available), 200))
    others = [python for python in every_python() if demand.takes_python(python) and python not in usual]
    by_wheels = sorted(
        [*usual, *others],
        key=lambda python: (
            _is_gone(python),
            sum(_minors_apart(python, there) for there in has.values()),
            demand.python_rank(python)[:2],
        ),
    )
    found = []
    for python in by_wheels:
        mine = filter(suits, _proposals(_with_the_rest(replace(demand, python=python), available), available))
        first = next(mine, None)
        if first is None:
            continue
        alike = itertools.takewhile(lambda one, best=first: one.cell.frameworks == best.cell.frameworks, mine)  # type: ignore[misc]
        best = next((one for one in (first, *alike) if one.cell.base.kind == "rootfs"), first)
        found.append((best, sum(python not in there for there in has.values())))
        if len(found) == _PYTHONS:
            break
    return found


def _with_the_rest(demand: Demand, available: Mapping[str, Sequence[str]]) -> Demand:
    """The demand for the newest releases of its frameworks that the rules accept with the companions; itself
    if each is named, or none is accepted.
    """
    if not demand.companions or all(pinned(wish.parsed) for wish in demand.frameworks):
        return demand
    whole = (one for _, one in judged(demand, available=available, most=_CANDIDATES) if one.possible)
    best = next(whole, None)
    if best is None:
        return demand
    taken = {canonical(one.name): pinned(one) for one in map(Requirement, best.cell.frameworks)}
    named = tuple(
        wish.bound(f"=={taken[wish.name]}") if taken.get(wish.name) else wish for wish in demand.frameworks
    )
    return replace(demand, frameworks=named)


def _minors_apart(python: str, there: Set[str]) -> int:
    """How many minor releases a Python is from the nearest of these."""
    return min(abs(key(python)[1] - key(other)[1]) for other in there)


def keeps_files(changes: Sequence[Substitution], best: Proposal) -> bool:
    """Whether a set keeps to a project's requirements, and is possible, but for what nobody compiled yet."""
    open_ = {one.rule for one in best.findings if one.outcome is Outcome.UNKNOWN}
    return (best.possible or (bool(changes) and open_ == {"from-source"})) and all(
        one.keeps_files for one in changes
    )
