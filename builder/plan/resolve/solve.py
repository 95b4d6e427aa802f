"""Demands on an image, and the cells that meet them: the possible ones for ``tensorflow==2.15.*``, best
first.

Every candidate goes through the same rules as a cell of a matrix; nothing is proposed that they refuse.
"""

import difflib
import itertools
import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from builder.core.documents import shown
from builder.core.errors import UsageError
from builder.core.model import Cell
from builder.core.versions import (
    NO_NUMBER,
    canonical,
    closest_first,
    contains,
    key,
    lower_bound,
    newest_first,
    pinned,
    release,
    requirement,
    short,
    without_marker,
)
from builder.plan.facts.reading import system_of
from builder.plan.facts.rules import (
    OF_MACHINE,
    Choice,
    Combination,
    Finding,
    MachineDrivers,
    Outcome,
    asked_once,
    check,
    check_candidate,
    choices,
    kept_from_bad,
    left_to_lock,
    platform_of,
    why_cudnn,
)
from builder.plan.facts.tables import FrameworkRow, FrameworkTable, load, maker_of, to_type
from builder.plan.matrix import cell_id, entry
from builder.plan.resolve.cuda_variants import followed
from builder.plan.resolve.dates import OLDEST_PYTHON, Period
from builder.plan.resolve.wishes import NamedRequirement, Wishes
from builder.sources.index import MACHINES, Index, IndexFile, Target, pages, rank, takes, wheel_name

MOST = 6000
"""Candidates that the rules are asked about at most."""
ENOUGH = 200
"""Possible cells without reservations after which no older ones are looked for."""


@dataclass(frozen=True, kw_only=True)
class Demand:
    """Everything that an image has to meet."""

    frameworks: tuple[NamedRequirement, ...]
    """Requirements that the tables have rows for."""
    companions: tuple[NamedRequirement, ...] = ()
    """Every other requirement: torchvision, numpy, transformers."""
    gpus: tuple[str, ...] = ()
    driver: str | None = None
    platform: str | None = None
    """``linux/arm64``; None for that of the cards, else ``linux/amd64``."""
    python: str | None = None
    """A version, ``3.11``, or a set of them, ``>=3.9,<3.12``."""
    index: tuple[str, ...] = ()
    imports: tuple[str, ...] = ()
    """What the source imports that the requirements are for, as a cell has it."""
    glibc: str | None = None
    """That of the system on which pip installs, if it is not an image's: a wheel for a newer one is none."""
    kernel_modules: bool = True
    """Whether the cards' driver has modules of a kernel; that of Windows has none."""
    wheels_for: frozenset[str] | None = None
    """The Pythons that the companions have wheels for; None for any."""
    period: Period | None = None
    """The time that the project is of; None for today's, or for one that nothing tells."""
    told_python: str | None = None
    """``3.7``: the one that its README, its jobs or its notebooks alone name, which binds nothing."""

    @property
    def built_for(self) -> str:
        """The platform of the images."""
        return self.platform or platform_of(self.gpus) or "linux/amd64"

    def takes_python(self, version: str) -> bool:
        """Whether an image with this Python meets the demand, and every marker on a framework holds."""
        return (
            (self.python is None or contains(pythons(self.python), f"{version}.99"))
            and (self.wheels_for is None or version in self.wheels_for)
            and all(wish.holds(version, self.built_for) for wish in self.frameworks)
        )

    def python_rank(self, version: str) -> tuple[bool, bool, int]:
        """Sort key of a Python, lowest best: the newest, or that which is told, or of the project's time."""
        if self.told_python is not None:
            mine, told = key(version)[1], max(key(self.told_python)[1], OLDEST_PYTHON[1])
            return mine < OLDEST_PYTHON[1], mine != told, 2 * abs(mine - told) + (mine < told)
        return self.period.rank(version) if self.period is not None else (False, False, -key(version)[1])

    def takes_glibc(self, row: FrameworkRow) -> bool:
        """Whether a wheel that was read loads on the system's glibc; those of other indexes were not."""
        if self.glibc is None:
            return True
        needs = row.glibc_arm64 if self.built_for.endswith("arm64") else row.glibc
        return row.default and needs is not None and key(needs) <= key(self.glibc)

    def parts(self) -> Iterator[tuple[str, Self]]:
        """Each single demand by its name, and the whole without it."""
        for wish in self.frameworks:
            rest = tuple(other for other in self.frameworks if other is not wish)
            yield f"{wish} ({wish.place})", replace(self, frameworks=rest)
        for gpu in self.gpus:
            yield (
                f"--gpu {to_type(gpu)}",
                replace(self, gpus=tuple(other for other in self.gpus if other != gpu)),
            )
        if self.driver is not None and not isinstance(self.driver, MachineDrivers):
            yield f"--driver {self.driver}", replace(self, driver=None)
        if self.platform is not None:
            yield f"--platform {self.platform}", replace(self, platform=None)
        if self.python is not None:
            yield f"Python {self.python}", replace(self, python=None)


