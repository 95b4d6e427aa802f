"""One project's sources, unpacked without believing one name in them, laid out beside a system to build them
in; and the calls of its build backend.

The format: https://packaging.python.org/en/latest/specifications/source-distribution-format/

A build finds some programs before the system's own: compilers in a wrapper, and those of required wheels. One
that compiles also has more time and room, and several jobs. The number of jobs must not show in the result;
it is built twice and compared like any other.
"""

import bz2
import contextlib
import errno
import gzip
import importlib.metadata
import json
import lzma
import os
import posixpath
import re
import shutil
import tarfile
import tempfile
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, BinaryIO, cast

import pydantic
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from builder.core.documents import MalformedError, parse_json, parse_toml, read_file, shown
from builder.core.errors import CellError
from builder.core.model import Sdist, Wheel
from builder.image.compose import FOLDER
from builder.image.layers import (
    DEEPEST_PATH,
    LONGEST_PATH,
    MTIME,
    Archive,
    EntryPointError,
    TarReader,
    entry_points,
    scripts,
)
from builder.image.sandbox import Limits, View, environment, run
from builder.image.sdist import wheel as wheels
from builder.sources.index import MACHINES, Index, Target, host_platform

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


INSIDE = Path(__file__).with_name("inside.py")
SITE = b"""\
import os, site, sys
if sys.version_info >= (3, 12):
    site.addsitedir(os.path.dirname(os.path.abspath(__file__)))
"""
"""Python 3.12 has no distutils. setuptools' own stands in for it by a ``.pth``, also in the Pythons that a
``configure`` starts: https://docs.python.org/3/library/site.html#site.addsitedir"""
_STANDALONE = f"{FOLDER}/bin"
_WHEEL = re.compile(r"[\w.!+-]{1,251}\.whl", re.ASCII)
_UNREAD = re.compile(r"\./(usr/share/(doc|man|locale)|var/cache|var/lib/dpkg(?!/info/.*\.list$))/")
"""dpkg's lists of files name the package of a library."""
COMPILING = Limits(seconds=3600, processes=1024, memory=4 << 30)
"""An hour for one build: dlib's, of C++ with link-time optimisation, was not done after 24 minutes on two
busy cores."""
_COMPILERS = re.compile(r"(?:[a-z0-9_]+-linux-gnu-)?(?:cc|c\+\+|gcc|g\+\+|gfortran|clang|clang\+\+)(?:-\d+)?")
WRAPPER = b"""#!/bin/sh
# What is made for the processor of one machine is not made for others.
for word; do
    case $word in
    -march=native | -mtune=native | -mcpu=native)
        echo "${0##*/}: $word is not taken: the result would depend on this machine's processor" >&2
        exit 1
        ;;
    esac
done
exec "/usr/bin/${0##*/}" "$@"
"""
"""In front of every compiler. A build that only tries whether the option is there goes on without it."""
_TOOLS = ".bin"
"""Below the folder of the wheels; no module has such a name."""
_POINTS = re.compile(r"[^/]+\.dist-info/entry_points\.txt")
_SCRIPT = re.compile(r"[^/]+\.data/scripts/(?P<name>[^/]+)")


