"""Reading the facts again: what the package index and the registry say today, against the tables.

Only what can be read is compared: releases, Pythons, CUDA, cuDNN and pins of the wheels on the user's index,
versions of NVIDIA's wheels, and the tags of ``nvidia/cuda``. What nobody answers stays as it is, and the
reason is a note. A row that a person marked ``kept`` is never changed.
"""

from __future__ import annotations

import re
import tomllib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from packaging.specifiers import SpecifierSet
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename

from builder.errors import RtbuildError
from builder.facts.availability import version_of
from builder.facts.base import TAG
from builder.facts.edit import Change, Origin, Plain
from builder.facts.tables import FRAMEWORKS
from builder.facts.versions import agree, contains, key, lower_bound, major, requirement, short
from builder.facts.wheelmeta import truth_of_wheel

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from packaging.requirements import Requirement

    from builder.facts import WheelTruth
    from builder.index.client import Index
    from builder.index.simple_api import IndexFile
    from builder.oci.registry import Registry

_THREADS = 4
IMAGE = "nvidia/cuda"
METADATA = ("metadata", "Requires-Dist and tags of the wheels on the default package index")
LISTING = ("index", "listing of the default package index")
REGISTRY = ("registry", "tag listing and image configs of nvidia/cuda on Docker Hub")

Files = dict[str, list["IndexFile"]]
"""Wheels for Linux on x86-64 by released version."""


@dataclass
class Refresh:
    """What a reading came to."""

    changes: list[Change] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    """Differences in rows that a person fixed: they stay."""
    notes: list[str] = field(default_factory=list)
    """What could not be read, and what needs a person: a release that no row covers."""

    def add(self, file: str, number: int, row: Mapping[str, Any], name: str, new: Plain) -> None:
        """Put a value that differs on record."""
        label, old = _label(file, row), row.get(name)
        if row.get("kept"):
            self.kept.append(f"{label}: {name} stays {old}, though {new} was read: {row['kept']}")
        else:
            change = Change(file=file, row=number, label=label, key=name, old=old, new=new)
            self.changes.append(change)

    def note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)


def origin_of(file: str, date: str) -> Origin:
    """The source that changed rows of a file name."""
    by_file = {"tags.toml": REGISTRY, "nvidia-wheels.toml": LISTING}
    name, reference = by_file.get(file, METADATA)
    return Origin(id=name, reference=reference, date=date, first=file == "tags.toml")


def refresh(folder: Path, *, index: Index, registry: Registry) -> Refresh:
    """Compare the tables in ``folder`` with what can be read. Writes nothing; no server makes it fail."""
    found = Refresh()
    tables = {stem: tomllib.loads((folder / f"{stem}.toml").read_text("utf-8")) for stem in FRAMEWORKS}
    wheels = tomllib.loads((folder / "nvidia-wheels.toml").read_text("utf-8"))["rows"]
    names = {
        _distribution(table, row)
        for table in tables.values()
        for row in table["rows"]
        if row.get("default", True)
    }
    pages = _pages(names | {row["name"] for row in wheels}, index, found)
    for stem, table in tables.items():
        _frameworks(f"{stem}.toml", table, pages, index, found)
    for number, row in enumerate(wheels):
        _versions("nvidia-wheels.toml", number, row, pages.get(row["name"]), found)
    _tags(tomllib.loads((folder / "tags.toml").read_text("utf-8"))["rows"], registry, found)
    return found


def _label(file: str, row: Mapping[str, Any]) -> str:
    parts = (row.get("name"), row.get("versions"), row.get("variant"), row.get("cuda"), row.get("infix"))
    words = parts if "ubuntu" in row else parts[:3]
    return " ".join([file.removesuffix(".toml"), *(word for word in words if isinstance(word, str) and word)])


def _distribution(table: Mapping[str, Any], row: Mapping[str, Any]) -> str:
    """The project whose wheels a row is about. JAX itself is Python only: its plug-ins have the pins."""
    by_variant = {"cupy": "cupy-{}", "jax": "jax-{}-plugin"}
    return by_variant.get(table["name"], str(table["name"])).format(row.get("variant"))


