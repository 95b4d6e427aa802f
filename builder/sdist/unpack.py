"""A source distribution's files, written below a folder without believing one name in the archive.

The format: https://packaging.python.org/en/latest/specifications/source-distribution-format/
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import posixpath
import tarfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from packaging.requirements import InvalidRequirement, Requirement

from builder.documents import MalformedError, parse_toml, read_file
from builder.errors import CellError
from builder.wheels.archive import DEEPEST_PATH, LONGEST_PATH, Archive

if TYPE_CHECKING:
    from collections.abc import Callable

MOST_BYTES = 2 << 30
"""Unpacked; PySpark, the largest known that is built, has 0.4 GB."""
MOST_FILES = 100_000
_PIECE = 1 << 20
_LARGEST_TOML = 1 << 20
_LEGACY = ("setuptools >= 40.8.0",)
"""The default of PEP 517 for a project that names no backend."""


@dataclass(frozen=True, kw_only=True)
class BuildSystem:
    """``[build-system]`` of pyproject.toml: https://peps.python.org/pep-0518/ and PEP 517."""

    backend: str
    path: tuple[str, ...]
    """Folders of the source in which the backend itself lies."""
    requires: tuple[str, ...]


def unpack(archive: Path, target: Path) -> Path:
    """Write the files of ``archive`` into ``target``; gives the one folder in it.

    A link to a file of the archive becomes a copy. Raises :class:`~builder.errors.CellError` for a path that
    leaves the archive, a device, more than :data:`MOST_BYTES`, or what is no archive at all.
    """
    target.mkdir(mode=0o755)
    if archive.name.endswith(".zip"):
        _unzip(archive, target)
    else:
        _untar(archive, target)
    found = list(target.iterdir())
    if len(found) != 1 or not found[0].is_dir():
        raise _wrong(archive, "does not hold one folder with everything in it")
    return found[0]


def build_system(source: Path, *, what: str) -> BuildSystem:
    """The build settings of the project. Raises CellError if they cannot be read or followed."""
    path = source / "pyproject.toml"
    try:
        document = parse_toml(read_file(path, most=_LARGEST_TOML)) if path.is_file() else {}
    except MalformedError as problem:
        raise CellError(f"{what}: its pyproject.toml cannot be read: {problem}", hint=_HINT) from problem
    table = document.get("build-system", {})
    if not isinstance(table, dict):
        raise CellError(f"{what}: [build-system] of its pyproject.toml is no table", hint=_HINT)
    requires, folders = table.get("requires", list(_LEGACY)), table.get("backend-path", [])
    backend = table.get("build-backend", "setuptools.build_meta:__legacy__")
    texts = isinstance(requires, list) and isinstance(folders, list) and isinstance(backend, str)
    if not texts or not all(isinstance(text, str) for text in (*requires, *folders)):
        raise CellError(f"{what}: [build-system] of its pyproject.toml is not as PEP 518 has it", hint=_HINT)
    for text in requires:
        refuse_address(text, what)
    if any(name.startswith("/") or ".." in name.split("/") or "\\" in name for name in folders):
        raise CellError(f"{what}: backend-path leads out of the archive", hint=_HINT)
    return BuildSystem(backend=backend, path=tuple(folders), requires=tuple(requires))


_HINT = "pin another version of it, or leave it out of 'from-source'"


def refuse_address(text: str, what: str) -> None:
    """Raise CellError for a requirement of a build that does not parse, or names an address."""
    try:
        parsed = Requirement(text)
    except InvalidRequirement as problem:
        raise CellError(f"{what}: it wants {text!r} to be built: {problem}", hint=_HINT) from problem
    if parsed.url is not None:
        raise CellError(
            f"{what}: it wants {parsed.name} from an address to be built, but only an index is asked",
            hint=_HINT,
        )