_EXACT_PYTHON = re.compile(r"(?:===?\s*)?(\d+(?:\.\d+)?)(?:\.(?:\d+|\*))?")


def pythons(text: str) -> SpecifierSet:
    """``3.11`` or ``>=3.9,<3.12`` as a set that full versions are looked up in. Raises UsageError.

    Of an exact release, ``3.8.5``, the minor one counts: images have the newest patch of it.
    """
    exact = _EXACT_PYTHON.fullmatch(text.strip())
    try:
        if NO_NUMBER.search(text):
            raise ValueError("a number of more than 18 digits")  # noqa: TRY301 - as packaging's own
        return SpecifierSet(text if exact is None else f"=={exact[1]}.*")
    except ValueError as problem:
        raise UsageError(
            f"{shown(text, most=80)!r} names no Python", hint="as in 3.11, or '>=3.9,<3.12'"
        ) from problem


def split(
    wishes: Wishes, python: str | None = None, platform: str | None = None
) -> tuple[tuple[NamedRequirement, ...], tuple[NamedRequirement, ...]]:
    """Frameworks, and the packages beside them.

    Of a framework that is named under several markers the one for the newest Python is taken, with a note;
    under markers that hold together, both. A line for another system is left out, with a note.
    """
    frameworks: dict[str, NamedRequirement] = {}
    beside, elsewhere = [], []
    for wish in wishes.wishes:
        if not _newest(wish, None, platform):
            elsewhere.append(f"{wish} ({wish.place})")
        elif not load().is_framework(wish.name):
            beside.append(wish)
        elif (other := frameworks.setdefault(wish.name, wish)) is not wish:
            newest = {str(one): _newest(one, python, platform) for one in (other, wish)}
            kept, left = sorted((other, wish), key=lambda one: newest[str(one)], reverse=True)
            if newest[str(other)] == newest[str(wish)] != ():
                frameworks[wish.name] = _both(other, wish)
                continue
            why = (
                f"{kept} is for a newer Python"
                if newest[str(left)]
                else f"no Python asked for takes it, as {kept}"
            )
            wishes.notes.append(f"{left.place}: {left}: left out: {why}")
            frameworks[wish.name] = kept
    if elsewhere:
        more = f" and {len(elsewhere) - 6} more" if len(elsewhere) > 6 else ""
        system = f"Linux on {MACHINES[platform or 'linux/amd64']}"
        wishes.notes.append(f"not for {system} by their markers, left out: {', '.join(elsewhere[:6])}{more}")
    return tuple(frameworks.values()), tuple(beside)


def _both(one: NamedRequirement, other: NamedRequirement) -> NamedRequirement:
    """Two requirements on a package whose markers hold together, as one: the bounds and extras of both."""
    parsed = Requirement(str(one.parsed))
    parsed.specifier &= other.parsed.specifier
    parsed.extras |= other.parsed.extras
    markers = [f"({wish.parsed.marker})" for wish in (one, other) if wish.parsed.marker is not None]
    parsed.marker = Marker(" and ".join(markers)) if markers else None
    return replace(one, parsed=parsed, place=", ".join(dict.fromkeys((one.place, other.place))))


