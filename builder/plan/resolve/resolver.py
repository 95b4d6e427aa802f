"""The resolver's word on cells that are possible by the rules: it sees every other package.

Packages of which the index has only sources are found out by its words, read, and given to it as wheels.
Nothing of them is run here: a wheel with their metadata and no code stands in for each. The cell then names
them ``from-source``, and ``rtbuild lock`` builds them.
"""

import functools
import itertools
import re
import tempfile
import time
import zipfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from packaging.requirements import Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet

from builder.core import resources
from builder.core.errors import NoSolutionError, NotKnownError, PackageIndexError
from builder.core.model import Cell, Sdist, Wheel
from builder.core.versions import (
    apart,
    canonical,
    name_pattern,
    pinned,
    release,
    requirement,
    without_marker,
)
from builder.plan.facts.reading import ReadingCache, Truth, system_of
from builder.plan.facts.rules import (
    BROKEN_SET,
    OF_SET,
    Finding,
    Outcome,
    asked_once,
    broken_set,
    check,
    free_bounds,
)
from builder.plan.facts.tables import load
from builder.plan.lock import choose_sdist, requirements
from builder.plan.resolve.dates import Period, bounded, older_set
from builder.plan.resolve.solve import Demand, Proposal, distinct, search
from builder.plan.resolve.wishes import NamedRequirement
from builder.sources.index import (
    Index,
    LocalWheel,
    SdistContents,
    Target,
    UploadLimit,
    known_release,
    lacking,
    page,
    sdist_contents,
)

QUESTIONS = 40
"""Proposals that the resolver is asked about: a count, since no answer may depend on a machine's load."""
SECONDS = 300.0
"""A last resort, for a person's question: a resolver that hangs. What was not asked by then is unknown."""
MOST = 60
"""Proposals whose own indexes are asked."""
PROOFS = 4
"""Sets of wheels whose files are read at most, until one stands. A set takes seconds, and minutes on a slow
line."""
OF_NUMPY = ("numpy", "package-numpy")
_BY_VERSIONS = tuple(rule for rule in OF_SET if rule not in {"links", "imports"})
"""Rules of a set that the versions of its wheels answer, without their files."""
_BEFORE_IMPORTS = tuple(rule for rule in OF_SET if rule != "imports")
_AT_ONCE = 4
_BETWEEN_NOTES = 5.0
"""Seconds before a wheel that is read is named: of a hundred most take less."""
_ABSENT = "was not found in the package registry"
"""uv's words for a package that no index has, on whichever Python."""
_TURNS = 6
"""How often the resolver is asked for older versions than the rules refuse, on each of three Pythons."""
_Silent = Callable[[Sequence[str]], str | None]
Answer = tuple[Proposal, Sequence[Wheel]] | str
"""A proposal with its set of wheels, or the words with which it is refused."""


def prove(
    proposals: Sequence[Proposal],
    demand: Demand,
    index: Index,
    limit: int,
    note: Callable[[str], None] = lambda _text: None,
) -> tuple[list[Proposal], dict[str, Proposal]]:
    """The first ``limit`` proposals that stand by the resolver of locks; each reason, and whom it is against.

    A proposal stands if the resolver finds a set of wheels for it. The files of sets are read until one
    stands against which they say nothing. If the resolver could not be asked about one, that stands, too, but
    only before the first for which it found wheels.

    ``note`` is told each step. Raises NotKnownError if none stands when the time of the last resort is over.
    """
    started = time.monotonic()
    standing: list[Proposal] = []
    refused: dict[str, Proposal] = {}
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        asked = functools.cache(functools.partial(pool.submit, page, demand.frameworks[0].name, index))

        def silent(urls: Sequence[str]) -> str | None:
            """Why the first of these indexes that does not answer is silent; None if all answer."""
            pages = [asked(url) for url in urls]
            return next((why for one in pages if isinstance(why := one.result(), str)), None)

        for url in (*demand.index, *(url for p in proposals[:MOST] for url in p.cell.index)):
            asked(url)  # they are read while uv resolves
        files = _Files(index, note, demand.driver, demand.glibc)
        narrowed = []
        if not silent(demand.index):
            note("uv resolves what goes together")
            narrowed = _narrowed(proposals, demand, index, silent)
        ordered = distinct([*narrowed, *proposals])
        unasked = [replace(one, unasked=why) for one in ordered[:MOST] if (why := silent(one.cell.index))]
        queue = [proposal for proposal in ordered if silent(proposal.cell.index) is None]
        place = {proposal.cell: n for n, proposal in enumerate(ordered)}
        count = _AT_ONCE if narrowed else 1  # the first answer leaves uv the index's pages for the others
        left = QUESTIONS
        while queue and left > 0 and len(standing) < limit and not files.ended:
            if time.monotonic() - started - files.seconds > SECONDS:
                if standing:
                    break
                raise NotKnownError(f"unknown: stopped after {SECONDS:.0f} s", reasons=list(refused))
            batch, queue = queue[: min(count, left)], queue[min(count, left) :]
            first, most = QUESTIONS - left + 1, min(QUESTIONS, len(ordered))
            note(f"uv resolves set {first} of at most {most}")
            count, left = _AT_ONCE, left - len(batch)
            answers = pool.map(
                lambda one: solved(one, index, demand.driver, period=demand.period, glibc=demand.glibc),
                batch,
            )
            pairs = zip(batch, answers, strict=True)
            for one, found in itertools.takewhile(lambda _: len(standing) < limit and not files.ended, pairs):
                answer = files.safest(found)
                if isinstance(answer, str) and demand.period is not None and not isinstance(found, str):
                    answer = files.of_any_time(one, demand.period, answer)
                if isinstance(answer, Proposal):
                    place[answer.cell] = place[one.cell]  # with what is built from sources it is another cell
                    (standing if answer.unasked is None else unasked).append(answer)
                    if answer.unasked is not None and not one.cell.index:  # all others are on that index, too
                        unasked += [replace(other, unasked=answer.unasked) for other in queue]
                        queue = []
                    continue
                refused.setdefault(answer, one)
                queue = _still_open(queue, one, answer, demand)
    if not standing and refused and demand.companions:
        unasked = []  # what the resolver says against the others, it would say against these
    return _best_first(standing, sorted(unasked, key=lambda one: place[one.cell]), place, limit), refused


