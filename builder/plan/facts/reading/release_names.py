"""The names that releases of a package lost or brought, for the probe: ``common/names.json``."""

import base64
import contextlib
import functools
import gc
import hashlib
import itertools
import json
import re
import struct
import tomllib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from packaging.version import Version

from builder.core import resources
from builder.core.errors import CellError, PackageIndexError
from builder.core.import_set import ImportSet, WheelFiles
from builder.core.items import item
from builder.core.model import Wheel
from builder.core.versions import canonical
from builder.plan.facts.reading.name_rows import (
    name_siblings,
    old_releases,
    packed_row,
    told_once,
    within,
)
from builder.plan.facts.reading.release_members import ReleaseMembers, SourceTree, changes, tree_of
from builder.plan.facts.reading.source_words import ALL_NAMES, EXPORTED_NAMES
from builder.plan.facts.reading.wheel_modules import (
    WheelSources,
    wheel_alone,
)
from builder.plan.facts.reading.wheel_modules_read import opener
from builder.plan.facts.tables import load
from builder.sources.index import Index, IndexFile, wheel_name

_NAMES_PYTHON = 12
_MOST_READ_OF_ONE = 260
_MANY_PATCHES = 9
_OPENED = 4
_MOST_HOMES = 12
"""Modules that are asked for a name which another one lost."""
_OF_TESTS = re.compile(
    r"(?:^|\.)(?:tests?\b|_?testing\b|conftest|test_|scripts?\b|examples?\b|benchmarks?\b|"
    r"3rdparty\b|third_?party\b)"
)
_WITHOUT_CLASSES = re.compile(rf"{_OF_TESTS.pattern}|(?:^|\.)dummy_")
"""Hugging Face's ``dummy_pt_objects`` stand in for classes that need what is not installed."""
_PRIVATE = re.compile(r"(?:^|\.)_")
"""Modules of which it is told whether they are there, and not what is in them: torch._six."""
_BOUND = re.compile(
    rb"^(?:(?:async[ \t]+)?def|class)[ \t]+([A-Za-z_]\w*)|^([A-Za-z_]\w*)[ \t]*(?::[^=\n]*)?=(?!=)",
    re.MULTILINE,
)
_BINDS = re.compile(
    rb"^[ \t]*(?:(?:async[ \t]+)?(?:def|class)[ \t]+\w+|"
    rb"(?:from[ \t]+[.\w]+[ \t]+)?import[ \t]+(?:\([^)]*\)|[^\n(]+)|"
    rb"[A-Za-z_][\w, ]*(?::[^=\n]*)?=(?!=))",
    re.MULTILINE,
)
_NAME = re.compile(rb"[A-Za-z_]\w*")
_GIVES_LATER = tuple(
    b"_LazyModule _lazy_import deprecation_getattr _attach lazy_loader _import_structure".split()
)
_GIVES_BY_TEXT = (b"setattr(", b"globals()", b"__getattr__", b"sys.modules", b"__dict__")
_GIVES_MORE = (
    *_GIVES_BY_TEXT,
    *_GIVES_LATER,
    b"import *",
    b"exec",
    b"eval",
    b"vars(",
    b"locals(",
    b"__path__",
    b"lazy",
)
"""What a module has that gives names which are not in it as words."""
_AS_NAMED = re.compile(rb" as ([A-Za-z_]\w*)")
_IMPORTED = re.compile(rb"^[ \t]*from[ \t]+[.\w]+[ \t]+import[ \t]+(\([^)]*\)|[^\n(\\]+)", re.MULTILINE)
_AS_NAME = re.compile(rb"(?:[\w.]+[ \t]+as[ \t]+)?([A-Za-z_]\w*)[ \t]*(?:#[^\n]*)?(?:,|\n|\)|$)")
_IMPORTED_AS = re.compile(
    rb"^[ \t]*import[ \t]+([A-Za-z_]\w*)\.[\w.]+[ \t]+as[ \t]+([A-Za-z_]\w*)", re.MULTILINE
)
_STAR = re.compile(rb"^[ \t]*from[ \t]+(\.*)([\w.]*)[ \t]+import[ \t]+\*", re.MULTILINE)
_QUOTED = re.compile(rb"['\"]([A-Za-z]\w*)['\"]")