def _pages(names: Iterable[str], index: Index, found: Refresh) -> dict[str, Files]:
    def page(name: str) -> Files | str:
        try:
            files: Files = {}
            for file in index.offers(name):
                version = version_of(file)
                if version is not None:
                    files.setdefault(version, []).append(file)
        except RtbuildError as problem:
            return f"{name} was not read: {problem.message}"
        return files or f"{name} was not read: the package index lists no wheel of it"

    wanted = sorted({canonicalize_name(name) for name in names})
    with ThreadPoolExecutor(_THREADS) as pool:
        answers = dict(zip(wanted, pool.map(page, wanted), strict=True))
    for answer in answers.values():
        if isinstance(answer, str):
            found.note(answer)
    return {name: answer for name, answer in answers.items() if not isinstance(answer, str)}


def _frameworks(
    file: str, table: Mapping[str, Any], pages: Mapping[str, Files], index: Index, found: Refresh
) -> None:
    """Rows of wheels on the user's indexes: a ``cu118`` build is there only where one of PyTorch's own is."""
    jobs: list[tuple[int, Mapping[str, Any], Files, str]] = []
    for number, row in enumerate(table["rows"]):
        files = pages.get(_distribution(table, row))
        if files is None:
            continue
        default = row.get("default", True)
        local = "" if default else row["variant"]
        line = {
            v: of_it
            for v, of_it in files.items()
            if contains(SpecifierSet(row["versions"]), v) and v.partition("+")[2] == local
        }
        newest = max(line, key=key, default=None)
        if newest is None and not default:
            continue
        if newest is None:
            found.note(f"{_label(file, row)}: the package index has no wheel of it any more")
            continue
        jobs.append((number, row, line, newest))
    with ThreadPoolExecutor(_THREADS) as pool:
        truths = list(pool.map(lambda job: _truth(job[2][job[3]], index), jobs))
    for (number, row, line, newest), (truth, unread) in zip(jobs, truths, strict=True):
        public = newest.partition("+")[0]
        if public != row["latest"]:
            found.add(file, number, row, "latest", public)
        pythons = _pythons(file for files in line.values() for file in files)
        if pythons and pythons != row["python"]:
            found.add(file, number, row, "python", pythons)
        for reason in unread:
            found.note(reason)
        for name, value in _told(row, truth):
            found.add(file, number, row, name, value)
    for name in sorted({_distribution(table, row) for row in table["rows"] if row.get("default", True)}):
        _uncovered(table, name, pages.get(name, {}), index, found)


def _uncovered(table: Mapping[str, Any], name: str, files: Files, index: Index, found: Refresh) -> None:
    """Releases newer than every row: a row of their own needs a person, who gets what the wheel says."""
    rows = [row for row in table["rows"] if _distribution(table, row) == name]
    end = max((row["latest"] for row in rows), key=key)
    beyond = [v for v in files if key(v) > key(end) and "+" not in v]
    newer = [v for v in beyond if not any(contains(SpecifierSet(row["versions"]), v) for row in rows)]
    if newer:
        newest = max(newer, key=key)
        truth, _ = _truth(files[newest], index)
        asked = [text for text in truth.requires if re.match(r"nvidia[-_]cudnn", text)]
        said = f"CUDA {truth.cuda or 'not told'}, cuDNN {truth.cudnn or 'not told'}"
        said += f", and it asks for {asked[0].partition(';')[0].strip()}" if asked and not truth.cudnn else ""
        found.note(f"{name} {newest} is on the package index and no row covers it; its wheel says: {said}")


def _truth(files: Sequence[IndexFile], index: Index) -> tuple[WheelTruth, tuple[str, ...]]:
    """What one of a release's wheels says, that for the newest Python."""
    file = max(files, key=lambda one: (len(one.name.split("-")[2]), one.name))
    truth, remote = truth_of_wheel(
        file.url, index.client, sha256=file.sha256, size=file.size, metadata_sha256=file.metadata
    )
    return truth, remote.unknown


def _pythons(files: Iterable[IndexFile]) -> list[str]:
    """CPython versions that a line has wheels for; nothing where one wheel serves several."""
    found = set()
    for file in files:
        try:
            tags = parse_wheel_filename(file.name)[3]
        except InvalidWheelFilename:
            continue
        for tag in tags:
            if tag.abi in {"abi3", "none"}:
                return []
            if tag.interpreter.startswith("cp3") and not tag.abi.endswith("t"):
                found.add(f"3.{tag.interpreter[3:]}")
    return sorted(found, key=key)


