"""The time that a project is of, and the releases of that time for what nothing in it bounds.

Code of 2021 says ``transformers``, and means that of 2021. What it pins tells when that was: an index gives
the day of each upload (https://peps.python.org/pep-0700/). The framework, its libraries and what is compiled
for it are chosen for the card and are of any day.
"""

import calendar
import contextlib
import datetime
import io
import itertools
import os
import re
import subprocess
import tokenize
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from builder.core import python_names
from builder.core.documents import shown
from builder.core.errors import NoSolutionError, PackageIndexError, UsageError
from builder.core.model import Cell, Wheel
from builder.core.versions import (
    apart,
    canonical,
    contains,
    key,
    lower_bound,
    names_of,
    release,
    requirement,
)
from builder.plan.facts.rules import asked_once
from builder.plan.facts.tables import NameSpan, load, name_spans
from builder.plan.lock import sdist_version
from builder.plan.resolve.requirements import TYPED, NamedRequirement, Wishes, read_text
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
    by_use = [wish for wish in filed if _USES in wish.place and not _exact(wish.parsed)]
    named = [wish for wish in filed if wish.parsed.specifier and wish not in by_use]
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


_USES = " uses "
"""In the place of a bound that a source sets by a name which it takes."""


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
        out = [one for one in there if fitting and release(one) > max(map(release, fitting))]
        if bounded(wish.parsed) and out:
            days.setdefault(min(there[one] for one in out), wish)
    if not days or datetime.date.fromisoformat(min(days)) >= today:
        return None
    day, first = min(days), days[min(days)]
    use = next(text for text in first.place.split(", ") if _USES in text)
    return Period(day=day, written=day, why=f"{use}, which {first.name} has no longer since {day[:7]}")


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
    """The day of the oldest release that a pin or a lower bound admits; with ``upper`` of the newest that an
    upper bound alone admitted as the first one came that it keeps out.
    """
    alone = not _exact(parsed) and lower_bound(parsed) is None
    if alone is not upper:
        return None
    fitting = [one for one in there if contains(parsed.specifier, one.partition("+")[0])]
    if not fitting:
        return None
    if not upper:
        return there[min(fitting, key=release)]
    newest = max(fitting, key=release)
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
    for day in (first, theirs):
        if day is None or day < first:
            continue
        stale = partial(_stale, day=day, asked=names_of(cell.pip) - fixed, offers=offers)
        older = _solved_by(day, theirs, fixed, lambda limit: resolve(cell, limit), stale)
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
    resolve: Callable[[UploadLimit], Sequence[Wheel]],
    stale: Callable[[Sequence[Wheel]], Iterable[str]],
) -> Sequence[Wheel] | None:
    """The set of wheels to a day, with later ones where a package that is ``fixed`` asks for them, or where
    what there is, is ``stale``: to the day ``theirs``, else to any. None if there is none.
    """
    packages: dict[str, str | None] = dict.fromkeys(fixed)
    next_day = theirs if theirs is not None and theirs > day else None
    found: Sequence[Wheel] | None = None
    for _ in range(_TRIES):
        try:
            found = resolve(UploadLimit(day=day, packages=packages))
            named = stale(found)
        except NoSolutionError as problem:
            named = kept_out(problem.message)
        except PackageIndexError:
            break
        moved = [name for name in named if packages.get(name, day) is not None]
        if not moved:
            break
        packages |= {name: next_day if name not in packages else None for name in moved}
    return found


def _stale(
    wheels: Iterable[Wheel], *, day: str, asked: Set[str], offers: Callable[[str], Iterable[IndexFile]]
) -> list[str]:
    """The packages that are asked for of which a resolver went back years from what there was to a day: to a
    release of before it brought one that has sources alone.
    """
    found = []
    for wheel in wheels:
        name, mine = canonical(wheel.name), _day(wheel)
        if name not in asked or not wheel.uploaded or mine > day or _days(mine, day) < _APART:
            continue
        there = [one for one in released(offers(name), name).values() if one <= day]
        if there and _days(mine, max(there)) >= _APART:
            found.append(name)
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


# -- what the sources themselves take: the releases that have it