@dataclass(frozen=True, kw_only=True)
class _Release:
    place: str
    """What the table calls it: ``4.57``."""
    alone: ImportSet
    said: Mapping[str, frozenset[str]]
    """The names that the sources of public modules may give these."""
    folders: Mapping[str, str]
    """What stands before a root's name in the wheel, of those that are in a folder of the path."""
    members: ReleaseMembers
    every: Mapping[str, "_SourceNames"]
    """What its sources say, public or not, by their modules."""
    read: Callable[[str], bytes | None]
    pure: bool
    """Whether it has no compiled code, which may give others."""

    def in_wheel(self, module: str) -> str:
        """The name of a module by its place in the wheel."""
        return self.folders.get(module.partition(".")[0], "") + module


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
    with a line for each package: its ``roots``, and its ``row``, which is a JSON object, too, as
    :func:`.packed_text.pack_text` packs it. ``gone``: {"first release without, last with": {module: names}},
    a name followed by ``>`` and the module that has it then, if one of that name does; ``new``: {first
    release with: {module: names}}. An empty name is the module itself. Names of a module that is gone or new
    stand with it, and new names of inner modules with an outer one (:func:`told_once`). ``members lost``,
    ``members brought``, ``keywords lost`` and ``keywords brought`` are alike of classes and functions
    (:func:`.release_members.changes`), with the name to use instead behind ``>``; ``classes``: {bases that
    have such rows: the classes below these}. ``bound``: of a package without compiled code :func:`_filter_of`
    all names that one of its sources gives. ``cut``: there if the row goes without some of what was read, so
    that a name which no release brought by it may have come with one. ``only``: the packages that are read
    again, else all. Rows of others stay as ``current`` has them, and so do those of which too few releases
    can be read.

    Raises PackageIndexError if the index answers about none.
    """
    with _uncollected():
        return _table(index, note, only or list(_named()), json.loads(current))


@contextlib.contextmanager
def _uncollected() -> Iterator[None]:
    """Without the collector of cycles, which looks through all that is held for each of the millions of nodes
    of syntax trees: a third of the time. No node is part of a cycle.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _table(
    index: Index, note: Callable[[str], None], wanted: Sequence[str], packed: dict[str, dict[str, Any]]
) -> str:
    homes: dict[str, list[str]] = {}
    rows: dict[str, dict[str, Any]] = {}
    silent = list[PackageIndexError]()
    for name in wanted:
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
    if silent and len(silent) == len(wanted):
        raise silent[0]
    for name in homes:
        name_siblings(name, rows[name], homes)
    packed |= {name: packed_row(told_once(row)) for name, row in rows.items()}
    days = json.loads((resources.probe() / "common/release_days.json").read_text("utf-8"))
    return within(dict(sorted(packed.items())), old_releases(days))


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
            "read": ["1.15", ".".join(map(str, version.release[:2]))],
            "gone": _as_texts({"2.0 1.15": gone}),
            "new": {},
        }
    raise PackageIndexError("no wheel of tensorflow has its table of renamed names")


