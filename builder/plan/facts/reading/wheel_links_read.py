"""Readings of a wheel's libraries by HTTP ranges, for the link proof of a lock.

Of each wheel with compiled code the directory is read, which has the names and checksums of its files, and
what the loader goes by of the outermost libraries that an import opens, and of all others of the wheel that
these are linked with, whatever their size; once it is known which compiled modules the imports of a set come
to, of those, too (:func:`read_loaded`). Of a wheel that is linked with a framework or with CUDA all others
are read: small ones whole, and of large ones the names in their beginning. Of NVIDIA's wheels the symbols are
read, out of both ends of each library. What was not read is on record as such: the proof takes it for
unknown.
"""

import contextlib
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path, PurePosixPath
from typing import Any
from zipfile import ZipInfo

import requests

from builder.core.elf import elf_links, elf_segments, reader_of
from builder.core.errors import CellError
from builder.core.items import item
from builder.core.link_set import LinkFile, is_loaded, link_file, opened_by_import, stem
from builder.core.model import Wheel
from builder.core.versions import canonical, requirement
from builder.plan.facts.reading.binary import dynamic_symbols, library_of, numpy_api, numpy_interface
from builder.plan.facts.reading.framework_wheel import metadata_head
from builder.plan.facts.reading.observed import (
    LINKS,
    WheelReading,
    is_of_nvidia,
    load_reading,
    may_have_libraries,
    metadata_of,
    reading_path,
    save_reading,
)
from builder.plan.facts.reading.remote_library import SMALL, link_tables, of_ends
from builder.plan.facts.reading.torch_symbols import Symbols, asked_of_torch, defined_by_torch
from builder.plan.facts.tables import CUDA_LIBRARY, load
from builder.sources.index import Index, RemoteZip, UnknownError, unpacked
from builder.sources.net import explain

MOST = 24 << 20
"""Bytes that are read of one wheel, but for what :func:`link_tables` takes."""
_LARGEST = 48 << 20
"""Packed bytes of an extension for PyTorch beyond which more of its names are read."""
_WHOLE, _BEGINNING, _LONG_BEGINNING = 3 << 20, 3 << 19, 12 << 20
"""Packed bytes of a library that is read whole; of the beginning of a larger one, with its names; and of one
with a hundred thousand names, which is for PyTorch and the first that an import opens."""
_MOST_LIBRARIES, _MOST_READ = 4096, 96
"""Libraries of one wheel: of the largest 1,100; and those that are read, the smallest first."""
_LONGEST = 4096
"""Characters of one name; a run path may have a hundred times as many: TensorFlow's has 21,537."""
_MOST_LINKED = 512
"""Libraries of one wheel of which is read what the loader goes by, since an import comes to them."""
_EDGE, _MOST_OF_NVIDIA = 1 << 19, 24
"""Packed bytes of each end of one of NVIDIA's libraries, and how many of them are read of a wheel."""
_MOST_SYMBOLS = 4000
"""Functions of ``c10`` that one library defines or asks for."""
_THREADS = 8
_LIBRARY = re.compile(r"(?:.*/)?[^/]+\.so(?:\.[\w.]+)?")
_FIRST = 4
_FURTHER = 8
"""Libraries that are read to know the NumPy of a wheel that asks for it, the smallest ones."""
_OF_NVIDIA = ("libcu", "libnv", "libnpp", "libnccl")
"""How names of NVIDIA's libraries begin. Of a wheel whose outermost ones are linked with these or with a
framework's, all others are read, too."""


def read_links(
    wheels: Iterable[Wheel],
    index: Index,
    *,
    cache: Path | None = None,
    note: Callable[[str], None] = lambda _text: None,
) -> int:
    """Bring what is known of these wheels' libraries into the cache; the bytes that it took.

    Nothing that a server does is an error: of a wheel that cannot be read, nothing is known.
    """
    wanted = [wheel for wheel in wheels if may_have_libraries(wheel) and wheel.source is None]
    missing = [wheel for wheel in wanted if not _is_kept(wheel, cache)]

    def one(wheel: Wheel) -> int:
        note(f"reading the libraries of {wheel.name} {wheel.version}")
        try:
            with item(wheel.file):
                return _read(wheel, index, cache)
        except CellError:
            return 0  # nothing is kept of it, so it stays unknown

    with ThreadPoolExecutor(_THREADS) as pool:
        return sum(pool.map(one, missing))


