"""The sources of all tables read again: the differences, and the tables with them.

The releases of frameworks and packages are :mod:`.release_survey`'s. Beside them NVIDIA's wheels, the tags of
``nvidia/cuda`` and PyTorch's tool for extensions are read: a value stays if no server answers, and the reason
is a note. A row that a person marked ``kept`` is never changed.
"""

import contextlib
import difflib
import itertools
import json
import re
import tomllib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from builder.core.errors import CellError, RtbuildError, UsageError
from builder.core.files import write_whole
from builder.core.items import item
from builder.core.versions import key, short
from builder.plan.facts.reading.extension_cards import differences
from builder.plan.facts.reading.observed import TAG
from builder.plan.facts.reading.release_survey import Budget, Survey, survey, table_text
from builder.plan.facts.reading.row_sources import families
from builder.plan.facts.tables import FactsError, FrameworkRow, FrameworkTable, load
from builder.sources.index import Index, ask
from builder.sources.oci import Registry

IMAGE = "nvidia/cuda"
_SOURCES = {
    "nvidia-wheels.toml": ("index", "listing of the default package index"),
    "tags.toml": ("registry", "tag listing and image configs of nvidia/cuda on Docker Hub"),
}
"""The source of a file's changed rows: its id in ``[sources]``, and its reference."""

Plain = str | list[str]


@dataclass(frozen=True, kw_only=True)
class Change:
    """One value of one row that differs from the value read."""

    file: str
    """``torch.toml``."""
    row: int
    """Counted from 0 in the file's ``rows``."""
    label: str
    """The row's name in messages."""
    key: str
    old: Plain | None
    new: Plain


@dataclass
class SideTables:
    """Readings of NVIDIA's wheels and tags, against their tables."""

    changes: list[Change] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    """Differences in rows that a person fixed: they stay."""
    notes: list[str] = field(default_factory=list)
    """Values that could not be read, and cases for a person: a release that no row covers."""

    def add(self, file: str, number: int, row: Mapping[str, Any], name: str, new: Plain) -> None:
        """Put a value that differs on record."""
        label, old = _label(file, row), row.get(name)
        if row.get("kept"):
            self.kept.append(f"{label}: {name} stays {old}, though {new} was read: {row['kept']}")
        else:
            self.changes.append(Change(file=file, row=number, label=label, key=name, old=old, new=new))

    def note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)


@dataclass(frozen=True, kw_only=True)
class Reread:
    """Differences from the tables in a folder."""

    folder: Path
    found: SideTables
    read: Survey
    changed: Mapping[str, str]
    """The new texts of the tables that :attr:`found` changes, by file name."""
    differs: bool
    """Whether a table is not what was read; of a verification also whether a wheel was not read."""

    def diff(self) -> list[str]:
        """The lines of a patch of the checkout."""
        lines: list[str] = []
        for name, text in self.changed.items():
            before = (self.folder / name).read_text("utf-8").splitlines(keepends=True)
            path = f"builder/plan/facts/tables/data/{name}"
            after = text.splitlines(keepends=True)
            lines += difflib.unified_diff(before, after, f"a/{path}", f"b/{path}", n=0)
        return lines

    def write(self) -> bool:
        """Write the tables that change; whether there are any. Raises UsageError if it cannot."""
        texts = {
            self.folder / name: text
            for name, text in {
                **self.changed,
                **{f"releases/{stem}.json": table_text(table) for stem, table in self.read.tables.items()},
            }.items()
        }
        try:
            changed = [path for path in texts if not path.exists() or path.read_text("utf-8") != texts[path]]
            for path in changed:
                write_whole(path, texts[path].encode())
        except OSError as problem:
            raise UsageError(
                f"the tables in {self.folder} cannot be written: {problem.strerror}",
                hint="refresh them in a checkout of rtbuild; --check only shows the differences",
            ) from problem
        return bool(changed)

    def lines(self, *, written: bool) -> Iterator[str]:
        """The differences, what could not be read, and the deciding values that the tables have."""
        found, read = self.found, self.read
        yield from (f"note: {text}" for text in (*found.kept, *found.notes, *read.notes))
        yield from (f"{c.label}: {c.key} {c.old} -> {c.new}" for c in found.changes)
        values = f"{len(found.changes) + len(read.changes)} values {'changed' if written else 'would change'}"
        yield f"{read.wheels} wheels read, {read.transferred >> 20} MiB; {values}"
        if read.left:
            yield f"note: the budget was spent with {read.left} wheels left; run it again to go on"
        yield coverage_text(coverage()).removesuffix("\n")

    def as_json(self, *, written: bool) -> dict[str, object]:
        found, read = self.found, self.read
        return {
            "schema": 1,
            "written": written,
            "changes": [
                {"file": c.file, "row": c.label, "key": c.key, "old": c.old, "new": c.new}
                for c in found.changes
            ],
            "releases": read.changes,
            "kept": found.kept,
            "notes": [*found.notes, *read.notes],
            "wheels": read.wheels,
            "bytes": read.transferred,
            "left": read.left,
            "coverage": [asdict(one) for one in coverage()],
        }