def _newest(wish: NamedRequirement, python: str | None, platform: str | None) -> tuple[int, ...]:
    """The newest Python of a system on record that a requirement's marker holds for."""
    alone = Demand(frameworks=(wish,), python=python, platform=platform)
    every = {version for system in load().systems.values() for version in system.python}
    return max((key(version) for version in every if alone.takes_python(version)), default=())


def distributions(wishes: Iterable[NamedRequirement]) -> list[str]:
    """The projects on a package index that frameworks come from: CuPy has one for each CUDA."""
    found: dict[str, None] = {}
    for wish in wishes:
        table = load().frameworks.get(wish.name)
        own = {row.distribution for row in table.rows} if table is not None and table.named_by_cuda else ()
        found |= dict.fromkeys(sorted(own) or [wish.name])
    return list(found)


def meant(name: str) -> str | None:
    """The package that was probably meant: ``pytorh`` → ``torch``, ``tf`` → ``tensorflow``."""
    frameworks, mistaken = load().frameworks, load().mistaken_names
    never = {
        name: row.instead
        for name, row in mistaken.items()
        if not row.versions and (row.outcome == "impossible" or load().is_framework(row.instead))
    }
    if name in never:
        return never[name]
    if (build := load().without.get(name)) is not None:
        return build.instead
    spelt = {known: known for known in frameworks} | {k: to for k, to in never.items() if to in frameworks}
    close = difflib.get_close_matches(name, [*spelt], n=1, cutoff=0.8)
    # tensorflow-text and pytorch3d are packages of their own, torchh is not
    own = any(name.startswith(known) and name != known + known[-1] for known in spelt)
    return spelt[close[0]] if close and not own else None


@dataclass(frozen=True, kw_only=True)
class Proposal:
    """A possible cell, and the answers of the rules and of the resolver."""

    cell: Cell
    findings: tuple[Finding, ...]
    wheels: int | None = None
    """How many wheels the resolver's solution has, of the rest alone if ``unasked``; None if nobody asked."""
    size: int | None = None
    """Bytes of these wheels; None if it was not asked, or the index has not told of each."""
    unasked: str | None = None
    """The reason: the index did not answer, or nothing was to be asked."""
    sources: tuple[str, ...] = ()
    """Why packages of the cell are built from sources, one sentence for each."""
    added: tuple[str, ...] = ()
    """Why requirements of the cell's stand in it that nobody asked for, one sentence for each."""
    unproven: str | None = "the wheels' files were not read"
    """Why the proofs by links and imports do not tell all of the wheels; None if they let them pass."""

    @property
    def outcome(self) -> Outcome:
        return Outcome.of(self.findings)

    @property
    def possible(self) -> bool:
        return self.outcome.is_possible


@dataclass(kw_only=True)
class Search:
    """The possible cells, best first, and the refused candidates that came closest."""

    possible: list[Proposal]
    refused: list[Cell] = field(default_factory=list)
    """One for each combination of frameworks, in the order in which they were tried: one that only a value
    that is not known stands against, if there is one."""
    absent: list["Absent"] = field(default_factory=list)
    left_to_lock: list[Proposal] = field(default_factory=list)
    """As ``possible``, with a package beside whose libraries only a lock reads: nothing refuses them."""


@dataclass(frozen=True, kw_only=True)
class Absent:
    """A requirement that no release on record fits, so that no candidate was tried."""

    wish: NamedRequirement
    reason: str
    outcome: Outcome
    """``impossible`` if the package index answered that it has no such release, else ``unknown``."""