_GUARDED = re.compile(
    r"(?:el)?if\b.*(?:version|hasattr|find_spec|TYPE_CHECKING|__name__)|try:|with suppress|with contextlib"
)
_GOES_ON = re.compile(r"(?:except|else|finally|elif)\b")
_CHAIN = re.compile(r"(?<![\w.])[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+")
_STRINGS = {tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)}
_BLANK = {tokenize.NL, tokenize.COMMENT, tokenize.ENCODING, tokenize.ENDMARKER}
_OF_SETUPTOOLS = "distutils"
"""Which setuptools brings where Python has it no more."""


@dataclass(frozen=True, kw_only=True)
class UsedName:
    """A name of a package that a source takes for certain: ``numpy.float``."""

    name: str
    place: str
    """``train.py:12``."""


def used_names(text: str, place: Callable[[int], str]) -> tuple[list[UsedName], set[str]]:
    """The names of other packages that a source takes, by the packages' own names, and all modules that it
    imports; ``place`` tells that of a line.

    By its words, so that source of Python 2 is read, too. What stands in a ``try``, or under a test of a
    version, is not taken for certain.
    """
    found, modules, known = list[UsedName](), set[str](), dict[str, str]()
    for number, line, certain in _certain_lines(text):
        names = list[str]()
        if imported := re.fullmatch(r"from ([\w.]+) import \(?(.*?)\)?", line):
            modules.add(imported[1])
            for one in re.split(r"\s*,\s*", imported[2].strip(" ,")):
                name, _, other = one.partition(" as ")
                if re.fullmatch(r"[A-Za-z_]\w*", name) and not imported[1].startswith("."):
                    known[other or name] = f"{imported[1]}.{name}"
                    names.append(f"{imported[1]}.{name}")
        elif line.startswith("import "):
            for one in re.split(r"\s*,\s*", line.removeprefix("import ").strip()):
                name, _, other = one.partition(" as ")
                modules.add(name)
                known[other or name.partition(".")[0]] = name if other else name.partition(".")[0]
                names.append(name)
        else:
            for chain in _CHAIN.findall(line):
                first, _, rest = chain.partition(".")
                if first in known:
                    names.append(f"{known[first]}.{rest}")
        if certain:
            found += (UsedName(name=name, place=place(number)) for name in names)
    return found, modules


def _certain_lines(text: str) -> Iterator[tuple[int, str, bool]]:
    """Each logical line without its texts and comments, its number, and whether it is executed for certain
    with what it takes: neither in a ``try`` nor under a test of what there is.
    """
    depth, words, first = 0, list[str](), 0
    guards = list[int]()
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    while True:
        try:
            token = next(tokens, None)
        except (tokenize.TokenError, SyntaxError):  # Python 2's, from here on
            return
        if token is None:
            return
        if token.type in {tokenize.INDENT, tokenize.DEDENT}:
            depth += 1 if token.type == tokenize.INDENT else -1
        elif token.type == tokenize.NEWLINE:
            line = re.sub(r"\s*(\.|,)\s*", r"\1", " ".join(words)).replace(",", ", ")
            line = re.sub(r"(?<=from )(\S+?)(?: ?)import", r"\1 import", line)
            line = re.sub(r"\( | \)", lambda one: one[0].strip(), line)
            while guards and (guards[-1] > depth or (guards[-1] == depth and not _GOES_ON.match(line))):
                guards.pop()
            yield first, line, not guards
            if _GUARDED.match(line.replace(" :", ":")) and guards[-1:] != [depth]:
                guards.append(depth)
            words = []
        elif token.type not in _BLANK and token.type not in _STRINGS:
            first = first if words else token.start[0]
            words.append(token.string)


