"""From requirements to a matrix of possible cells, or to a refusal that says what would do."""

import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from packaging.requirements import Requirement

from builder.core.errors import (
    IndexSilentError,
    NoSolutionError,
    NothingPossibleError,
    NotKnownError,
    UsageError,
)
from builder.core.versions import at_least, contains, lower_bound, pinned, release
from builder.plan.facts.rules import BROKEN_SET, PYTORCH, MachineDrivers, platform_of
from builder.plan.facts.tables import NameRow, cards_of, load
from builder.plan.resolve.as_written import near_as_written, of_unedited, ways_as_written
from builder.plan.resolve.cuda_variants import PageWheel, without_pages
from builder.plan.resolve.dates import time_of
from builder.plan.resolve.evidence import ways_of, with_data_on_cpu
from builder.plan.resolve.loosening import (
    NearestDemand,
    Substitution,
    without_contradictions,
    written_twice,
)
from builder.plan.resolve.native_code import build_variables, for_compiling, installed_by_nvcc, of_sources
from builder.plan.resolve.notes import (
    ProposalNote,
    for_jetson,
    named,
    noted_as,
    notes_on,
    of_indexes,
    of_newer,
    of_newer_driver,
    of_older,
    of_pythons,
    of_retired,
    of_system,
    releases_of,
    with_code_read,
    with_way,
)
from builder.plan.resolve.platform_tags import bound_by_glibc
from builder.plan.resolve.project_install import of_hand, of_override, of_told_python, told_of, told_python
from builder.plan.resolve.refusals import (
    LastRelease,
    last_release,
    nothing,
)
from builder.plan.resolve.resolver import brought, prove
from builder.plan.resolve.servers import of_servers
from builder.plan.resolve.silent_pages import asked_of_rest
from builder.plan.resolve.solve import (
    Demand,
    Proposal,
    common,
    distributions,
    every_python,
    meant,
    of_its_time,
    pythons,
    search,
    split,
    to_matrix_yaml,
    wheel_pythons,
)
from builder.plan.resolve.substitutes import joined, keeps_files, nearest_demand
from builder.plan.resolve.vendor_builds import refused_for_vendor
from builder.plan.resolve.wishes import NamedRequirement, Wishes, from_arguments
from builder.sources.index import Index, Offer, ask


class _BrokenSetError(NothingPossibleError):
    """The resolver finds wheels, and their own files speak against them: a nearer set is read, too."""


_USUAL_PYTHON = "3.12"
_PYTHONS = 4
"""Pythons on which it is asked what packages bring."""
_NO_PACKAGE = (
    "a program that is no package is served by its own requirements: `rtbuild resolve torch -r "
    "THEIR/requirements.txt`; a model by the package that runs it: `rtbuild resolve vllm`"
)
_FRAMEWORK_EXTRAS = {"tf": "tensorflow", "flax": "jax"}
"""Extras by which packages bring a framework of another name: transformers[tf], [flax]."""
_WORDS = 12
"""Words of a command that is said whole."""
_PROCESSORS = {"linux/amd64": "x86-64", "linux/arm64": "ARM"}


@dataclass(frozen=True, kw_only=True)
class AskedMachine:
    """The machine that images are to run on."""

    gpus: tuple[str, ...] = ()
    driver: str | None = None
    platform: str | None = None
    glibc: str | None = None
    """That of the system on which pip installs; None for that of the images."""
    kernel_modules: bool = True
    """Whether the driver has modules of a kernel: that of Windows, which serves WSL, too, has none."""


