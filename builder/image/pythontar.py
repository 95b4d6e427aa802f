"""An archive of python-build-standalone, looked at without running any of it, and laid out for images.

The archive's form: https://github.com/astral-sh/python-build-standalone/blob/main/docs/distributions.md; what
it still says of the machine that built it: ``docs/quirks.md`` there. uv mends the same as it installs one.
"""

import io
import posixpath
import re
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from builder.documents import shown
from builder.elf import INTERP_SEGMENT, elf_machine, elf_segments, reader_of
from builder.errors import CellError
from builder.facts.elf import needs_of
from builder.facts.versions import key
from builder.layers.codec import decompressed
from builder.layers.tar import MTIME
from builder.layers.untar import TarEntry, TarReader

FORMAT = 2
"""To be raised when the same archive is laid out otherwise."""
FOLDER = "opt/python"
"""Where it is in images: without its version, as the archive is."""
_TOP = "python"
_MOST_FILES, _MOST_BYTES = 50_000, 1 << 30
"""The largest archive of 2026 has 6,000 files and 0.3 GiB."""
_LOADERS = {
    62: ("linux/amd64", "/lib64/ld-linux-x86-64.so.2"),
    183: ("linux/arm64", "/lib/ld-linux-aarch64.so.1"),
}
"""By ELF's number of the machine: https://refspecs.linuxfoundation.org/elf/gabi4+/ch4.eheader.html"""
# pip and setuptools are the environment's own; bytecode is the recipe's; nobody links with CPython here.
_LEFT_OUT = re.compile(
    r"lib/python3\.\d+/(site-packages/.+|test/.+|(.+/)?__pycache__(/.*)?|(.+/)?(idle_)?tests?/.+)|.+\.(pyc|a|o)|"
    r"bin/(pip|easy_install|wheel)[\d.-]*|lib/python3\.\d+/EXTERNALLY-MANAGED"
)
_MENDED = re.compile(
    r"lib/python3\.\d+/(_sysconfigdata_[^/]+\.py|config-[^/]+/(Makefile|python-config\.py))|lib/pkgconfig/[^/]+\.pc|bin/[^/]+"
)
_BUILT_AT = re.compile(rb"(?:(?<=-[LI])|(?<![\w./-]))/install(?=[/'\"\s:]|$)")
_BUILT_WITH = (
    (re.compile(rb"\s*-[IL]/(?:tools|build)/[^\s'\"]*"), b""),
    (re.compile(rb"(?:/[\w./-]+/)?\bclang\+\+(?=[\s'\"])"), b"c++"),
    (re.compile(rb"(?:/[\w./-]+/)?\bclang(?=[\s'\"])"), b"cc"),
    (re.compile(rb"(?:/[\w./-]+/)?\bllvm-(ar|ranlib|nm|readelf|strip)(?=[\s'\"])"), rb"\1"),
)


@dataclass(frozen=True, slots=True)
class _Kept:
    content: bytes
    executable: bool
    link: str = ""
    """The target of a symbolic link."""


@dataclass(frozen=True, kw_only=True)
class PythonTree:
    """The files of an archive that images get, by path below :data:`FOLDER`."""

    files: Mapping[str, _Kept]
    glibc: str
    """The oldest that all of it runs on."""

    def write(self, out: BinaryIO) -> None:
        """Write it as a tar: sorted, owned by 0:0, of one time; a function of the archive's content alone."""
        folders = {"opt", FOLDER, *(f"{FOLDER}/{part}" for name in self.files for part in _parents(name))}
        with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
            for path in sorted({*folders, *(f"{FOLDER}/{name}" for name in self.files)}):
                info = tarfile.TarInfo(path)
                info.mtime, info.mode = MTIME, 0o755
                name = path.removeprefix(f"{FOLDER}/")
                if path in folders:
                    info.type = tarfile.DIRTYPE
                    tar.addfile(info)
                elif self.files[name].link:
                    info.type, info.linkname, info.mode = tarfile.SYMTYPE, self.files[name].link, 0o777
                    tar.addfile(info)
                else:
                    content = _mended(name, self.files[name].content)
                    info.size, info.mode = len(content), 0o755 if self.files[name].executable else 0o644
                    tar.addfile(info, io.BytesIO(content))


def read_python(archive: Path, *, file: str, version: str, platform: str) -> PythonTree:
    """Look into the archive ``file`` of CPython ``version`` for ``platform``; none of it is run.

    Raises CellError if it is no such archive, leads out of its folder, or holds something else.
    """
    kept = _read(archive, file)
    _check(kept, version, platform, file)
    asked = (needs.glibc for one in kept.values() if (needs := needs_of(one.content)) is not None)
    glibc = max((found for found in asked if found is not None), key=key, default="2.17")
    return PythonTree(files=kept, glibc=glibc)


def _mended(name: str, content: bytes) -> bytes:
    """A text that names the folder and the compiler of Python's build, with the image's own instead."""
    if not _MENDED.fullmatch(name) or content.startswith(b"\x7fELF"):
        return content
    content = _BUILT_AT.sub(b"/" + FOLDER.encode(), content)
    if not name.startswith("bin/"):
        for pattern, text in _BUILT_WITH:
            content = pattern.sub(text, content)
    return content


