"""The nearest requirements that the rules and the resolver accept, for some that they refuse.

Frameworks move first, to the nearest release that is possible; then, Python by Python, each other package
that the resolver names gives up its bounds, and is brought back as near as it goes. The Python that leaves
out the fewest, and needs the fewest and smallest changes, is taken.
"""

import functools
import itertools
import re
import shlex
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from builder.core.errors import CellError, FaultError, NotKnownError, PackageIndexError
from builder.core.items import item
from builder.core.model import Wheel
from builder.core.versions import (
    canonical,
    contains,
    key,
    lower_bound,
    name_pattern,
    pinned,
    release,
    without_marker,
)
from builder.plan.facts.reading import Truth
from builder.plan.facts.rules import Finding, Outcome, asked_once, by_compat, check, kept_from_bad
from builder.plan.facts.tables import load
from builder.plan.lock import sdist_version
from builder.plan.resolve.cuda_variants import followed
from builder.plan.resolve.dates import OLDEST_PYTHON, Period
from builder.plan.resolve.refusals import against
from builder.plan.resolve.resolver import OF_NUMPY, SECONDS, Answer, on_numpy_1, reason, solved
from builder.plan.resolve.solve import (
    Demand,
    Proposal,
    every_python,
    imports_into,
    judged,
    lacks_extras,
    meant_version,
    needs_standalone,
    wheel_pythons,
)
from builder.plan.resolve.wishes import TYPED, NamedRequirement
from builder.sources.index import Index, lacking, wheel_name

_ON_EACH_PYTHON = 20
"""Questions to the resolver, and two more for each package: a count, since no answer may depend on a
machine's load."""
_OLDER = 10
"""Older releases that are asked about, if no newer one will do."""
_CANDIDATES = 1500
_PYTHONS, _AT_ONCE = 6, 2
_COMPILED = (
    "the index has only its sources, and how they compile is not on record; `from-source` takes it with "
    "the Debian packages of its build"
)
_BY_HAND = "by hand after the others"
PYTHONS_OWN = "it is a module of Python itself, and no package"
_Suits = Callable[[Proposal], bool]
_BROUGHT_BACK = 60
"""Questions about what gave way, on each Python."""
_Changed = Mapping[str, NamedRequirement | None]
"""What stands in the place of requirements, by their names; None for nothing."""


@dataclass(frozen=True, kw_only=True)
class Substitution:
    """A requirement, and what would do in its place."""

    asked: NamedRequirement
    instead: str | None
    """None: without it."""
    reason: str = ""

    @property
    def by_hand(self) -> str | None:
        """What is left out since it is compiled after the others, as pip installs it; None for the rest."""
        left = self.instead is None and _BY_HAND in self.reason
        return str(self.asked.bound(str(self.asked.parsed.specifier))) if left else None

    @property
    def keeps_files(self) -> bool:
        """Whether it keeps to all that the project's requirements say: what is left out is compiled after the
        others, or another release stands for one that a Dockerfile or a README names.
        """
        if self.instead is None:
            return self.by_hand is not None
        version = pinned(Requirement(self.instead))
        same = canonical(Requirement(self.instead).name) == self.asked.name
        return bool(same and version and self.asked.told) and self.asked.firmly_takes(version or "")

    def __str__(self) -> str:
        place, why = f"{self.asked} ({self.asked.place})", f": {self.reason}" if self.reason else ""
        if self.instead is None:
            return f"without {place}{why}"
        return (
            f"{self.instead} in place of {place}{why}"
            + "; another major version, so code may need changes" * _of_another_major(self)
        )


@dataclass(frozen=True, kw_only=True)
class NearestDemand:
    """A cell with a set of wheels, and how what it meets differs from what was asked for."""

    changes: tuple[Substitution, ...]
    proposal: Proposal