def search(
    demand: Demand,
    *,
    available: Mapping[str, Sequence[str]] | None = None,
    enough: int = ENOUGH,
    most: int = MOST,
) -> Search:
    """Possible cells for a demand: first those without reservations, the newest release, Python, system.

    ``available`` are the versions that the package index has, by distribution; without it the releases that
    the facts know are taken. There is one cell for each release, Python and CUDA provider. After ``enough``
    cells without reservations no older ones are looked for.
    """
    if absent := [one for wish in demand.frameworks if (one := _absent(wish, available)) is not None]:
        return Search(possible=[], absent=absent)
    ranked: list[tuple[tuple[object, ...], Proposal]] = []
    open_: list[tuple[tuple[object, ...], Proposal]] = []
    refused: dict[Combination, Proposal] = {}
    unreserved = 0
    for number, (combination, proposal) in enumerate(judged(demand, available=available, most=most)):
        if proposal.possible:
            ranked.append((_rank(proposal, demand, combination, number), proposal))
            unreserved += proposal.outcome is Outcome.POSSIBLE
        elif refused.setdefault(combination, proposal).outcome.severity > proposal.outcome.severity:
            refused[combination] = proposal
        if not proposal.possible and left_to_lock(proposal.findings):
            open_.append((_rank(proposal, demand, combination, number), proposal))
        if unreserved >= enough:
            break
    possible, left = (
        distinct([proposal for _, proposal in sorted(pairs, key=lambda pair: pair[0])])
        for pairs in (ranked, open_)
    )
    return Search(
        possible=possible,
        left_to_lock=left,
        refused=[proposal.cell for proposal in refused.values()],
    )


def of_its_time(demand: Demand, available: Mapping[str, Sequence[str]] | None, notes: list[str]) -> Demand:
    """The demand for TensorFlow 1, with a note, where a file asks for ``tensorflow>=1.12`` and what stands
    beside it holds back the newest release, too; else the same.

    Code of TensorFlow 1 does not run with 2 (https://www.tensorflow.org/guide/migrate), and who bounds NumPy
    to a release of 2018 wrote for what there was: 2.7 takes that NumPy by its metadata alone.
    """
    for wish in demand.frameworks:
        bound, clauses = lower_bound(wish.parsed), {clause.operator for clause in wish.parsed.specifier}
        if load().table_name(wish.name) != "tensorflow" or not demand.companions:
            continue
        if bound is None or key(bound)[0] != 1 or not clauses <= {">=", ">", "!="}:
            continue
        first = wish.bound(f"{wish.parsed.specifier},<2")
        others = tuple(first if one is wish else one for one in demand.frameworks)
        bounded = replace(demand, frameworks=others)
        newest, alone = (
            closest(one, {}, available=available) for one in (demand, replace(demand, companions=()))
        )
        held = newest is None or (alone is not None and newest.cell.frameworks != alone.cell.frameworks)
        if held and closest(bounded, {}, available=available) is not None:
            why = "it is written for TensorFlow 1, and what stands beside it is of that time, too"
            notes.append(f"{wish} ({wish.place}) is taken as {first}: {why}")
            return bounded
    return demand


def closest(
    demand: Demand,
    near: Mapping[str, str],
    *,
    available: Mapping[str, Sequence[str]] | None = None,
    most: int = MOST,
) -> Proposal | None:
    """The best possible cell of the closest releases; None if there is none.

    ``near`` has the versions, by the frameworks' names, that releases are to be close to; of other frameworks
    the newest come first.
    """
    found: list[tuple[tuple[object, ...], Proposal]] = []
    first = None
    for number, (combination, proposal) in enumerate(
        judged(demand, available=available, near=near, most=most)
    ):
        if first not in {None, combination}:
            break
        if proposal.possible:
            first = combination
            found.append((_rank(proposal, demand, combination, number), proposal))
    return min(found, key=lambda pair: pair[0])[1] if found else None


def judged(
    demand: Demand,
    *,
    available: Mapping[str, Sequence[str]] | None = None,
    near: Mapping[str, str] | None = None,
    most: int = MOST,
) -> Iterator[tuple[Combination, Proposal]]:
    """Candidates with the rules' answer to each, the newest releases first, or those close to ``near``."""
    ways = [_ways(wish, available, (near or {}).get(wish.name)) for wish in demand.frameworks]
    hopeless = None
    for combination, sketch in itertools.islice(_candidates(demand, ways), most):
        if combination is hopeless:
            continue
        asked = _with_companions(sketch, demand)
        cell, findings = check_candidate(asked, demand.driver, companions=bool(demand.companions))
        bounds: dict[str, str] = {}
        while (kept := kept_from_bad(asked, findings)) is not None:
            asked = kept[0]
            bounds[kept[1].partition("<")[0]] = kept[1]  # the lowest of a package
            cell, findings = check_candidate(asked, demand.driver, companions=bool(demand.companions))
        # they are for several CUDA majors, and refuse each other on every Python and base
        if any(f.rule == "cuda-provider" and f.outcome is Outcome.IMPOSSIBLE for f in findings[-1:]):
            hopeless = combination
        added = (*_why_added(combination, cell, demand), *bounds.values())
        yield combination, Proposal(cell=cell, findings=findings, added=added)