def _still_open(queue: list[Proposal], one: Proposal, answer: str, demand: Demand) -> list[Proposal]:
    """Of the queue what the words against a proposal may not be true of, too."""
    if any(f"{wish.name} {_ABSENT}" in answer for wish in demand.companions):
        return [other for other in queue if other.cell.index != one.cell.index]
    if answer.startswith(BROKEN_SET) and "write the same files" in answer:
        named = (rf"(?<![\w-]){re.escape(wish.name)}(?![\w-])" for wish in demand.companions)
        return [] if any(re.search(pattern, answer) for pattern in named) else queue
    return queue


def _best_first(
    standing: list[Proposal], unasked: list[Proposal], place: Mapping[Cell, int], limit: int
) -> list[Proposal]:
    """What the resolver was asked about comes first; of the rest, only what is better keeps a place."""
    standing.sort(key=lambda one: not one.possible)  # what is known to be possible comes first
    if standing:
        unasked = [one for one in unasked if place[one.cell] < place[standing[0].cell]]
        standing = standing[: limit - 1 if unasked and limit > 1 else limit]
    return [*standing, *unasked[: limit - len(standing)]]


class _Files:
    """Reads the wheels of sets, and judges these by their files, until one stands."""

    def __init__(
        self, index: Index, note: Callable[[str], None], driver: str | None, glibc: str | None = None
    ) -> None:
        self.index, self.driver, self.glibc = index, driver, glibc
        self.readings = ReadingCache(note=self.tell)
        self.said, self.last, self.told = note, "", 0.0
        self.read, self.stands = 0, False
        self.kept: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
        """Bounds that the set that stands has beside what was asked for, and why."""
        self.seconds = 0.0

    def note(self, text: str) -> None:
        self.last, self.told = text, time.monotonic()
        self.said(text)

    def tell(self, text: str) -> None:
        """Note what is under way, if it is another thing than some seconds ago."""
        if text != self.last and time.monotonic() - self.told > _BETWEEN_NOTES:
            self.note(text)

    @property
    def ended(self) -> bool:
        """Whether of further sets nobody would know that they are any better than those that were refused."""
        return self.read == PROOFS and not self.stands

    def solved(self, proposal: Proposal) -> Answer:
        """As :func:`solved`, of any time, for the driver and the system that are asked about."""
        return solved(proposal, self.index, self.driver, glibc=self.glibc)

    def safest(self, answer: Answer) -> Proposal | str:
        """As :meth:`judged`; with NumPy 1 where only NumPy 2 leaves it unknown."""
        found = self.judged(answer)
        first = _with_numpy_1(found) if isinstance(found, Proposal) else None
        if first is None:
            return found
        other = self.judged(self.solved(first))
        return other if isinstance(other, Proposal) and other.possible else found

    def of_any_time(self, proposal: Proposal, period: Period, words: str) -> Proposal | str:
        """As :meth:`safest` with the newest set, since ``words`` refuse the one of the period."""
        found = self.safest(self.solved(proposal))
        told = f"{period.why}; the newest is taken, as of a set of that time: {words}"
        return found if isinstance(found, str) else replace(found, added=(*found.added, told))

    def judged(self, answer: Answer) -> Proposal | str:
        """The proposal, with what is known of its wheels; or why these cannot work together."""
        if isinstance(answer, str) or not answer[1]:
            return answer if isinstance(answer, str) else answer[0]
        proposal, wheels = answer
        if self.stands:
            return self._like_the_first(proposal, wheels)
        self.read += 1
        self.note(f"reading {len(wheels)} wheels of a set ({self.read} of at most {PROOFS})")
        started = time.monotonic()
        proposal, truth, found = self._with_apt(proposal, wheels)
        self.seconds += time.monotonic() - started
        refused = next((one for one in found if one.outcome is Outcome.IMPOSSIBLE), None)
        older = None if self.ended else _bounded(proposal, found, wheels)
        again = self.solved(older) if older is not None else ""
        if older is not None:
            before = {*proposal.cell.pip}
            self.kept = tuple(text for text in older.cell.pip if text not in before), older.added[-1:]
        if not isinstance(again, str) and (refused is not None or _moves_one(wheels, again[1])):
            other = self.judged(again)
            if refused is not None or not isinstance(other, str):
                return other
        if refused is not None:
            return broken_set(refused)
        self.stands = Outcome.of(found).is_possible
        return replace(
            proposal,
            findings=(*(one for one in proposal.findings if one.rule not in OF_SET), *found),
            unproven=truth.unproven,
        )

    def _like_the_first(self, proposal: Proposal, wheels: Sequence[Wheel]) -> Proposal | str:
        """As :meth:`judged`, by the versions of the wheels alone: those of the set that stands were read."""
        if (bound := self._with_kept(proposal)) is not None:
            return self.judged(self.solved(bound))
        found = check(proposal.cell, Truth.of_lock(wheels, None), only=_BY_VERSIONS)
        refused = next((one for one in found if one.outcome is Outcome.IMPOSSIBLE), None)
        if refused is not None and (bound := _bounded(proposal, (refused,), wheels)) is not None:
            other = self.judged(self.solved(bound))
            return other if isinstance(other, Proposal) else broken_set(refused)
        kept = (one for one in proposal.findings if one.rule not in _BY_VERSIONS)
        proposal = replace(proposal, cell=self._with_known_apt(proposal.cell, wheels))
        same = replace(proposal, findings=(*kept, *found), unproven="the wheels of the first were read")
        return same if refused is None else broken_set(refused)

    def _with_kept(self, proposal: Proposal) -> Proposal | None:
        """The proposal with the bounds of the set that stands; None if it has them."""
        cell, (texts, why) = proposal.cell, self.kept
        pip = asked_once(cell.pip, texts)
        if pip == cell.pip:
            return None
        return replace(proposal, cell=replace(cell, pip=pip), added=(*proposal.added, *why))

    def _with_known_apt(self, cell: Cell, wheels: Sequence[Wheel]) -> Cell:
        """The cell with the Debian packages that those of its wheels lack that were read for other sets."""
        while True:
            found = check(cell, self.readings.known_links(cell, wheels), only=("links",))
            apt = tuple(dict.fromkeys((*cell.apt, *(name for one in found for name in one.apt))))
            if apt == cell.apt:
                return cell
            cell = replace(cell, apt=apt)

    def _with_apt(
        self, proposal: Proposal, wheels: Sequence[Wheel]
    ) -> tuple[Proposal, Truth, tuple[Finding, ...]]:
        """The proposal with the Debian packages that its wheels lack: they refuse no set.

        Modules take most of the time, and no more of them are read for a set that its libraries refuse. Those
        of the first are read beside the libraries, for which servers are waited for.
        """
        cell, wider = proposal.cell, self.index.with_extra(proposal.cell.index)
        if self.read > 1:
            self.readings.read_links(wheels, wider)
            truth = self.readings.known_links(cell, wheels)
            found = check(cell, truth, only=_BEFORE_IMPORTS)
            if any(one.outcome is Outcome.IMPOSSIBLE and not one.apt for one in found):
                return proposal, truth, found
        while True:
            truth = self.readings.read_set(cell, wheels, wider)
            found = check(cell, truth, only=OF_SET)
            # of what nobody knows whether it is needed, too: with it nobody has to
            apt = tuple(dict.fromkeys((*cell.apt, *(name for one in found for name in one.apt))))
            if apt == cell.apt:
                return replace(proposal, cell=cell), truth, with_apt_told(found, apt)
            cell = replace(cell, apt=apt)


