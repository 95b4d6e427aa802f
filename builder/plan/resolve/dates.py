"""The time that a project is of, and the releases of that time for what nothing in it bounds.

Code of 2021 says ``transformers``, and means that of 2021. What it pins tells when that was: an index gives
the day of each upload (https://peps.python.org/pep-0700/). The framework, its libraries and what is compiled
for it are chosen for the card and are of any day.
"""

import calendar
import datetime
import os
import re
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from packaging.requirements import Requirement

from builder.core.documents import shown
from builder.core.errors import NoSolutionError, PackageIndexError, UsageError
from builder.core.model import Cell, Wheel
from builder.core.versions import canonical, contains, key, lower_bound, names_of, release
from builder.plan.facts.rules import asked_once
from builder.plan.facts.tables import load
from builder.plan.lock import sdist_version
from builder.plan.resolve.wishes import TYPED, NamedRequirement
from builder.sources.index import Index, IndexFile, UploadLimit, kept_out, pages, wheel_name

TODAY = "today"
"""In place of a date: the newest releases are taken, whatever the project's time."""
_GRACE = 183
"""Days: a project is written with the releases of the half-year after its newest pin."""
_APART = 548
"""Days after all other releases, from which on one that is named is a later repair of a single line."""
_HELD_BACK = frozenset(("numpy", "setuptools", "protobuf", "pip", "wheel", "pillow"))
"""Which one line keeps back for a reason of its own, years later: NumPy 2 and protobuf 4 broke others."""
OLDEST_PYTHON = (3, 8)
"""Older ones are in no system that is still served."""
_SECONDS = 5
"""That git may take."""
_TRIES = 16
"""Questions to the resolver about the releases of one time."""
_TIMELESS = frozenset(
    ("certifi", "tzdata", "pytz", "idna", "chardet", "charset-normalizer", "urllib3", "typing-extensions")
)
"""Of which the newest is right for code of any time: data, and what those that bring it bound themselves."""
_NAMED = 4
"""Bounds that are told one by one; the cell has all."""
_BY_MINOR = frozenset(("numpy",))
"""What takes names away in minor releases: https://numpy.org/doc/stable/release/1.24.0-notes.html"""
_NVIDIA = re.compile(r"nvidia-|cuda-|triton$|pip$")


@dataclass(frozen=True, kw_only=True)
class Period:
    """The time that a project is of, by days: ``2022-03-14``."""

    day: str
    """The last day whose releases are of the time."""
    written: str
    """The day by which the project was written; its Python is older."""
    why: str
    """``the releases that requirements.txt names are of 2021-06 to 2022-03``."""
    by_use: bool = False
    """Whether what the sources take tells it, and no requirement."""

    @property
    def python(self) -> tuple[int, int]:
        """The newest Python that packages of the time had wheels for, 3.8 at least."""
        known = (n for n in range(OLDEST_PYTHON[1], 100) if _known_since(f"3.{n}") <= self.written)
        return 3, max(known, default=OLDEST_PYTHON[1])

    def rank(self, python: str) -> tuple[bool, bool, int]:
        """Sort key, lowest best: the newest Python of the time, then later ones, the oldest of them first."""
        mine = key(python)[:2]
        late = mine > self.python
        return mine < OLDEST_PYTHON, late, mine[1] if late else -mine[1]


def _known_since(python: str) -> str:
    """The day since which packages are made for a Python: half a year after its release. Since 3.9 there is
    one each October: https://peps.python.org/pep-0602/
    """
    return f"{2012 + key(python)[1]}-04-01"


def as_of(text: str) -> Period | None:
    """The time that a person names by a year, a month or a day: all of it; None for :data:`TODAY`.

    Raises UsageError for any other text.
    """
    if text.strip().lower() == TODAY:
        return None
    found = re.fullmatch(r"\s*(\d{4})(?:-(\d{1,2}))?(?:-(\d{1,2}))?\s*", text)
    try:
        if found is None:
            raise ValueError  # noqa: TRY301 - as datetime's own
        year, month = int(found[1]), int(found[2] or 12)
        last = datetime.date(year, month, int(found[3] or calendar.monthrange(year, month)[1]))
    except ValueError as problem:
        said = f"{shown(text, most=80)!r} names no day, month or year"
        raise UsageError(said, hint=f"as in 2021-06, or {TODAY} for the newest releases") from problem
    day = last.isoformat()
    return Period(day=day, written=day, why=f"asked for is the time to {day}")