def _why_added(combination: Combination, cell: Cell, demand: Demand) -> Iterator[str]:
    """Why bounds of the frameworks' own rows are in the cell, which their metadata lacks."""
    asked = {str(wish) for wish in demand.companions}
    caps = (text for text in cell.pip if text.startswith("nvidia-cudnn-cu") and text not in asked)
    yield from filter(None, (why_cudnn(text, cell.gpus) for text in caps if "<=" in text))
    yield from followed(demand.companions, cell)[1]
    for row in (choice.row for choice in combination):
        title = f"{load().table(row.distribution).title} {row.version}"
        if row.numpy_abi == "1" and "numpy<2" in cell.pip and "numpy<2" not in asked:
            yield f"numpy<2: {title} was compiled for NumPy 1, and with NumPy 2 it does not run"
        for text in row.pip:
            if text != "numpy<2" and text in cell.pip and text not in asked:
                yield f"{text}: {title} does not say so itself, and newer releases break it"


def _ways(
    wish: NamedRequirement, available: Mapping[str, Sequence[str]] | None, near: str | None
) -> list[Choice]:
    found = list(choices(wish.parsed, available))
    if near is not None:
        order = closest_first(near, (choice.row.version for choice in found))
        found.sort(key=lambda choice: order.index(choice.row.version))
    return found


def _absent(wish: NamedRequirement, available: Mapping[str, Sequence[str]] | None) -> Absent | None:
    """Why no candidate has such a release; None if some have."""
    if next(choices(wish.parsed, available), None) is not None:
        return None
    table = load().table(wish.name)
    known = sorted({row.version for row in table.rows}, key=release)
    span = f"on record are {known[0]} to {known[-1]} (`docs/facts.md`)"
    since, meant_for = table.elsewhere_since, pinned(wish.parsed) or lower_bound(wish.parsed)
    if since is not None and meant_for is not None and release(meant_for) >= release(since):
        reason = f"of {wish} ({wish.place}) nothing is on record: {table.title} has it on an index of its own"
        reason += f", {table.elsewhere_page}" * bool(table.elsewhere_page)
        return Absent(wish=wish, reason=f"{reason}; {span}", outcome=Outcome.UNKNOWN)
    exact = pinned(wish.parsed)
    if exact is not None and table.on_its_makers_page(exact):
        reason = f"of {wish} ({wish.place}) nothing is on record: its build with CUDA lies on a page of its"
        reason += (
            " maker's that is no package index; `rtbuild check` of a matrix whose `index` has it decides"
        )
        return Absent(wish=wish, reason=f"{reason}; {span}", outcome=Outcome.UNKNOWN)
    if available and _is_not_listed(wish, available):
        reason = f"no release on record that the package index has fits {wish} ({wish.place})"
        there = sorted((v for one in distributions([wish]) for v in available.get(one, ())), key=release)
        if exact is not None and there and release(exact) < release(there[0]):
            reason += f": its wheels of {wish.name} for Linux begin at {there[0]}"
        return Absent(wish=wish, reason=reason, outcome=Outcome.IMPOSSIBLE)
    listed = [v for project in distributions([wish]) for v in (available or {}).get(project, ())]
    none = table.no_such_release(exact, wish.name) if exact is not None and exact not in listed else None
    if none is not None:
        return Absent(wish=wish, reason=none, outcome=Outcome.IMPOSSIBLE)
    return Absent(wish=wish, reason=_unread(wish, table, span), outcome=Outcome.UNKNOWN)