def _read(archive: Path, what: str) -> dict[str, _Kept]:
    """Files and links by path below the archive's folder."""
    found: dict[str, _Kept] = {}
    seen: set[str] = set()
    size = 0
    with archive.open("rb") as file:
        if file.read(2) != b"\x1f\x8b":
            file.seek(0)
            start = shown(file.read(40).decode("latin-1").strip(), most=40)
            raise _wrong(what, f"it is no gzip archive, and begins with {start!r}")
        file.seek(0)
        reader = TarReader(decompressed(file, "gzip"), what)
        for entry in reader:
            name = _name(entry, what)
            size += entry.size
            if len(seen) > _MOST_FILES or size > _MOST_BYTES:
                raise _wrong(
                    what, f"it unpacks to more than {_MOST_FILES:,} files or {_MOST_BYTES >> 20} MiB"
                )
            if entry.kind == "folder":
                continue
            if name in seen or any(parent in found for parent in _parents(name)):
                raise _wrong(what, f"it holds {shown(name)!r} twice, or below something that is no folder")
            seen.add(name)
            one = _kept(entry, name, reader, found, what)
            if not _LEFT_OUT.fullmatch(name):
                found[name] = one
    if any(parent in found for name in found for parent in _parents(name)):
        raise _wrong(what, "it holds files below something that is no folder")
    return found


def _kept(entry: TarEntry, name: str, reader: TarReader, found: Mapping[str, _Kept], what: str) -> _Kept:
    if entry.kind == "file":
        return _Kept(reader.read(), bool(entry.mode & 0o111))
    if entry.kind == "symlink":
        target = posixpath.normpath(posixpath.join(posixpath.dirname(name), entry.link))
        if entry.link.startswith("/") or target.split("/")[0] == ".." or not entry.link.isprintable():
            raise _wrong(what, f"{shown(name)!r} links out of it, to {shown(entry.link)!r}")
        return _Kept(b"", executable=False, link=entry.link)
    if entry.kind == "hardlink":
        source = found.get(entry.link.removeprefix("./").removeprefix(f"{_TOP}/"))
        if source is None or not entry.link.removeprefix("./").startswith(f"{_TOP}/"):
            raise _wrong(what, f"{shown(name)!r} is a link to {shown(entry.link)!r}, which is not before it")
        return source
    raise _wrong(what, f"{shown(name)!r} is a device or a pipe")


def _name(entry: TarEntry, what: str) -> str:
    parts = entry.name.split("/")
    odd = not entry.name.isprintable() or "\\" in entry.name or {"", ".", ".."} & {*parts}
    if odd or parts[0] != _TOP or (len(parts) == 1 and entry.kind != "folder"):
        raise _wrong(what, f"it holds {shown(entry.name)!r}, which is not below {_TOP}/")
    return "/".join(parts[1:])


def _parents(name: str) -> list[str]:
    parts = name.split("/")[:-1]
    return ["/".join(parts[:number]) for number in range(1, len(parts) + 1)]


def _check(kept: Mapping[str, _Kept], wanted: str, platform: str, what: str) -> None:
    """Raise CellError for another Python than the one that it is said to be."""
    minor = ".".join(wanted.split(".")[:2])
    said = kept.get(f"include/python{minor}/patchlevel.h")
    version = re.search(rb'#\s*define\s+PY_VERSION\s+"([\w.+]+)"', said.content) if said else None
    program = kept.get(f"bin/python{minor}")
    if program is None or version is None:
        there = sorted(name for name in kept if re.fullmatch(r"bin/(python|pypy)[\d.]*t?", name))
        has = f"it has {', '.join(there)}" if there else "it has no program of Python at all"
        raise _wrong(what, f"it holds no CPython {minor}: {has}")
    if version[1].decode() != wanted:
        raise _wrong(what, f"it holds Python {version[1].decode()}, and not {wanted}")
    config = kept.get(f"include/python{minor}/pyconfig.h")
    for macro, kind in ((b"Py_GIL_DISABLED", "a free-threaded build"), (b"Py_DEBUG", "a debug build")):
        if config is not None and re.search(rb"(?m)^#\s*define\s+" + macro + rb"\s+1\b", config.content):
            raise _wrong(what, f"it holds {kind}, for which frameworks have no wheels")
    machine, loader = _program(program.content, what)
    known = _LOADERS.get(machine)
    if known is None or known[0] != platform:
        raise _wrong(
            what, f"its Python is for {known[0] if known else f'the ELF machine {machine}'}, not {platform}"
        )
    if loader != known[1]:
        libc = "musl" if "musl" in loader else "another C library than glibc"
        raise _wrong(what, f"its Python is for {libc} (it asks for {shown(loader) or 'no loader'})")


def _program(content: bytes, what: str) -> tuple[int, str]:
    """ELF's number of the machine, and the loader that a program asks for."""
    read = reader_of(content)
    machine = elf_machine(read)
    try:
        segments = elf_segments(read) if machine is not None else []
        asked = [read(one.offset, one.length) for one in segments if one.kind == INTERP_SEGMENT]
        loader = asked[0].rstrip(b"\0").decode("ascii") if asked else ""
    except ValueError:
        machine, loader = None, ""
    if machine is None:
        raise _wrong(what, "its Python is no program for Linux on a machine of 64 bits")
    return machine, loader


def _wrong(what: str, problem: str) -> CellError:
    return CellError(
        f"{what} is not what its name says: {problem}",
        hint="nothing of it was run or kept; ask the mirror for python-build-standalone's own archive",
    )