def time_of(
    wishes: Sequence[NamedRequirement], date: str | None, files: Sequence[Path], index: Index | None
) -> Period | None:
    """The time of a project: the one that is given, else that of what it names, else of its clone; of what
    its sources take, or of its clone, if that is older. None without an index, or if nothing tells it.
    """
    if date is not None:
        return as_of(date)
    if index is None:
        return None
    today = datetime.datetime.now(datetime.UTC).date()
    found = period_of(wishes, index, today)
    if found is not None and not found.by_use:
        return found
    clone = next(filter(None, (committed(file, today) for file in files)), None)
    return min(filter(None, (found, clone)), key=lambda one: one.day, default=None)


def bounded(parsed: Requirement) -> bool:
    """Whether a requirement keeps newer releases out."""
    return any(one.operator not in {">", ">=", "!="} for one in parsed.specifier)


def period_of(wishes: Sequence[NamedRequirement], index: Index, today: datetime.date) -> Period | None:
    """The time of a project, by the days of the releases that it names; None if they do not tell, if all of
    it is bounded, or if it is today's.

    A pin and a lower bound are of releases that were there. An upper bound counts only without any pin: it
    may be for a release that was to come. What stands in a file counts before what was typed beside it.
    """
    filed = [wish for wish in wishes if wish.place != TYPED] or [*wishes]
    by_use = [wish for wish in filed if wish.use and not _exact(wish.parsed)]
    named = [wish for wish in filed if wish.parsed.specifier != wish.loads and wish not in by_use]
    if all(wish.name in _HELD_BACK or not bounded(wish.parsed) for wish in named):
        return _by_use(by_use, index, today)
    listed = pages((wish.name for wish in named), index)
    days: dict[NamedRequirement, str] = {}
    held = False
    for upper in (False, True):
        if upper and held:
            break
        for wish in named:
            files = listed[wish.name]
            there = released(files, wish.name) if not isinstance(files, str) else {}
            if (day := _named_day(wish.parsed, there, upper=upper)) is not None:
                days[wish] = day
                held = held or ((upper or _exact(wish.parsed)) and wish.name not in _HELD_BACK)
    if not held:
        return _by_use(by_use, index, today)
    ordered = sorted(days.values())
    while len(ordered) > 2 and _days(ordered[-2], ordered[-1]) > _APART:
        ordered.pop()
    written = ordered[-1]
    last = datetime.date.fromisoformat(written) + datetime.timedelta(days=_GRACE)
    if last >= today:
        return None
    places = [*dict.fromkeys(re.sub(r":\d+$", "", wish.place.partition(", ")[0]) for wish in days)]
    first, name = ordered[0][:7], "names" if len(places) == 1 else "and others name"
    span = f"{first} to {written[:7]}" if first != written[:7] else first
    return Period(
        day=last.isoformat(), written=written, why=f"the releases that {places[0]} {name} are of {span}"
    )


def _by_use(wishes: Sequence[NamedRequirement], index: Index, today: datetime.date) -> Period | None:
    """The time of sources that take what later releases have no more: before the first of these came; None
    without such, or if that is of today.
    """
    days = dict[str, NamedRequirement]()
    listed = pages((wish.name for wish in wishes), index)
    for wish in wishes:
        files = listed[wish.name]
        there = released(files, wish.name) if not isinstance(files, str) else {}
        fitting = [one for one in there if contains(wish.parsed.specifier, one.partition("+")[0])]
        newest = max(map(release, fitting), default=None)
        later = [day for one, day in there.items() if newest is not None and release(one) > newest]
        if bounded(wish.parsed) and later:
            days.setdefault(min(later), wish)
    if not days or datetime.date.fromisoformat(min(days)) >= today:
        return None
    first, gone = days[min(days)], datetime.date.fromisoformat(min(days))
    day = (gone - datetime.timedelta(days=1)).isoformat()
    why = f"{first.use}, which {first.name} has no longer since {gone:%Y-%m}"
    return Period(day=day, written=day, why=why, by_use=True)


def committed(file: Path, today: datetime.date) -> Period | None:
    """The time of a clone's newest commit, of a project's folder or file; None without one, or if it is of
    the last half-year.

    git asks no program that the clone's own settings name.
    """
    folder = file if file.is_dir() else file.parent
    safe = ("-c", "core.fsmonitor=false", "-c", "log.showSignature=false")
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *safe, "log", "-1", "--format=%cs"],
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            check=False,
            timeout=_SECONDS,
            env={**os.environ, "GIT_ALLOW_PROTOCOL": "none", "GIT_OPTIONAL_LOCKS": "0"},
        )
    except (OSError, subprocess.TimeoutExpired):
        return None  # no git, or none that answers: nothing tells the time
    day = done.stdout.strip()
    if done.returncode != 0 or re.fullmatch(r"\d{4}-\d\d-\d\d", day) is None:
        return None
    if datetime.date.fromisoformat(day) + datetime.timedelta(days=_GRACE) >= today:
        return None
    return Period(day=day, written=day, why=f"the newest commit of {folder} is of {day}")