def _unread(wish: NamedRequirement, table: FrameworkTable, span: str) -> str:
    """Why nobody knows of such a release: its build, or its wheels, are not on record, or nothing is."""
    exact = pinned(wish.parsed) or ""
    if "+" in exact and (others := table.of(exact.partition("+")[0])):
        builds = ", ".join(f"{_build_of(row)} for CUDA {short(row.cuda, 2)}" for row in others if row.cuda)
        of = f"{table.title} {others[0].version}"
        none = f"the build {wish} ({wish.place}) is not on record"
        if (maker := maker_of(exact.partition("+")[2])) is not None:
            none = f"the build {wish} ({wish.place}) is for {maker}'s, and rtbuild serves NVIDIA's alone"
        return f"{none}; of {of} there are: {builds or 'none with CUDA'}"
    if lacks_extras(wish):
        return _by_its_extras(wish, table)
    rows = [row for row in table.rows if contains(wish.parsed.specifier, row.version)]
    if rows and rows[-1].distribution == wish.name:
        row = rows[-1]
        why = next(iter(row.unread.values()), "they are on an index of their maker's")
        label = f"{table.title} {row.version}"
        return f"of {label}, which fits {wish} ({wish.place}), no wheels with CUDA are on record: {why}"
    return f"no release on record fits {wish} ({wish.place}): {span}"


def _by_its_extras(wish: NamedRequirement, table: FrameworkTable) -> str:
    """Why no release on record can be had by the extras that are asked for."""
    extras = ", ".join(sorted(map(canonical, wish.parsed.extras)))
    rows = sorted(with_extras(wish), key=lambda row: release(row.version))
    if not rows:
        others = ", ".join(sorted({extra for row in table.of(table.newest) for extra in row.extras} - {""}))
        none = f"no release of {table.title} on record brings CUDA by the extra {extras}"
        return f"{none}; {table.newest} does by {others or 'none'}"
    fitting = [row for row in rows if contains(wish.parsed.specifier, row.version)]
    span = f"{rows[0].version} to {rows[-1].version}"
    if not fitting:
        with_it = f"of the releases of {table.title} with the extra {extras}, {span}"
        return f"{with_it}, none fits {wish} ({wish.place})"
    where = "lies on a page of its maker's that is no package index"
    last = f"the newest release of {table.title} with the extra {extras} is {fitting[-1].version}"
    return f"{last}, and its build for {fitting[-1].variant or 'CUDA'} {where}"


def lacks_extras(wish: NamedRequirement) -> bool:
    """Whether no way on record has a framework's extras, and the same release without them has one."""
    bare = wish.bound(str(wish.parsed.specifier), extras=False)
    every = bool(wish.parsed.extras) and next(choices(wish.parsed), None) is None
    return every and next(choices(bare.parsed), None) is not None


def with_extras(wish: NamedRequirement) -> list[FrameworkRow]:
    """The rows of a framework, wherever their wheels lie, that have one of the extras that are asked for."""
    extras = set(map(canonical, wish.parsed.extras))
    rows = [row for row in load().table(wish.name).rows if row.distribution == wish.name]
    named = [row for row in rows if any(map(row.is_named_by, extras))]
    return named or [row for row in rows if extras & {*row.extras, *row.aliases}]


def meant_version(wish: NamedRequirement) -> str:
    """The version that a requirement is about: the one that it pins, else the last on record that has its
    extras, if newer ones have dropped them, else its lower bound, else any other.
    """
    parsed = wish.parsed
    had = max(
        (row.version for row in with_extras(wish) if contains(parsed.specifier, row.version)),
        key=release,
        default=None,
    )
    newest = load().table(wish.name).newest
    bound = pinned(parsed) or (had if had != newest else None) or lower_bound(parsed)
    return bound or min((clause.version.removesuffix(".*") for clause in parsed.specifier), default=newest)


def _build_of(row: FrameworkRow) -> str:
    return f"{row.distribution}=={row.version}" + ("" if row.default else f"+{row.variant}")