def read_loaded(
    wheels: Iterable[Wheel],
    index: Index,
    loaded: Collection[str],
    *,
    cache: Path | None = None,
    note: Callable[[str], None] = lambda _text: None,
) -> dict[Wheel, int]:
    """Add what the loader goes by of compiled modules that imports come to, by their dotted names, and of
    what these are linked with, to what is kept of their wheels; the bytes for each wheel that had more.
    """
    found: dict[Wheel, int] = {}

    def one(wheel: Wheel) -> None:
        place = reading_path(wheel.sha256, LINKS, cache)
        reading = load_reading(place)
        if place is None or reading is None or reading.unread or "cuda" in reading.values:
            return
        values = reading.values
        try:
            opened = [path for path in values["libraries"] if is_loaded(path, loaded)]
            if not _unknown(values, opened):
                return
            note(f"reading the libraries of {wheel.name} {wheel.version}")
            with item(wheel.file):
                archive = RemoteZip(
                    url=index.address(wheel), session=index.client, size=wheel.size, limit=MOST
                )
                _linked(archive, list(archive.entries()), values, opened)
        except (CellError, UnknownError, requests.RequestException):
            return  # as it was
        except (KeyError, TypeError, AttributeError):
            return  # a cache that somebody else wrote
        save_reading(place, reading)
        found[wheel] = archive.transferred

    with ThreadPoolExecutor(_THREADS) as pool:
        list(pool.map(one, (wheel for wheel in wheels if may_have_libraries(wheel) and wheel.source is None)))
    return found


def _is_kept(wheel: Wheel, cache: Path | None) -> bool:
    """Whether a reading is kept, with the files that ask for NumPy 1, which older ones do not name."""
    reading = load_reading(reading_path(wheel.sha256, LINKS, cache))
    asked = reading.values.get("numpy") if reading is not None else None
    return reading is not None and not (isinstance(asked, list) and "1" in asked)


def _read(wheel: Wheel, index: Index, cache: Path | None) -> int:
    place = reading_path(wheel.sha256, LINKS, cache)
    reading = WheelReading(file=wheel.file)
    try:
        archive = RemoteZip(url=index.address(wheel), session=index.client, size=wheel.size, limit=MOST)
        reading.values = _values(wheel, archive)
        reading.transferred = archive.transferred
    except UnknownError as problem:
        reading.unread.append(str(problem))
    except requests.RequestException as problem:
        reading.unread.append(explain(problem))
        place = None  # a line that broke says nothing about the wheel
    if place is not None:
        save_reading(place, reading)
    return reading.transferred


def _values(wheel: Wheel, archive: RemoteZip) -> dict[str, Any]:
    """The reading of a wheel, for JSON. Raises UnknownError."""
    entries = list(archive.entries())
    libraries = [one for one in entries if _LIBRARY.fullmatch(one.filename) and _fits(one)]
    if len(libraries) > _MOST_LIBRARIES:
        raise UnknownError(f"it has more than {_MOST_LIBRARIES} libraries")
    values: dict[str, Any] = {
        "asks": [],
        "libraries": {one.filename: None for one in libraries},
        "digests": {one.filename: f"{one.CRC:08x}-{one.file_size}" for one in libraries},
        "partly": [],
        "tried": [],
        "numpy": {},
        "numpy_api": [],
        "torch": {},
    }
    if not libraries:
        return values
    own = [one for one in entries if re.fullmatch(r"[^/]+\.dist-info/METADATA", one.filename)]
    asked = metadata_of(metadata_head(archive.content(own[0]))).requires if own else ()
    lines = (parsed for text in asked if (parsed := requirement(text)) is not None)
    names = {canonical(one.name) for one in lines if "extra" not in str(one.marker)}
    values["asks"] = sorted(names)
    if is_of_nvidia(wheel.name):
        values["cuda"] = _of_cuda(archive, libraries)
    else:
        symbols = dict[str, Symbols | None]()
        opened = {*opened_by_import(canonical(wheel.name), values["libraries"])}
        outermost = _outermost([one for one in libraries if one.filename in opened])
        _members(archive, [one for one in outermost if one.compress_size <= _WHOLE], values, symbols)
        _linked(archive, libraries, values, [one.filename for one in outermost])
        _members(archive, outermost, values, symbols)
        if "torch" in {*names, *canonical(wheel.name).split("-")}:
            _large(archive, outermost, values)
        if canonical(wheel.name) == "torch":
            values["torch_defined"] = defined_by_torch(archive, libraries)
        linked = (*_OF_NVIDIA, *load().framework_libraries)
        if any(
            name.startswith(linked) for one in values["libraries"].values() if one for name in one["needed"]
        ):
            _members(archive, libraries, values, symbols)
        elif "numpy" in names and not values["numpy"]:
            left = [one for one in libraries if ".libs/" not in one.filename and one not in outermost]
            _members(archive, sorted(left, key=lambda one: one.compress_size)[:_FURTHER], values, symbols)
        if canonical(wheel.name) != "torch":
            needed = {path: facts["needed"] if facts else () for path, facts in values["libraries"].items()}
            values["torch_asked"] = asked_of_torch(archive, libraries, needed, symbols)
    return values