def _told(row: Mapping[str, Any], truth: WheelTruth) -> Iterator[tuple[str, Plain]]:
    """Values of a row with which its wheel does not agree."""
    if truth.cuda and "cuda" in row and not agree(truth.cuda, row["cuda"]):
        yield "cuda", short(truth.cuda, 2)
    if truth.cudnn and "cudnn" in row and not agree(truth.cudnn, row["cudnn"]):
        yield "cudnn", truth.cudnn
    pins = [_pin(text, truth) for text in row.get("pins", ())]
    if pins != row.get("pins", []):
        yield "pins", pins


def _pin(text: str, truth: WheelTruth) -> str:
    """The wheel's own requirement on the package that a pin is about; the pin itself where it has not one."""
    ours = requirement(text)
    if ours is None:
        return text
    parsed = [r for line in truth.requires if (r := requirement(line)) is not None]
    said = {str(r.specifier): r for r in parsed if canonicalize_name(r.name) == canonicalize_name(ours.name)}
    if len(said) != 1:
        return text
    (theirs,) = said.values()
    if _same(ours, theirs):
        return text
    clauses = sorted((str(clause) for clause in theirs.specifier), reverse=True)
    return canonicalize_name(theirs.name) + ",".join(clauses)


def _same(one: Requirement, other: Requirement) -> bool:
    """Whether two ranges admit the same, as ``~=9.0`` and ``>=9.0,<10`` do."""
    low = lower_bound(one) or "0"
    return agree(low, lower_bound(other) or "0") and all(
        contains(one.specifier, version) == contains(other.specifier, version)
        for version in (low, f"{major(low)}.999", f"{major(low) + 1}.0")
    )


def _versions(file: str, number: int, row: Mapping[str, Any], files: Files | None, found: Refresh) -> None:
    """The versions of one of NVIDIA's wheels, newest first, from the oldest that the row has."""
    if files is None:
        return
    oldest = min(row["versions"], key=key)
    versions = sorted((v for v in files if key(v) >= key(oldest)), key=key, reverse=True)
    if row["name"].startswith("nvidia-cuda-runtime"):
        # one for each toolkit: later patches of one differ in nothing that a rule weighs
        by_toolkit = {short(v, 2): v for v in reversed(versions)}
        versions = sorted(by_toolkit.values(), key=key, reverse=True)
    if "toolkit" in row:
        # which toolkit a version is from is not in the version: only that it is still there can be read
        gone = [v for v in row["versions"] if v not in files]
        if gone:
            found.note(f"{row['name']} {', '.join(gone)} is no longer on the package index")
    elif versions and versions != row["versions"]:
        found.add(file, number, row, "versions", versions)


def _tags(rows: Sequence[Mapping[str, Any]], registry: Registry, found: Refresh) -> None:
    """Which tags there are, and the cuDNN in those of which no row says it."""
    try:
        listed = registry.tags(IMAGE)
    except RtbuildError as problem:
        found.note(f"the tags of {IMAGE} were not read: {problem.message}")
        return
    covered = set()
    for number, row in enumerate(rows):
        tags = [f"{row['cuda']}-{row['infix']}-runtime-ubuntu{name}" for name in row["ubuntu"]]
        covered |= set(tags)
        there = {tag in listed for tag in tags}
        if len(there) > 1:
            gone = ", ".join(tag for tag in tags if tag not in listed)
            found.note(f"{_label('tags.toml', row)}: only some of its tags are gone: {gone}")
            continue
        state = "listed" if there == {True} else "deleted"
        if state != row["state"]:
            found.add("tags.toml", number, row, "state", state)
        if state == "listed" and "cudnn" not in row:
            version = _cudnn(tags, registry, found)
            if version is not None:
                found.add("tags.toml", number, row, "cudnn", version)
    for tag in sorted(listed - covered):
        parts = TAG.fullmatch(f"{IMAGE}:{tag}")
        if (
            parts
            and parts["infix"]
            and parts["flavour"] == "runtime"
            and parts["system"].startswith("ubuntu")
        ):
            found.note(f"{IMAGE}:{tag} is listed and no row covers it")


def _cudnn(tags: Sequence[str], registry: Registry, found: Refresh) -> str | None:
    """The cuDNN inside, where all of the tags say the same."""
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