class _Writer:
    """Regular files below a folder that is empty at first, so that no link of anybody's lies in it."""

    def __init__(self, archive: Path, target: Path) -> None:
        self._archive = archive
        self._target = target
        self._bytes = self._files = 0

    def path(self, name: str) -> Path:
        parts = [part for part in name.split("/") if part not in ("", ".")]
        if len(parts) > DEEPEST_PATH or len(name) > LONGEST_PATH:
            raise _wrong(self._archive, f"holds a path of {len(parts)} folders and {len(name)} letters")
        plain = parts and ".." not in parts and not name.startswith("/") and "\\" not in name
        if not plain or any(ord(c) < 0x20 for c in name):
            raise _wrong(self._archive, f"holds {name!r}, which leads out of it or is no plain path")
        return self._target.joinpath(*parts)

    def folder(self, name: str) -> None:
        if name.strip("./"):
            self.path(name).mkdir(mode=0o755, parents=True, exist_ok=True)

    def file(self, name: str, size: int, *, executable: bool, read: Callable[[int], bytes]) -> None:
        self._files += 1
        self._bytes += size
        if self._files > MOST_FILES or self._bytes > MOST_BYTES:
            raise _wrong(self._archive, f"holds more than {MOST_FILES} files or {MOST_BYTES >> 30} GiB")
        path = self.path(name)
        path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        path.unlink(missing_ok=True)  # named twice: the last one counts, as tar has it
        with path.open("xb") as out:
            left = size
            while left:
                piece = read(min(left, _PIECE))
                if not piece:
                    raise _wrong(self._archive, f"ends within {name}")
                out.write(piece)
                left -= len(piece)
        path.chmod(0o755 if executable else 0o644)


def _untar(archive: Path, target: Path) -> None:
    writer = _Writer(archive, target)
    links: list[tuple[str, str]] = []
    try:
        with (
            _decompressed(archive) as stream,
            tarfile.open(fileobj=cast("Any", _Pieces(stream)), mode="r:") as tar,
        ):
            for member in tar:
                if member.isdir():
                    writer.folder(member.name)
                elif member.isreg():
                    content = tar.extractfile(member)
                    assert content is not None  # noqa: S101 - a regular file has content
                    executable = bool(member.mode & 0o111)
                    writer.file(member.name, member.size, executable=executable, read=content.read)
                elif member.issym() or member.islnk():
                    folder = posixpath.dirname(member.name) if member.issym() else ""
                    links.append((member.name, posixpath.normpath(posixpath.join(folder, member.linkname))))
                else:
                    raise _wrong(archive, f"holds {member.name}, which is no file, folder or link")
        for name, linked in links:
            source = writer.path(linked)
            if not source.is_file():
                raise _wrong(archive, f"holds the link {name} to {linked}, which is no file of it")
            with source.open("rb") as content:
                executable = os.access(source, os.X_OK)
                writer.file(name, source.stat().st_size, executable=executable, read=content.read)
    except (tarfile.TarError, OSError, EOFError, zlib.error, lzma.LZMAError, ValueError) as problem:
        raise _wrong(archive, f"cannot be read: {problem}") from problem


def _decompressed(archive: Path) -> BinaryIO:
    """The tar stream, whichever of the four compressions of a source distribution it has."""
    with archive.open("rb") as file:
        start = file.read(6)
    opener: Any = Path.open
    for magic, other in ((b"\x1f\x8b", gzip.open), (b"BZh", bz2.open), (b"\xfd7zXZ\0", lzma.open)):
        if start.startswith(magic):
            opener = other
    return cast("BinaryIO", opener(archive, "rb"))


def _tar_in(stream: BinaryIO) -> tarfile.TarFile:
    return tarfile.open(fileobj=cast("Any", _Pieces(stream)), mode="r:")


class _Pieces:
    """As much of a file as :mod:`tarfile` needs: it reads a name at once, of whatever size a header says."""

    def __init__(self, stream: BinaryIO) -> None:
        self.seek, self.tell = stream.seek, stream.tell
        self._read = stream.read

    def read(self, size: int) -> bytes:
        if not 0 <= size <= _PIECE:
            msg = f"a header says that {size} bytes belong to it"
            raise tarfile.ReadError(msg)
        return self._read(size)


def _unzip(archive: Path, target: Path) -> None:
    writer = _Writer(archive, target)
    try:
        with Archive(archive) as source:
            for member in source.members.values():
                pieces = _reader(source.chunks(member))
                writer.file(member.name, member.size, executable=member.executable, read=pieces)
    except OSError as problem:  # a name that is too long; one that is a file and a folder
        raise _wrong(archive, f"cannot be read: {problem}") from problem


def _reader(pieces: Any) -> Callable[[int], bytes]:
    """Gives whole pieces cut to what is asked; what is left comes next."""
    rest = bytearray()

    def read(most: int) -> bytes:
        while not rest:
            piece = next(pieces, None)
            if piece is None:
                return b""
            rest.extend(piece)
        taken = bytes(rest[:most])
        del rest[:most]
        return taken

    return read


def _wrong(archive: Path, problem: str) -> CellError:
    return CellError(f"{archive.name} {problem}", hint=_HINT)