def _is_not_listed(wish: NamedRequirement, available: Mapping[str, Sequence[str]]) -> bool:
    """Whether the index answered about a framework, and has no such release.

    Its answer holds no pre-releases, and not the indexes of a maker's own that have variants.
    """
    projects = [project for project in distributions([wish]) if project in available]
    if not projects or "+" in str(wish) or wish.parsed.specifier.prereleases:
        return False
    listed = (version for project in projects for version in available[project])
    return not any(contains(wish.parsed.specifier, version) for version in listed)


def _candidates(demand: Demand, ways: list[list[Choice]]) -> Iterator[tuple[Combination, Cell]]:
    fitting, refused = [], False
    for every in ways:
        way = [choice for choice in every if demand.takes_glibc(choice.row)]
        # what computes on the CPU alone is no answer where something with CUDA was meant
        with_cuda = [choice for choice in way if not choice.without_cuda] or way
        alone = [choice for choice in with_cuda if _alone(choice, demand)]
        refused = refused or not alone
        fitting.append(alone or with_cuda)
    for combination in Combination.of(fitting):
        tried = set[tuple[str, str]]()
        for python in combination.pythons:
            if demand.takes_python(python):
                for cell in combination.cells(python, demand.gpus, demand.built_for):
                    kind = (cell.cuda.provider, cell.base.kind)
                    if (demand.driver is None or cell.cuda.provider != "none") and not (
                        refused and kind in tried
                    ):
                        tried.add(kind)  # the machine refuses them on each Python and system alike
                        yield combination, cell


def _alone(choice: Choice, demand: Demand) -> bool:
    """Whether the machine lets one framework run at all: saves asking about its every Python and base."""
    cell = next(choice.cells(demand.gpus, demand.built_for), None)
    if cell is None or (cell.cuda.provider == "none" and demand.driver is not None):
        return False
    return Outcome.of(check(cell, driver=demand.driver, only=OF_MACHINE)) is not Outcome.IMPOSSIBLE


def _with_companions(cell: Cell, demand: Demand) -> Cell:
    holding = (wish for wish in demand.companions if wish.holds(cell.python, cell.platform))
    held, _ = followed(holding, cell)
    beside = [without_marker(wish.parsed) for wish in held]
    others = cell.index and [url for url in demand.index if _OF_A_BUILD.match(url)]
    return replace(
        cell,
        pip=asked_once(beside, cell.pip),
        imports=imports_into(demand, held),
        index=tuple(dict.fromkeys((*(url for url in demand.index if url not in others), *cell.index))),
    )


_OF_A_BUILD = re.compile(r"https://download\.pytorch\.org/whl/cu\d+/?$")
"""PyTorch's index of one build, which gives way to that of the build that is taken."""
MOST_IMPORTS = 200
"""Imports that a cell gets out of source at most."""


def imports_into(demand: Demand, beside: Iterable[NamedRequirement]) -> tuple[str, ...]:
    """The source's imports that go into the frameworks and the packages ``beside``, deeper than their names.

    What comes with a dependency, or is there on Colab, is not known before the set is resolved.
    """
    names = {wish.name for wish in beside} if demand.imports else set[str]()
    tables = [load().packages[name] for name in names & load().packages.keys()]
    brought = {re.split("[./]", path)[0] for table in tables for path in table.rows[-1].modules}
    modules = {row.module for row in load().registry}  # onnxruntime of onnxruntime-gpu
    brought |= {one for one in modules for wish in demand.frameworks if wish.name.startswith(one)}

    def is_asked_for(top: str) -> bool:
        return canonical(top) in names or top in brought

    found = {text for text in demand.imports if re.search("[.:]", text)}
    return tuple(sorted(text for text in found if is_asked_for(re.split("[.:]", text)[0]))[:MOST_IMPORTS])


def _rank(proposal: Proposal, demand: Demand, combination: Combination, number: int) -> tuple[object, ...]:
    mine = demand.python_rank(proposal.cell.python)
    return (
        any(finding.outcome is Outcome.WARNS for finding in proposal.findings),
        [newest_first(choice.row.version) for choice in combination],
        sum(bool(choice.index) for choice in combination),
        sum(not choice.brings for choice in combination),
        mine[:2],
        needs_standalone(proposal.cell),
        mine,
        number,
    )