def with_apt_told(found: Iterable[Finding], apt: Collection[str]) -> tuple[Finding, ...]:
    """Findings, of which a library of the system that a cell's ``apt`` brings is a reservation with its line:
    whoever installs by pip alone may have it, or one line brings it.
    """

    def told(one: Finding) -> Finding:
        if one.outcome is not Outcome.IMPOSSIBLE or not one.apt or not {*one.apt} <= {*apt}:
            return one
        line = f"`sudo apt-get install -y {' '.join(one.apt)}` brings it, as `apt` of the matrix does"
        return replace(one, outcome=Outcome.WARNS, message=f"{one.message.partition('; write ')[0]}: {line}")

    return tuple(map(told, found))


def _moves_one(wheels: Sequence[Wheel], others: Sequence[Wheel]) -> bool:
    """Whether of another set one package alone has another version: a reservation less costs nothing then."""
    one, other = ({wheel.name: wheel.version for wheel in each} for each in (wheels, others))
    return one.keys() == other.keys() and sum(one[name] != other[name] for name in one) == 1


def _bounded(proposal: Proposal, found: Iterable[Finding], wheels: Sequence[Wheel]) -> Proposal | None:
    """The proposal with a bound that keeps from what is found of its wheels; None if none does that the
    proposal has not already: an import may do with what is not refused, but is in doubt."""
    names = {canonical(wheel.name) for wheel in wheels}
    for one in sorted(found, key=lambda one: one.outcome is not Outcome.IMPOSSIBLE):
        if one.outcome is Outcome.IMPOSSIBLE or one.rule == "imports":
            for text, cell in free_bounds(proposal.cell, one, names):
                return replace(proposal, cell=cell, added=(*proposal.added, f"{text}: {one.message}"))
    return None