def _outermost(libraries: Sequence[ZipInfo]) -> list[ZipInfo]:
    """The first few of those that an import opens, and the largest beside the first."""
    found = sorted(libraries, key=lambda one: (one.filename.count("/"), one.compress_size))
    beside = [one for one in found[_FIRST:] if one.filename.count("/") == found[0].filename.count("/")]
    return [*found[:_FIRST], *beside[-1:]]


def _linked(
    archive: RemoteZip, libraries: Iterable[ZipInfo], values: dict[str, Any], first: Iterable[str]
) -> None:
    """Read what the loader goes by of these libraries, and of those of the wheel that they are linked with,
    as far as it is unknown.
    """
    entries = {one.filename: one for one in libraries}
    while new := _unknown(values, first):
        small = {
            entry.filename: packed
            for entry, packed in _small(archive, [entries[one] for one in new if one in entries])
        }
        for path in new:
            values["tried"].append(path)
            facts = _exact(small[path]) if path in small else None
            if facts is None and path in entries:
                facts = link_tables(archive, entries[path])
            if facts is not None:
                values["libraries"][path] = asdict(facts)
                values["partly"] = [one for one in values["partly"] if one != path]


def _small(archive: RemoteZip, entries: Iterable[ZipInfo]) -> Iterable[tuple[ZipInfo, bytes]]:
    """Small members unpacked, of which those that lie together come in one answer."""
    wanted = [one for one in entries if one.compress_size <= SMALL]
    archive.limit += sum(one.compress_size + (64 << 10) for one in wanted)
    with contextlib.suppress(UnknownError):
        for entry, packed in archive.packed(wanted):
            with contextlib.suppress(UnknownError):
                yield entry, unpacked(entry, packed)


def _unknown(values: Mapping[str, Any], first: Iterable[str]) -> list[str]:
    """Of these libraries, and those of the wheel that they are linked with as far as that is known, the ones
    of which it is not surely known what they need, and that nobody has tried to read.
    """
    known: Mapping[str, Any] = values["libraries"]
    by_name: dict[str, list[str]] = {}
    for path in known:
        by_name.setdefault(PurePosixPath(path).name, []).append(path)
    unsure = {path for path, facts in known.items() if facts is None} | {*values["partly"]}
    left = dict.fromkeys(one for one in first if one in known)
    found = list[str]()
    for path in (every := [*left]):
        if path in unsure:
            found += [path] if path not in values["tried"] else []
            continue
        more = [one for name in known[path]["needed"] for one in by_name.get(name, ()) if one not in left]
        left |= dict.fromkeys(more)
        every += dict.fromkeys(more)
    return found[: max(0, _MOST_LINKED - len(values["tried"]))]


def _of_cuda(archive: RemoteZip, libraries: Sequence[ZipInfo]) -> dict[str, Any]:
    """The symbols of NVIDIA's libraries: their tables lie in the beginning, the texts often at the end, where
    patchelf puts them. One that cannot be read is left out.
    """
    found: dict[str, Any] = {}
    for entry in sorted(libraries, key=lambda one: one.compress_size)[:_MOST_OF_NVIDIA]:
        with contextlib.suppress(UnknownError, ValueError):
            if entry.compress_size <= 2 * _EDGE:
                read = reader_of(archive.content(entry))
            else:
                begin, end = archive.content(entry, _EDGE), archive.ending(entry, _EDGE)
                read = of_ends(begin, end, entry.file_size)
            links = elf_links(read, elf_segments(read))
            table = links.symbols() if links is not None else None
            if table is None or len(table.defined) > _MOST_SYMBOLS:
                continue
            asked: dict[str, list[str]] = {}
            for name, _, file in table.wanted.values():
                if file is not None and CUDA_LIBRARY.fullmatch(file):
                    asked.setdefault(file, []).append(name.decode())
            offered = sorted(name.decode() for name in table.defined)
            found[entry.filename] = {"asked": asked, "offered": offered}
    return found