def reread(
    folder: Path,
    *,
    index: Index,
    registry: Registry,
    only: Sequence[str] = (),
    again: bool = False,
    verify: bool = False,
    most_bytes: int,
    most_seconds: float,
    say: Callable[[int, int, int], None],
) -> Reread:
    """Read the sources of the tables in ``folder``; nothing is written.

    ``only`` these frameworks' releases; ``again`` also those that are on record; ``verify`` every wheel on
    record, none from the cache, and of other sources PyTorch's tool for extensions alone. Raises UsageError
    if no table is of that name.
    """
    names = sorted({family.name for family in families(folder)})
    for name in only:
        if name not in names:
            raise UsageError(f"there is no table of {name}", hint=f"there are {', '.join(names)}")
    budget = Budget(bytes=most_bytes, seconds=most_seconds)
    with contextlib.ExitStack() as held:
        # what an earlier run has read of a wheel proves nothing about the wheel
        cache = Path(held.enter_context(TemporaryDirectory(prefix="rtbuild-facts-"))) if verify else None
        read = survey(folder, index, only=only, again=again or verify, budget=budget, say=say, cache=cache)
    if verify:  # what is on record is asked about, not what is new
        read.changes = [change for change in read.changes if not change.endswith(": is new")]
        found = SideTables(notes=[*differences(index)] if not only or "torch" in only else [])
    else:
        found = read_side_tables(folder, index=index, registry=registry)
    date = datetime.now(UTC).date().isoformat()
    changed = {
        name: apply((folder / name).read_text("utf-8"), [c for c in found.changes if c.file == name], date)
        for name in sorted({change.file for change in found.changes})
    }
    differs = bool(changed or read.changes or (verify and (read.left or read.notes or found.notes)))
    return Reread(folder=folder, found=found, read=read, changed=changed, differs=differs)


# -- NVIDIA's wheels and tags


def read_side_tables(folder: Path, *, index: Index, registry: Registry) -> SideTables:
    """Compare the tables in ``folder`` with what can be read. Writes nothing; no server makes it fail."""
    found = SideTables()
    wheels, tags = (
        tomllib.loads((folder / f"{stem}.toml").read_text("utf-8"))["rows"]
        for stem in ("nvidia-wheels", "tags")
    )
    offers = ask((row["name"] for row in wheels), index)
    for name, offer in offers.items():
        if not offer.wheels:
            found.note(f"{name} was not read: {offer.unknown or 'the package index lists no wheel of it'}")
    for number, row in enumerate(wheels):
        with _noted(found, row["name"]):
            _versions(number, row, offers[row["name"]].wheels, found)
    with _noted(found, IMAGE):
        _tags(tags, registry, found)
    with _noted(found, "torch"):
        found.notes += differences(index)
    return found