def bound_by_sources(
    sources: Iterable[tuple[str, str, Callable[[int], str]]], found: Wishes, own: Set[str] = frozenset()
) -> None:
    """Bound what is asked for to the releases that have what the sources take: ``numpy<1.24``, where one uses
    ``np.float``, and the Python, where one imports ``imp``. Each with a note; where a requirement says
    otherwise, that stays, and the note says so.

    ``sources``: the name of each, its text, and the place of its lines. ``own``: modules of the project.
    """
    spans = name_spans()
    uses: dict[str, dict[str, tuple[NameSpan, UsedName]]] = {}
    importing, concerned = Counter[str](), dict[str, set[str]]()
    minors: dict[int, UsedName] = {}
    for file, text, place in sources:
        names, modules = used_names(text, place)
        names = [use for use in names if use.name.partition(".")[0] not in own]
        importing.update({module.partition(".")[0] for module in modules})
        for use in names:
            if (minor := _without_minor(use.name)) is not None:
                minors.setdefault(minor, use)
            parts = list(itertools.accumulate(use.name.split("."), "{}.{}".format))
            name = next((one for one in reversed(parts) if one in spans), None)
            if name is not None:
                span = spans[name]
                uses.setdefault(span.package, {}).setdefault(name, (span, replace(use, name=name)))
                if span.until is not None:
                    concerned.setdefault(span.package, set()).add(file)
    for package, those in sorted(uses.items()):
        root = next(iter(those)).partition(".")[0]
        # a script for the data of another framework says nothing of the rest
        of_few = load().is_framework(package) and 3 * len(concerned.get(package, ())) < importing[root]
        _bound_package(package, those, found, upward=not of_few)
    if minors:
        _bound_python(min(minors), minors[min(minors)], found)


def _without_minor(name: str) -> int | None:
    """The first Python 3, 12 for 3.12, from which on a name of its library is gone; None if it is there."""
    module, _, last = name.rpartition(".")
    if name.partition(".")[0] not in python_names.OF_PYTHON or name.partition(".")[0] == _OF_SETUPTOOLS:
        return None
    lacking = [
        minor
        for minor in range(OLDEST_PYTHON[1], 16)
        if python_names.lacks(name, minor) is not None or python_names.lacks_name(module, last, minor)
    ]
    return lacking[0] if lacking and lacking[0] > OLDEST_PYTHON[1] and lacking[-1] == 15 else None


def _bound_package(
    package: str, uses: Mapping[str, tuple[NameSpan, UsedName]], found: Wishes, *, upward: bool
) -> None:
    """Bound one package by the names that are taken of it; ``upward``: by those that are gone, too."""
    gone = [pair for pair in uses.values() if pair[0].until is not None and upward]
    new = [pair for pair in uses.values() if pair[0].since is not None]
    last = min(gone, key=lambda pair: release(pair[0].until or "0"), default=None)
    first = max(new, key=lambda pair: release(pair[0].since or "0"), default=None)
    if last and first and release(first[0].since or "0") >= release(last[0].until or "0"):
        return  # code for both sides, of which a test that was not seen decides
    wishes = [wish for wish in found.wishes if load().table_name(wish.name) == load().table_name(package)]
    wishes = [wish for wish in wishes if load().is_framework(package) or wish.name == package]
    if not wishes and (load().is_framework(package) or not last):
        return  # another package brings it, or a script of its own takes it
    for pair, sign in ((last, "<"), (first, ">=")):
        if pair is None:
            continue
        span, use = pair
        version = re.sub(r"(?:\.0)+$", "", (span.until if sign == "<" else span.since) or "")
        bound = f"{package}{sign}{version}"
        took = f"no longer from {version} on" if sign == "<" else f"from {version} on"
        told = f"{use.place}{_USES}{use.name}"
        why = f"{told}, which {package} has {took}"
        others = len(gone if sign == "<" else new) - 1
        why += f", and {others} more such name{'s' * (others > 1)}" * (others > 0)
        why += f"; it is {span.home}.{use.name.rpartition('.')[2]} then" * bool(span.home and sign == "<")
        against = next(
            (w for w in wishes if apart(w.parsed.specifier, SpecifierSet(f"{sign}{version}"))), None
        )
        if against is not None:
            found.notes.append(f"{against} ({against.place}) stays: but {why}")
        elif not all(_within(wish, sign, version) for wish in wishes) or not wishes:
            found.notes.append(f"{bound}: {why}")
            if not wishes:
                found.wishes.append(NamedRequirement(parsed=Requirement(bound), place=told))
            for wish in wishes:
                parsed = Requirement(f"{wish.name}{sign}{version}")
                found.bounds.append(NamedRequirement(parsed=parsed, place=told))


