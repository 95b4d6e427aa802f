"""The Python sources of wheels for the proof by imports: out of downloaded files, else by ranges; and the
names that releases of a package lost or brought, for the probe.
"""

import contextlib
import functools
import json
import re
import time
import tomllib
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import BadZipFile, ZipFile, ZipInfo

import requests
from packaging.tags import Tag
from packaging.version import Version

from builder.core import resources
from builder.core.errors import CellError, PackageIndexError
from builder.core.import_set import ImportSet, WheelFiles
from builder.core.items import item
from builder.core.model import Wheel
from builder.core.versions import canonical
from builder.plan.facts.reading.release_members import ReleaseMembers, SourceTree, changes, tree_of
from builder.plan.facts.reading.source_words import ALL_NAMES, EXPORTED_NAMES
from builder.plan.facts.reading.wheel_modules import (
    Opener,
    Releases,
    WheelSources,
    wheel_alone,
)
from builder.plan.facts.tables import load
from builder.sources.index import Index, IndexFile, RemoteZip, UnknownError, cache_path, unpacked, wheel_name

MOST = 48 << 20
"""Bytes that are read of one wheel's sources."""
_LARGEST = 64 << 20
"""Bytes of one source, in which names are looked for."""
_MOST_FILES = 200_000
_MOST_RELEASES = 200
_MOST_PATCHES = 8
_SECONDS = 300
"""How long one proof waits for servers: what it has not read by then is unknown, and read by the next one."""
_MOST_HELD = 512 << 20
"""Packed bytes of all wheels' sources that are held at a time."""


def opener(index: Index, cache: Path, note: Callable[[str], None] = lambda _text: None) -> Opener:
    """Opens wheels: from ``cache`` if they were downloaded, else on the index, of which ``note`` is told each
    source.
    """
    held, waited = [0], [0.0]

    def opened(wheel: Wheel) -> WheelSources | None:
        with contextlib.suppress(OSError, BadZipFile, ValueError):
            return _Local(cache_path(wheel, cache))
        if wheel.source is not None:
            return None
        try:
            with item(wheel.file):
                archive = RemoteZip(
                    url=index.address(wheel), session=index.client, size=wheel.size, limit=MOST
                )
                label = f"reading the modules of {wheel.name} {wheel.version}"
                return _Remote(archive, held, waited, lambda: note(label))
        except (CellError, UnknownError, requests.RequestException):
            return None

    return opened


def releases(index: Index) -> Releases:
    """Finds other releases for the same system: patches of the same minor one, the newest of each other."""

    def found(wheel: Wheel, newer: bool) -> Sequence[Wheel]:
        try:
            offers = index.offers(canonical(wheel.name))
        except CellError:
            return ()
        mine, newest = wheel_name(wheel.file), dict[tuple[int, ...], tuple[Version, IndexFile]]()
        patches: list[tuple[Version, IndexFile]] = []
        for offer in offers:
            named = wheel_name(offer.name)
            if mine is None or named is None or named.version.is_prerelease:
                continue
            if not (named.version > mine.version if newer else named.version < mine.version):
                continue
            if offer.yanked is not None or offer.sha256 is None or not _same_place(named.tags, mine.tags):
                continue
            minor = named.version.release[:2]
            if minor == mine.version.release[:2]:
                patches.append((named.version, offer))
            elif minor not in newest or newest[minor][0] < named.version:
                newest[minor] = named.version, offer
        near = sorted(patches, key=lambda row: row[0], reverse=not newer)[:_MOST_PATCHES]
        far = sorted(newest.values(), key=lambda row: row[0], reverse=not newer)
        rows = [*near, *far][:_MOST_RELEASES]
        return [
            Wheel(
                name=wheel.name,
                version=str(version),
                file=offer.name,
                sha256=offer.sha256 or "",
                size=offer.size,
            )
            for version, offer in rows
        ]

    return found


def _same_place(one: Iterable[Tag], other: Iterable[Tag]) -> bool:
    """Whether two wheels are for one Python and one machine, as far as their tags say."""
    ends = [
        {(tag.interpreter, tag.platform.partition("linux")[0][:4], tag.platform[-6:]) for tag in tags}
        for tags in (one, other)
    ]
    return bool(ends[0] & ends[1])