@dataclass(kw_only=True)
class Kept:
    """A set of wheels, and what had to give way for it."""

    changed: dict[str, NamedRequirement | None]
    proposal: Proposal
    wheels: Sequence[Wheel]
    reasons: dict[str, str] = field(default_factory=dict)

    def version(self, name: str) -> str | None:
        return next((wheel.version for wheel in self.wheels if canonical(wheel.name) == name), None)


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
        return found
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
    for suits in (only, lambda one: only(one) and _compiles(one)):
        moved = _with_frameworks(single, asked.available, suits)
        if ways and moved is not None and any(map(_of_another_major, moved[1])):
            break  # a compiler for one package is not worth code for another major release of the framework
        way = _way(moved, asked, suits) if moved is not None else None
        sources = (
            [one.asked.name for one in way.changes if one.reason.startswith(_COMPILED)]
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


def _compiles(proposal: Proposal) -> bool:
    return proposal.cell.base.kind == "rootfs"


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
    pairs = [(_release(str(one.asked)), _release(one.instead or "")) for one in found.changes]
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


def _of_another_major(change: Substitution) -> bool:
    old, new = _release(str(change.asked)), _release(change.instead or "")
    return old is not None and new is not None and old[0] != new[0]


def _release(text: str) -> tuple[int, int] | None:
    """Major and minor version of a requirement's first bound; of an upper one alone, ``<2``, those below."""
    found = re.search(r"(?:==|~=|<=|>=)\s*(\d{1,9})(?:\.(\d{1,9}))?", text)
    if found is not None:
        return int(found[1]), int(found[2] or 0)
    below = re.search(r"<\s*(\d{1,9})(?:\.(\d{1,9}))?", text)
    if below is None:
        return None
    return (int(below[1]), int(below[2]) - 1) if int(below[2] or 0) else (int(below[1]) - 1, 0)


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


def loosened(
    proposal: Proposal, *, demand: Demand, index: Index | None, until: float, moved: bool
) -> NearestDemand | None:
    """The proposal with what is asked for beside, less the bounds or packages that rules or resolver name.

    ``moved``: the framework is another release than asked for, so compiled packages that nobody read beside
    it move, too.
    """
    cell = proposal.cell
    there, why = followed((w for w in demand.companions if w.holds(cell.python, cell.platform)), cell)
    mine = {wish.name: wish for wish in there}
    proposal = replace(proposal, added=tuple(dict.fromkeys((*proposal.added, *why))))
    changed, boldly = _renamed(mine), set[str]()
    reasons = {name: load().mistaken_names[name].reason for name in changed}

    suggested: set[tuple[str, str]] = set()
    first: dict[str, str] = {}
    """What was said of a package as it is asked for: of its other releases it is said in other words."""

    def ask(other: _Changed, period: Period | None = None) -> Answer:
        if time.monotonic() > until:
            raise NotKnownError(f"what would do is unknown: stopped after {SECONDS:.0f} s")
        tried = _with(proposal, demand, {**mine, **other})
        return _answer(tried, index, demand.driver, boldly=boldly, moved=moved, period=period)

    for _ in range(_ON_EACH_PYTHON + 2 * len(mine)):
        answer = ask(changed)
        if not isinstance(answer, str):
            kept = Kept(changed=changed, proposal=answer[0], wheels=answer[1], reasons=reasons)
            if index is not None and answer[0].unasked is None:
                kept = _brought_back(kept, mine, ask, index)
                kept = _with_pins(kept, functools.partial(ask, period=demand.period))
            kept.reasons = {**_said_first(changed, first, mine), **kept.reasons}
            return NearestDemand(changes=tuple(_changes(kept, mine)), proposal=kept.proposal)
        named = [name for name in _named(answer, mine) if changed.get(name, mine[name]) is not None]
        if not named:
            return None
        if twice := written_twice(answer, named):
            changed |= dict.fromkeys(twice)
            reasons |= twice
            continue
        if (named_one := _with_nothing_against(answer, named)) and named_one not in suggested:
            suggested.add(named_one)
            changed[named_one[0]] = mine[named_one[0]].bound(f"=={named_one[1]}")
            reasons[named_one[0]] = reason(answer, mine[named_one[0]])
            continue
        for name in named:
            first.setdefault(name, answer)
        chosen = {name for name, _ in suggested}
        bound = [
            name
            for name in first
            if name not in chosen and (w := changed.get(name, mine[name])) and w.parsed.specifier
        ]
        bounded = [name for name in named if name in bound] or bound
        if bounded:  # a package is left out only where no version of any will do
            changed |= {name: mine[name].bound("") for name in bounded[: 3 if len(bounded) > 3 else 1]}
            continue
        if named[0] in {*lacking(answer)} - boldly and _compiles(proposal):
            boldly.add(named[0])
            continue
        changed[named[0]] = None
        reasons[named[0]] = _why_not(named[0], first[named[0]], mine)
    return None


def _said_first(
    changed: Collection[str], first: Mapping[str, str], mine: Mapping[str, NamedRequirement]
) -> dict[str, str]:
    """The reason against each changed requirement as it was asked for."""
    return {name: reason(first[name], mine[name]) for name in changed if name in first}


def _why_not(name: str, answer: str, mine: Mapping[str, NamedRequirement]) -> str:
    if name in sys.stdlib_module_names:
        return PYTHONS_OWN + " (`apt: [python3-tk]` brings it to a Debian release's Python)" * (
            name == "tkinter"
        )
    why = _COMPILED if name in lacking(answer) else reason(answer, mine[name])
    if "only sources" not in why and why != _COMPILED:
        return why
    wish = mine[name].bound(str(mine[name].parsed.specifier))
    by_hand = f"pip install --no-build-isolation {shlex.quote(str(wish))}"
    return f"{why}; {_BY_HAND}: `{by_hand}`"


def written_twice(answer: str, named: Sequence[str]) -> dict[str, str]:
    """The packages to leave out of several that write the same files, each with the one that stays and why,
    if the rules say which. The one that they would keep goes, if another package brings the other.
    """
    found = re.search(
        r"(?m)(?P<all>[\w.-]+(?: \([^)]*\))?(?: and [\w.-]+(?: \([^)]*\))?)+) write the same files .*?\. "
        r"Keep (?P<one>[\w.-]+): (?P<why>.*?)\)?$",
        answer,
    )
    if found is None:
        return {}
    keep = canonical(found["one"])
    others = [one for one in map(canonical, re.findall(r"(?:^| and )([\w.-]+)", found["all"])) if one != keep]
    if mine := [name for name in others if name in named]:
        return dict.fromkeys(mine, f"{found['one']} stays, and both write the same files: {found['why']}")
    if keep not in named:
        return {}
    last = f"`pip install --force-reinstall --no-deps {keep}` after all others"
    why = (
        f"another package brings {' and '.join(others)}, and both write the same files; code that needs what"
    )
    return {keep: f"{why} {keep} has beyond it: {last}"}


def _with_nothing_against(answer: str, named: Sequence[str]) -> tuple[str, str] | None:
    """The first of these packages of which the rules name a release that goes, and that release."""
    for name in named:
        if found := re.search(rf"(?i)(?<![\w-]){name_pattern(name)} (\S+) has nothing against it", answer):
            return name, found[1]
    return None


def _with_pins(kept: Kept, ask: Callable[[_Changed], Answer]) -> Kept:
    """The substitution with the versions that were found: the matrix has what is told."""
    try:
        answer = ask(_at_versions(kept))
    except NotKnownError:
        return kept
    return kept if isinstance(answer, str) else replace(kept, proposal=answer[0], wheels=answer[1])


def _renamed(mine: Mapping[str, NamedRequirement]) -> dict[str, NamedRequirement | None]:
    """Distributions in place of names that none has, such as opencv."""
    rows = load().mistaken_names
    wrong = [name for name in mine if name in rows and rows[name].outcome == "impossible"]
    plain = {name: rows[name].instead for name in wrong if rows[name].versions is None}
    return {name: replace(mine[name], parsed=Requirement(instead)) for name, instead in plain.items()}


def _with(proposal: Proposal, demand: Demand, beside: Mapping[str, NamedRequirement | None]) -> Proposal:
    """The proposal with these requirements beside its own, and what the source imports of them."""
    kept = [wish for wish in beside.values() if wish is not None]
    texts = dict.fromkeys(without_marker(wish.parsed) for wish in kept)
    pip = asked_once(list(texts), proposal.cell.pip)
    cell = replace(proposal.cell, pip=pip, imports=imports_into(demand, kept))
    return replace(proposal, cell=cell)


def _answer(
    proposal: Proposal,
    index: Index | None,
    driver: str | None,
    *,
    boldly: Set[str],
    moved: bool,
    period: Period | None = None,
) -> Answer:
    """The proposal with its set of wheels, or why there is none, by the rules or the resolver."""
    cell = proposal.cell
    findings = check(cell, Truth.of_offer(cell), driver=driver, suggest=False)
    refused = [finding for finding in findings if finding.outcome is Outcome.IMPOSSIBLE]
    refused += [one for one in findings if moved and _is_unread(one)]
    if any(finding.rule in OF_NUMPY for finding in refused) and (first := on_numpy_1(cell)) is not None:
        # what code for NumPy 1 lacks, and no other release
        why = "numpy<2: " + next(one.message for one in refused if one.rule in OF_NUMPY)
        bound = replace(proposal, cell=first, added=(*proposal.added, why))
        return _answer(bound, index, driver, boldly=boldly, moved=moved, period=period)
    if (kept := kept_from_bad(cell, refused)) is not None:
        bound = replace(proposal, cell=kept[0], added=(*proposal.added, kept[1]))
        return _answer(bound, index, driver, boldly=boldly, moved=moved, period=period)
    if refused:
        return "\n".join(finding.message for finding in refused)
    if index is None:
        return replace(proposal, findings=findings, unasked="the index was not asked (--offline)"), ()
    answer = solved(replace(proposal, findings=findings), index, driver, boldly=boldly, period=period)
    if not isinstance(answer, str) and answer[0].unasked is not None:
        return answer[0], ()  # an index that does not answer refuses nothing
    return answer


def _is_unread(one: Finding) -> bool:
    """Whether it is not known what a compiled package's release was compiled for."""
    return one.rule == "package-known" and one.outcome is Outcome.UNKNOWN


def _named(message: str, mine: Mapping[str, NamedRequirement]) -> list[str]:
    """The packages of the demand that stand in the resolver's words, those without any wheel first."""
    words = [canonical(word.rstrip(".")) for word in re.findall(r"(?<![\w.-])[A-Za-z0-9][\w.-]*", message)]
    return sorted((name for name in dict.fromkeys(words) if name in mine), key=_first(message))


def _first(message: str) -> Callable[[str], tuple[bool, int]]:
    """Sorts a package that cannot be had at all before one that only clashes with others."""

    def rank(name: str) -> tuple[bool, int]:
        pattern = rf"(?i){name_pattern(name)}[^\n]{{0,60}} (?:has|have|was|there is) no[t ]"
        return re.search(pattern, message) is None, message.lower().find(name)

    return rank


def _changes(kept: Kept, mine: Mapping[str, NamedRequirement]) -> Iterator[Substitution]:
    """The change of each requirement, with the version that the set of wheels has, and the reason."""
    for name, other in kept.changed.items():
        version = kept.version(other.name if other is not None else name)
        why = kept.reasons.get(name, "")
        if other is not None and not kept.wheels:
            yield Substitution(asked=mine[name], instead=str(other), reason=why)
        elif other is None or version is None:
            yield Substitution(asked=mine[name], instead=None, reason=why)
        elif other.name != name or not mine[name].parsed.specifier.contains(version, prereleases=True):
            yield Substitution(asked=mine[name], instead=str(other.bound(f"=={version}")), reason=why)


def _brought_back(
    kept: Kept, mine: Mapping[str, NamedRequirement], ask: Callable[[_Changed], Answer], index: Index
) -> Kept:
    """The substitution with fewer and smaller changes; requirements that were left out come first.

    A resolver that is left free takes the newest release: of ``transformers~=4.4.2`` one of five years later.
    ``ask`` gives the set of wheels with such changes, or why there is none.
    """
    left = _BROUGHT_BACK

    def take(name: str, other: NamedRequirement | None) -> str | None:
        """Why it does not go with the others; None if it does, and is taken."""
        nonlocal left
        left -= 1
        changed = {**kept.changed, name: other}
        try:
            answer = ask(changed)
        except NotKnownError:  # the answer that is there stands
            left = 0
            return ""
        if isinstance(answer, str):
            return answer
        kept.changed, (kept.proposal, kept.wheels) = changed, answer
        return None

    for name in sorted(kept.changed, key=lambda one: kept.changed[one] is not None):
        other = kept.changed[name]
        if left <= 0 or (other is not None and other.name != name):
            continue
        why = take(name, mine[name])
        if why is None:
            del kept.changed[name]
            continue
        if not why:
            break
        kept.reasons.setdefault(name, reason(why, mine[name]))
        if other is None and (not mine[name].parsed.specifier or take(name, mine[name].bound(""))):
            continue
        asked, *lines = _newer_lines(mine[name], kept.version(name), index) or [""]
        if asked and take(name, mine[name].bound(f"=={asked}.*")) is None:
            continue
        while lines and left > 0:
            middle = len(lines) // 2
            if take(name, mine[name].bound(f"=={lines[middle]}.*")) is None:
                lines = lines[:middle]
            else:
                lines = lines[middle + 1 :]
    return kept


def _at_versions(kept: Kept) -> dict[str, NamedRequirement | None]:
    """The changes with the version that the set of wheels has of each."""
    versions = {name: kept.version(other.name if other else name) for name, other in kept.changed.items()}
    return {
        name: other.bound(f"=={versions[name]}") if other is not None and versions[name] else None
        for name, other in kept.changed.items()
    }


def _newer_lines(wish: NamedRequirement, found: str | None, index: Index) -> list[str]:
    """The minor versions from the one that is asked for to the one that was found: 1.13, 1.14."""
    asked = pinned(wish.parsed) or lower_bound(wish.parsed)
    if found is None or asked is None or release(found) <= release(asked):
        return []
    try:
        files = index.offers(wish.name)
    except PackageIndexError:
        return []
    names = ((wheel_name(file.name), sdist_version(file, wish.name)) for file in files)
    versions = (str(wheel.version) if wheel is not None else sdist for wheel, sdist in names)
    whole = [version for version in versions if version and not release(version).is_prerelease]
    lines = {key(version)[:2] for version in whole if release(asked) <= release(version) <= release(found)}
    return [".".join(map(str, line)) for line in sorted(lines)]