def released(files: Iterable[IndexFile], name: str) -> dict[str, str]:
    """The day of each final release's first file, as far as an index tells."""
    found: dict[str, str] = {}
    for file in files:
        wheel = wheel_name(file.name)
        version = str(wheel.version) if wheel is not None else sdist_version(file, name)
        if version is None or file.uploaded is None or release(version).is_prerelease:
            continue
        found[version] = min(found.get(version, file.uploaded), file.uploaded)
    return found


def _exact(parsed: Requirement) -> bool:
    """Whether a requirement names a release, or a line of them: ``==4.2``, ``==4.*``, ``~=4.2``."""
    return any(one.operator in {"==", "===", "~="} for one in parsed.specifier)


def _named_day(parsed: Requirement, there: Mapping[str, str], *, upper: bool) -> str | None:
    """The day of the oldest release that a pin or a lower bound admits, of a line that has ended, ``==1.*``,
    that of its last one; with ``upper`` of the newest that an upper bound alone admitted as the first
    one came that it keeps out.
    """
    alone = not _exact(parsed) and lower_bound(parsed) is None
    if alone is not upper:
        return None
    fitting = [one for one in there if contains(parsed.specifier, one.partition("+")[0])]
    if not fitting:
        return None
    newest = max(fitting, key=release)
    if not upper:
        line = any(one.operator == "~=" or one.version.endswith(".*") for one in parsed.specifier)
        ended = line and any(
            _days(there[newest], there[one]) > _APART for one in there if release(one) > release(newest)
        )
        return there[newest if ended else min(fitting, key=release)]
    out = [there[one] for one in there if release(one) > release(newest)]
    return max((there[one] for one in fitting if there[one] <= min(out)), default=None) if out else None


def _days(one: str, other: str) -> int:
    return (datetime.date.fromisoformat(other) - datetime.date.fromisoformat(one)).days


# -- the releases of a time, for a cell


def of_any_time(name: str) -> bool:
    """Whether a package is chosen for the card or for the framework: by CUDA, or by its interface."""
    tables = load()
    if tables.is_framework(name) or name in tables.without or _NVIDIA.match(name):
        return True
    if name not in tables.packages:
        return False
    compiled = (row.cuda or row.abi or row.torch or row.architectures for row in tables.packages[name].rows)
    return any(compiled) or bool({*tables.companion_asks(name, None)} - {"torch"})


def older_set(
    cell: Cell,
    wheels: Sequence[Wheel],
    period: Period,
    resolve: Callable[[Cell, UploadLimit | None], Sequence[Wheel]],
    offers: Callable[[str], Iterable[IndexFile]],
) -> tuple[Cell, Sequence[Wheel], str] | None:
    """The cell with bounds for what nothing bounds, the set of wheels that it has by them, and why.

    The cell and its newest ``wheels`` as they are, with the reason, if no set of that time goes with them;
    None if they are of it. ``offers`` lists a package's files. Where a framework chosen for a newer card asks
    for a later release, that one is of the framework's time; and all are, if not even those go together.
    """
    own = names_of(cell.frameworks)
    exact = {canonical(one.name) for one in map(Requirement, cell.pip) if _exact(one)}
    free = {wheel.name for wheel in wheels if of_any_time(canonical(wheel.name))}
    fixed = {*map(canonical, free), *own, *exact, *names_of(cell.cuda.packages), "pip"}
    if not any(_day(wheel) > period.day for wheel in wheels if canonical(wheel.name) not in fixed):
        return None
    uploads = [wheel.uploaded for wheel in wheels if canonical(wheel.name) in own]
    theirs = _later(max(uploads)) if uploads and all(uploads) else None
    first = max(period.day, _known_since(cell.python))

    def bound_from_below(limit: UploadLimit, floors: Sequence[str]) -> Sequence[Wheel]:
        return resolve(replace(cell, pip=asked_once(cell.pip, floors)), limit)

    for day in (first, theirs):
        if day is None or day < first:
            continue
        stale = partial(_stale, day=day, asked=names_of(cell.pip) - fixed, offers=offers)
        older = _solved_by(day, theirs, fixed, bound_from_below, stale)
        if older is None:
            continue
        pip = asked_once(cell.pip, bounds := tuple(_bounds(older, wheels, cell, fixed)))
        if not bounds:
            return None
        bound = replace(cell, pip=pip)
        try:
            found = resolve(bound, None)
        except PackageIndexError:
            continue
        of = f"Python {cell.python}" if day == first else ", ".join(cell.frameworks)
        when = "of that time" if day == period.day else f"of the time of {of}"
        why = f"{period.why}, and what nothing bounds is taken {when}; `--as-of {TODAY}` takes the newest"
        more = f" and {len(bounds) - _NAMED} more" if len(bounds) > _NAMED else ""
        return bound, found, f"{', '.join(bounds[:_NAMED])}{more}: {why}"
    with_what = f"{', '.join(cell.frameworks)} on Python {cell.python}"
    return cell, wheels, f"{period.why}, and of that time nothing goes with {with_what}: the newest is taken"