def _is_source(entry: ZipInfo) -> bool:
    """Whether an interpreter executes it: a module, a ``.pth`` file, or what names the scripts."""
    return entry.filename.endswith((".py", ".pth", "/entry_points.txt")) and not entry.flag_bits & 1


class _Local:
    def __init__(self, path: Path) -> None:
        self.archive = ZipFile(path)
        self.entries = {one.filename: one for one in self.archive.infolist()[:_MOST_FILES]}

    def paths(self) -> Sequence[str]:
        return _importable(self.entries)

    def read(self, path: str) -> bytes | None:
        entry = self.entries.get(path)
        if entry is None or entry.file_size > _LARGEST:
            return None
        try:
            with self.archive.open(entry) as file:
                return file.read(_LARGEST + 1)
        except (OSError, BadZipFile, RuntimeError, NotImplementedError, ValueError, zlib.error):
            return None

    def every(self) -> Iterator[tuple[str, bytes | None]]:
        for name, entry in self.entries.items():
            if _is_source(entry):
                yield name, self.read(name)


class _Remote:
    """All sources are fetched at once, and held packed. ``waited``: the seconds that all wheels took."""

    def __init__(
        self, archive: RemoteZip, held: list[int], waited: list[float], tell: Callable[[], None]
    ) -> None:
        self.archive, self.held, self.waited, self.tell = archive, held, waited, tell
        if waited[0] > _SECONDS:
            raise UnknownError(f"the others took {_SECONDS} s")
        started = time.monotonic()
        self.entries = {one.filename: one for one in archive.entries()}
        waited[0] += time.monotonic() - started
        if len(self.entries) > _MOST_FILES:
            raise UnknownError(f"it has more than {_MOST_FILES} files")
        self.packed: dict[str, bytes] | None = None

    def paths(self) -> Sequence[str]:
        return _importable(self.entries)

    def read(self, path: str) -> bytes | None:
        entry = self.entries.get(path)
        if entry is None:
            return None
        self.tell()
        try:
            if not _is_source(entry):
                return self.archive.content(entry) if entry.file_size <= _LARGEST else None
            packed = self._fetched().get(path)
            if packed is None:
                return None
            return unpacked(entry, packed)
        except (UnknownError, requests.RequestException):
            return None

    def every(self) -> Iterator[tuple[str, bytes | None]]:
        for name, entry in self.entries.items():
            if _is_source(entry):
                yield name, self.read(name)

    def _fetched(self) -> dict[str, bytes]:
        if self.packed is None:
            self.packed = {}
            wanted = [one for one in self.entries.values() if _is_source(one) and one.file_size <= _LARGEST]
            size = sum(one.compress_size for one in wanted)
            if self.held[0] + size <= _MOST_HELD and self.waited[0] <= _SECONDS:
                started = time.monotonic()
                with contextlib.suppress(UnknownError, requests.RequestException):
                    for entry, packed in self.archive.packed(wanted):
                        self.packed[entry.filename] = packed
                self.waited[0] += time.monotonic() - started
                self.held[0] += size
        return self.packed


def _importable(paths: Iterable[str]) -> list[str]:
    """The files that say which modules there are: of a folder of data, which is one, too, the first."""
    found, folders = list[str](), set[str]()
    for path in paths:
        folder = path.rpartition("/")[0]
        kept = path.endswith((".py", ".pyc", ".pth", ".dist-info/entry_points.txt")) or ".so" in path
        if kept or folder not in folders:
            found.append(path)
            folders.add(folder)
    return found


# -- the names that releases lost or brought

