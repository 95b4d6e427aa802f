"""Changes since a cell was locked: updates of its packages, withdrawn wheels, newer facts.

Nothing is changed: `rtbuild lock --upgrade` or ``--upgrade-only`` does that. A question that got no answer
is told apart in :class:`Outdated`.``unknown``, for silence is no sign that there is nothing newer.
"""

import functools
import subprocess
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal, get_args

from packaging.requirements import Requirement
from packaging.version import Version

from builder.core.documents import shown
from builder.core.errors import MissingToolError, PackageIndexError, RtbuildError
from builder.core.model import Cell, Pinned, RegistryBase, RootfsBase, Wheel
from builder.core.versions import canonical, release, requirement, short
from builder.core.versions import pinned as exact
from builder.plan.facts.reading import ReadingCache, framework_texts
from builder.plan.facts.rules import Outcome, check
from builder.plan.facts.tables import load
from builder.sources.debian import Debian, ReleaseFile, SuiteToday, day, older_lists, security_suite
from builder.sources.index import MACHINES, Files, IndexFile, choose_python, environment, wheel_name
from builder.sources.oci import Registry

Kind = Literal["security", "audit", "rules", "yanked", "gone", "base", "package", "cudnn", "python", "probe"]
"""In the order of a table: ``security`` and ``package`` are of Debian's archives, ``rules`` are findings of
``check`` that warn or refuse, ``gone`` is a file that the index no longer lists, or a package that the
archive no longer lists. ``audit`` and ``probe`` are of published images alone."""
KINDS: tuple[Kind, ...] = get_args(Kind)
_CUDNN = "nvidia-cudnn-cu"


@dataclass(frozen=True, kw_only=True)
class LockChange:
    """One item that is out of date."""

    kind: Kind
    name: str
    locked: str
    newer: str | None = None
    """The version that there is now; None if nothing replaces it."""
    why: str = ""


@dataclass(frozen=True, kw_only=True)
class Outdated:
    """The changes since a cell was locked, and the questions that are open, a sentence each."""

    changes: tuple[LockChange, ...]
    unknown: tuple[str, ...]
    """Questions that were asked and have no answer."""
    unasked: tuple[str, ...] = ()
    """Questions about parts that a lock does not list."""
    lists: tuple[ReleaseFile, ...] = ()
    """Release files of Debian's archives, by which the packages of a rootfs were judged."""
    held: tuple[LockChange, ...] = ()
    """Newer versions that cannot be taken: the set's own packages, or its matrix, ask for another one."""
    answered: bool = False
    """Whether an archive, an index or a registry answered at all."""
    releases: tuple[str, ...] = ()
    """Where the frameworks stand among their releases on record, a sentence each: no update of a lock."""

    @property
    def summary(self) -> str:
        """``security 1, package 6``; ``nothing newer`` is said only of what was asked and answered."""
        if self.changes:
            counts = Counter(change.kind for change in self.changes)
            return ", ".join(f"{kind} {counts[kind]}" for kind in KINDS if counts[kind])
        if self.unknown:
            left = f"nothing newer in what answered, {len(self.unknown)} open"
            return left if self.answered else "not known"
        held, unasked = " that the set takes" * bool(self.held), " in what was asked" * bool(self.unasked)
        return f"nothing newer{held}{unasked}"

    @property
    def dated(self) -> str:
        """The day of the newest of :attr:`lists`; empty without any."""
        return day(max(one.date for one in self.lists))[:10] if self.lists else ""


Answer = LockChange | ReleaseFile | str
"""A change, the head of lists that were asked, or the sentence of a question that is open."""


