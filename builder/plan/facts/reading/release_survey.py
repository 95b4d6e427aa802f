"""Reads the releases of all frameworks from the user's package index, and makes the tables' rows of them.

A release that the tables have already is read again only if its files on the index, or its row, are not
those that were read. What was read is in the user's cache, so an interrupted survey continues.
"""

import functools
import json
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from packaging.version import Version

from builder.core.errors import CellError
from builder.core.items import item
from builder.plan.facts.reading.framework_wheel import read_wheel
from builder.plan.facts.reading.observed import Kind, WheelReading
from builder.plan.facts.reading.package_wheel import read_numpy, read_package, read_source, read_symbols
from builder.plan.facts.reading.row_sources import (
    AGAINST,
    Family,
    Raw,
    SourceRelease,
    WheelRelease,
    against,
    families,
    releases,
    total,
    with_sources,
)
from builder.sources.index import Index, IndexFile, page, pages

Listed = Mapping[str, Mapping[str, WheelRelease]]
Identity = tuple[str, str, str]
Say = Callable[[int, int, int], None]

_THREADS = 4
_READERS: dict[Kind, Callable[..., WheelReading]] = {
    "package": read_package,
    "numpy": read_numpy,
    "source": read_source,
    "symbols": read_symbols,
}


@dataclass(frozen=True, kw_only=True)
class Budget:
    """The limits of a survey; wheels beyond them are read by the next one."""

    bytes: int = 16 << 30
    seconds: float = 6 * 3600.0


@dataclass(kw_only=True)
class ReleaseTable:
    """The generated rows of one framework."""

    rows: list[Raw] = field(default_factory=list)
    unused: dict[str, str] = field(default_factory=dict)
    """Releases that no row is made of, each with the fingerprint of its files: they are not read again."""
    date: str = ""
    """The day of the last reading that found something new."""
    older: int | None = None
    """The number of a package's final releases on the index that are older than the first on record."""


@dataclass(frozen=True)
class Job:
    """One wheel to read."""

    release: WheelRelease
    place: str
    """Under which the answer goes into ``release.told``."""
    kind: Kind
    file: IndexFile


@dataclass(kw_only=True)
class Survey:
    """The result of a survey."""

    tables: dict[str, ReleaseTable] = field(default_factory=dict)
    """The tables as they are to be, by family."""
    changes: list[str] = field(default_factory=list)
    """Differences from the tables as they are, a sentence each."""
    notes: list[str] = field(default_factory=list)
    """Values that could not be read, with the reasons."""
    wheels: int = 0
    transferred: int = 0
    left: int = 0
    """Wheels that the budget did not reach."""


def survey(
    folder: Path,
    index: Index,
    *,
    budget: Budget | None = None,
    only: Collection[str] = (),
    again: bool = False,
    say: Say | None = None,
    cache: Path | None = None,
) -> Survey:
    """Read missing and changed releases of the tables in ``folder``. Writes nothing; no server makes it fail.

    ``only`` names families; ``again`` reads every release, changed or not; ``say`` is told the wheels done,
    the wheels in all, and the bytes read.
    """
    found = Survey()
    read = _reader(index, found, budget or Budget(), say, cache)
    for family in families(folder):
        if only and family.name not in only:
            continue
        try:
            with item(family.stem):
                old = found.tables[family.stem] = load_table(folder, family.stem)
                if (listed := _listed(family, index, found)) is not None:
                    others = functools.partial(_against, index)
                    _family(family, listed, old, read, found, again=again, beside=others)
                    _count_older(family, index, old, found)
        except CellError as error:
            found.notes.append(f"the table of {family.stem} stays as it is: {error.message}")
    return found


def _against(index: Index) -> Mapping[str, WheelRelease]:
    """The releases that packages' symbols are compared with."""
    files = page(AGAINST, index)
    return against(files) if not isinstance(files, str) else {}


def load_table(folder: Path, stem: str) -> ReleaseTable:
    """One table as its file has it; empty if there is no file."""
    path = folder / "releases" / f"{stem}.json"
    if not path.exists():
        return ReleaseTable()
    document = json.loads(path.read_text("utf-8"))
    return ReleaseTable(
        rows=document["rows"],
        unused=document["unused"],
        date=document["date"],
        older=document.get("older"),
    )