def solved(
    proposal: Proposal,
    index: Index,
    driver: str | None,
    *,
    boldly: Set[str] = frozenset(),
    period: Period | None = None,
    glibc: str | None = None,
) -> Answer:
    """The proposal with its set of wheels, of the ``period`` if such go together, or the resolver's words if
    there is none.

    An index that does not answer leaves it ``unasked``, without wheels. ``boldly``: packages that
    are compiled with a compiler alone where nobody read what their build needs: the answer is then unknown.
    ``glibc``: that of the system on which pip installs, which each wheel has to load on.
    """
    cell, target = proposal.cell, _target(proposal.cell, glibc)
    wider = index.with_extra(cell.index)

    of_time: list[tuple[Cell, Sequence[Wheel], str]] = []

    def solve(tried: Cell, built: Sequence[LocalWheel]) -> Sequence[Wheel]:
        def resolve(other: Cell, limit: UploadLimit | None) -> Sequence[Wheel]:
            return wider.resolve(requirements(other), target=target, built=built, limit=limit)

        newest = resolve(tried, None)
        older = older_set(tried, newest, period, resolve, wider.offers) if period is not None else None
        of_time[:] = [older] if older is not None else []
        return newest

    try:
        built, wheels, reasons = with_sources(cell, requirements(cell), target, wider, solve, boldly=boldly)
    except NoSolutionError as problem:
        return problem.message
    except PackageIndexError as problem:
        return replace(proposal, unasked=problem.message.partition("\n")[0]), ()
    for tried, those, why in of_time:
        answer = _rechecked(proposal, tried, those, reasons, driver)
        if not isinstance(answer, str):
            return replace(answer[0], added=(*answer[0].added, why)), those
    if not reasons:
        return replace(proposal, wheels=len(wheels), size=_bytes(wheels)), wheels
    return _rechecked(proposal, built, wheels, reasons, driver)


def _rechecked(
    proposal: Proposal, cell: Cell, wheels: Sequence[Wheel], sources: tuple[str, ...], driver: str | None
) -> Answer:
    """The proposal with another cell and its set of wheels, or why the rules refuse that."""
    findings = (*check(cell, Truth.of_offer(proposal.cell), driver=driver, suggest=False), *untried(cell))
    found = replace(
        proposal, cell=cell, findings=findings, wheels=len(wheels), size=_bytes(wheels), sources=sources
    )
    refused = [finding for finding in findings if finding.outcome is Outcome.IMPOSSIBLE]
    return refused[0].message if refused else (found, wheels)