@dataclass(frozen=True, kw_only=True)
class ProposedMatrix:
    """A matrix of possible cells, and the answers of rules, index and resolver behind it."""

    text: str
    demand: Demand
    asked: Wishes
    offers: Mapping[str, Offer]
    proposals: Sequence[Proposal]
    last: Sequence[LastRelease] = ()
    """Of each framework, if a card or a driver is given."""
    changes: Sequence[Substitution] = ()
    """What differs from what was asked for."""
    said: Sequence[ProposalNote] = ()
    """Notes on the proposals."""

    @property
    def notes(self) -> list[ProposalNote]:
        """Notes on what was read, and on the proposals."""
        return [*noted_as("files", self.asked.notes), *self.said]

    def origin(self, wish: NamedRequirement) -> tuple[str, str]:
        """The source of a framework's versions, ``index`` or ``facts``, and why."""
        mine = [self.offers[project] for project in distributions([wish]) if project in self.offers]
        answered = [offer for offer in mine if offer.unknown is None]
        if not answered:
            return "facts", str(mine[0].unknown) if mine else "the index was not asked"
        releases = len({version for offer in answered for version in offer.versions})
        processor = _PROCESSORS[self.demand.built_for]
        return "index", f"it has {releases} releases with wheels for Linux on {processor}"


def propose(
    asked: Wishes,
    on: AskedMachine,
    *,
    python: str | None,
    limit: int,
    name: str,
    index: Index | None,
    take_nearest: bool = False,
    rootfs: bool = False,
    date: str | None = None,
    files: Sequence[Path] = (),
    note: Callable[[str], None] = lambda _text: None,
) -> ProposedMatrix:
    """A matrix of at most ``limit`` cells, the best first. ``index`` None: the facts alone are asked.
    ``rootfs``: of cells with the best one's releases first those that need no registry. ``date``: the
    project's time, as :func:`as_of` reads it; without, what it names tells, else the clone that ``files``
    are in. ``note`` is told each stage, since a resolver and an index may take minutes.

    Raises UsageError if a requirement is neither on record nor in the index, NothingPossibleError if no cell
    is possible (which two demands clash, and which one to give up), and NotKnownError if none is known to be.
    Either says what would do; that is taken at once with ``take_nearest``.
    """
    with _told_elsewhere(asked, on.gpus):
        typed = python is not None
        demand = with_data_on_cpu(_demanded(asked, on, python or asked.python), asked)
        demand, swapped = _by_other_names(_beside_cpu_builds(demand, index, note))
        demand, freed = without_contradictions(demand)
        if not demand.frameworks:
            if index is not None:
                note(f"asking the index for the frameworks that {named(demand.companions)} brings")
            try:
                demand = _with_brought(demand, index)
            except (UsageError, NoSolutionError) as problem:  # what was left out may have been the framework
                problem.message = "\n  ".join((problem.message, *asked.notes))
                raise
        note(f"asking the {'index' if index is not None else 'tables'} about {named(demand.frameworks)}")
        offers = ask(distributions(demand.frameworks), index, demand.built_for) if index is not None else {}
        if index is not None and index.settings.chosen:
            _refuse_silent(offers)
        _refuse_absent(demand, offers)
        available = {project: offer.versions for project, offer in offers.items() if offer.wheels}
        demand = of_its_time(bound_by_glibc(demand, index, asked.notes), available, asked.notes)
        demand, paged = _without_pages(for_compiling(demand, asked))
        refusal = _refused_for(swapped)
        when = partial(time_of, date=date, files=files, index=index)
        ways = ways_as_written(ways_of(demand, asked, available, index, when), asked, available)
        demand = near_as_written(ways[-1][0], asked, available)
        try:
            demand, dropped, standing, told = _first_served(
                ways, available, index, limit, rootfs=rootfs, note=note
            )
            changes, said = [*swapped, *freed, *dropped], told
        except NothingPossibleError as problem:
            if isinstance(problem, NotKnownError | _BrokenSetError):
                demand = ways[0][0]  # what decides was not read, or the files do: the project's time is near
            vendor = refused_for_vendor(problem, demand, available, index, note, only_proven=take_nearest)
            if vendor is not None:
                raise vendor from problem
            beside = (*map(str, freed), *told_of(demand, asked))
            way = _nearest_way(problem, demand, index, available, note, typed=typed, beside=beside)
            changes, standing = joined([*swapped, *freed, *way.changes]), [way.proposal]
            said = [*noted_as("older", of_older(way.proposal, demand, available))]
            refusal = refusal or problem
        if index is not None:
            standing = [with_code_read(one, demand, index, note) for one in standing]
        if refusal is not None and not take_nearest and not keeps_files(changes, standing[0]):
            some = any(one.instead is None for one in changes)
            whole = _without_driver(demand, available, index) if some else None
            raise _with_way(
                refusal, changes, standing[0], demand, asked, whole=whole, paged=paged, files=files
            ) from refusal
        last = _last_releases(demand)
        said += (
            *notes_on(standing, demand, asked, [*filter(None, (change.by_hand for change in changes))]),
            *noted_as("python", of_told_python(standing[0], demand, asked)),
            *noted_as("files", of_override(standing[0], changes, files)),
        )
        said += noted_as("system", (one.line(standing[0].cell) for one in paged))
        said += noted_as("driver", of_newer_driver(standing[0], last, demand))
        return ProposedMatrix(
            text=to_matrix_yaml(standing, name, remarks=[str(change) for change in changes]),
            demand=demand,
            asked=asked,
            offers=offers,
            proposals=standing,
            last=last,
            changes=changes,
            said=said,
        )