_NAMES_PYTHON = 12
_MOST_MINORS = 60
_MOST_TEXT = 1_500_000
"""Bytes of the table: those of the deepest modules are left out above them."""
_OF_TESTS = re.compile(
    r"(?:^|\.)(?:tests?\b|_?testing\b|conftest|test_|scripts?\b|examples?\b|benchmarks?\b)"
)
_WITHOUT_CLASSES = re.compile(rf"{_OF_TESTS.pattern}|(?:^|\.)dummy_")
"""Hugging Face's ``dummy_pt_objects`` stand in for classes that need what is not installed."""
_NOT_PUBLIC = re.compile(rf"(?:^|\.)_|{_OF_TESTS.pattern}")
_BOUND = re.compile(
    rb"^(?:(?:async[ \t]+)?def|class)[ \t]+([A-Za-z]\w*)|^([A-Za-z]\w*)[ \t]*(?::[^=\n]*)?=(?!=)",
    re.MULTILINE,
)
_AS_NAMED = re.compile(rb" as ([A-Za-z]\w*)")
_IMPORTED = re.compile(rb"^[ \t]*from[ \t]+[.\w]+[ \t]+import[ \t]+(\([^)]*\)|[^\n(\\]+)", re.MULTILINE)
_AS_NAME = re.compile(rb"(?:[\w.]+[ \t]+as[ \t]+)?([A-Za-z]\w*)[ \t]*(?:#[^\n]*)?(?:,|\n|\)|$)")
_STAR = re.compile(rb"^[ \t]*from[ \t]+(\.*)([\w.]*)[ \t]+import[ \t]+\*", re.MULTILINE)
_QUOTED = re.compile(rb"['\"]([A-Za-z]\w*)['\"]")
_GIVES_LATER = re.compile(
    rb"_LazyModule|_lazy_import|deprecation_getattr|_attach|lazy_loader|_import_structure"
)


@dataclass(frozen=True, kw_only=True)
class _Release:
    version: Version
    alone: ImportSet
    said: Mapping[str, frozenset[str]]
    """The names that the sources of public modules may give these."""
    members: ReleaseMembers


@functools.cache
def _named() -> Mapping[str, str]:
    """The packages of the table, and the first release of each that is read."""
    since: dict[str, str] = tomllib.loads((load().folder / "names-read.toml").read_text("utf-8"))["since"]
    return since


def names_table(
    index: Index, note: Callable[[str], None], only: Sequence[str] = (), *, current: str = "{}"
) -> str:
    """``common/names.json`` of the probe: for each package the public modules, and names of them, that one of
    its minor releases certainly lacks and the one before it has, and the other way round, as one JSON object
    with a line for each package. ``gone``: {"first release without, last with": {module: names}}, a name
    followed by ``>`` and the module that has it then, if one of that name does; ``new``: {first release with:
    {module: names}}. An empty name is the module itself. Names of a module that is gone or new stand with it.
    ``members lost``, ``members brought``, ``keywords lost`` and ``keywords brought`` are alike of classes and
    functions (:func:`.release_members.changes`), with the name to use instead behind ``>``.
    ``only``: the packages that are read again, else all. Rows of others stay as ``current`` has them, and so
    do those of which too few releases can be read.

    Raises PackageIndexError if the index answers about none.
    """
    rows: dict[str, dict[str, Any]] = json.loads(current)
    homes: dict[str, list[str]] = {}
    silent = list[PackageIndexError]()
    for name in only or list(_named()):
        try:
            if name == "tensorflow":
                rows[name] = _renamed_in_2(index, note)
                continue
            found = list(_minor_releases(index, name, note))
        except PackageIndexError as problem:
            note(f"{name} was not read: {problem.message}")
            silent.append(problem)
            continue
        if len(found) > 1:
            homes[name] = [module for module in found[-1].said if "." in module]
            rows[name] = _changes_of(found)
        note(f"{name}: {len(found)} releases")
    if silent and len(silent) == len(only or _named()):
        raise silent[0]
    for name in homes:
        _name_siblings(name, rows[name], homes)
    return _within(dict(sorted(rows.items())))


_RENAMES = "tensorflow/tools/compatibility/renames_v2.py"
_RENAME = re.compile(rb"(?m)^\s*'tf\.([\w.]+)':\s*'tf\.([\w.]+)'")