def _with_numpy_1(proposal: Proposal) -> Proposal | None:
    """The proposal with a NumPy that is safe, where only that leaves it unknown; None if it is not so."""
    open_ = [one for one in proposal.findings if one.outcome is Outcome.UNKNOWN]
    if not open_ or any(one.rule not in OF_NUMPY for one in open_):
        return None
    cell = on_numpy_1(proposal.cell)
    kept = tuple(one for one in proposal.findings if one.rule not in OF_NUMPY)
    why = "numpy<2: of a package beside it nobody read whether it was compiled for NumPy 2"
    added = (*proposal.added, why)
    return replace(proposal, cell=cell, findings=kept, added=added) if cell is not None else None


def on_numpy_1(cell: Cell) -> Cell | None:
    """The cell with ``numpy<2``; None if it asks for that, or may not have it."""
    asked = [parsed for parsed in map(requirement, cell.pip) if parsed and canonical(parsed.name) == "numpy"]
    first = SpecifierSet("<2")
    if any("<2" in map(str, parsed.specifier) for parsed in asked):
        return None
    if any(apart(parsed.specifier, first) for parsed in asked):
        return None
    return replace(cell, pip=asked_once(cell.pip, ("numpy<2",)))


def _bytes(wheels: Sequence[Wheel]) -> int | None:
    return sum(wheel.size for wheel in wheels) if all(wheel.size for wheel in wheels) else None


def _narrowed(proposals: Sequence[Proposal], demand: Demand, index: Index, silent: _Silent) -> list[Proposal]:
    """Proposals with the versions that the resolver takes, the frameworks' versions left open.

    Packages that go together say so in their own metadata: torchvision pins torch.
    The resolver knows that, the rules know CUDA; each is asked in turn, until they agree.
    """
    if not demand.companions and len(demand.frameworks) < 2:
        return []
    free = [wish.name for wish in demand.frameworks if pinned(wish.parsed) is None]
    for python in list(dict.fromkeys(proposal.cell.python for proposal in proposals))[:3]:
        mine = [proposal for proposal in proposals if proposal.cell.python == python]
        bounds: list[str] = []
        heard = functools.partial(_heard, python=python, silent=silent)
        for _ in range(_TURNS):
            versions = _versions(mine, demand, bounds, index)
            exact = _at_versions(demand, versions)
            if exact is None:
                break
            if agreed := heard(exact):
                return agreed
            if not free:
                break
            bounds += _bounds(demand, exact, versions, free, heard)
    return []


def _heard(demand: Demand, *, python: str, silent: _Silent) -> list[Proposal]:
    """The possible cells with this Python all of whose indexes answer."""
    found = search(replace(demand, python=python), most=2000).possible
    return [proposal for proposal in found if silent(proposal.cell.index) is None]


def _bounds(
    demand: Demand,
    exact: Demand,
    versions: Mapping[str, str],
    free: Sequence[str],
    heard: Callable[[Demand], list[Proposal]],
) -> list[str]:
    """Bounds that keep the resolver from versions that the rules refuse together.

    That is the newest version of the one framework in whose place another version helps; of those that are
    refused even alone; or else anything older of the last.
    """
    for name in free:
        open_ = next(wish for wish in demand.frameworks if wish.name == name)
        mixed = tuple(open_ if wish.name == name else wish for wish in exact.frameworks)
        if best := _newest(name, heard(replace(exact, frameworks=mixed))):
            return [f"{name}<={best}"]
    found = []
    for name in free:
        alone = tuple(wish for wish in demand.frameworks if wish.name == name)
        best = _newest(name, heard(replace(demand, frameworks=alone)))
        if best is not None and release(best) < release(versions[name]):
            found.append(f"{name}<={best}")
    return found or [f"{free[-1]}<{versions[free[-1]]}"]


def _newest(name: str, proposals: Sequence[Proposal]) -> str | None:
    """The newest version of a framework in proposals, without its variant."""
    named = filter(None, (requirement(text) for p in proposals for text in p.cell.frameworks))
    versions = (
        (pinned(parsed) or "").partition("+")[0] for parsed in named if canonical(parsed.name) == name
    )
    return max(filter(None, versions), key=release, default=None)