def table_text(table: ReleaseTable) -> str:
    """A table's file: JSON, one row a line."""
    lines = ",\n".join(json.dumps(row, ensure_ascii=False, separators=(",", ":")) for row in table.rows)
    unused = json.dumps(table.unused, sort_keys=True)
    older = f'"older":{table.older},' if table.older is not None else ""
    return f'{{"schema":1,"date":"{table.date}",{older}"unused":{unused},"rows":[\n{lines}\n]}}\n'


def _listed(family: Family, index: Index, found: Survey) -> Listed | None:
    """The releases of a family on the index; None if one of its pages could not be read."""
    found_pages = pages(family.distributions, index)
    listed = {
        name: releases(name, files, since)
        for name, since in family.distributions.items()
        if not isinstance(files := found_pages[name], str)
    }
    if family.compiled is not None:
        for name, files in found_pages.items():
            if not isinstance(files, str):
                with_sources(listed[name], name, files, family.distributions[name])
    found.notes += [
        f"{name} was not read: {why}" for name, why in found_pages.items() if isinstance(why, str)
    ]
    return listed if len(listed) == len(found_pages) else None


def _count_older(family: Family, index: Index, old: ReleaseTable, found: Survey) -> None:
    """Say of a package how many releases the index has before the first on record."""
    if family.compiled is None:
        return
    ((name, since),) = family.distributions.items()
    files = page(name, index)
    if isinstance(files, str):
        return
    every = with_sources(releases(name, files, "0"), name, files, "0")
    table = found.tables[family.stem]
    table.older = sum(Version(version) < Version(since) for version in every)
    if table.older != old.older:
        found.changes.append(f"{family.stem}: {table.older} releases on the index are older than {since}")


def _family(
    family: Family,
    listed: Listed,
    old: ReleaseTable,
    read: Callable[[Iterable[Job]], None],
    found: Survey,
    *,
    again: bool,
    beside: Callable[[], Mapping[str, WheelRelease]],
) -> None:
    fresh = {} if again else {identity(row): row for row in old.rows if _stands(row, listed)}
    used = {name for row in fresh.values() for name in row["files"]}
    stale = {name for row in old.rows if identity(row) not in fresh for name in row["files"]}
    unused = {name for name, files in old.unused.items() if not again and _same(name, files, listed)}
    known = (used | unused) - stale

    def new() -> list[Raw]:
        return [row for row in family.rows(listed) if identity(row) not in fresh]

    jobs = _jobs(family, listed)
    first = [job for job in jobs if job.release.label not in known]
    read(first)
    if any("symbols" in told.values for job in first for told in job.release.told.values()):
        others = beside()
        read(Job(one, "linux/amd64", "symbols", one.on("linux/amd64")[0]) for one in others.values())
        listed = {**listed, AGAINST: others}
    # a new release of jax may ask for a plug-in whose own row stands: that one is wanted, too
    wanted = {name for row in new() for name in row["files"]}
    read(job for job in jobs if job.release.label in wanted & known)
    made = new()
    listed = {name: of_it for name, of_it in listed.items() if name in family.distributions}
    labels = _labels(listed)
    whole = [row for row in made if all(labels[name].was_read for name in row["files"])]
    rows = fresh | {identity(row): row for row in whole}
    for row in old.rows:
        if all(name in labels for name in row["files"]):
            # it could not be read again, and what it says is not known to be wrong
            rows.setdefault(identity(row), row)
    order = list(family.distributions)

    def place(row: Raw) -> tuple[int, Version, str]:
        return order.index(row["distribution"]), Version(row["version"]), row.get("variant", "")

    table = ReleaseTable(
        rows=sorted(rows.values(), key=place),
        unused=_unused(listed, rows.values(), old),
        date=old.date,
        older=old.older,
    )
    if (table.rows, table.unused) != (old.rows, old.unused):
        table.date = datetime.now(UTC).date().isoformat()
    found.tables[family.stem] = table
    found.changes += _changes(family.stem, old.rows, table.rows)


def _labels(listed: Listed) -> dict[str, WheelRelease]:
    return {release.label: release for of_it in listed.values() for release in of_it.values()}


def _stands(row: Raw, listed: Listed) -> bool:
    """Whether a row is as it was written, and its files on the index are the ones that were read."""
    return row.get("sum") == total(row) and all(
        _same(name, files, listed) for name, files in row["files"].items()
    )