def _later(uploaded: int) -> str:
    moment = datetime.datetime.fromtimestamp(uploaded, datetime.UTC) + datetime.timedelta(days=_GRACE)
    return moment.date().isoformat()


def _day(wheel: Wheel) -> str:
    """The day of a wheel's upload; the first of all days if the index does not say."""
    return datetime.datetime.fromtimestamp(wheel.uploaded, datetime.UTC).date().isoformat()


def _solved_by(
    day: str,
    theirs: str | None,
    fixed: Iterable[str],
    resolve: Callable[[UploadLimit, Sequence[str]], Sequence[Wheel]],
    stale: Callable[[Sequence[Wheel]], Mapping[str, str]],
) -> Sequence[Wheel] | None:
    """The set of wheels to a day, with later ones where a package that is ``fixed`` asks for them, or what
    there is, is ``stale``: then the release of the time is asked for, and what that one brings may be later;
    if nothing goes with it, a later one itself, to the day ``theirs``, else to any. None if there is none.
    """
    packages: dict[str, str | None] = dict.fromkeys(fixed)
    next_day = theirs if theirs is not None and theirs > day else None
    found: Sequence[Wheel] | None = None
    floors: dict[str, str] = {}
    refused: set[str] = set()
    for _ in range(_TRIES):
        try:
            found = resolve(UploadLimit(day=day, packages=packages), tuple(floors.values()))
            named = list(old := stale(found))
            raised = {name: bound for name, bound in old.items() if name not in {*floors, *refused}}
            floors |= raised
            if raised:
                continue
        except NoSolutionError as problem:
            named = kept_out(problem.message)
            if floors and not any(packages.get(name, day) is not None for name in named):
                refused |= {*floors}
                floors = {}
                continue
        except PackageIndexError:
            break
        moved = [name for name in named if packages.get(name, day) is not None]
        if not moved:
            break
        packages |= {name: next_day if name not in packages else None for name in moved}
    return found


def _stale(
    wheels: Iterable[Wheel], *, day: str, asked: Set[str], offers: Callable[[str], Iterable[IndexFile]]
) -> dict[str, str]:
    """The packages that are asked for of which a resolver went back years from what there was to a day, to a
    release of before it brought one that has sources alone; each with the bound of the releases of that time.
    """
    found = {}
    for wheel in wheels:
        name, mine = canonical(wheel.name), _day(wheel)
        if name not in asked or not wheel.uploaded or mine > day or _days(mine, day) < _APART:
            continue
        there = {one: of for one, of in released(offers(name), name).items() if of <= day}
        if there and _days(mine, max(there.values())) >= _APART:
            late = [one for one, of in there.items() if _days(of, max(there.values())) < _APART]
            found[name] = f"{name}>={min(late, key=release)}"
    return found


def _bounds(
    older: Sequence[Wheel], newest: Sequence[Wheel], cell: Cell, fixed: Iterable[str]
) -> Iterator[str]:
    """A bound for each package that is asked for, or that another one brings in a later line: 3 in place of
    2, and of what is compiled 0.3 in place of 0.2.
    """
    asked, now = names_of(cell.pip), {canonical(wheel.name): wheel.version for wheel in newest}
    left = {*fixed, *_TIMELESS}
    ordered = sorted(older, key=lambda wheel: (canonical(wheel.name) not in asked, canonical(wheel.name)))
    for wheel in ordered:
        name, other = canonical(wheel.name), now.get(canonical(wheel.name))
        if name in left or other is None or release(other) <= release(wheel.version):
            continue
        if name in asked or _line(name, wheel.version) != _line(name, other):
            yield f"{name}<={wheel.version}"


def _line(name: str, version: str) -> tuple[int, ...]:
    numbers = (*key(version), 0)[:2]
    by_minor = name in _BY_MINOR or (numbers[0] == 0 and name in load().packages)
    return numbers if by_minor else numbers[:1]