def _versions(
    proposals: Sequence[Proposal], demand: Demand, bounds: Sequence[str], index: Index
) -> dict[str, str]:
    """The versions in the newest solution for the demand below the bounds; empty if there is none."""
    newest: dict[str, str] = {}
    extras: dict[str, str] = {}
    for proposal in proposals:
        for parsed in filter(None, map(requirement, proposal.cell.frameworks)):
            name, version = canonical(parsed.name), (pinned(parsed) or "").partition("+")[0]
            newest[name] = max(newest.get(name, "0"), version, key=release)
            extras.setdefault(name, f"[{','.join(sorted(parsed.extras))}]" if parsed.extras else "")
    open_ = [f"{name}{extras[name]}<={version}" for name, version in newest.items()]
    open_ += [without_marker(wish.parsed) for wish in demand.frameworks if wish.name in newest]
    cell = replace(proposals[0].cell, index=demand.index)
    try:
        # what the framework pins itself, Triton, is left to it where the demand is open: the newest of it
        # would get an old framework that pins none
        own = {canonical(one.name) for one in _asked_by(proposals[0]) if bounded(one)}
        own -= {wish.name for wish in demand.companions if bounded(wish.parsed)}
        beside = [text for text in cell.pip if canonical(Requirement(text).name) not in own]
        wanted = [*open_, *bounds, *beside]
        wheels = index.with_extra(cell.index).resolve(wanted, target=_target(cell, demand.glibc))
    except PackageIndexError:
        return {}  # each proposal is asked about on its own, and says why not
    return {canonical(wheel.name): wheel.version.partition("+")[0] for wheel in wheels}


def _asked_by(proposal: Proposal) -> Iterator[Requirement]:
    """What the frameworks of a proposal require."""
    for parsed in map(Requirement, proposal.cell.frameworks):
        for row in load().table(canonical(parsed.name)).of(pinned(parsed) or ""):
            yield from map(Requirement, row.requires)


def _target(cell: Cell, on: str | None) -> Target:
    """What a cell's wheels have to load on; ``on``: the glibc of a system without the cell's base."""
    system = system_of(cell)
    glibc = on or (system.glibc if system is not None else "2.17")
    release = "" if cell.has_own_python(system) else known_release(cell.named_python, cell.platform)
    return Target(python=cell.python, platform=cell.platform, glibc=glibc, release=release)


def _at_versions(demand: Demand, versions: Mapping[str, str]) -> Demand | None:
    """The demand for these versions of its frameworks; None if one of them has none."""
    if any(wish.name not in versions for wish in demand.frameworks):
        return None
    return replace(demand, frameworks=tuple(w.bound(f"=={versions[w.name]}") for w in demand.frameworks))


def brought(index: Index, demand: Demand, python: str) -> list[str]:
    """Frameworks in the newest solution for the companions alone: faster-whisper brings ctranslate2. A
    companion that has sources alone brings what it asks for: openai-whisper brings torch.

    Raises:
        NoSolutionError: There is none; the resolver says why.
        PackageIndexError: The index did not answer.
    """
    target = Target(python=python, platform=demand.built_for, glibc="2.36")
    wider, asked = index.with_extra(demand.index), list(map(str, demand.companions))
    try:
        found = [wheel.name for wheel in wider.resolve(asked, target=target)]
    except NoSolutionError as problem:
        found = list(asked_by_sources(problem.message, asked, target, wider))
        if not any(map(load().is_framework, found)):
            raise
    return [name for name in found if load().is_framework(name)]


# -- packages of which the index has only sources

_Solve = Callable[[Cell, Sequence[LocalWheel]], Sequence[Wheel]]
_MOST_BUILT = 24
"""Packages that are built from sources for one cell."""
_LARGEST_SOURCE = 200 << 20
"""Bytes of a source archive that is read."""


def with_sources(
    cell: Cell,
    asked: Sequence[str],
    target: Target,
    index: Index,
    solve: _Solve,
    *,
    boldly: Set[str] = frozenset(),
) -> tuple[Cell, Sequence[Wheel], tuple[str, ...]]:
    """The cell, solved, with what it needs ``from-source``, and the reason for each of those packages.

    ``asked`` are its requirements. ``boldly``: packages that a compiler alone is tried on.

    Raises:
        NoSolutionError: there is none with sources either.
        PackageIndexError: the index did not answer.
    """
    built: dict[str, tuple[Sdist, SdistContents]] = {}
    narrowed: set[str] = set()
    with tempfile.TemporaryDirectory(prefix="rtbuild-resolve-") as folder:
        stand_ins: list[LocalWheel] = []

        def build(name: str, found: tuple[Sdist, SdistContents]) -> None:
            built[name] = found
            stand_ins.append(_stand_in(*found, Path(folder)))

        lacked = _lacked(index, target)
        for name in sorted(canonical(Requirement(text).name) for text in asked if text in lacked):
            again = _source(_wanted(name, asked, ""), target, index)
            if again is None or (again[1].compiled and not _compiles(cell, again[0], boldly=name in boldly)):
                continue  # the resolver says it again
            build(name, again)
        while True:
            tried = _named(cell, asked, built, narrowed)
            try:
                return tried, solve(tried, stand_ins), tuple(_why_built(built))
            except NoSolutionError as problem:
                new = [name for name in lacking(problem.message) if name not in built]
                if not new or len(built) + len(new) > _MOST_BUILT:
                    raise
                for name in new:
                    wanted = _wanted(name, asked, problem.message)
                    found = _source(wanted, target, index)
                    if found is None:
                        found = _source(_told(wanted, problem.message), target, index)
                        narrowed.add(name)
                    if found is None or (
                        found[1].compiled and not _compiles(cell, found[0], boldly=name in boldly)
                    ):
                        raise
                    build(name, found)
                    lacked.update(text for text in asked if canonical(Requirement(text).name) == name)


