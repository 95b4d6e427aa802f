"""Reading NVIDIA's wheels and ``nvidia/cuda`` tags again, against their tables.

A value stays if no server answers, and the reason is a note. A row that a person marked ``kept`` is never
changed. The releases of frameworks are :mod:`.release_survey`'s.
"""

import contextlib
import json
import re
import tomllib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from builder.core.errors import CellError, RtbuildError
from builder.core.items import item
from builder.core.versions import key, short
from builder.plan.facts.reading import TAG
from builder.plan.facts.tables import FactsError
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
class Refresh:
    """The result of a reading."""

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


def refresh(folder: Path, *, index: Index, registry: Registry) -> Refresh:
    """Compare the tables in ``folder`` with what can be read. Writes nothing; no server makes it fail."""
    found = Refresh()
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
    return found


@contextlib.contextmanager
def _noted(found: Refresh, name: str) -> Iterator[None]:
    """The work on one row. If it fails, its values stay, and a note says why."""
    try:
        with item(name):
            yield
    except CellError as error:
        found.note(f"{name} was not read: {error.message}")


def _label(file: str, row: Mapping[str, Any]) -> str:
    words = [row["cuda"], row["infix"]] if file == "tags.toml" else [row["name"]]
    return " ".join([file.removesuffix(".toml"), *words])


def _versions(number: int, row: Mapping[str, Any], files: Collection[str], found: Refresh) -> None:
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


def _tags(rows: Sequence[Mapping[str, Any]], registry: Registry, found: Refresh) -> None:
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


def _cudnn(tags: Sequence[str], registry: Registry, found: Refresh) -> str | None:
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