def outdated(
    pinned: Pinned,
    *,
    pages: Mapping[str, Files],
    debian: Debian,
    registry: Registry,
    beside: str | None = None,
) -> Outdated:
    """Ask the archives, the registry, uv's list of Pythons and the rules of ``check`` about a locked cell.

    ``pages`` are the index's files of each of its packages, by canonical name, or why they are not known.
    ``beside`` is the repository of a published image, if its provenance states ``pinned``: whoever may push
    there can write one, so no host that it alone names is asked.
    """
    parts: tuple[tuple[str, Callable[[], Iterator[Answer]]], ...] = (
        ("the base", lambda: _base(pinned, debian, registry, beside)),
        ("Python", lambda: _python(pinned)),
        ("check", lambda: _rules(pinned)),
    )
    found: list[LockChange] = []
    held: list[LockChange] = []
    unknown: list[str] = []
    lists: list[ReleaseFile] = []
    for name, ask in parts:
        try:
            for answer in ask():
                if isinstance(answer, LockChange):
                    found.append(answer)
                elif isinstance(answer, ReleaseFile):
                    lists.append(answer)
                else:
                    unknown.append(f"{name}: {answer}")
        except RtbuildError as problem:
            unknown.append(f"{name}: {problem.message}")
    silent: dict[str, list[str]] = {}
    for wheel in pinned.wheels:
        files = pages[canonical(wheel.name)]
        if isinstance(files, str):
            silent.setdefault(files.replace(f"/{canonical(wheel.name)}/", "/"), []).append(wheel.name)
            continue
        changes = list(_wheel(wheel, files))
        if canonical(wheel.name).startswith(_CUDNN):
            newer, kept = _newer_cudnn(wheel, files, list(_asked_of(wheel, pinned)))
            changes += newer
            held += kept
        if beside is not None and pinned.cell.index and any(change.kind == "gone" for change in changes):
            unknown.append(
                f"{wheel.name}: it may be of an index that only the image names, which is not asked"
            )
        else:
            found += changes
    for why, names in silent.items():
        every = len(names) == len(pinned.wheels) > 1
        unknown.append(f"{'the packages' if every else ', '.join(names)}: {why}")
    inside = isinstance(pinned.base, RegistryBase)
    unasked = (f"the packages inside {pinned.cell.base}: no lock lists them",) * inside
    return Outdated(
        changes=in_order(found),
        unknown=tuple(unknown),
        unasked=unasked,
        lists=tuple(lists),
        held=in_order(held),
        answered=bool(lists) or not all(isinstance(files, str) for files in pages.values()),
        releases=tuple(newer_releases(pinned.cell)),
    )


def newer_releases(cell: Cell) -> Iterator[str]:
    """Of each framework of a cell the newest patch, and the newest release, on record that has a wheel for
    its Python and platform; of one whose version is not on record nothing.
    """
    for parsed in filter(None, map(requirement, cell.frameworks)):
        name, version = canonical(parsed.name), (exact(parsed) or "").partition("+")[0]
        if not load().is_framework(name) or not load().table(name).of(version, name):
            continue
        table = load().table(name)
        fitting = {
            row.version
            for row in table.rows
            if row.distribution == name and cell.python in row.python and cell.platform in row.platforms
            if row.yanked is None
        }
        line = [other for other in fitting if short(other, 2) == short(version, 2)]
        if not line or version not in fitting:
            continue
        patch, newest = max(line, key=release), max(fitting, key=release)
        is_it = "is" if release(patch) == release(version) else f"is behind {patch},"
        text = f"{table.title} {version} {is_it} the newest patch of {short(version, 2)}"
        last = "" if short(newest, 2) == short(version, 2) else f"; the newest release is {newest}"
        yield f"{text} for Python {cell.python}{last}"


def in_order(changes: Iterable[LockChange]) -> tuple[LockChange, ...]:
    """By kind, then by name."""
    return tuple(sorted(changes, key=lambda one: (KINDS.index(one.kind), one.name)))


def _base(pinned: Pinned, debian: Debian, registry: Registry, beside: str | None) -> Iterator[Answer]:
    locked = pinned.base
    if isinstance(locked, RootfsBase):
        names = [deb.package for deb in locked.debs]
        today = debian.today(locked.suite, platform=pinned.cell.platform, packages=names)
        yield from today.releases
        yield from _doubts(locked, today, datetime.now(UTC))
        yield from newer_packages(locked, today)
        return
    if beside is not None and not registry.may_ask(locked.reference, beside=beside):
        yield f"{locked.reference} is in another registry, which only the image names: not asked"
        return
    now = registry.inspect(pinned.cell.base.name, pinned.cell.platform)
    if now.digest != locked.digest:
        yield LockChange(
            kind="base",
            name=locked.reference,
            locked=locked.digest[:19],
            newer=now.digest[:19],
            why="the tag was pushed again",
        )