@functools.lru_cache(maxsize=64)
def _lacked(_index: Index, _target: Target) -> set[str]:
    """The requirements of which the index has sources alone, as the resolver found in this process: it takes
    a question for each to say so.
    """
    return set()


def _compiles(cell: Cell, sdist: Sdist, *, boldly: bool) -> bool:
    """Whether it is known how to compile it, in the Debian release that the cell stands on."""
    known = boldly or load().build_needs(sdist.name, sdist.version) is not None
    return cell.base.kind == "rootfs" and known


def untried(cell: Cell) -> Iterator[Finding]:
    """Findings on packages that are compiled with a compiler alone because nobody read what their build
    needs.
    """
    asked = (Requirement(text) for text in cell.pip)
    versions = {canonical(parsed.name): pinned(parsed) or "0" for parsed in asked}
    for name, needs in cell.compiled:
        if not needs and load().build_needs(name, versions.get(name, "0")) is None:
            text = (
                f"whether {name} compiles with a compiler alone is not known: what its build needs was "
                "read nowhere; `rtbuild lock` tells, and names what is missing"
            )
            yield Finding(Outcome.UNKNOWN, text, rule="from-source")


def asked_by_sources(message: str, asked: Sequence[str], target: Target, index: Index) -> Iterator[str]:
    """The requirements of the packages that, by the resolver's words, have sources alone."""
    for name in lacking(message):
        if (found := _source(_wanted(name, asked, message), target, index)) is not None:
            yield from (canonical(Requirement(text).name) for text in found[1].requires)


def _wanted(name: str, asked: Sequence[str], message: str) -> Requirement:
    """The requirement on a package: the cell's own, or, in uv's words, that of others."""
    bounds = SpecifierSet()
    for text in asked:
        parsed = Requirement(text)
        if canonical(parsed.name) == name:
            bounds &= parsed.specifier
    pattern = rf"(?i:depends on|require) {name_pattern(name)}(?P<bounds>[<>=!~][^\s]*)"
    for found in re.finditer(pattern, message):
        try:
            bounds &= SpecifierSet(found["bounds"].rstrip(",.;"))
        except InvalidSpecifier:
            continue
    return Requirement(f"{name}{bounds}")


def _told(wanted: Requirement, message: str) -> Requirement:
    """The requirement on the releases without a wheel: a newer one has a wheel, and does not go with the
    rest.
    """
    found = re.search(
        rf"(?i)(?<![\w-]){name_pattern(wanted.name)}(?P<bounds>[<>=!~]\S*) ha(?:s|ve) no usable wheels",
        message,
    )
    try:
        bounds = SpecifierSet(found["bounds"]) if found else SpecifierSet()
    except InvalidSpecifier:
        bounds = SpecifierSet()
    return Requirement(f"{wanted.name}{wanted.specifier & bounds}")


def _source(wanted: Requirement, target: Target, index: Index) -> tuple[Sdist, SdistContents] | None:
    """The archive that a lock would build, read; None if there is none, a wheel would be taken, or the
    archive has no code: the placeholder of a name is nothing that anybody asks for.
    """
    try:
        sdist = choose_sdist(wanted, index.offers(wanted.name), target)
    except PackageIndexError:
        return None  # no archive, or none for this Python: what the resolver said stands
    if sdist is None or (sdist.size or 0) > _LARGEST_SOURCE:
        return None
    contents = _read(sdist, index)
    return None if contents.empty or contents.elsewhere else (sdist, contents)


@functools.lru_cache(maxsize=256)
def _read(sdist: Sdist, index: Index) -> SdistContents:
    return sdist_contents(index.fetch(sdist, cache=resources.cache()))