@contextlib.contextmanager
def _noted(found: SideTables, name: str) -> Iterator[None]:
    """The work on one row. If it fails, its values stay, and a note says why."""
    try:
        with item(name):
            yield
    except CellError as error:
        found.note(f"{name} was not read: {error.message}")


def _label(file: str, row: Mapping[str, Any]) -> str:
    words = [row["cuda"], row["infix"]] if file == "tags.toml" else [row["name"]]
    return " ".join([file.removesuffix(".toml"), *words])


def _versions(number: int, row: Mapping[str, Any], files: Collection[str], found: SideTables) -> None:
    """The versions of one of NVIDIA's wheels, newest first, from the oldest that the row has."""
    oldest = min(row["versions"], key=key)
    versions = sorted((v for v in files if key(v) >= key(oldest)), key=key, reverse=True)
    if row["name"].startswith("nvidia-cuda-runtime"):
        # one for each toolkit: later patches of one differ in nothing that a rule weighs
        versions = list({short(v, 2): v for v in reversed(versions)}.values())[::-1]
    if files and "toolkit" in row:
        # which toolkit a version is from is not in the version: only that it is still there can be read
        if gone := ", ".join(v for v in row["versions"] if v not in files):
            found.note(f"{row['name']} {gone} is no longer on the package index")
    elif versions and versions != row["versions"]:
        found.add("nvidia-wheels.toml", number, row, "versions", versions)


def _tags(rows: Sequence[Mapping[str, Any]], registry: Registry, found: SideTables) -> None:
    """The tags that exist, and the cuDNN in tags whose rows lack it."""
    try:
        listed = registry.tags(IMAGE)
    except RtbuildError as problem:
        found.note(f"the tags of {IMAGE} were not read: {problem.message}")
        return
    covered = set()
    for number, row in enumerate(rows):
        kind = "-".join(filter(None, (row["cuda"], row["infix"], "runtime")))
        tags = [f"{kind}-{name}" for name in row["systems"]]
        covered |= set(tags)
        gone = [tag for tag in tags if tag not in listed]
        if gone and len(gone) < len(tags):
            found.note(f"{_label('tags.toml', row)}: only some of its tags are gone: {', '.join(gone)}")
            continue
        state = "deleted" if gone else "listed"
        if state != row["state"]:
            found.add("tags.toml", number, row, "state", state)
        if (
            not gone
            and row["infix"]
            and "cudnn" not in row
            and (version := _cudnn(tags, registry, found)) is not None
        ):
            found.add("tags.toml", number, row, "cudnn", version)
    for tag in sorted(listed - covered):
        parts = TAG.fullmatch(f"{IMAGE}:{tag}")
        if parts and parts["infix"] and parts["flavour"] == "runtime":
            found.note(f"{IMAGE}:{tag} is listed and no row covers it")


def _cudnn(tags: Sequence[str], registry: Registry, found: SideTables) -> str | None:
    """The cuDNN inside, if all tags agree."""
    said = set()
    for tag in tags:
        try:
            base = registry.inspect(f"{IMAGE}:{tag}", "linux/amd64")
        except RtbuildError as problem:
            found.note(f"{IMAGE}:{tag} was not read: {problem.message}")
            return None
        said.add(base.variable("NV_CUDNN_VERSION"))
    version = said.pop() if len(said) == 1 else None
    return short(version, 4) if version else None