def _doubts(locked: RootfsBase, today: SuiteToday, now: datetime) -> Iterator[str]:
    """Why a package that the lists have no newer version of may have one.

    Raises PackageIndexError for lists that are older than the lock.
    """
    if max(one.date for one in today.releases) < locked.epoch:
        raise PackageIndexError(
            f"the archive's lists of {locked.suite} are older than those that the lock was made from: "
            "a mirror that lags, or an old answer"
        )
    for one in today.releases:
        if older := older_lists(one):
            yield older
    name = security_suite(locked.suite)
    security = next((one for one in today.releases if one.suite == name), None)
    if security is None:
        yield f"the archive has no {name}: no update for security is known"
    elif security.valid_until is None:
        yield f"the lists of {name}, of {day(security.date)}, have no end: Debian no longer updates them"
    elif security.valid_until < now.timestamp():
        yield (
            f"the lists of {name}, of {day(security.date)}, were valid until {day(security.valid_until)}: "
            "a mirror that lags, or a snapshot"
        )


def newer_packages(locked: RootfsBase, today: SuiteToday) -> Iterator[Answer]:
    """The packages that the lists have a newer version of, or no longer have.

    One is ``security`` if the security archive has a version newer than the lock's: a point release takes
    such an update into the suite itself, under a version that is newer still.

    Raises MissingToolError: there is no dpkg to compare versions.
    """
    for deb in locked.debs:
        version, fixed = today.newest.get(deb.package), today.security.get(deb.package)
        if version is None:
            why = f"the lists of {locked.suite} have it no more"
            yield LockChange(kind="gone", name=deb.package, locked=deb.version, why=why)
        elif version != deb.version:
            newer = _is_newer(version, deb.version)
            if newer is None:
                yield f"{deb.package}: dpkg cannot compare {version} with {deb.version}"
            elif not newer:
                yield f"{deb.package}: the archive's lists have {version}, older than {deb.version}"
            else:
                secure = fixed is not None and _is_newer(fixed, deb.version) is not False
                kind: Kind = "security" if secure else "package"
                yield LockChange(kind=kind, name=deb.package, locked=deb.version, newer=version)


@functools.cache
def _is_newer(now: str, before: str) -> bool | None:
    """By dpkg, whose rules these are: https://manpages.debian.org/deb-version; None if it fails.

    It ends with 0 for yes, 1 for no and 2 for an error: https://manpages.debian.org/dpkg
    """
    command = ["dpkg", "--compare-versions", now, "gt", before]
    try:
        status = subprocess.run(command, check=False, capture_output=True).returncode
    except FileNotFoundError as problem:
        raise MissingToolError("dpkg compares Debian's versions, and this machine lacks it") from problem
    return {0: True, 1: False}.get(status)


def _python(pinned: Pinned) -> Iterator[LockChange]:
    locked = pinned.python
    if locked is None or pinned.cell.python_patch is not None:
        return
    now = choose_python(pinned.cell.python, pinned.cell.platform)
    if (Version(now.version), now.build) > (Version(locked.version), locked.build):
        names = [f"{one.version} ({one.build})" for one in (locked, now)]
        yield LockChange(kind="python", name="Python", locked=names[0], newer=names[1])


def _rules(pinned: Pinned) -> Iterator[Answer]:
    cell = pinned.cell
    for finding in check(cell, ReadingCache().truth(cell, pinned), suggest=False):
        if finding.outcome in {Outcome.IMPOSSIBLE, Outcome.WARNS}:
            word = finding.outcome.answer
            yield LockChange(kind="rules", name=finding.rule, locked=word, why=finding.message)
        elif finding.outcome is Outcome.UNKNOWN:
            yield f"{finding.rule}: {finding.message}"