def _named(
    cell: Cell, asked: Sequence[str], built: dict[str, tuple[Sdist, SdistContents]], narrowed: Set[str]
) -> Cell:
    """The cell that builds them. ``narrowed`` are those of which the resolver would take a wheel, too."""
    mine = {canonical(Requirement(text).name) for text in asked}
    pure = [name for name, (_, contents) in built.items() if not contents.compiled]
    compiled = [
        (name, tuple(load().build_needs(name, sdist.version) or ()))
        for name, (sdist, contents) in built.items()
        if contents.compiled
    ]
    pins = {name: f"=={sdist.version}" for name, (sdist, _) in built.items()}
    return replace(
        cell,
        pip=(
            *(_exactly(text, {name: pins[name] for name in narrowed & {*pins}}) for text in cell.pip),
            *(f"{name}{pin}" for name, pin in pins.items() if name not in mine),
        ),
        from_source=tuple(sorted({*cell.from_source, *pure})),
        compiled=tuple(sorted({**dict(cell.compiled), **dict(compiled)}.items())),
    )


def _exactly(text: str, pins: Mapping[str, str]) -> str:
    parsed = Requirement(text)
    pin = pins.get(canonical(parsed.name))
    if pin is None:
        return text
    parsed.specifier = SpecifierSet(pin)
    return str(parsed)


def _why_built(built: dict[str, tuple[Sdist, SdistContents]]) -> Iterator[str]:
    for name, (sdist, contents) in sorted(built.items()):
        alone = " with a compiler alone" * (load().build_needs(name, sdist.version) is None)
        how = f"compiled from them{alone}" if contents.compiled else "built from them"
        yield f"{name} {sdist.version}: the index has only its sources; `rtbuild lock` has it {how}"


def _stand_in(sdist: Sdist, contents: SdistContents, folder: Path) -> LocalWheel:
    """A wheel with the metadata of a source archive and no code."""
    name = sdist.name.replace("-", "_")
    file = f"{name}-{sdist.version}-py3-none-any.whl"
    metadata = [
        "Metadata-Version: 2.1",
        f"Name: {sdist.name}",
        f"Version: {sdist.version}",
        *(f"Requires-Dist: {text}" for text in contents.requires),
    ]
    path = folder / file
    with zipfile.ZipFile(path, "w") as archive:
        at = f"{name}-{sdist.version}.dist-info"
        archive.writestr(f"{at}/METADATA", "\n".join(metadata) + "\n")
        archive.writestr(f"{at}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{at}/RECORD", "")
    wheel = Wheel(name=sdist.name, version=sdist.version, file=file, sha256=sdist.sha256, size=sdist.size)
    return LocalWheel(wheel=wheel, path=path)


# -- its words about one requirement


def reason(message: str, wish: NamedRequirement) -> str:
    """The part of the resolver's, or of the rules', words that is about one requirement."""
    return next(_reasons(message, wish), "the resolver finds no set of wheels with it")


def _reasons(message: str, wish: NamedRequirement) -> Iterator[str]:
    name, bounds = name_pattern(wish.name), r"(?:[<>=!~]=?[^\s,]+(?:,[<>=!~]=?[^\s,]+)*)"
    if "No solution found" not in message:
        about = [line for line in message.splitlines() if re.search(rf"(?i)(?<![\w-]){name}(?![\w-])", line)]
        yield from (line.strip() for line in about[:1])
        return
    if re.search(rf"(?i)(?<![\w-]){name} {_ABSENT}", message):
        yield "no package index has it: its maker's page of wheels, or its sources, after the others"
    if re.search(rf"(?i)there (?:is|are) no versions? of {name}", message):
        yield "the index has no such release"
    alone = re.search(rf"(?i)(?<![\w-]){name}(?:{bounds})? (?:has|have) no usable wheels", message)
    tagged = re.search(rf"(?i)(?<![\w-]){name}(?:{bounds})? (?:has|have) no wheels with a matching", message)
    if alone or tagged:
        yield "it has no wheel for that Python and system"
    if found := re.search(rf"(?i)(?<![\w-]){name}{bounds}? depends on (?P<what>Python{bounds})", message):
        yield f"it wants {found['what']}"
    wants = rf"(?P<who>[\w.-]+{bounds}?) depends on (?P<what>{name}{bounds})"
    if found := re.search(rf"(?i){wants}", message):
        yield f"{found['who']} wants {found['what']}"
    other = rf"(?P<other>[\w.-]+){bounds}"
    if found := re.search(rf"(?i)(?<![\w-]){name}{bounds}? depends on (?P<what>{other})", message):
        only = canonical(found["other"]) in lacking(message)
        yield f"it wants {found['what']}" + ", of which the index has only sources" * only
    if found := re.search(rf"(?i)all versions of {name} depend on (?P<what>{other})", message):
        yield f"each of its releases that could be had wants {found['what'].rstrip('.')}"
