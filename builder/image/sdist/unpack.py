"""A source distribution's files, written below a folder without believing one name in the archive.

The format: https://packaging.python.org/en/latest/specifications/source-distribution-format/
"""

import bz2
import errno
import gzip
import lzma
import os
import posixpath
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, cast

import pydantic
from packaging.requirements import Requirement

from builder.core.documents import MalformedError, parse_toml, read_file, shown
from builder.core.errors import CellError
from builder.image.layers import DEEPEST_PATH, LONGEST_PATH, Archive, TarReader

MOST_BYTES = 2 << 30
"""Unpacked; PySpark, the largest known that is built, has 0.4 GB."""
MOST_FILES = 50_000
"""Folders, too."""
_HINT = "pin another version of it, or leave it out of 'from-source'"


class BuildSystem(pydantic.BaseModel):
    """``[build-system]`` of pyproject.toml, with the defaults of https://peps.python.org/pep-0517/."""

    model_config = pydantic.ConfigDict(strict=True, frozen=True)

    backend: str = pydantic.Field("setuptools.build_meta:__legacy__", alias="build-backend")
    path: list[str] = pydantic.Field([], alias="backend-path")
    """Folders of the source in which the backend itself lies."""
    requires: list[str] = ["setuptools >= 40.8.0"]


def unpack(archive: Path, target: Path) -> Path:
    """Write the files of ``archive`` into ``target``; gives the one folder in it.

    A link to a file of the archive becomes a copy. Raises :class:`~builder.core.errors.CellError` for a path
    that leaves the archive, a device, more than :data:`MOST_BYTES`, or what is no archive at all.
    """
    target.mkdir(mode=0o755)
    try:
        (_unzip if archive.name.endswith(".zip") else _untar)(archive, target)
    except OSError as problem:  # a name that is too long; one that is a file and a folder
        if problem.errno in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise _wrong(archive, f"cannot be read: {problem.strerror or problem}") from problem
    found = list(target.iterdir())
    if len(found) != 1 or not found[0].is_dir():
        raise _wrong(archive, "does not hold one folder with everything in it")
    return found[0]


def build_system(source: Path, *, what: str) -> BuildSystem:
    """The build settings of the project. Raises CellError if they cannot be read or followed."""
    path = source / "pyproject.toml"
    try:
        document = parse_toml(read_file(path, most=1 << 20)) if path.is_file() else {}
        system = BuildSystem.model_validate(document.get("build-system", {}))
    except MalformedError as problem:
        raise CellError(
            f"{what}: its pyproject.toml{problem.place} cannot be read: {problem}", hint=_HINT
        ) from problem
    except pydantic.ValidationError as problem:
        said = f"{what}: [build-system] of its pyproject.toml is not as PEP 518 has it: "
        raise CellError(said + shown(problem.errors()[0]["msg"], most=100), hint=_HINT) from problem
    for text in system.requires:
        refuse_address(text, what)
    if any(name.startswith("/") or ".." in name.split("/") or "\\" in name for name in system.path):
        raise CellError(f"{what}: backend-path leads out of the archive", hint=_HINT)
    return system


def refuse_address(text: str, what: str) -> None:
    """Raise CellError for a requirement of a build that does not parse, or names an address."""
    try:
        parsed = Requirement(text)
    except (ValueError, RecursionError) as problem:
        text = shown(text, most=100)
        raise CellError(f"{what}: it wants {text!r} to be built: {problem}", hint=_HINT) from problem
    if parsed.url is not None:
        said = f"it wants {parsed.name} from an address to be built, but only an index is asked"
        raise CellError(f"{what}: {said}", hint=_HINT)


class _Writer:
    """Regular files below a folder that is empty at first, so that no link of anybody's lies in it."""

    def __init__(self, archive: Path, target: Path) -> None:
        self._archive = archive
        self._target = target
        self._bytes = self._files = 0
        self._folders = {target}

    def path(self, name: str) -> Path:
        parts = [part for part in name.split("/") if part not in ("", ".")]
        if len(parts) > DEEPEST_PATH or len(name) > LONGEST_PATH:
            raise _wrong(self._archive, f"holds a path of {len(parts)} folders and {len(name)} letters")
        plain = parts and ".." not in parts and not name.startswith("/") and "\\" not in name
        if not plain or any(ord(c) < 0x20 for c in name):
            raise _wrong(self._archive, f"holds {name!r}, which leads out of it or is no plain path")
        return self._target.joinpath(*parts)

    def folder(self, path: Path) -> None:
        if path not in self._folders:
            self.folder(path.parent)
            self._count(0)
            path.mkdir(mode=0o755, exist_ok=True)
            self._folders.add(path)

    def file(self, name: str, size: int, pieces: Iterable[bytes], *, executable: bool) -> None:
        """Write a file of ``size`` bytes; ``pieces`` are as many."""
        self._count(size)
        path = self.path(name)
        self.folder(path.parent)
        path.unlink(missing_ok=True)  # named twice: the last one counts, as tar has it
        with path.open("xb") as out:
            out.writelines(pieces)
        path.chmod(0o755 if executable else 0o644)

    def _count(self, size: int) -> None:
        self._files += 1
        self._bytes += size
        if self._files > MOST_FILES or self._bytes > MOST_BYTES:
            raise _wrong(self._archive, f"holds more than {MOST_FILES} files or {MOST_BYTES >> 30} GiB")


def _untar(archive: Path, target: Path) -> None:
    writer = _Writer(archive, target)
    links: list[tuple[str, str]] = []
    with _decompressed(archive) as stream:
        reader = TarReader(stream, archive.name, most=2 * MOST_BYTES)
        for entry in reader:
            if entry.kind == "folder":
                if entry.name.strip("./"):
                    writer.folder(writer.path(entry.name))
            elif entry.kind == "file":
                executable = bool(entry.mode & 0o111)
                writer.file(entry.name, entry.size, reader.content(), executable=executable)
            elif entry.kind == "device" or len(links) == MOST_FILES:
                said = f"holds {entry.name}, which is no file, folder or link, or one too many"
                raise _wrong(archive, said)
            else:
                folder = posixpath.dirname(entry.name) if entry.kind == "symlink" else ""
                links.append((entry.name, posixpath.normpath(posixpath.join(folder, entry.link))))
    for name, linked in links:
        source = writer.path(linked)
        if not source.is_file():
            raise _wrong(archive, f"holds the link {name} to {linked}, which is no file of it")
        with source.open("rb") as content:
            pieces = iter(partial(content.read, 1 << 20), b"")
            writer.file(name, source.stat().st_size, pieces, executable=os.access(source, os.X_OK))


def _decompressed(archive: Path) -> BinaryIO:
    """The tar stream, whichever of the four compressions of a source distribution it has."""
    with archive.open("rb") as file:
        start = file.read(6)
    openers: dict[bytes, Any] = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ\0": lzma.open}
    opener = next((opener for magic, opener in openers.items() if start.startswith(magic)), Path.open)
    return cast("BinaryIO", opener(archive, "rb"))


def _unzip(archive: Path, target: Path) -> None:
    writer = _Writer(archive, target)
    with Archive(archive) as source:
        for member in source.members.values():
            writer.file(member.name, member.size, source.chunks(member), executable=member.executable)


def _wrong(archive: Path, problem: str) -> CellError:
    return CellError(f"{archive.name} {problem}", hint=_HINT)