def _renamed_in_2(index: Index, note: Callable[[str], None]) -> dict[str, Any]:
    """The row of TensorFlow: its own table, made of both interfaces for tf_upgrade_v2, has each name of 1.15
    that 2.0 lacks, and where 2 has it. Its interfaces are made as TensorFlow is built, so that the wheels'
    sources alone do not tell them.

    Raises PackageIndexError if the index has no such wheel, or none that can be read.
    """
    offers = [(named.version, one) for one in index.offers("tensorflow") if (named := wheel_name(one.name))]
    for version, offer in sorted(offers, key=lambda row: (row[0], row[1].name), reverse=True):
        if offer.sha256 is None or offer.yanked is not None or version.is_prerelease:
            continue
        wheel = Wheel(
            name="tensorflow", version=str(version), file=offer.name, sha256=offer.sha256,
            size=offer.size,
        )  # fmt: skip
        sources = opener(index, resources.cache(), note)(wheel)
        content = sources.read(_RENAMES) if sources is not None else None
        if content is None:
            continue
        gone: dict[str, list[str]] = {}
        for old, new in sorted((old.decode(), new.decode()) for old, new in _RENAME.findall(content)):
            module, _, name = f"tensorflow.{old}".rpartition(".")
            home, _, same = f"tensorflow.{new}".rpartition(".")
            gone.setdefault(module, []).append(f"{name}>{home}" if same == name else name)
        note(f"tensorflow {version}: {sum(map(len, gone.values()))} names of 1.15")
        return {
            "roots": ["tensorflow"],
            "read": ["1.15", _short(version)],
            "gone": _as_texts({"2.0 1.15": gone}),
            "new": {},
        }
    raise PackageIndexError("no wheel of tensorflow has its table of renamed names")


def _minor_releases(index: Index, name: str, note: Callable[[str], None]) -> Iterator[_Release]:
    """The newest patch of each minor release, by the smallest of its wheels, the oldest first."""
    newest: dict[tuple[int, ...], Version] = {}
    files: dict[Version, IndexFile] = {}
    for offer in index.offers(name):
        named = wheel_name(offer.name)
        if named is None or offer.sha256 is None or offer.yanked is not None or named.version.is_prerelease:
            continue
        if named.version < Version(_named().get(name, "0")):
            continue
        place = named.version.release[: 3 if name == "jax" and named.version < Version("0.5") else 2]
        newest[place] = max(newest.get(place, named.version), named.version)
        if named.version not in files or offer.size < files[named.version].size:
            files[named.version] = offer
    for version in sorted(newest.values())[-_MOST_MINORS:]:
        file = files[version]
        wheel = Wheel(
            name=name, version=str(version), file=file.name, sha256=file.sha256 or "", size=file.size
        )
        sources = opener(index, resources.cache(), note)(wheel)  # each has the seconds of one proof
        release = _release(version, sources, wheel) if sources is not None else None
        if release is not None:
            yield release
        else:
            note(f"{name} {version} was not read")


def _release(version: Version, sources: WheelSources, wheel: Wheel) -> _Release | None:
    alone = wheel_alone(wheel, lambda _: sources, _NAMES_PYTHON)
    trees = list[SourceTree]()
    said = _said_names(sources, alone.wheels[0], trees) if alone is not None else {}
    if alone is None or not said:
        return None
    return _Release(version=version, alone=alone, said=said, members=ReleaseMembers(trees))


@dataclass(frozen=True, kw_only=True)
class _SourceNames:
    """What one source says by its words alone, which is more than it may have."""

    names: frozenset[bytes]
    exported: frozenset[bytes]
    """Those of ``__all__``, and what a lazy module takes for it."""
    stars: tuple[str, ...]
    """Modules of which it takes all names; ``transformers.models.*`` for all below a folder."""


_SAID: dict[tuple[int, str, bool], _SourceNames] = {}
"""By the content, the module's name and whether it is a package: releases have most sources in common."""
_MANY, _DEEPEST = 1000, 2
"""Modules of a package from which on the classes of those with more points in their names are not read."""