def _demanded(asked: Wishes, on: AskedMachine, python: str | None) -> Demand:
    frameworks, companions = split(asked, python, on.platform or platform_of(on.gpus))
    return Demand(
        frameworks=frameworks,
        companions=companions,
        gpus=on.gpus,
        driver=on.driver,
        platform=on.platform,
        python=python,
        glibc=on.glibc,
        kernel_modules=on.kernel_modules,
        index=tuple(asked.index),
        imports=tuple(asked.imports),
        told_python=told_python(asked) if python is None else None,
    )


def _without_pages(demand: Demand) -> tuple[Demand, list[PageWheel]]:
    """As :func:`without_pages`, of a demand."""
    frameworks, companions, paged = without_pages(demand.frameworks, demand.companions)
    return replace(demand, frameworks=frameworks, companions=companions), paged


def _last_releases(demand: Demand) -> list[LastRelease]:
    """The newest release of each framework, where a card or a driver is given."""
    given = demand.gpus or demand.driver is not None
    if not given or demand.built_for != "linux/amd64" or demand.glibc is not None:
        return []
    return [
        last_release(wish.name, demand.gpus, demand.driver, takes=demand.takes_python)
        for wish in demand.frameworks
    ]


def _with_way(
    refusal: NothingPossibleError,
    changes: Sequence[Substitution],
    best: Proposal,
    demand: Demand,
    asked: Wishes,
    *,
    whole: Proposal | None,
    paged: Sequence[PageWheel],
    files: Sequence[Path],
) -> NothingPossibleError:
    """As :func:`with_way`, with what has to be on the system, and the notes on the set."""
    sure, unread = installed_by_nvcc(asked)
    by_hand = [*filter(None, (change.by_hand for change in changes)), *sure]
    notes = (
        *of_indexes(asked.places, best, demand),
        *of_retired(best, demand),
        *of_sources(asked, best, demand),
        *of_unedited(asked, best),
    )
    system = [
        *of_hand(asked, build_variables(asked, best.cell, demand)),
        *(one.line(best.cell) for one in paged),
    ]
    system += of_system(best, demand, by_hand, unread)
    notes = (*notes, *of_override(best, changes, files))
    return with_way(refusal, changes, best, whole, system=system, notes=notes)


@contextmanager
def _told_elsewhere(asked: Wishes, gpus: Sequence[str]) -> Iterator[None]:
    """A refusal gets a line for each package that is asked for twice, and for each copy of such a release
    that lies on no package index.
    """
    try:
        yield
    except NothingPossibleError as none:
        if asked.clashes:
            first, *more = none.message.splitlines()
            none.reasons = (*asked.clashes, *none.reasons)
            none.message = "\n".join((first, *(f"  {clash}" for clash in asked.clashes), *more))
        cards = cards_of(gpus)
        rows = {
            row: str(row.source)
            for wish in asked.wishes
            for row in load().elsewhere
            if load().is_framework(wish.name) and row.name == load().table_name(wish.name)
            if (newest := _newest_of(wish)) and contains(row.versions, newest)
            if not (row.newer and wish.proven)  # the sources take what newer releases have no more
            if row.capability_max is None
            or all(at_least(row.capability_max, one.capability) for one in cards)
        }
        if not rows:
            raise
        lines = [none.message, "elsewhere:", *(f"  {row.text} [{source}]" for row, source in rows.items())]
        raise type(none)(
            "\n".join(lines), reasons=none.reasons, instead=none.instead, hint=none.hint
        ) from none