def _minor_releases(index: Index, name: str, note: Callable[[str], None]) -> Iterator[_Release]:
    """The releases that :func:`_read_of` names, by the smallest wheel of each, the oldest first."""
    files: dict[Version, IndexFile] = {}
    for offer in index.offers(name):
        named = wheel_name(offer.name)
        if named is None or offer.sha256 is None or offer.yanked is not None or named.version.is_prerelease:
            continue
        if named.version < Version(_named().get(name, "0")):
            continue
        if named.version not in files or offer.size < files[named.version].size:
            files[named.version] = offer
    wheels, places = dict[Version, Wheel](), _read_of(files)
    for version in places:
        file = files[version]
        wheels[version] = Wheel(
            name=name, version=str(version), file=file.name, sha256=file.sha256 or "", size=file.size
        )
    with ThreadPoolExecutor(_OPENED) as pool:  # the next ones are fetched while one is parsed
        fetched = pool.map(lambda wheel: _fetched_sources(index, wheel, note), wheels.values())
        for (version, wheel), sources in zip(wheels.items(), fetched, strict=True):
            place = places[version]
            release = _release(place, sources, wheel) if sources is not None else None
            parts = (
                _parts_of(index, sources, wheel, note) if sources is not None and release is None else None
            )
            if parts is not None:
                release = _release(place, parts, wheel)
            if release is not None:
                yield release
            else:
                note(f"{name} {version} was not read")


_PART = re.compile(rb"(?m)^Requires-Dist:[ \t]*([\w.-]+)[ \t]*\(?==[ \t]*([\w.+!]+)\)?[ \t]*\r?$")


class _Parts:
    """The sources of several wheels that are one package."""

    def __init__(self, sources: Sequence[WheelSources]) -> None:
        self.sources = sources

    def paths(self) -> Sequence[str]:
        return [path for one in self.sources for path in one.paths()]

    def read(self, path: str) -> bytes | None:
        return next((found for one in self.sources if (found := one.read(path)) is not None), None)

    def every(self) -> Iterator[tuple[str, bytes | None]]:
        for one in self.sources:
            yield from one.every()


def _parts_of(
    index: Index, sources: WheelSources, wheel: Wheel, note: Callable[[str], None]
) -> _Parts | None:
    """A package that has no modules of its own, with the parts of the same release that it demands, and these
    do: nvidia-cutlass-dsl from 4.4 on. None if there are none, or if one cannot be read.
    """
    found, todo, seen = [sources], [(sources, wheel)], {wheel.name}
    while todo:
        above, file = todo.pop()
        stem = "-".join(file.file.split("-")[:2])
        asked = _PART.findall(above.read(f"{stem}.dist-info/METADATA") or b"")
        for name in {
            canonical(name.decode()) for name, version in asked if version.decode() == wheel.version
        }:
            offers = [
                one
                for one in (index.offers(name) if name not in seen else ())
                if (named := wheel_name(one.name)) and str(named.version) == wheel.version and one.sha256
            ]
            seen.add(name)
            if offers:
                least = min(offers, key=lambda one: one.size)
                part = Wheel(
                    name=name,
                    version=wheel.version,
                    file=least.name,
                    sha256=least.sha256 or "",
                    size=least.size,
                )
                inner = _fetched_sources(index, part, note)
                if inner is None:
                    return None
                found.append(inner)
                todo.append((inner, part))
    return _Parts(found) if len(found) > 1 else None


_ADDED_PATH = re.compile(r"(\w+)\.__path__\[0\], *['\"]([\w/]+)['\"]")


def _added_folders(sources: WheelSources) -> tuple[str, ...]:
    """What stands before the names of modules in folders that a ``.pth`` file adds to the path."""
    lines = [
        line.strip()
        for path, content in sources.every()
        if path.endswith(".pth")
        for line in (content or b"").decode("utf-8", "replace").splitlines()
    ]
    plain = [line.strip("/") for line in lines if re.fullmatch(r"\w+(?:/\w+)*/?", line)]
    named = ["/".join(found) for line in lines for found in _ADDED_PATH.findall(line)]
    return tuple(dict.fromkeys(folder.replace("/", ".") + "." for folder in (*plain, *named)))