def _said_names(
    sources: WheelSources, files: WheelFiles, trees: list[SourceTree]
) -> Mapping[str, frozenset[str]]:
    """The names that public modules may have by their sources; empty if one source cannot be read. ``trees``
    are added to.
    """
    every = dict[str, _SourceNames]()
    own = sum(not _OF_TESTS.search(module) for module in files.modules)
    deepest = _DEEPEST if own > _MANY else own
    for module, path in files.modules.items():
        content = sources.read(path) if path is not None else b""
        if content is None:
            return {}
        key = hash(content), module, module in files.packages
        if key not in _SAID:
            _SAID[key] = _said_by(content, module, package=key[2])
        every[module] = _SAID[key]
        if not _WITHOUT_CLASSES.search(module) and module.count(".") <= deepest:
            trees.append(tree_of(content))
    found = {folder: frozenset[str]() for folder in files.folders if not _NOT_PUBLIC.search(folder)}
    for module in (one for one in every if not _NOT_PUBLIC.search(one)):
        names, todo, seen = set(every[module].names), list(every[module].stars), {module}
        while todo:
            star = todo.pop()
            below = [one for one in every if one.startswith(star[:-1])] if star.endswith(".*") else [star]
            for other in (every[one] for one in below if one in every and one not in seen):
                names |= other.exported or (frozenset() if below != [star] else other.names)
                todo += other.stars if below == [star] else ()
            seen.update(below)
        found[module] = frozenset(one.decode() for one in names if not one.startswith(b"_"))
    return found


def _said_by(content: bytes, module: str, *, package: bool) -> _SourceNames:
    names = {next(filter(None, found)) for found in _BOUND.findall(content)}
    for found in _AS_NAMED.finditer(content):  # ``import name as name`` hands it on
        names |= {found[1]} if content.endswith(b" " + found[1], 0, found.start()) else set()
    listed = (one for text in ALL_NAMES.findall(content) for one in _QUOTED.findall(text))
    exported = frozenset([*listed, *EXPORTED_NAMES.findall(content)])
    if _GIVES_LATER.search(content):
        names |= set(_QUOTED.findall(content))
    stars = list[str]()
    if package:
        for text in _IMPORTED.findall(content):
            names |= set(_AS_NAME.findall(text.strip(b"()\n")))
        above = module.split(".")
        for dots, rest in _STAR.findall(content):
            start = above[: len(above) - len(dots) + 1] if dots else []
            stars.append(".".join([*start, *filter(None, [rest.decode()])]))
        if b"define_import_structure(" in content and "." not in module:
            stars.append(f"{module}.models.*")
    return _SourceNames(names=frozenset(names | exported), exported=exported, stars=tuple(stars))


def _changes_of(releases: Sequence[_Release]) -> dict[str, Any]:
    """What certainly came and went between two of these, the oldest first."""
    gone: dict[str, dict[str, list[str]]] = {}
    new: dict[str, dict[str, list[str]]] = {}
    every: dict[tuple[str, str], list[int]] = {}
    for number, release in enumerate(releases):
        for module, names in release.said.items():
            for name in ("", *names):
                every.setdefault((module, name), []).append(number)
    last = len(releases) - 1
    for (module, name), numbers in sorted(every.items()):
        if numbers[-1] == last and numbers[0] == 0:
            continue
        shown = [one for one in numbers if _has(releases[one], module, name) is not False]
        if shown and shown[-1] < last:
            with_, without = releases[shown[-1]], releases[shown[-1] + 1]
            if _lacks(without, module, name):
                place = f"{_short(without.version)} {_short(with_.version)}"
                home = _home(without, module, name)
                gone.setdefault(place, {}).setdefault(module, []).append(name + (home and ">" + home))
        if shown and shown[0] > 0 and (not name or module.count(".") < 2):
            without = releases[shown[0] - 1]
            if _lacks(without, module, name):
                new.setdefault(_short(releases[shown[0]].version), {}).setdefault(module, []).append(name)
    roots = sorted({module.partition(".")[0] for release in releases for module in release.said})
    read = [_short(releases[0].version), _short(releases[last].version)]
    inner = changes([(_short(release.version), release.members) for release in releases])
    return {"roots": roots, "read": read, "gone": _as_texts(gone), "new": _as_texts(new), **inner}