def _newest_of(wish: NamedRequirement) -> str | None:
    """The newest release on record that a requirement admits, else the one that it names."""
    every = {row.version for row in load().table(wish.name).rows}
    fitting = (version for version in every if contains(wish.parsed.specifier, version))
    return max(fitting, key=release, default=pinned(wish.parsed) or lower_bound(wish.parsed))


def _served(
    demand: Demand,
    available: Mapping[str, Sequence[str]],
    index: Index | None,
    limit: int,
    *,
    rootfs: bool,
    note: Callable[[str], None],
) -> tuple[Demand, list[Substitution], list[Proposal], list[ProposalNote]]:
    """As :func:`_on_any_python`, after the demand and what was left out of it: of two packages that write the
    same files pip leaves one, too, so that nobody has to be asked.
    """
    try:
        return demand, [], *_on_any_python(demand, available, index, limit, rootfs=rootfs, note=note)
    except NothingPossibleError as problem:
        fewer, dropped = _with_one_of_each(demand, problem)
        return fewer, dropped, *_on_any_python(fewer, available, index, limit, rootfs=rootfs, note=note)


def _first_served(
    ways: Sequence[tuple[Demand, Sequence[str]]],
    available: Mapping[str, Sequence[str]],
    index: Index | None,
    limit: int,
    *,
    rootfs: bool,
    note: Callable[[str], None],
) -> tuple[Demand, list[Substitution], list[Proposal], list[ProposalNote]]:
    """As :func:`_served`, of the first demand that is, with what is to be said of it; the last one's refusal
    without any.
    """
    for demand, said in ways:
        try:
            found = _served(demand, available, index, limit, rootfs=rootfs, note=note)
        except NothingPossibleError as problem:
            # reading the files of sets takes longest, and the nearest to the first way is read next
            if demand is ways[-1][0] or isinstance(problem, _BrokenSetError):
                raise
        else:
            return (*found[:3], [*noted_as("older", said), *found[3]])
    raise AssertionError(ways)  # there is one


def _nearest_way(
    problem: NothingPossibleError,
    demand: Demand,
    index: Index | None,
    available: Mapping[str, Sequence[str]],
    note: Callable[[str], None],
    *,
    typed: bool,
    beside: Sequence[str] = (),
) -> NearestDemand:
    """As :func:`nearest_demand`, on any Python if none is ``typed``; read, if ``problem`` is of files. Raises
    ``problem`` without any, with the lines ``beside``, and where the nearest set has the same against it.
    """
    note("not possible as asked: looking for the nearest requirements that are")
    try:
        way = nearest_demand(demand, index, available, note)
        if way is None and not typed and demand.python is not None:
            freed = replace(demand, python=None)
            way = _on_another_python(demand, nearest_demand(freed, index, available, note))
    except NotKnownError as stopped:
        problem.hint = stopped.message
        raise problem from stopped
    if way is None:
        _tell_alone(problem, demand, available)
        problem.message = "\n  ".join((problem.message, *beside))
        raise problem
    if isinstance(problem, _BrokenSetError) and index is not None:
        read, _ = prove([way.proposal], demand, index, 1, note)
        if not read:
            raise problem
        way = replace(way, proposal=read[0])
    return way