def needs_standalone(cell: Cell) -> bool:
    """Whether the base has no Python of that version."""
    return not cell.has_own_python(system_of(cell))


def distinct(proposals: list[Proposal]) -> list[Proposal]:
    """The first of those that differ only in the point release of the base or of cuDNN."""
    kept: dict[object, Proposal] = {}
    for proposal in proposals:
        cell = proposal.cell
        kept.setdefault((cell.frameworks, cell.python, cell.cuda.provider, cell.base.kind), proposal)
    return list(kept.values())


def to_matrix_yaml(
    proposals: Sequence[Proposal], name: str = "resolved", *, remarks: Sequence[str] = ()
) -> str:
    """A matrix file that holds the proposed cells; those that differ in an extra alone have it as variant.

    ``remarks`` are comments on top of it.
    """
    frameworks = ", ".join(dict.fromkeys(text for proposal in proposals for text in proposal.cell.frameworks))
    lines = [
        *(f"# {remark}" for remark in remarks),
        "version: 1",
        f"name: {json.dumps(name)}",
        f"description: {json.dumps(frameworks)}",
        "",
        "include:",
    ]
    taken: set[str] = set()
    for proposal in proposals:
        cell = proposal.cell
        if cell_id(cell) in taken:
            parsed = (requirement(text) for text in cell.frameworks)
            extras = sorted(extra for one in parsed if one is not None for extra in one.extras)
            cell = replace(cell, variant="-".join(extras) or "other")
            if cell_id(cell) in taken:
                cell = replace(cell, variant=f"{cell.variant}-{len(taken)}")
        taken.add(cell_id(cell))
        open_ = [f"not known: {one.message}" for one in proposal.findings if one.outcome is Outcome.UNKNOWN]
        lines += [f"  # {reason}" for reason in (*proposal.added, *proposal.sources, *open_)]
        lines += entry(cell)
    return "\n".join(lines) + "\n"


# -- the Pythons that requirements have wheels for, by the names of the files that the index lists

_NEWEST_GLIBC = "2.41"
"""The question is about Python alone, so the newest system is taken."""


def every_python() -> list[str]:
    """The Pythons that a system has, or a framework's release has wheels for; the newest first."""
    tables = load()
    found = {python for system in tables.systems.values() for python in system.python}
    found |= {python for table in tables.frameworks.values() for row in table.rows for python in row.python}
    return sorted((python for python in found if python.startswith("3.")), key=key, reverse=True)


def wheel_pythons(
    wishes: Collection[NamedRequirement], index: Index, platform: str
) -> dict[NamedRequirement, frozenset[str]]:
    """The Pythons of each requirement that has wheels for some Pythons and not for others.

    A requirement is left out if the index does not answer about it, or has sources alone.
    """
    if not wishes:
        return {}
    tags = {
        python: Target(python=python, platform=platform, glibc=_NEWEST_GLIBC).tags()
        for python in every_python()
    }
    listed = pages((wish.name for wish in wishes), index)
    found = {}
    for wish in wishes:
        files = listed[wish.name]
        if isinstance(files, str):
            continue
        mine = _admitted(wish, files)
        has = frozenset(
            python
            for python, fitting in tags.items()
            if any(takes(f.requires_python, python) and rank(f.name, fitting) is not None for f in mine)
        )
        there = has | {python for python in tags if not wish.holds(python, platform)}
        if has and len(there) < len(tags):
            found[wish] = there
    return found


def _admitted(wish: NamedRequirement, files: Sequence[IndexFile]) -> list[IndexFile]:
    """The wheels of the releases that a requirement admits."""
    versions: dict[str, Version] = {
        file.name: wheel.version for file in files if (wheel := wheel_name(file.name)) is not None
    }
    return [
        file
        for file in files
        if file.name in versions
        and file.yanked is None
        and wish.parsed.specifier.contains(versions[file.name], prereleases=True)
    ]


def common(has: Mapping[NamedRequirement, frozenset[str]]) -> frozenset[str]:
    """The Pythons that all of these requirements have wheels for; all without any requirement."""
    return frozenset(every_python()).intersection(*has.values())
