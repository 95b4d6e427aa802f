"""The day on which each release of a package came, and what its newest one asks for, for the probe: which of
two packages was written for the other is told by the later one.
"""

import datetime
import itertools
import json
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence

import requests
from packaging.utils import parse_sdist_filename
from packaging.version import Version

from builder.core.errors import PackageIndexError
from builder.core.model import Wheel
from builder.core.versions import canonical
from builder.plan.facts.tables import load
from builder.sources.index import Index, IndexFile, RemoteZip, UnknownError, takes, wheel_name


def days_table(
    index: Index, note: Callable[[str], None], only: Sequence[str] = (), *, current: str = "{}"
) -> str:
    """``common/release_days.json`` of the probe: one JSON object with a line for each package. ``releases``:
    its final releases in their order, each with a point for each leading part that it shares with the one
    before it (``0.9 .10 ..1`` for 0.9, 0.10 and 0.10.1); ``days``: from one to the next the days between the
    uploads of their first files (https://peps.python.org/pep-0700/), of the first one since 2000-01-01;
    ``asks``: the packages of the table that the newest one names in ``Requires-Dist``, and ``extras`` those
    that an extra alone names; ``pythons``: each Python for which the newest one has no file that may be
    installed, before the last final release that has one (``3.10 1.23.2``), by the tags of the files' names
    and their ``Requires-Python``. ``only``: the packages that are read again, else all of
    ``release-days.toml``; rows of others, and of those that the index does not have, stay.

    Raises PackageIndexError if the index answers about none.
    """
    rows: dict[str, dict[str, str]] = json.loads(current)
    silent = list[PackageIndexError]()
    wanted = only or named()
    for name in wanted:
        try:
            files = index.offers(name)
        except PackageIndexError as problem:
            note(f"{name} was not read: {problem.message}")
            silent.append(problem)
            continue
        found = _days(files, name)
        if found:
            asks = _asks(index, files, name)
            if asks is None:  # of a wheel that cannot be read the former ones stay
                former = rows.get(name, {}).items()
                asks = {key: text for key, text in former if key in ("asks", "extras")}
            left = " ".join(f"{python} {version}" for python, version in _left_behind(files, name).items())
            rows[name] = {**asks, **_as_texts(found), **({"pythons": left} if left else {})}
        note(f"{name}: {len(found)} releases")
    if silent and len(silent) == len(wanted):
        raise silent[0]
    lines = (f"{json.dumps(name)}: {json.dumps(row)}" for name, row in sorted(rows.items()))
    return "{\n" + ",\n".join(lines) + "\n}\n"


def named() -> Sequence[str]:
    """The packages of the table."""
    packages: list[str] = tomllib.loads((load().folder / "release-days.toml").read_text("utf-8"))["packages"]
    return packages


def _as_texts(found: Sequence[tuple[Version, datetime.date]]) -> dict[str, str]:
    """A fifth of what days and releases in full take where the probe's one file is packed."""
    releases, days = list[str](), list[str]()
    parts, before = list[str](), _FIRST_DAY
    for version, day in found:
        own = str(version).split(".")
        same = list(itertools.takewhile(lambda pair: pair[0] == pair[1], zip(own[:-1], parts, strict=False)))
        releases.append("." * len(same) + ".".join(own[len(same) :]))
        days.append(str((day - before).days))
        parts, before = own, day
    return {"releases": " ".join(releases), "days": " ".join(days)}


_FIRST_DAY = datetime.date(2000, 1, 1)


def dated(row: Mapping[str, str]) -> list[tuple[Version, datetime.date]]:
    """The releases of a row and the days on which they came."""
    found, parts, day = list[tuple[Version, datetime.date]](), list[str](), _FIRST_DAY
    for text, days in zip(row["releases"].split(), row["days"].split(), strict=True):
        own = text.lstrip(".")
        parts = parts[: len(text) - len(own)] + own.split(".")
        day += datetime.timedelta(days=int(days))
        found.append((Version(".".join(parts)), day))
    return found


def _days(files: Iterable[IndexFile], name: str) -> Sequence[tuple[Version, datetime.date]]:
    found: dict[Version, datetime.date] = {}
    for file in files:
        version = _version(file.name, name)
        if version is None or version.is_prerelease or file.uploaded is None or file.yanked is not None:
            continue
        day = datetime.datetime.fromisoformat(file.uploaded).date()
        found[version] = min(found.get(version, day), day)
    return sorted(found.items())


_PYTHONS = tuple(f"3.{minor}" for minor in range(8, 15))


def _left_behind(files: Iterable[IndexFile], name: str) -> dict[str, Version]:
    """The last final release that each Python may install, of those which the newest one leaves out."""
    served = {python: set[Version]() for python in _PYTHONS}
    every = set[Version]()
    for file in files:
        version = _version(file.name, name)
        if version is None or version.is_prerelease or file.yanked is not None:
            continue
        every.add(version)
        for python in _PYTHONS:
            if takes(file.requires_python, python) and _serves(file.name, python):
                served[python].add(version)
    newest = max(every, default=None)
    return {python: max(found) for python, found in served.items() if found and newest not in found}


def _serves(file: str, python: str) -> bool:
    """Whether the tags of a file's name admit a CPython; an archive of sources admits each."""
    wheel, own = wheel_name(file), int(python.partition(".")[2])
    if wheel is None:
        return True
    for tag in wheel.tags:
        of = re.fullmatch(r"(cp|py)(\d)(\d*)", tag.interpreter)
        if of is None or of[2] != "3":
            continue
        minor = int(of[3] or 0)
        later = of[1] == "py" or tag.abi in ("abi3", "none")
        if minor == own or (later and minor <= own):
            return True
    return False


_REQUIRES = re.compile(r"^Requires-Dist: *([A-Za-z0-9][\w.-]*)([^\n]*)", re.MULTILINE)
_LARGEST = 8 << 20
"""Bytes that are read of one wheel, for its list of files and its METADATA."""


def _asks(index: Index, files: Iterable[IndexFile], name: str) -> dict[str, str] | None:
    """What the newest final release asks for of the table; None if no wheel of it can be read."""
    wheels = [(found.version, file) for file in files if (found := wheel_name(file.name)) is not None]
    final = [row for row in wheels if not row[0].is_prerelease and row[1].sha256 and row[1].yanked is None]
    if not final:
        return None
    version, file = max(final, key=lambda row: row[0])
    wheel = Wheel(name=name, version=str(version), file=file.name, sha256=file.sha256 or "", size=file.size)
    try:
        archive = RemoteZip(url=index.address(wheel), session=index.client, size=file.size, limit=_LARGEST)
        entry = next(one for one in archive.entries() if one.filename.endswith(".dist-info/METADATA"))
        text = archive.content(entry).decode("utf-8", "replace")
    except (PackageIndexError, UnknownError, requests.RequestException, StopIteration):
        return None
    told = [(canonical(one), "extra" in rest) for one, rest in _REQUIRES.findall(text)]
    asked = {one for one, extra in told if not extra} & set(named()) - {name}
    extras = {one for one, extra in told if extra} & set(named()) - {name} - asked
    return {"asks": " ".join(sorted(asked)), "extras": " ".join(sorted(extras))}


def _version(file: str, name: str) -> Version | None:
    """The release that a file is of; None for what is neither a wheel nor an archive of sources."""
    wheel = wheel_name(file)
    if wheel is not None:
        return wheel.version
    try:
        own, version = parse_sdist_filename(file)
    except ValueError:  # of another form, or with no version
        return None
    return version if own == name else None