def _read_of(versions: Iterable[Version]) -> dict[Version, str]:
    """The releases to read, the oldest first, and what the table calls them: the newest patch of each minor
    release, ``4.57`` for 4.57.6; each patch of one with many, which are releases like others (apache-tvm-ffi
    0.1.10), unless those of a package are more than can be read (Ultralytics).
    """
    patches = {(version.epoch, *version.release): version for version in sorted(versions)}  # the last .post
    minors: dict[tuple[int, ...], list[Version]] = {}
    for place, version in patches.items():
        minors.setdefault(place[:3], []).append(version)
    long = {place for place, every in minors.items() if len(every) >= _MANY_PATCHES}
    if sum(len(every) if place in long else 1 for place, every in minors.items()) > _MOST_READ_OF_ONE:
        long.clear()
    found = {
        version: ".".join(map(str, version.release if place in long else version.release[:2]))
        for place, every in minors.items()
        for version in (every if place in long else every[-1:])
    }
    return dict([*found.items()][-_MOST_READ_OF_ONE:])


def _fetched_sources(index: Index, wheel: Wheel, note: Callable[[str], None]) -> WheelSources | None:
    """A wheel with the seconds of one proof of its own, all of whose sources are here; None, and a line that
    tells why, for one that cannot be read.
    """
    try:
        with item(f"{wheel.name} {wheel.version}"):
            sources = opener(index, resources.cache(), note)(wheel)
            if sources is not None:
                next(sources.every(), None)
            return sources
    except CellError as problem:
        note(problem.message)
        return None


def _release(place: str, sources: WheelSources, wheel: Wheel) -> _Release | None:
    alone = wheel_alone(wheel, lambda _: sources, _NAMES_PYTHON)
    pure = wheel.file.endswith("-none-any.whl") and not isinstance(sources, _Parts)
    trees, every = list[SourceTree](), dict[str, _SourceNames]()
    said = _said_names(sources, alone.wheels[0], trees, every, pure=pure) if alone is not None else {}
    if alone is None or not said:
        return None
    added = _added_folders(sources)
    outer = {module: next((one for one in added if module.startswith(one)), "") for module in said}
    return _Release(
        place=place,
        alone=alone,
        said={module.removeprefix(outer[module]): names for module, names in said.items()},
        folders={module.removeprefix(one).partition(".")[0]: one for module, one in outer.items() if one},
        members=ReleaseMembers(trees),
        every=every,
        read=sources.read,
        pure=pure,
    )


@dataclass(frozen=True, kw_only=True)
class _SourceNames:
    """What one source says by its words alone, which is more than it may have."""

    names: frozenset[bytes]
    exported: frozenset[bytes]
    """Those of ``__all__``, and what a lazy module takes for it."""
    bound: frozenset[bytes]
    """All that it may bind, also within functions and branches, and texts of a source that gives by texts; of
    a package with compiled code nothing, which may give more."""
    defines: frozenset[bytes]
    """Those of ``names`` that its outermost statements certainly bind."""
    gives_more: bool
    """Whether it may have names that are not in it as words."""
    stars: tuple[str, ...]
    """Modules of which it takes all names; ``transformers.models.*`` for all below a folder."""


_SAID: dict[tuple[int, str, bool, bool], _SourceNames] = {}
"""By the content, the module's name, whether it is a package, and whether of Python alone: releases have most
sources in common."""
_MANY, _DEEPEST = 1000, 2
"""Modules of a package from which on the classes of those with more points in their names are not read, nor
those of private packages: ``torch._inductor``."""
_OF_PRIVATE = re.compile(r"\w+\._\w+\.")