def _on_another_python(demand: Demand, way: NearestDemand | None) -> NearestDemand | None:
    """The way with the change of a file's Python among its changes."""
    if (
        way is None
        or demand.python is None
        or contains(pythons(demand.python), f"{way.proposal.cell.python}.99")
    ):
        return way
    wish = NamedRequirement(
        parsed=Requirement(f"python{pythons(demand.python)}"), place="the Python of the files"
    )
    why = "no release that the card and the driver take has a wheel for it"
    change = Substitution(asked=wish, instead=f"python=={way.proposal.cell.python}.*", reason=why)
    return replace(way, changes=(change, *way.changes))


def _tell_alone(
    problem: NothingPossibleError, demand: Demand, available: Mapping[str, Sequence[str]]
) -> None:
    """Add to a refusal what would do without the packages beside, where nothing was found with them."""
    if not demand.companions:
        return
    free = replace(demand, companions=(), wheels_for=None)
    alone = nearest_demand(free, None, available)
    if alone is None or not alone.changes:
        return
    changes = "; ".join(str(one) for one in alone.changes)
    python = alone.proposal.cell.python
    problem.message += f"\nthe framework alone, on Python {python}: {changes}"
    problem.message += (
        f"\n  which releases of {named(demand.companions)} go with it was not found: ask without some"
    )


def _with_one_of_each(demand: Demand, problem: NothingPossibleError) -> tuple[Demand, list[Substitution]]:
    """The demand without packages that write the same files as one that stays; ``problem`` without any."""
    twice = written_twice(problem.message, [wish.name for wish in demand.companions])
    if not twice:
        raise problem
    gone = [wish for wish in demand.companions if wish.name in twice]
    rest = tuple(wish for wish in demand.companions if wish not in gone)
    dropped = [Substitution(asked=wish, instead=None, reason=twice[wish.name]) for wish in gone]
    return replace(demand, companions=rest), dropped


def _on_any_python(
    demand: Demand,
    available: Mapping[str, Sequence[str]],
    index: Index | None,
    limit: int,
    *,
    rootfs: bool,
    note: Callable[[str], None] = lambda _text: None,
) -> tuple[list[Proposal], list[ProposalNote]]:
    """As :func:`_standing`; if that finds none, on the Pythons that the companions have wheels for.

    With notes on the Pythons and on a framework's older release. Raises NothingPossibleError.
    """
    try:
        standing, newer = _standing(demand, available, index, limit, rootfs=rootfs, note=note)
    except NothingPossibleError as first:
        if isinstance(first, _BrokenSetError) or written_twice(
            first.message, [wish.name for wish in demand.companions]
        ):
            raise  # on each Python
        if index is not None and demand.companions:
            note(f"asking the index for the Pythons of {named(demand.companions)}")
        has = wheel_pythons(demand.companions, index, demand.built_for) if index is not None else {}
        there = common(has)
        if not has or not any(map(demand.takes_python, there)):
            raise
        try:
            standing, newer = _standing(
                replace(demand, wheels_for=there), available, index, limit, rootfs=rootfs, note=note
            )
        except NothingPossibleError as second:
            raise first from second  # which speaks of what was asked for
    else:
        has, there = {}, frozenset[str]()
    older = noted_as("older", of_older(standing[0], demand, available))
    return standing, [*noted_as("python", of_pythons(has)), *older, *newer]