def _same(name: str, files: str, listed: Listed) -> bool:
    distribution, _, version = name.partition(" ")
    of_it = listed.get(distribution, {})
    if "+" in version and not any("+" in one for one in of_it):
        return True  # a build on its maker's own index, which is not among those that were asked
    return version in of_it and of_it[version].fingerprint == files


def _unused(listed: Listed, rows: Iterable[Raw], old: ReleaseTable) -> dict[str, str]:
    """Releases that were read, now or before, and that no row is made of."""
    used = {name for row in rows for name in row["files"]}
    return {
        name: release.fingerprint
        for name, release in _labels(listed).items()
        if name not in used and (release.was_read or old.unused.get(name) == release.fingerprint)
    }


def identity(row: Mapping[str, Any]) -> Identity:
    """The identity of a row: distribution, version, and the variant if a release has several."""
    several = row["distribution"] == "jax" or row.get("default") is False
    return row["distribution"], row["version"], row.get("variant", "") if several else ""


def _jobs(family: Family, listed: Listed) -> list[Job]:
    """Every wheel that is read of a family, the newest release first."""
    jobs = []
    for of_it in listed.values():
        for release in sorted(of_it.values(), key=lambda one: Version(one.version), reverse=True):
            for platform in release.platforms[: None if family.compiled is None else 1]:
                files = release.on(platform)
                kind = _kind(family, release)
                jobs.append(Job(release, platform, kind, files[0]))
                if family.two and platform == "linux/amd64":
                    jobs.append(Job(release, "other", "other", files[min(1, len(files) - 1)]))
    return jobs


def _kind(family: Family, release: WheelRelease) -> Kind:
    """How a release is read."""
    if isinstance(release, SourceRelease):
        return "source"
    if family.numpy:
        return "numpy"
    if family.compiled is not None:
        return "package" if Version(release.version) >= Version(family.compiled) else "metadata"
    return "metadata" if release.distribution in family.light else "deep"


def _changes(stem: str, old: Sequence[Raw], new: Sequence[Raw]) -> list[str]:
    """One sentence for each row that comes, goes or says something else."""
    before, after = ({identity(row): row for row in rows} for rows in (old, new))
    said = []
    for one in sorted(before.keys() | after.keys()):
        label = " ".join([stem, *(word for word in one if word)])
        was, now = before.get(one, {}), after.get(one, {})
        names = sorted((was.keys() | now.keys()) - {"sum", "files"})
        differ = [
            f"{name} {_text(was.get(name))} -> {_text(now.get(name))}"
            for name in names
            if was.get(name) != now.get(name)
        ]
        if not now:
            differ = ["is no longer on the package index"]
        elif not was:
            differ = ["is new"]
        elif not differ and was != now:
            differ = ["its files on the package index, or its check sum, are others"]
        said += [f"{label}: {text}" for text in differ]
    return said


def _text(value: Any) -> str:
    if isinstance(value, list):
        return " ".join(value)
    return "nothing" if value is None else value if isinstance(value, str) else json.dumps(value)


def _reader(
    index: Index, found: Survey, budget: Budget, say: Say | None, cache: Path | None
) -> Callable[[Iterable[Job]], None]:
    """A function that reads wheels, several at a time, until the budget is spent."""
    end, done, of = time.monotonic() + budget.seconds, 0, 0

    def one(job: Job) -> WheelReading | None:
        if found.transferred > budget.bytes or time.monotonic() > end:
            return None
        try:
            with item(job.file.name):
                if job.kind in _READERS:
                    return _READERS[job.kind](job.file, index.client, cache=cache)
                return read_wheel(job.file, index.client, job.kind, cache=cache)
        except CellError as error:
            return WheelReading(file=job.file.name, unread=[error.message])

    def read(wanted: Iterable[Job]) -> None:
        nonlocal done, of
        jobs = list(wanted)
        of += len(jobs)
        with ThreadPoolExecutor(_THREADS) as pool:
            for job, told in zip(jobs, pool.map(one, jobs), strict=True):
                done += 1
                if told is None:
                    found.left += 1
                    continue
                found.wheels += 1
                found.transferred += told.transferred
                found.notes += [f"{told.file}: {reason}" for reason in told.unread]
                if told.metadata is not None or job.kind == "symbols":
                    job.release.told[job.place] = told
                if say is not None:
                    say(done, of, found.transferred)

    return read
