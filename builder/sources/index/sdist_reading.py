"""Facts of a source distribution, read without running it.

The formats: https://packaging.python.org/en/latest/specifications/source-distribution-format/,
https://packaging.python.org/en/latest/specifications/core-metadata/, and setuptools' ``requires.txt``:
https://setuptools.pypa.io/en/latest/deprecated/python_eggs.html
"""

import lzma
import re
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from email.parser import HeaderParser
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from packaging.requirements import Requirement

from builder.core.errors import PackageIndexError

_MOST_FILES, _MOST_BYTES, _MOST_TEXT = 50_000, 2 << 30, 1 << 20
_COMPILED = frozenset((".c", ".cc", ".cpp", ".cxx", ".cu", ".f", ".f90", ".pyx", ".rs"))
_ASIDE = frozenset(("doc", "docs", "example", "examples", "test", "tests", "benchmark", "benchmarks"))
_OPTIONAL = re.compile(r"BuildFailed|BuildExtFailed|optional_build_ext|ve_build_ext|optional\s*=\s*True")
"""How a setup.py says that it goes on without its compiled half, as wrapt's and MarkupSafe's do."""
_EXTENSION = re.compile(
    r"(?i)ext_modules|ext-modules|Extension|cythonize|cffi_modules|numpy\.distutils|skbuild|cmake|subprocess"
)
"""How a setup.py, or a pyproject.toml, says that it has something compiled."""
_BACKEND = re.compile(r"build-backend\s*=\s*[\"'](?!setuptools)")
_TEXTS = re.compile(r"[^/]+/(?:PKG-INFO|setup\.py|pyproject\.toml|(?:[^/]+/)?[^/]+\.egg-info/requires\.txt)")
_UNREADABLE = (
    *(OSError, EOFError, ValueError, RuntimeError),
    *(tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError),
)
"""RuntimeError: a zip with a password; NotImplementedError, one packed in another way, is one."""


@dataclass(frozen=True, kw_only=True)
class SdistContents:
    """The facts that decide whether and how a source distribution is built."""

    requires: tuple[str, ...]
    """Requirements of the package, as far as its files say: a setup.py may say more when it runs."""
    compiled: bool
    """Whether it cannot be built without a compiler."""


def sdist_contents(path: Path) -> SdistContents:
    """Raises PackageIndexError if it is no archive, or larger than any that is built."""
    texts: dict[str, str] = {}
    sources = False
    with path.open("rb") as stream:
        for name, content in sdist_files(stream, path.name, _TEXTS):
            parts = PurePosixPath(name).parts[1:]
            aside = any(part.lower() in _ASIDE for part in parts[:-1])
            sources = sources or (not aside and PurePosixPath(name).suffix.lower() in _COMPILED)
            if content is not None:
                texts[name] = content.decode("utf-8", "replace")
    return SdistContents(requires=tuple(_requires(texts)), compiled=sources and _compiles(texts))


def _compiles(texts: dict[str, str]) -> bool:
    """Whether what builds the package compiles its C: Theano's is read as it runs; wrapt goes without."""
    setup = next((text for name, text in texts.items() if name.endswith("/setup.py")), "")
    project = next((text for name, text in texts.items() if name.endswith("/pyproject.toml")), "")
    if _OPTIONAL.search(setup) is not None:
        return False
    told = not setup or _BACKEND.search(project) is not None
    return told or any(_EXTENSION.search(text) is not None for text in (setup, project))


def sdist_files(stream: BinaryIO, file: str, wanted: re.Pattern[str]) -> Iterator[tuple[str, bytes | None]]:
    """The name of each file of an archive in its order, with the content where the pattern takes the name.

    A content is at most 1 MiB; that of a larger file is None, too. ``file`` is the archive's name, by which
    a zip is told from a tar. Raises PackageIndexError if it is no archive, or larger than any that is built.
    """
    try:
        yield from (_of_zip if file.endswith(".zip") else _of_tar)(stream, wanted)
    except _UNREADABLE as problem:
        raise PackageIndexError(f"{file} cannot be read: {problem}") from problem


def _of_zip(stream: BinaryIO, wanted: re.Pattern[str]) -> Iterator[tuple[str, bytes | None]]:
    total = 0
    with zipfile.ZipFile(stream) as archive:
        for number, entry in enumerate(archive.infolist()):
            total = _counted(number, total + entry.file_size)
            if entry.is_dir():
                continue
            takes = entry.file_size <= _MOST_TEXT and wanted.fullmatch(entry.filename)
            yield entry.filename, archive.read(entry) if takes else None


def _of_tar(stream: BinaryIO, wanted: re.Pattern[str]) -> Iterator[tuple[str, bytes | None]]:
    total = 0
    with tarfile.open(fileobj=stream, mode="r|*") as archive:
        for number, member in enumerate(archive):
            total = _counted(number, total + member.size)
            if not member.isfile():
                continue
            name = member.name.removeprefix("./")
            takes = member.size <= _MOST_TEXT and wanted.fullmatch(name)
            content = archive.extractfile(member) if takes else None
            yield name, None if content is None else content.read()


def _counted(number: int, total: int) -> int:
    if number >= _MOST_FILES or total > _MOST_BYTES:
        raise ValueError(f"it holds more than {_MOST_FILES} files or {_MOST_BYTES >> 30} GiB")
    return total


def _requires(texts: dict[str, str]) -> Iterator[str]:
    """``Requires-Dist`` of PKG-INFO, else the lines of ``requires.txt``; what does not parse is left out."""
    info = next((text for name, text in texts.items() if name.count("/") == 1 and "PKG-INFO" in name), "")
    told = HeaderParser().parsestr(info).get_all("Requires-Dist") or []
    listed = next((text for name, text in texts.items() if name.endswith("requires.txt")), "")
    for text in told or _of_setuptools(listed):
        try:
            yield str(Requirement(text))
        except ValueError:
            continue


def _of_setuptools(text: str) -> Iterator[str]:
    """The lines of ``requires.txt`` as requirements; a section is ``[extra:marker]``."""
    marker = ""
    for raw in text.splitlines():
        line = raw.strip()
        if line.startswith("[") and line.endswith("]"):
            extra, _, condition = line[1:-1].partition(":")
            both = [f"({condition})"] * bool(condition) + [f"extra == '{extra}'"] * bool(extra)
            marker = " and ".join(both)
        elif line:
            yield f"{line} ; {marker}" if marker else line