def _standing(
    demand: Demand,
    available: Mapping[str, Sequence[str]],
    index: Index | None,
    limit: int,
    *,
    rootfs: bool,
    note: Callable[[str], None] = lambda _text: None,
) -> tuple[list[Proposal], list[ProposalNote]]:
    """At most ``limit`` proposals that rules and resolver accept, and notes on newer releases that they are
    not of; NothingPossibleError if there are none.
    """
    found = search(demand, available=available)
    if not found.possible and not found.left_to_lock:
        raise for_jetson(nothing(demand, found, available), demand)
    possible = found.possible or found.left_to_lock
    possible = _named_build_first(possible, demand)
    possible = _rootfs_first(possible) if rootfs else possible
    if index is None:
        why = "the index was not asked (--offline)"
        return [replace(one, unasked=why) for one in possible[:limit]], []
    standing, refused = asked_of_rest(*prove(possible, demand, index, limit, note), demand, index)
    if not standing:
        # what differs in the Python alone, which the first line names, is said once
        words = {text.partition("\n")[2] or text: text for text in reversed([*refused])}
        reasons = [line for text in reversed([*words.values()][-3:]) for line in text.splitlines()[:8]]
        if any(text.startswith(BROKEN_SET) for text in refused):
            raise _BrokenSetError(
                "\n  ".join(
                    (
                        "nothing is possible: by the files of their wheels the packages do not go together:",
                        *reasons,
                    )
                ),
                reasons=reasons,
                hint="type the remedy that a line names, or what it says nothing brings, beside the others; "
                "else pin another release of one of the two",
            )
        raise NothingPossibleError(
            "\n  ".join(
                (
                    "nothing is possible: the resolver finds no set of wheels for what fits card and driver:",
                    *reasons,
                )
            ),
            reasons=reasons,
            hint="loosen a requirement that the resolver names, or the Python",
        )
    # beside other packages :func:`of_older` says it
    return standing, [*noted_as("newer", of_newer(standing, {} if demand.companions else refused))]


def _named_build_first(possible: Sequence[Proposal], demand: Demand) -> list[Proposal]:
    """First of the cells of the best one's releases those with the build whose index the project names, if it
    names one.
    """
    named = {url.rstrip("/") for url in demand.index if re.search(r"/whl/cu\d+/?$", url)}
    best = dict(releases_of(possible[0]))

    def rank(one: Proposal) -> bool:
        mine = {url for url in one.cell.index if re.search(r"/whl/cu\d+/?$", url)}
        build = (Requirement(text) for text in one.cell.frameworks)
        taken = {(pinned(parsed) or "").partition("+")[2] for parsed in build}
        there = any(url.rpartition("/")[2] in taken for url in named & mine)
        return dict(releases_of(one)) != best or not there

    return sorted(possible, key=rank) if len(named) == 1 else [*possible]


def _rootfs_first(possible: Sequence[Proposal]) -> list[Proposal]:
    """First of the cells as good as the best, and with its releases, those that need no registry."""
    best = possible[0]

    def rank(one: Proposal) -> bool:
        alike = one.cell.frameworks == best.cell.frameworks and one.outcome is best.outcome
        return not (alike and one.cell.base.kind == "rootfs" and one.cell.cuda.provider != "base")

    return sorted(possible, key=rank)


def _refused_for(swapped: Sequence[Substitution]) -> NothingPossibleError | None:
    """The refusal of what was asked for by another name than that of its wheels for GPUs; None without."""
    reasons = [f"{one.asked} ({one.asked.place}) {one.reason}" for one in swapped]
    return NothingPossibleError("\n".join(reasons), reasons=reasons) if reasons else None


def _without_driver(
    demand: Demand, available: Mapping[str, Sequence[str]], index: Index | None
) -> Proposal | None:
    """The best proposal with all that is asked for, with another driver; None if there is none."""
    if demand.driver is None or isinstance(demand.driver, MachineDrivers):
        return None
    try:
        return _standing(replace(demand, driver=None), available, index, 1, rootfs=False)[0][0]
    except NothingPossibleError:
        return None


def _beside_cpu_builds(demand: Demand, index: Index | None, note: Callable[[str], None]) -> Demand:
    """The demand with the framework that packages bring beside one that computes on the CPU alone: flax
    brings JAX, and tensorflow-cpu beside it reads the data. The same demand if they bring none, or what has
    the files of the latter.
    """
    cpu = {wish.name: load().without[wish.name] for wish in demand.companions if wish.name in load().without}
    others = tuple(wish for wish in demand.companions if wish.name not in cpu)
    if demand.frameworks or not cpu or not others or index is None:
        return demand
    note(f"asking the index for the frameworks that {named(others)} brings")
    try:
        found = _with_brought(replace(demand, companions=others), index)
    except (UsageError, NoSolutionError):  # said of all of them below, where nothing has another name either
        return demand
    names = {load().table_name(wish.name) for wish in found.frameworks}
    if not found.companions or names & {load().table_name(row.instead) for row in cpu.values()}:
        return demand
    return replace(found, companions=demand.companions)