def _wheel(wheel: Wheel, files: tuple[IndexFile, ...]) -> Iterator[LockChange]:
    if wheel.source is not None:
        source = wheel.source.sdist
        name, sha256 = source.file, source.sha256
    else:
        name, sha256 = wheel.file, wheel.sha256
    same = [file for file in files if file.name == name and file.sha256 in {None, sha256}]
    if not same:
        yield LockChange(kind="gone", name=wheel.name, locked=wheel.version, why=f"no index lists {name}")
    elif (reason := same[0].yanked) is not None:
        yield LockChange(kind="yanked", name=wheel.name, locked=wheel.version, why=shown(reason, most=200))


def _newer_cudnn(
    wheel: Wheel, files: tuple[IndexFile, ...], asked: Sequence[tuple[str, Requirement]]
) -> tuple[list[LockChange], list[LockChange]]:
    """A newer patch of the same minor release, in which cuDNN keeps its interface; and one that is held, for
    ``asked`` has who asks for which versions.

    https://docs.nvidia.com/deeplearning/cudnn/backend/latest/developer/forward-compatibility.html
    """
    locked = Version(wheel.version)
    versions = []
    for file in files:
        named = wheel_name(file.name)
        if named is not None and file.yanked is None and named.version.release[:2] == locked.release[:2]:
            versions.append(named.version)
    newer = [version for version in versions if version > locked]
    taken = [version for version in newer if all(version in parsed.specifier for _, parsed in asked)]
    if taken:
        why = "a newer patch of the same minor release"
        return [_cudnn(wheel, max(taken), why)], []
    if not newer:
        return [], []
    by, parsed = next((by, parsed) for by, parsed in asked if max(newer) not in parsed.specifier)
    why = f"held by {by}, which asks for {parsed.name}{parsed.specifier}"
    return [], [_cudnn(wheel, max(newer), why)]


def _cudnn(wheel: Wheel, newer: Version, why: str) -> LockChange:
    return LockChange(kind="cudnn", name=wheel.name, locked=wheel.version, newer=str(newer), why=why)


def _asked_of(wheel: Wheel, pinned: Pinned) -> Iterator[tuple[str, Requirement]]:
    """The requirements that others in the set have of a package, each with who asks: its frameworks'
    metadata, the matrix.
    """
    cell, name = pinned.cell, canonical(wheel.name)
    for by, text, extras in _all_asked(pinned):
        parsed = requirement(text)
        if parsed is None or canonical(parsed.name) != name:
            continue
        python, machine = f"{cell.python}.0", MACHINES[cell.platform]
        marks = (environment(python, machine=machine, extra=extra) for extra in extras)
        if parsed.marker is None or any(map(parsed.marker.evaluate, marks)):
            yield by, parsed


def _all_asked(pinned: Pinned) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Each requirement in the set: who asks, for what, and the extras that judge its marker; of wheels as
    read, and as on record.
    """
    cell = pinned.cell
    wanted = [parsed for text in framework_texts(cell) if (parsed := requirement(text)) is not None]
    extras = {canonical(parsed.name): ("", *sorted(parsed.extras)) for parsed in wanted}
    yield from (("the matrix", text, ("",)) for text in (*cell.pip, *cell.cuda.packages))
    for one in ReadingCache().truth(cell, pinned).wheels:
        for text in one.requires:
            yield f"{one.name} {one.version}", text, extras.get(one.name, ("",))
    for wheel in pinned.wheels:
        project, (version, _, variant) = canonical(wheel.name), wheel.version.partition("+")
        table = load().table(project) if load().is_framework(project) else None
        row = table.row(version, variant, platform=cell.platform) if table is not None else None
        if row is not None:
            brought = (text for extra in extras.get(project, ("",)) for text in row.extras.get(extra, ()))
            for text in (*row.requires, *brought):
                yield f"{wheel.name} {wheel.version}", text, ("",)