def apply(text: str, changes: Sequence[Change], date: str) -> str:
    """One file's table with its ``changes`` made, each changed row naming their source, of this ``date``.

    Raises FactsError if the text is not laid out as one row a line, so that something else would change, too.
    """
    if not changes:
        return text
    origin, reference = _SOURCES[changes[0].file]
    document = tomllib.loads(text)
    rows, lines = document["rows"], text.splitlines()
    places = [number for number, line in enumerate(lines) if line.startswith("  { ")]
    if [lines[place] for place in places] != [_line(row) for row in rows]:
        raise FactsError("a table of facts is laid out in a way that cannot be changed in place")
    for change in changes:
        row = rows[change.row]
        row[change.key] = change.new
        sources = row.pop("sources")  # which stay the last
        if origin not in sources:
            # a registry's answer decides before the row's other sources
            sources = [origin, *sources] if origin == "registry" else [*sources, origin]
        row["sources"] = sources
        lines[places[change.row]] = _line(row)
    done = "\n".join(lines) + "\n"
    head = f"[sources.{origin}]\n"
    if origin not in document["sources"]:
        return f'{done}\n{head}reference = {json.dumps(reference)}\ndate = "{date}"\n'
    within = rf'(?m)^({re.escape(head)}(?:(?!\[).*\n)*?date = ")[^"]*'
    done, dated = re.subn(within, rf"\g<1>{date}", done, count=1)
    if not dated:
        raise FactsError(f"the source {origin} has no date that can be changed in place")
    return done


def _line(row: Mapping[str, Any]) -> str:
    """A row as these tables have it."""
    return "  { " + ", ".join(f"{k} = {json.dumps(v, ensure_ascii=False)}" for k, v in row.items()) + " },"


# -- what the tables have

VALUES = {
    "cuda": "CUDA",
    "cudnn": "cuDNN",
    "architectures": "GPU code",
    "numpy_abi": "NumPy ABI",
    "python": "Python",
    "glibc": "glibc",
}
"""Values that decide, with the words for them."""
_REASONS = {
    ("cupy", "cudnn"): "it is optional: only cupyx.cudnn opens one",
    ("ctranslate2", "cudnn"): "no cuDNN is in its wheel, and none is named in its library",
}


@dataclass(frozen=True, kw_only=True)
class Coverage:
    """One value of one framework: in how many rows it was read, was added by a person, and is not known."""

    framework: str
    value: str
    read: int
    added: int
    missing: int
    reasons: tuple[str, ...]
    """Why it is missing, each reason with the releases that it holds for."""


def coverage() -> tuple[Coverage, ...]:
    """Every framework and value, in the order of the tables."""
    return tuple(_coverage_of(table, value) for table in load().frameworks.values() for value in VALUES)


def _coverage_of(table: FrameworkTable, value: str) -> Coverage:
    always = value in {"numpy_abi", "python", "glibc"}  # a release without CUDA has them, too
    rows = [
        row
        for row in table.rows
        if "linux/amd64" in row.platforms and (always or set(row.cpu_only) != set(row.platforms))
    ]
    missing = [row for row in rows if not getattr(row, value)]
    added = [row for row in rows if value in row.added and row not in missing]
    usual = _REASONS.get((table.name, value), "nothing that is read of its wheels says it")
    reasons: dict[str, list[FrameworkRow]] = {}
    for row in missing:
        reasons.setdefault(row.unread.get(value, usual), []).append(row)
    return Coverage(
        framework=table.title,
        value=value,
        read=len(rows) - len(missing) - len(added),
        added=len(added),
        missing=len(missing),
        reasons=tuple(
            f"{reason} ({of_it[0].version}"
            + (f" to {of_it[-1].version}, {len(of_it)} rows)" if len(of_it) > 1 else ")")
            for reason, of_it in reasons.items()
        ),
    )


def coverage_text(found: Iterable[Coverage]) -> str:
    """A table for a terminal: read + added / all, and below it why values are missing."""
    every = list(found)
    lines = [f"{'':14}" + "".join(f"{word:>12}" for word in VALUES.values())]
    for framework, values in itertools.groupby(every, lambda one: one.framework):
        cells = (f"{one.read}+{one.added}/{one.read + one.added + one.missing}" for one in values)
        lines.append(f"{framework:14}" + "".join(f"{cell:>12}" for cell in cells))
    lines.append("read from files + added by hand / all rows")
    lines += [f"{one.framework}, {VALUES[one.value]}: {reason}" for one in every for reason in one.reasons]
    return "\n".join(lines) + "\n"