def _fits(entry: ZipInfo) -> bool:
    return len(entry.filename) <= _LONGEST and not entry.filename.startswith("/")


def _members(
    archive: RemoteZip,
    libraries: Sequence[ZipInfo],
    values: dict[str, Any],
    symbols: dict[str, Symbols | None],
) -> None:
    """Read the libraries, the smallest first, as far as the limit goes; of whole ones ``symbols``, too."""
    repaired = any(".libs/" in path for path in values["libraries"])
    known = values["libraries"]
    left = [one for one in libraries if known[one.filename] is None]
    for entry in sorted(left, key=lambda one: one.compress_size)[:_MOST_READ]:
        whole = entry.compress_size <= _WHOLE
        most = entry.compress_size if whole else _BEGINNING
        if archive.transferred + most + (64 << 10) > archive.limit:
            return
        if not whole and repaired:
            continue  # the names in its beginning may be those that it had before the repair
        try:
            content = archive.content(entry, most)
        except UnknownError:
            continue
        if whole and (abi := numpy_interface(content)) is not None:
            values["numpy"][entry.filename] = abi
            if b"_ARRAY_API" in content:
                values["numpy_api"].append(numpy_api(content))
        facts = _exact(content) if whole else None
        if facts is None:
            facts = _by_names(content, entry.filename, whole=whole)
            values["partly"] += [entry.filename] if facts is not None else []
        known[entry.filename] = asdict(facts) if facts is not None else None
        if not whole or facts is None:
            continue
        symbols[entry.filename] = None
        with contextlib.suppress(ValueError):
            symbols[entry.filename] = dynamic_symbols(reader_of(content))
        if mine := _of_torch(content, entry.filename, facts):
            values["torch"][entry.filename] = mine


def _large(archive: RemoteZip, libraries: Sequence[ZipInfo], values: dict[str, Any]) -> None:
    """Read the names of an extension that is too large to pass by: torch_xla's has 353 MB."""
    left = [one for one in libraries if one.compress_size > _LARGEST and _is_extension(one)]
    for entry in left[:1]:
        archive.limit += _LONG_BEGINNING
        with contextlib.suppress(UnknownError):
            content = archive.content(entry, _LONG_BEGINNING)
            facts = _by_names(content, entry.filename, whole=False)
            if facts is not None and values["libraries"][entry.filename] is None:
                values["libraries"][entry.filename] = asdict(facts)
                values["partly"].append(entry.filename)
            if facts is not None and (symbols := _of_torch(content, entry.filename, facts, whole=False)):
                values["torch"][entry.filename] = symbols


def _is_extension(entry: ZipInfo) -> bool:
    return entry.filename.endswith(".so") and not PurePosixPath(entry.filename).name.startswith("lib")


def _of_torch(content: bytes, path: str, facts: LinkFile, *, whole: bool = True) -> list[str]:
    """The functions of ``c10`` that PyTorch's own small libraries define, and that others ask for."""
    own = path.startswith("torch/lib/libc10")
    if not own and not any(name.startswith(("libc10", "libtorch")) for name in facts.needed):
        return []
    found = library_of(content, PurePosixPath(path).name, whole=whole)
    symbols = (found.defined if own else found.undefined) if found is not None else ()
    mine = sorted(symbol for symbol in symbols if stem(symbol) is not None)
    return mine if len(mine) <= _MOST_SYMBOLS else []  # of a part of them nobody knows what the rest has


def _exact(content: bytes) -> LinkFile | None:
    try:
        return link_file(reader_of(content))
    except ValueError:
        return None


def _by_names(content: bytes, path: str, *, whole: bool) -> LinkFile | None:
    """A library whose dynamic section was not read: the names of others in its beginning."""
    name = PurePosixPath(path).name
    found = library_of(content, name, whole=whole)
    return LinkFile(soname=name, needed=found.needed) if found is not None else None