@dataclass(frozen=True, kw_only=True)
class BuildEnvironment:
    """A system with one project's sources beside it."""

    sdist: Sdist
    root: Path
    folder: Path
    """The folder of this build: ``sdist`` and ``requires``."""
    source: Path
    system: BuildSystem
    compiles: bool
    """True if :attr:`root` has a compiler."""
    cache: Path
    limits: Limits
    cancel: threading.Event

    @property
    def program(self) -> str:
        """The Python that builds: a standalone one, or the system's own."""
        for folder in (_STANDALONE, "usr/bin"):
            for found in self.root.glob(f"{folder}/python3.*"):
                if re.fullmatch(r"python3\.\d+", found.name):
                    return f"/{folder}/{found.name}"
        raise CellError(f"the system to build {self.sdist.file} in has no Python")

    @property
    def python(self) -> str:
        """Its version: ``3.11``."""
        return self.program.rpartition("/python")[2]

    def lay(self, requires: Sequence[Wheel], index: Index) -> None:
        """Put the files of wheels on the path of the build's Python; those of an earlier call are removed."""
        target = self.folder / "requires"
        if target.exists():
            shutil.rmtree(target)
        target.mkdir()
        paths = index.fetch_all(requires, cache=self.cache, stop=self.cancel)
        try:
            for wheel in requires:
                with Archive(paths[wheel.sha256]) as archive:
                    _lay_wheel(archive, target)
                    if self.compiles:
                        folder = target / _TOOLS
                        lay_programs(archive, folder, program=self.program, python=self.python)
            if self.compiles:
                wrap_compilers(self.root, target / _TOOLS)
            (target / INSIDE.name).write_bytes(INSIDE.read_bytes())
            (target / "sitecustomize.py").write_bytes(SITE)
        except (FileExistsError, IsADirectoryError, NotADirectoryError) as problem:
            place = Path(str(problem.filename)).relative_to(target)
            said = f"two wheels that build {self.sdist.file} have {place} as a file and as a folder"
            raise CellError(said) from problem

    def distributions(self) -> dict[str, str]:
        """Versions of the Python packages that Debian's own packages brought, by name.

        A standalone Python does not see them.
        """
        if self.program.startswith(f"/{_STANDALONE}/"):
            return {}
        folder = self.root / "usr/lib/python3/dist-packages"
        found = importlib.metadata.distributions(path=[str(folder)])
        return {canonicalize_name(one.metadata["Name"]): one.version for one in found}

    def requires_of_hook(self) -> tuple[str, ...]:
        """The backend's further requirements: ``get_requires_for_build_wheel``."""
        what = f"asking {self.sdist.file} what its build needs"
        try:
            found = parse_json(self._run("requires", what))
            texts = tuple(str(Requirement(text)) for text in found)
        except (ValueError, TypeError, RecursionError) as problem:
            raise CellError(f"{what}: no list of requirements came back: {problem}") from problem
        for text in texts:
            refuse_address(text, self.sdist.file)
        return texts

    def build(self) -> tuple[str, wheels.Content]:
        """The wheel's file name and its checked files."""
        what, tags = f"building {self.sdist.file}", None
        if self.compiles:  # for this Python, and for a Linux that no ``manylinux`` describes
            target = Target(python=self.python, platform=host_platform(), glibc="2.17")
            tags = [tag for tag in target.tags() if tag.platform.startswith(("linux_", "any"))]
        said, _, data = self._run("wheel", what).partition(b"\n")
        try:
            name = parse_json(said)
        except MalformedError:
            name = None
        if not isinstance(name, str) or not _WHEEL.fullmatch(name):
            raise CellError(f"{what}: the build ended without a wheel")
        with tempfile.TemporaryDirectory(dir=self.folder) as folder:
            path = Path(folder) / name
            path.write_bytes(data)
            content = wheels.members(path, self._limits.memory)
            wheels.refuse_other(path, content, self.sdist, self.python, fitting=tags)
        return name, content

    def libraries(self, content: wheels.Content) -> tuple[str, ...]:
        """The Debian packages whose libraries a wheel's files load."""
        machine = MACHINES[host_platform()]
        return wheels.loaded(content, self.root, machine=machine, what=self.sdist.file)

    @cached_property
    def _limits(self) -> Limits:
        unpacked = sum(f.stat().st_size for f in self.source.rglob("*") if f.is_file())
        return replace(self.limits, memory=self.limits.memory + 6 * unpacked)

    def _run(self, hook: str, what: str) -> bytes:
        job = {
            "hook": hook,
            "backend": self.system.backend,
            "path": self.system.path,
            "source": f"/sdist/{self.source.name}",
            "work": "/build",
            "epoch": MTIME,
        }
        limits = self._limits
        return run(
            [self.program, "-s", "/requires/inside.py", json.dumps(job)],
            View(
                root=self.root,
                folders={f"/{part}": readable(self.folder / part) for part in ("sdist", "requires")},
                memory={"/build": limits.memory, "/tmp": limits.memory // 4},  # noqa: S108 - the sandbox's own
                at="/build",
            ),
            what=what,
            env=_ENVIRONMENT | self._paths | (jobs() if self.compiles else {}),
            limits=limits,
            cancel=self.cancel,
            advise=partial(wheels.advice, sdist=self.sdist, compiled=self.compiles),
        )

    @property
    def _paths(self) -> dict[str, str]:
        """``python3`` is the build's Python, whatever else the system may have."""
        tools = f"/requires/{_TOOLS}:" if self.compiles else ""
        if not self.program.startswith(f"/{_STANDALONE}/"):
            return {"PATH": f"{tools}{_ENVIRONMENT['PATH']}"}
        # Without /proc, as here, the loader does not know what lies beside a program.
        libraries = {"LD_LIBRARY_PATH": f"/{FOLDER}/lib"}
        return {"PATH": f"{tools}/{_STANDALONE}:{_ENVIRONMENT['PATH']}", **libraries}


def readable(folder: Path) -> Path:
    """Let every user read what is below ``folder``, whatever the umask: the sandbox's is another one."""
    for path in (folder, *folder.rglob("*")):
        if not path.is_symlink():
            path.chmod(path.stat().st_mode | (0o555 if path.is_dir() else 0o444))
    return folder


_ENVIRONMENT = environment(
    {
        "HOME": "/build",
        "TMPDIR": "/tmp",  # noqa: S108 - the sandbox's own
        "LC_ALL": "C.UTF-8",
        "TZ": "UTC",
        "PYTHONPATH": "/requires",
        "PYTHONHASHSEED": "0",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONNOUSERSITE": "1",
        "SOURCE_DATE_EPOCH": str(MTIME),
    }
)


def _lay_wheel(archive: Archive, target: Path) -> None:
    """All in one folder, without scripts, headers and the like."""
    for name, member in archive.members.items():
        first, _, rest = name.partition("/")
        scheme, _, place = rest.partition("/") if first.endswith(".data") else ("purelib", "", name)
        if scheme in {"purelib", "platlib"}:
            path = target / place
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("wb") as file:
                file.writelines(archive.chunks(member))
            path.chmod(0o755 if member.executable else 0o644)


@contextlib.contextmanager
def laid_out(*tars: Path) -> Iterator[Path]:
    """The folder with the files of ``tars``, which are rtbuild's own: every user of it reads them."""
    with tempfile.TemporaryDirectory(prefix="rtbuild-system-", ignore_cleanup_errors=True) as name:
        folder = Path(name) / "root"
        folder.mkdir()
        for tar in tars:
            _lay(tar, folder)
        yield folder


def _lay(rootfs: Path, folder: Path) -> None:
    owner, group = os.geteuid(), os.getegid()
    with tarfile.open(rootfs) as archive:
        # the default of Python 3.14 refuses the absolute links that a system has
        archive.extraction_filter = lambda member, _path: member
        for member in archive:
            if _UNREAD.match(member.name) or member.isdev():
                continue
            member.uid, member.gid, member.uname, member.gname = owner, group, "", ""
            member.mode = (member.mode & 0o755) | (0o755 if member.isdir() else 0o444)
            archive.extract(member, folder)
    for name in ("build", "dev", "tmp", "requires", "sdist"):  # the sandbox mounts something there
        (folder / name).mkdir(exist_ok=True)
    folder.chmod(0o755)


def jobs() -> dict[str, str]:
    """How many jobs the common build tools may run: one a processor, if each can have 2 GiB of memory."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    count = str(max(1, min(len(os.sched_getaffinity(0)), memory // (2 << 30))))
    # setuptools, PyTorch's extensions; CMake 3.12 and later; NumPy's distutils.
    return dict.fromkeys(("MAX_JOBS", "CMAKE_BUILD_PARALLEL_LEVEL", "NPY_NUM_BUILD_JOBS"), count)


def wrap_compilers(root: Path, folder: Path) -> None:
    """Put :data:`WRAPPER` into ``folder``, under the name of each compiler that the system has."""
    folder.mkdir(exist_ok=True)
    for path in (root / "usr/bin").iterdir():
        if _COMPILERS.fullmatch(path.name):
            (folder / path.name).write_bytes(WRAPPER)
            (folder / path.name).chmod(0o755)


def lay_programs(archive: Archive, folder: Path, *, program: str, python: str) -> None:
    """Put the programs of a wheel into ``folder``, for the ``program`` of the build's Python."""
    folder.mkdir(exist_ok=True)
    for name, content in _programs(archive, program, python):
        (folder / name).write_bytes(content)
        (folder / name).chmod(0o755)


def _programs(archive: Archive, interpreter: str, python: str) -> Iterator[tuple[str, bytes]]:
    for member in archive.members:
        if _POINTS.fullmatch(member):
            try:
                points = entry_points(archive.read(member).decode())
                yield from scripts(points, interpreter=interpreter, python=python, style="endswith")
            except (EntryPointError, UnicodeDecodeError):
                continue  # a build that needs it fails by itself, and says of what
        elif script := _SCRIPT.fullmatch(member):
            content = archive.read(member, most=256 << 20)  # cmake's is large
            # https://packaging.python.org/en/latest/specifications/binary-distribution-format/
            if content.startswith(b"#!python"):
                content = f"#!{interpreter}\n".encode() + content.partition(b"\n")[2]
            yield script["name"], content