def _within(wish: NamedRequirement, sign: str, version: str) -> bool:
    """Whether a requirement is within a bound anyway."""
    exact = next((one.version for one in wish.parsed.specifier if one.operator == "=="), None)
    if exact is not None:
        return True  # not apart from it
    same = (one for one in wish.parsed.specifier if one.operator in {sign, sign + "=", "<", "<=", "~="})
    if sign == "<":
        return any(one.operator in {"<", "<="} and release(one.version) < release(version) for one in same)
    bound = lower_bound(wish.parsed)
    return bound is not None and release(bound) >= release(version)


def _bound_python(minor: int, use: UsedName, found: Wishes) -> None:
    """Bound the Python, unless one is named that is none of these."""
    try:
        named = SpecifierSet(found.python) if found.python and found.python[0] in "<>=!~" else None
    except ValueError:
        named = None
    if found.python is not None and (named is None or not contains(named, f"3.{minor - 1}.99")):
        return  # one release, or later ones alone
    bound = f"<3.{minor}"
    found.python = ",".join(filter(None, (found.python, bound)))
    found.notes.append(f"Python {bound}: {use.place} uses {use.name}, which Python 3.{minor} has no more")


# -- what a README tells in its words

_VERSIONED = re.compile(
    r"(?i)(?<![\w/.-])(?P<name>python|pytorch|torch|torchvision|torchaudio|tensorflow(?:-gpu)?|tf|keras|jax|flax|"
    r"numpy|scipy|pandas|opencv(?:-python)?|scikit-learn|scikit-image|transformers|diffusers|accelerate|peft|"
    r"datasets|tokenizers|pytorch-lightning|lightning|torchtext|librosa|numba|gym|gradio|matplotlib|h5py|"
    r"bitsandbytes|deepspeed|xformers)(?![\w/])"
    r"(?P<between>[\s\]\[()*_`:|,-]{0,4}(?:\(?(?:version|ver\.?|v\.?)\s*[:=]?)?\s*)"
    r"(?P<sign>>=|==|=|<=|<|>|~=|\u2265|\u2264)?\s*v?(?P<version>\d+(?:\.(?:\d+|x|\*))+)(?P<open>\+|"
    r"[\s)]*(?:or|and) (?:higher|later|above|newer|up|greater))?"
)
"""A release in a README's own words: ``PyTorch v1.1``, ``Keras 2.1.5``, ``badge/PyTorch-1.7-red``."""
_OF_NEEDS = re.compile(
    r"(?i)require|install|depend|prereq|environment|set ?up|getting started|tested|developed|implement"
    r"|need|version|badge|compatib"
)
_ALSO = {"pytorch": "torch", "tf": "tensorflow", "opencv": "opencv-python", "tensorflow-gpu": "tensorflow"}


def add_told(path: Path, found: Wishes) -> None:
    """Take over the releases that a README names in its words, which count less than any requirement: the
    first of each package, where it speaks of what is needed or tested.
    """
    with contextlib.suppress(UsageError):  # no text
        heading, lead = "", 0
        for number, line in enumerate(read_text(path).splitlines(), 1):
            heading = line if re.match(r"#+ |[-=]{4,}$", line) else heading
            plain = re.sub(
                r"%20|_(?=\d)",
                " ",
                line.replace("%3E%3D", ">=").replace("%2B", "+").replace("badge/", "badge "),
            )
            plain = re.sub(r"\]\(https?://(?![^)]*badge)[^)]*\)", "]", plain)
            listed = re.match(r"\s*(?:[-*|]|\d\.)\s", line) and _OF_NEEDS.search(heading)
            if _OF_NEEDS.search(line):
                lead = number + 4  # a list follows
            if not (listed or number <= lead or _OF_NEEDS.search(heading)):
                continue
            for one in _VERSIONED.finditer(plain):
                name = _ALSO.get(one["name"].lower(), one["name"].lower())
                version = re.sub(r"\.(?:x|\*)$", ".*", one["version"])
                sign = {"\u2265": ">=", "\u2264": "<=", ">": ">="}.get(one["sign"] or "", one["sign"] or "==")
                sign = ">=" if one["open"] else "==" if sign == "=" else sign
                version = version.removesuffix(".*") if sign not in {"==", "~="} else version
                if (parsed := requirement(f"{name}{sign}{version}")) is not None:
                    found.told.setdefault(name, NamedRequirement(parsed=parsed, place=f"{path}:{number}"))