def _by_other_names(demand: Demand) -> tuple[Demand, list[Substitution]]:
    """The demand with the wheels for GPUs that are meant by other names: onnxruntime, cudf; and beside a
    framework, pytorch and paddle.
    """
    changes: list[Substitution] = []
    placed = [*demand.frameworks]
    for wish in demand.companions:
        build, row = load().without.get(wish.name), _mistaken(wish, demand)
        if build is not None and not demand.frameworks:
            instead, reason = build.instead, "computes on the CPU alone"
        elif row is not None:
            what = "names another package" if row.outcome == "warns" else "has no wheel"
            instead, reason = row.instead, f"{what}: {row.reason}"
        else:
            placed.append(wish)  # of several under other markers each
            continue
        other = wish.named(instead)
        twice = other.name in {one.name for one in placed}
        if twice and (wish.parsed.specifier or not demand.frameworks):
            return demand, []
        placed += [] if twice else [other]
        changes.append(Substitution(asked=wish, instead=None if twice else str(other), reason=reason))
    frameworks = tuple(wish for wish in placed if load().is_framework(wish.name))
    others = tuple(wish for wish in placed if wish not in frameworks)
    return replace(demand, frameworks=frameworks, companions=others), changes


def _mistaken(wish: NamedRequirement, demand: Demand) -> NameRow | None:
    """The framework, or without any the package, that a name is mistaken for; None if it is not, or if it
    pins a release that only the other project may have.
    """
    row = load().mistaken_names.get(wish.name)
    if row is None or not all(map(PYTORCH.match, demand.index)):
        return None
    meant, exact = Requirement(row.instead).name, pinned(wish.parsed)
    here = load().stands_alone(meant) or (bool(demand.frameworks) and load().is_framework(meant))
    if not here or (row.versions is not None and (exact is None or exact not in row.versions)):
        return None
    theirs = row.outcome == "warns" and exact is not None and not load().table(meant).of(exact)
    return None if theirs else row


def _refuse_silent(offers: Mapping[str, Offer]) -> None:
    """IndexSilentError for an index of the user's own that does not answer: who names one may have no leave
    to ask another, and PyTorch's builds lie on its maker's.
    """
    silent = [offer.unknown for offer in offers.values()]
    if silent and None not in silent:
        raise IndexSilentError(
            f"nothing is proposed, since your own index (uv's or pip's configuration) is silent: {silent[0]}",
            hint="no other host was asked in its place; `rtbuild doctor --network` asks each host, and "
            "--offline none: the tables alone answer then",
        )


def _refuse_absent(demand: Demand, offers: Mapping[str, Offer]) -> None:
    """NothingPossibleError for a framework that the index answers about, and has no wheel of."""
    for wish in demand.frameworks:
        mine = [offers[project] for project in distributions([wish]) if project in offers]
        # a +cu126 build may be on an index of its own alone
        if mine and "+" not in str(wish) and all(o.unknown is None and not o.wheels for o in mine):
            text = (
                f"the package index has no wheel of {wish.name} for Linux on {_PROCESSORS[demand.built_for]}"
            )
            raise NothingPossibleError(
                text,
                reasons=[text],
                hint="check UV_DEFAULT_INDEX or pip.conf; --offline asks only rtbuild's own tables",
            )


