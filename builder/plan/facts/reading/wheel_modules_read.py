"""The Python sources of wheels for the proof by imports: out of downloaded files, else by ranges."""

import contextlib
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from zipfile import BadZipFile, ZipFile, ZipInfo

import requests
from packaging.tags import Tag
from packaging.version import Version

from builder.core.errors import CellError
from builder.core.items import item
from builder.core.model import Wheel
from builder.core.versions import canonical
from builder.plan.facts.reading.wheel_modules import (
    Opener,
    Releases,
    WheelSources,
)
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
