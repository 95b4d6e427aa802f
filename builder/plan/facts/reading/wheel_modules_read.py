"""The Python sources of wheels for the proof by imports: out of downloaded files, else by ranges."""

import contextlib
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from zipfile import BadZipFile, ZipFile, ZipInfo

import requests

from builder.core.errors import CellError
from builder.core.items import item
from builder.core.model import Wheel
from builder.plan.facts.reading.wheel_modules import Opener, WheelSources
from builder.sources.index import Index, RemoteZip, UnknownError, cache_path, unpacked

MOST = 48 << 20
"""Bytes that are read of one wheel's sources."""
_LARGEST = 32 << 20
"""Bytes of one source, in which names are looked for."""
_MOST_FILES = 200_000
_MOST_HELD = 512 << 20
"""Packed bytes of all wheels' sources that are held at a time."""


def opener(index: Index, cache: Path) -> Opener:
    """Opens wheels: from ``cache`` if they were downloaded, else on the index."""
    held = [0]

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
                return _Remote(archive, held)
        except (CellError, UnknownError, requests.RequestException):
            return None

    return opened


def _is_source(entry: ZipInfo) -> bool:
    """Whether an interpreter executes it: a module, or a ``.pth`` file."""
    return entry.filename.endswith((".py", ".pth")) and not entry.flag_bits & 1


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

    def every(self) -> Iterator[bytes | None]:
        for name, entry in self.entries.items():
            if _is_source(entry):
                yield self.read(name)


class _Remote:
    """All sources are fetched at once, and held packed."""

    def __init__(self, archive: RemoteZip, held: list[int]) -> None:
        self.archive, self.held = archive, held
        self.entries = {one.filename: one for one in archive.entries()}
        if len(self.entries) > _MOST_FILES:
            raise UnknownError(f"it has more than {_MOST_FILES} files")
        self.packed: dict[str, bytes] | None = None

    def paths(self) -> Sequence[str]:
        return _importable(self.entries)

    def read(self, path: str) -> bytes | None:
        entry, packed = self.entries.get(path), self._fetched().get(path)
        if entry is None or packed is None:
            return None
        try:
            return unpacked(entry, packed)
        except UnknownError:
            return None

    def every(self) -> Iterator[bytes | None]:
        for name, entry in self.entries.items():
            if _is_source(entry):
                yield self.read(name)

    def _fetched(self) -> dict[str, bytes]:
        if self.packed is None:
            self.packed = {}
            wanted = [one for one in self.entries.values() if _is_source(one) and one.file_size <= _LARGEST]
            size = sum(one.compress_size for one in wanted)
            if self.held[0] + size <= _MOST_HELD:
                with contextlib.suppress(UnknownError, requests.RequestException):
                    for entry, packed in self.archive.packed(wanted):
                        self.packed[entry.filename] = packed
                self.held[0] += size
        return self.packed


def _importable(paths: Iterable[str]) -> list[str]:
    """The files that say which modules there are: of a folder of data, which is one, too, the first."""
    found, folders = list[str](), set[str]()
    for path in paths:
        folder = path.rpartition("/")[0]
        if path.endswith((".py", ".so", ".pyc", ".pth")) or folder not in folders:
            found.append(path)
            folders.add(folder)
    return found