def _with_brought(demand: Demand, index: Index | None) -> Demand:
    """The demand with the frameworks that the other packages bring: faster-whisper brings ctranslate2.

    Where they bring none, packages that need none stand in their place: DALI, XGBoost.
    """
    found: list[str] = []
    own = {row.distribution for row in load().registry if row.module}
    for wish in demand.companions:
        found += load().companion_asks(wish.name, pinned(wish.parsed))
        other = meant(wish.name)
        if other is not None:
            row = load().mistaken_names.get(wish.name)
            text = f"no table has {wish}" if row is None else f"{wish} is not {other}: {row.reason}"
            raise UsageError(f"{wish.place}: {text}", hint=f"did you mean {other}{wish.parsed.specifier}?")
        found += [
            one for extra in sorted(wish.parsed.extras) if (one := _FRAMEWORK_EXTRAS.get(extra, extra)) in own
        ]
    names = ", ".join(str(wish) for wish in demand.companions)
    alone = tuple(wish for wish in demand.companions if _runs_alone(wish.name))
    if alone and not found and alone == demand.companions:
        return replace(demand, frameworks=alone, companions=())
    if not found:
        if index is None:
            text = f"{_of_no_framework(demand)}, and --offline asks no index"
            raise UsageError(text, hint=f"name it, as in {_with_torch(demand)}; {_NO_PACKAGE}")
        found = _brought_on_any(demand, index)
    if not found and alone:
        others = tuple(wish for wish in demand.companions if wish not in alone)
        return replace(demand, frameworks=alone, companions=others)
    if not found:
        brings = "brings" if _file_of(demand) or len(demand.companions) == 1 else "bring"
        raise UsageError(
            f"{_file_of(demand) or names} {brings} no framework that is on record",
            hint=f"name the one that they need, as in {_with_torch(demand)}: "
            f"{', '.join(sorted(load().frameworks))}; {_NO_PACKAGE}",
        )
    added = tuple(
        NamedRequirement(parsed=wish.parsed, place=f"brought by {names}")
        for wish in from_arguments(found).merged().wishes
    )
    return replace(demand, frameworks=added)


def _brought_on_any(demand: Demand, index: Index) -> list[str]:
    """Of the Pythons that the packages have wheels for the first on which they go together.

    Raises NoSolutionError with the words about the first Python if there is none.
    """
    there = common(wheel_pythons(demand.companions, index, demand.built_for)) or every_python()
    pythons = [python for python in every_python() if python in there and demand.takes_python(python)]
    pythons.sort(key=lambda python: python != _USUAL_PYTHON)
    if servers := [*of_servers(demand)]:
        hint = f"its binding beside a framework: {_with_torch(demand)}"
        raise NotKnownError("\n  ".join(servers), reasons=servers, hint=hint)
    problems = []
    for python in pythons[:_PYTHONS] or [_USUAL_PYTHON]:
        try:
            return brought(index, demand, python)
        except NoSolutionError as problem:
            problems.append(problem)
    text = f"{_of_no_framework(demand)}, and which one its packages bring is not known: {problems[0].message}"
    hint = f"name the framework beside: {_with_torch(demand)}; {problems[0].hint}"
    raise NoSolutionError(text, hint=hint) from problems[0]


def _of_no_framework(demand: Demand) -> str:
    """The file of all requirements, or they themselves, of which none is a framework on record."""
    file = _file_of(demand)
    return f"{file or named(demand.companions)} names no framework that is on record"


def _file_of(demand: Demand) -> str | None:
    """The requirements file or Dockerfile that all requirements stand in; None if there is none."""
    files = {wish.place.rpartition(":")[0] for wish in demand.companions if re.search(r":\d+$", wish.place)}
    alone = len(files) == 1 and all(re.search(r":\d+$", wish.place) for wish in demand.companions)
    file = files.pop() if alone else None
    return None if file is None or file.endswith((".toml", ".ipynb", ".yml", ".yaml")) else file


def _with_torch(demand: Demand) -> str:
    """The command line for the same beside PyTorch: with the packages, if they are few."""
    if (file := _file_of(demand)) is not None:
        return f"`{shlex.join(['rtbuild', 'resolve', 'torch', '-r', file])}`"
    words = ["rtbuild", "resolve", "torch", *map(str, demand.companions)]
    return f"`{shlex.join(words)}`" if len(words) <= _WORDS else "`rtbuild resolve torch` with the same"


def _runs_alone(name: str) -> bool:
    return load().stands_alone(name) and bool(load().table(name).rows)