def _said_names(
    sources: WheelSources,
    files: WheelFiles,
    trees: list[SourceTree],
    every: dict[str, "_SourceNames"],
    *,
    pure: bool,
) -> Mapping[str, frozenset[str]]:
    """The names that public modules may have by their sources; empty if one source cannot be read. ``trees``
    and ``every`` are added to.
    """
    own = sum(not _OF_TESTS.search(module) for module in files.modules)
    many = own > _MANY
    for module, path in files.modules.items():
        content = sources.read(path) if path is not None else b""
        if content is None:
            return {}
        key = hash(content), module, module in files.packages, pure
        if key not in _SAID:
            _SAID[key] = _said_by(content, module, package=key[2], pure=pure)
        every[module] = _SAID[key]
        deep = many and (module.count(".") > _DEEPEST or _OF_PRIVATE.match(module))
        if not _WITHOUT_CLASSES.search(module) and not deep:
            trees.append(tree_of(content))
    found = {one: frozenset[str]() for one in (*files.folders, *every) if not _WITHOUT_CLASSES.search(one)}
    found = {one: names for one, names in found.items() if all(map(str.isidentifier, one.split(".")))}
    for module in (one for one in every if one in found and not _PRIVATE.search(one)):
        names, todo, seen = set(every[module].names), list(every[module].stars), {module}
        while todo:
            star = todo.pop()
            below = [one for one in every if one.startswith(star[:-1])] if star.endswith(".*") else [star]
            for other in (every[one] for one in below if one in every and one not in seen):
                plain = (one for one in other.names if not one.startswith(b"_"))
                names |= other.exported or (frozenset() if below != [star] else frozenset(plain))
                todo += other.stars if below == [star] else ()
            seen.update(below)
        found[module] = frozenset(one.decode() for one in names if not one.startswith(b"__") and one != b"_")
    return found


def _said_by(content: bytes, module: str, *, package: bool, pure: bool) -> _SourceNames:
    names = {next(filter(None, found)) for found in _BOUND.findall(content)}
    defines = frozenset(names) if b"\ndel " not in content else frozenset[bytes]()
    for found in _AS_NAMED.finditer(content):  # ``import name as name`` hands it on
        names |= {found[1]} if content.endswith(b" " + found[1], 0, found.start()) else set()
    listed = (one for text in ALL_NAMES.findall(content) for one in _QUOTED.findall(text))
    exported = frozenset([*listed, *EXPORTED_NAMES.findall(content)])
    if any(word in content for word in _GIVES_LATER):
        names |= set(_QUOTED.findall(content))
    stars = list[str]()
    if package:
        for text in _IMPORTED.findall(content):
            names |= set(_AS_NAME.findall(text.strip(b"()\n")))
        above = module.split(".")
        names |= {name for root, name in _IMPORTED_AS.findall(content) if root.decode() == above[0]}
        for dots, rest in _STAR.findall(content):
            start = above[: len(above) - len(dots) + 1] if dots else []
            stars.append(".".join([*start, *filter(None, [rest.decode()])]))
        if b"define_import_structure(" in content and "." not in module:
            stars.append(f"{module}.models.*")
    bound = set(_NAME.findall(b"\n".join(_BINDS.findall(content)))) if pure else set[bytes]()
    if pure and any(word in content for word in _GIVES_BY_TEXT):
        bound |= set(_QUOTED.findall(content))
    return _SourceNames(
        names=frozenset(names | exported),
        exported=exported,
        bound=frozenset(bound | names | exported) if pure else frozenset(),
        defines=defines,
        gives_more=any(word in content for word in _GIVES_MORE),
        stars=tuple(stars),
    )


