"""The day on which each release of a package came, for the probe: which of two packages was written for the
other is told by the later one.
"""

import datetime
import json
import tomllib
from collections.abc import Callable, Iterable, Sequence

from packaging.version import InvalidVersion, Version

from builder.core.errors import PackageIndexError
from builder.core.versions import canonical
from builder.plan.facts.tables import load
from builder.sources.index import Index, IndexFile, wheel_name


def days_table(
    index: Index, note: Callable[[str], None], only: Sequence[str] = (), *, current: str = "{}"
) -> str:
    """``common/release_days.json`` of the probe: {package: "YYMMDD release YYMMDD release ..."} of final
    releases in their order, as one JSON object with a line for each package; the day is that of the first
    file's upload (https://peps.python.org/pep-0700/). ``only``: the packages that are read again, else all
    of ``release-days.toml``; rows of others, and of those that the index does not have, stay.

    Raises PackageIndexError if the index answers about none.
    """
    rows: dict[str, str] = json.loads(current)
    silent = list[PackageIndexError]()
    wanted = only or named()
    for name in wanted:
        try:
            found = _days(index.offers(name), name)
        except PackageIndexError as problem:
            note(f"{name} was not read: {problem.message}")
            silent.append(problem)
            continue
        if found:
            rows[name] = " ".join(f"{day} {version}" for version, day in found)
        note(f"{name}: {len(found)} releases")
    if silent and len(silent) == len(wanted):
        raise silent[0]
    lines = (f"{json.dumps(name)}: {json.dumps(row)}" for name, row in sorted(rows.items()))
    return "{\n" + ",\n".join(lines) + "\n}\n"


def named() -> Sequence[str]:
    """The packages of the table."""
    packages: list[str] = tomllib.loads((load().folder / "release-days.toml").read_text("utf-8"))["packages"]
    return packages


def _days(files: Iterable[IndexFile], name: str) -> Sequence[tuple[Version, str]]:
    found: dict[Version, int] = {}
    for file in files:
        version = _version(file.name, name)
        if version is None or version.is_prerelease or file.uploaded is None:
            continue
        moment = datetime.datetime.fromisoformat(file.uploaded).date()
        day = int(moment.strftime("%y%m%d"))
        found[version] = min(found.get(version, day), day)
    return [(version, f"{day:06d}") for version, day in sorted(found.items())]


def _version(file: str, name: str) -> Version | None:
    """The release that a file is of; None for what is neither a wheel nor an archive of sources."""
    wheel = wheel_name(file)
    if wheel is not None:
        return wheel.version
    stem = file.removesuffix(".tar.gz").removesuffix(".zip")
    own, _, text = stem.rpartition("-")
    if stem == file or canonical(own) != name:
        return None
    try:
        return Version(text)
    except InvalidVersion:
        return None