def _as_texts(places: Mapping[str, Mapping[str, Sequence[str]]]) -> dict[str, dict[str, str]]:
    """Without the names of a module that came or went itself."""

    def whole(module: str, modules: Mapping[str, Sequence[str]]) -> bool:
        return module in modules and modules[module][0].partition(">")[0] == ""

    return {
        place: {
            module: names[0] if whole(module, modules) else " ".join(names)
            for module, names in modules.items()
            if not any(whole(above, modules) for above in _above(module))
        }
        for place, modules in places.items()
    }


def _above(module: str) -> Iterator[str]:
    while "." in module:
        module = module.rpartition(".")[0]
        yield module


def _short(version: Version) -> str:
    """``4.57`` for ``4.57.6``: of a minor release all patches count as the newest one."""
    return ".".join(map(str, version.release[: 3 if version.release[:2] == (0, 4) else 2]))


def _lacks(release: _Release, module: str, name: str) -> bool:
    """Whether a release certainly lacks a name of a module, or a module of a package, that it has."""
    above = module if name else module.rpartition(".")[0]
    return (not above or release.alone.there(above)) and _has(release, module, name) is False


def _has(release: _Release, module: str, name: str) -> bool | None:
    """Whether a release has a module, or a name of one; None if its sources do not tell."""
    alone, owner = release.alone, release.alone.wheels[0].name
    if not name:
        found = alone.there(module) or (False if "." not in module or alone.lacks_module(module) else None)
    else:
        found = alone.has(module, name) if alone.there(module) else None
    if found is None and alone.mentions(owner, name or module.rpartition(".")[2]) is False:
        return False
    return found


def _home(release: _Release, module: str, name: str) -> str:
    """The module that has a name which another one lost, or the module of the same last names; empty if none
    has, or several that say nothing.
    """
    if name:
        others = [one for one, names in release.said.items() if name in names and one != module]
        root = [one for one in others if "." not in one]
        others = [one for one in root or others if release.alone.has(one, name)]
        return min(others, key=lambda one: (one.count("."), one)) if 0 < len(others) < 4 else ""
    tail = ".".join(module.split(".")[-2:])
    others = [one for one in release.said if one.endswith("." + tail)]
    return others[0] if len(others) == 1 else ""


def _name_siblings(package: str, row: Mapping[str, Any], homes: Mapping[str, Sequence[str]]) -> None:
    """Adds the module of another package with the same two last names to a module that is gone."""
    for modules in row["gone"].values():
        for module, names in modules.items():
            tail = module.split(".")[-2:]
            if names or module.count(".") < 2:
                continue
            others = [
                one
                for name, every in homes.items()
                if name != package and _OF_ONE.get(name, name) == _OF_ONE.get(package, package)
                for one in every
                if one.split(".")[-2:] == tail
            ]
            modules[module] = ">" + others[0] if len(others) == 1 else ""


_OF_ONE = {"torchao": "torch", "langchain-core": "langchain", "torchvision": "torch", "torchaudio": "torch"}
"""Packages that a part of another one moves to."""


def _within(rows: Mapping[str, Mapping[str, Any]]) -> str:
    """The table as text, without the deepest modules of all packages that have no room in it."""
    text = "{}\n"
    for deepest in range(9, -1, -1):
        told = {name: {**row, **_modules_within(row, deepest)} for name, row in rows.items()}
        lines = (
            f"{json.dumps(name)}: {json.dumps(row, separators=(',', ':'))}" for name, row in told.items()
        )
        text = "{\n" + ",\n".join(lines) + "\n}\n"
        if len(text) <= _MOST_TEXT:
            break
    return text


def _modules_within(row: Mapping[str, Any], deepest: int) -> dict[str, dict[str, dict[str, str]]]:
    """``gone`` and ``new`` of the modules that have no more points in their names."""
    found = dict[str, dict[str, dict[str, str]]]()
    for kind in ("gone", "new"):
        places = {
            place: {module: names for module, names in modules.items() if module.count(".") <= deepest}
            for place, modules in row[kind].items()
        }
        found[kind] = {place: modules for place, modules in places.items() if modules}
    return found