def _filter_of(names: Collection[bytes]) -> str:
    """A Bloom filter, as base64, of five bits a name: three of each are set, by the first twelve bytes of its
    SHA-256. One in eleven other names seems to be there, too.
    """
    size = max(8, (5 * len(names) + 7) // 8)
    bits = bytearray(size)
    for name in names:
        for place in struct.unpack(">3I", hashlib.sha256(name).digest()[:12]):
            bits[place // 8 % size] |= 1 << place % 8
    return base64.b64encode(bits).decode()


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
        if len(numbers) == len(releases):
            continue
        end = _end_of(releases, numbers, module, name)
        if end is not None:
            with_, without = releases[end], releases[end + 1]
            place = f"{without.place} {with_.place}"
            home = _home(without, module, name)
            gone.setdefault(place, {}).setdefault(module, []).append(name + (home and ">" + home))
        back = end is not None and numbers[-1] == last
        later = [one for one in numbers if not back or one > (end or 0)]
        start = next((one for one in later if _has(releases[one], module, name) is not False), 0)
        if start > 0 and _lacks(releases[start - 1], module, name):
            new.setdefault(releases[start].place, {}).setdefault(module, []).append(name)
    roots = sorted({module.partition(".")[0] for release in releases for module in release.said})
    read = [releases[0].place, releases[last].place]
    pure = all(release.pure for release in releases)
    bound = frozenset[bytes]().union(*(one.bound for release in releases for one in release.every.values()))
    bound |= {part.encode() for release in releases for module in release.every for part in module.split(".")}
    inner = changes([(release.place, release.members) for release in releases])
    return {
        "roots": roots,
        "read": read,
        "gone": _as_texts(gone),
        "new": _as_texts(new),
        **inner,
        **({"bound": _filter_of(bound)} if pure else {}),
    }


def _end_of(releases: Sequence[_Release], numbers: Sequence[int], module: str, name: str) -> int | None:
    """The number of the last release with a name before the last one that certainly lacks it; None if none
    does. ``numbers``: those whose sources have the word, in their order.
    """
    last = len(releases) - 1
    if numbers[-1] == last and _has(releases[last], module, name) is not False:  # it came back, or never went
        gaps = [one for one, other in itertools.pairwise(numbers) if other > one + 1]
        end = gaps[-1] if gaps and _has(releases[gaps[-1]], module, name) is not False else None
    else:
        end = next((one for one in reversed(numbers) if _has(releases[one], module, name) is not False), None)
    return end if end is not None and _lacks(releases[end + 1], module, name) else None


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


def _lacks(release: _Release, module: str, name: str) -> bool:
    """Whether a release certainly lacks a name of a module, or a module of a package, that it has."""
    above = module if name else module.rpartition(".")[0]
    return (not above or release.alone.there(release.in_wheel(above))) and _has(
        release, module, name
    ) is False


def _has(release: _Release, module: str, name: str) -> bool | None:
    """Whether a release has a module, or a name of one; None if its sources do not tell."""
    alone, owner = release.alone, release.alone.wheels[0].name
    word = name or module.rpartition(".")[2]
    if name and f"{module}.{name}" not in release.said and alone.mentions(owner, word) is False:
        return False  # without a look at the module: most names that are gone are gone with their words
    module = release.in_wheel(module)
    if not name:
        found = alone.there(module) or (False if "." not in module or alone.lacks_module(module) else None)
    else:
        found = _by_words(release, module, name.encode())
        found = alone.has(module, name) if found is None and alone.there(module) else found
    return False if found is None and alone.mentions(owner, word) is False else found


def _by_words(release: _Release, module: str, name: bytes) -> bool | None:
    """Whether a module has a name, without a look at how it comes to it; None if that takes one."""
    said, path = release.every.get(module), release.alone.wheels[0].modules.get(module)
    if said is None or path is None:
        return None
    if name in said.defines:
        return True
    content = release.read(path) if not said.gives_more else None
    inner = f"{module}.{name.decode()}"
    lacks = content is not None and name not in content
    return False if lacks and inner not in release.every and inner not in release.said else None


def _home(release: _Release, module: str, name: str) -> str:
    """The module that has a name which another one lost, or the module of the same last names; empty if none
    has, or several that say nothing.
    """
    if name:
        others = [one for one, names in release.said.items() if name in names and one != module]
        root = [one for one in others if "." not in one]
        others = [
            one
            for one in (root or others)[: _MOST_HOMES + 1]
            if release.alone.has(release.in_wheel(one), name)
        ]
        return min(others, key=lambda one: (one.count("."), one)) if 0 < len(others) < 4 else ""
    tail = ".".join(module.split(".")[-2:])
    others = [one for one in release.said if one.endswith("." + tail)]
    return others[0] if len(others) == 1 else ""
