"""A wheel's zip file, read without believing it; whether it fits a cell; and the files that installing it
would leave, worked out without unpacking it.

Every name, size and checksum is checked. Unlike :mod:`zipfile`, which is used for the table of contents only,
the data is inflated by ISA-L if it is installed (twice as fast as zlib) and outside the interpreter's lock.

Paths, modes, scripts and the rewritten ``RECORD`` are those of ``pip install --no-compile`` into the image's
prefix; the rules are in ``pip/_internal/operations/install/wheel.py``, and a test compares the two trees.
"""

import base64
import configparser
import csv
import email.parser
import functools
import hashlib
import io
import os
import re
import stat
import struct
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from email.message import Message
from pathlib import Path
from typing import Literal

from packaging.tags import Tag
from packaging.utils import canonicalize_name
from packaging.version import Version

from builder.core.documents import shown
from builder.core.errors import CellError
from builder.core.model import Cell, Wheel
from builder.image.layers.tar import INFLATE_ERRORS, crc32, inflater
from builder.image.recipe import left_out
from builder.sources.index import Target, rank, takes, wheel_name

_EXPANSION = 1032
"""The most that deflate expands."""
_FEED = 1 << 17
"""Compressed bytes handed to the inflater at once. This also bounds what one step can bring: 129 MiB."""
_USUAL_EXPANSION, _ROOM = 100, 256 << 20
"""Times that a wheel may expand, and bytes that any may have. NVIDIA's expand threefold, text tenfold."""
_LOCAL_HEADER = 30
DEEPEST_PATH, LONGEST_PATH = 64, 1024
"""Folders and bytes of a path in an archive: wheels have a dozen folders, a file system takes 4,096 bytes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Member:
    """A file in the archive. ``start`` is the offset of its data; sizes are in bytes."""

    name: str
    start: int
    compressed: int
    size: int
    crc: int
    deflated: bool
    executable: bool


class Archive(ExitStack[None]):
    """An open wheel. Raises :class:`~builder.core.errors.CellError` for a file that is damaged or hostile."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path
        self._file = self.enter_context(path.open("rb"))
        try:
            self.members = self._read_members()
        except BaseException:
            self.close()
            raise

    def error(self, problem: str) -> CellError:
        return CellError(
            f"{self.path.name}: {problem}",
            hint="the file is not as its author built it, or was built wrong: "
            "pin another version of the package, or remove the file from the cache to download it again",
        )

    def read(self, name: str, *, most: int = 4 << 20) -> bytes:
        """A member's content. Raises CellError if there is none, or it has more than ``most`` bytes."""
        member = self.members.get(name)
        if member is None:
            raise self.error(f"has no {name}")
        if member.size > most:
            raise self.error(f"{name} has {member.size} bytes, and at most {most} are read of it")
        return b"".join(self.chunks(member))

    def chunks(self, member: Member) -> Iterator[bytes]:
        """The content of ``member``, in pieces; its size and checksum are right when this ends."""
        pieces = self._inflated(member) if member.deflated else self._raw(member)
        size = crc = 0
        for piece in pieces:
            size += len(piece)
            if size > member.size:
                break
            crc = crc32(piece, crc)
            yield piece
        if size != member.size:
            wrong = "more" if size > member.size else "less"
            raise self.error(f"{member.name} holds {wrong} than the {member.size} bytes that it declares")
        if crc != member.crc:
            raise self.error(f"{member.name} is damaged: its checksum differs")

    def _raw(self, member: Member) -> Iterator[bytes]:
        end = member.start + member.compressed
        for offset in range(member.start, end, _FEED):
            yield os.pread(self._file.fileno(), min(_FEED, end - offset), offset)

    def _inflated(self, member: Member) -> Iterator[bytes]:
        inflate = inflater()
        try:
            for piece in self._raw(member):
                yield inflate.decompress(piece)
            yield inflate.flush()
        except INFLATE_ERRORS as problem:
            raise self.error(f"{member.name} is damaged: {problem}") from problem
        if not inflate.eof or inflate.unused_data:
            raise self.error(f"{member.name} is damaged: its compressed data does not end where it should")

    def _read_members(self) -> dict[str, Member]:
        try:
            end_record = zipfile._EndRecData(self._file)  # type: ignore[attr-defined]  # noqa: SLF001
            # Its field _ECD_SIZE: 6 MiB for a wheel of 40,000 files. In memory it takes 15 times as much.
            if end_record is not None and end_record[5] > 12 << 20:
                raise self.error("its table of contents is too large for a wheel")
            with zipfile.ZipFile(self._file) as table:
                entries, start = table.infolist(), table.start_dir
        except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError, struct.error) as problem:
            raise self.error(f"cannot be read as a zip file: {problem}") from problem
        members: dict[str, Member] = {}
        end = 0
        for entry in sorted(entries, key=lambda e: e.header_offset):
            if not end <= entry.header_offset < start:
                where = "overlaps another file" if entry.header_offset < end else "begins behind the files"
                raise self.error(f"{entry.filename} {where} of the archive")
            member = self._member(entry)
            end = member.start + member.compressed
            if end > start:
                raise self.error(f"{entry.filename} reaches into the table of contents")
            if entry.is_dir():
                continue
            if member.name in members:
                raise self.error(f"{member.name} stands in it twice")
            members[member.name] = member
        size = sum(member.size for member in members.values())
        if size > _USUAL_EXPANSION * start + _ROOM:
            raise self.error(f"declares {size >> 20} MiB of files in {start >> 20} MiB")
        return members

    def _member(self, entry: zipfile.ZipInfo) -> Member:
        name = entry.filename
        if not name or not entry.orig_filename:
            raise self.error("a file in it has no name")
        self._check_name(entry.orig_filename, is_dir=entry.is_dir())
        mode = entry.external_attr >> 16
        if stat.S_IFMT(mode) not in (0, stat.S_IFREG, stat.S_IFDIR):
            raise self.error(f"{name} is a link or a device, not a file")
        if entry.flag_bits & 0x41:
            raise self.error(f"{name} is encrypted")
        if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise self.error(f"{name} is compressed with method {entry.compress_type}; wheels use deflate")
        deflated = entry.compress_type == zipfile.ZIP_DEFLATED
        if entry.file_size > entry.compress_size * (_EXPANSION if deflated else 1):
            raise self.error(f"{name} declares {entry.file_size} bytes, more than its data can hold")
        return Member(
            name=name,
            start=self._data_start(entry),
            compressed=entry.compress_size,
            size=entry.file_size,
            crc=entry.CRC,
            deflated=deflated,
            executable=stat.S_ISREG(mode) and bool(mode & 0o111),
        )

    def _check_name(self, name: str, *, is_dir: bool) -> None:
        parts = name.removesuffix("/").split("/") if is_dir else name.split("/")
        longest = max(len(part.encode("utf-8", "replace")) for part in parts)
        if len(parts) > DEEPEST_PATH or len(name) > LONGEST_PATH or longest > 255:
            size = f"{len(parts)} folders and {len(name)} letters"
            raise self.error(f"it has a path of {size}: {shown(name, most=60)}")
        strange = any(ord(c) < 0x20 or c == "\x7f" for c in name) or "\\" in name
        if strange or {"", ".", ".."} & {*parts}:
            raise self.error(f"{name!r} is no plain path inside the archive")

    def _data_start(self, entry: zipfile.ZipInfo) -> int:
        """The offset of the data, by the header in front of it, which must name the same file."""
        header = os.pread(self._file.fileno(), _LOCAL_HEADER, entry.header_offset)
        if len(header) < _LOCAL_HEADER or header[:4] != b"PK\x03\x04":
            raise self.error(f"{entry.filename} has no header where the table of contents says")
        name_size, extra_size = (int.from_bytes(header[i : i + 2], "little") for i in (26, 28))
        name = os.pread(self._file.fileno(), name_size, entry.header_offset + _LOCAL_HEADER)
        encoding = "utf-8" if entry.flag_bits & 0x800 else "cp437"
        if name != entry.orig_filename.encode(encoding, "replace"):
            raise self.error(f"{entry.filename} has another name in its own header")
        return entry.header_offset + _LOCAL_HEADER + name_size + extra_size


Style = Literal["re", "endswith", "removesuffix"]

_TEMPLATES: dict[Style, str] = {
    "re": """\
# -*- coding: utf-8 -*-
import re
import sys
from {module} import {top}
if __name__ == '__main__':
    sys.argv[0] = re.sub(r'(-script\\.pyw|\\.exe)?$', '', sys.argv[0])
    sys.exit({attribute}())
""",
    "endswith": """\
import sys
from {module} import {top}
if __name__ == '__main__':
    if sys.argv[0].endswith('.exe'):
        sys.argv[0] = sys.argv[0][:-4]
    sys.exit({attribute}())
""",
    "removesuffix": """\
import sys
from {module} import {top}
if __name__ == '__main__':
    sys.argv[0] = sys.argv[0].removesuffix('.exe')
    sys.exit({attribute}())
""",
}
"""The scripts that pip has written for a wheel's entry points: distlib's until 25.1, its own since (class
``PipScriptMaker`` in ``pip/_internal/operations/install/wheel.py``), and one for Python 3.9 and later since
26.0. Which one an image gets follows the pip in its lock, because the plain way installs with that one."""
NAMED_FOR_PYTHON = ("pip", "setuptools")
"""Distributions whose scripts pip names after the Python that it installs for."""
_TARGET = re.compile(r"(?P<module>\w+(?:\.\w+)*):(?P<attribute>\w+(?:\.\w+)*)\s*(?:\[.*\])?\s*")
PREFIX = "opt/runtime"
SITE = f"{PREFIX}/lib/python/site-packages"
_BIN = f"{PREFIX}/bin"
_INTERPRETER = f"/{PREFIX}/bin/python"
_ROOTS = {
    "purelib": SITE,
    "platlib": SITE,
    "scripts": _BIN,
    "data": PREFIX,
    # pip writes the Python's version in the place of ``python``; recipes link the one to the other.
    "headers": f"{PREFIX}/include/site/python",
}
"""The folders of the installation schemes."""
_LARGEST_RECORD, _LARGEST_POINTS = 16 << 20, 256 << 10
"""Bytes of RECORD, 5 MiB for a wheel of 40,000 files, and of entry_points.txt."""


class EntryPointError(ValueError):
    """An entry point that no script can be made for."""


def style(pip: str) -> Style:
    """The template of this version of pip."""
    version = Version(pip)
    if version >= Version("26.0"):
        return "removesuffix"
    return "endswith" if version >= Version("25.2") else "re"


def entry_points(text: str) -> dict[str, str]:
    """Console and graphical scripts of an ``entry_points.txt``: name → target. On Linux the two are alike."""
    parser = configparser.ConfigParser(delimiters=("=",), interpolation=None, strict=False)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    try:
        parser.read_string(text)
    except configparser.Error as problem:
        raise EntryPointError(f"entry_points.txt cannot be read: {problem}") from problem
    groups = filter(parser.has_section, ("console_scripts", "gui_scripts"))
    return {name: target for group in groups for name, target in parser.items(group)}


def scripts(
    points: dict[str, str], *, interpreter: str, python: str, style: Style
) -> Iterator[tuple[str, bytes]]:
    """Name and content of each script; ``python`` is ``3.9``. Raises :class:`EntryPointError`."""
    for name, target in _named_for(python, points).items():
        if name in ("", ".", "..") or "/" in name or name != shown(name) or len(name.encode()) > 255:
            raise EntryPointError(f"entry point {shown(name, most=60)!r} is no file name")
        match = _TARGET.fullmatch(target)
        if match is None:
            raise EntryPointError(f"entry point {name} = {target} names no callable in a module")
        attribute = match["attribute"]
        body = _TEMPLATES[style].format(
            module=match["module"], top=attribute.partition(".")[0], attribute=attribute
        )
        yield name, f"#!{interpreter}\n{body}".encode()


def _named_for(python: str, points: dict[str, str]) -> dict[str, str]:
    """``points`` with the versioned names that pip gives to itself and to ``easy_install``.

    Same rule as ``get_console_script_specs`` in ``pip/_internal/operations/install/wheel.py``.
    """
    rest = dict(points)
    named: dict[str, str] = {}
    for name, versioned, pattern in (
        ("pip", (f"pip{python.partition('.')[0]}", f"pip{python}"), r"pip(\d+(\.\d+)?)?"),
        ("easy_install", (f"easy_install-{python}",), r"easy_install(-\d+\.\d+)?"),
    ):
        target = rest.pop(name, None)
        if target:
            named |= dict.fromkeys((name, *versioned), target)
            rest = {k: v for k, v in rest.items() if not re.fullmatch(pattern, k)}
    return named | rest


@dataclass(frozen=True, kw_only=True, slots=True)
class File:
    """A file of the installed tree. ``path`` is relative to the image's root."""

    path: str
    mode: int
    size: int
    sha256: str | None
    """In hexadecimal; None for a file that ``RECORD`` does not name."""
    content: bytes | Member
    """The bytes that pip makes, or the member of the archive."""


class Tree(Archive):
    """An open wheel in its installed form; with ``slim`` without the files that an image does without.

    Raises :class:`~builder.core.errors.CellError`.
    """

    def __init__(self, path: Path, wheel: Wheel, *, python: str, style: Style, slim: bool) -> None:
        super().__init__(path)
        self.wheel = wheel
        try:
            self._lay_out(python, style, slim=slim)
        except BaseException:
            self.close()
            raise

    def _lay_out(self, python: str, style: Style, *, slim: bool) -> None:
        self._info = self._info_folder()
        version = str(self._headers("WHEEL").get("Wheel-Version", ""))
        if version.partition(".")[0] != "1":
            raise self.error(f"is in wheel format {version or 'without a version'}; this reads format 1")
        requires = self._headers("METADATA").get("Requires-Python")
        self.requires_python = str(requires) if requires else None
        self._points = self._entry_points()
        self.scripts = bool(self._points)
        """Whether pip makes scripts for its entry points, whose text depends on the version of pip."""
        self._rows = self._record()
        self._edited = frozenset(self._edited_later())
        files = self._files(python, style, slim=slim)
        self.files = tuple(files[path] for path in sorted(files))
        for path in files:
            if "/.wh." in path:  # https://github.com/opencontainers/image-spec/blob/main/layer.md#whiteouts
                raise self.error(f"/{shown(path)} would remove files of other packages from the image")
        for folder in (folder for path in files for folder in parents(path)):
            if folder in files:
                raise self.error(f"/{folder} would be a file and a folder")

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)

    def pieces(self, file: File) -> Iterator[bytes]:
        return iter([file.content]) if isinstance(file.content, bytes) else self.chunks(file.content)

    def _info_folder(self) -> str:
        folders = {name.partition("/")[0] for name in self.members if ".dist-info/" in name}
        infos = sorted(folder for folder in folders if folder.endswith(".dist-info"))
        if len(infos) != 1:
            raise self.error(f"has {len(infos)} .dist-info folders, a wheel has one")
        named = canonicalize_name(infos[0].removesuffix(".dist-info").rpartition("-")[0])
        if named != canonicalize_name(self.wheel.name):
            raise self.error(f"holds {named}, not {self.wheel.name}")
        return infos[0]

    def _headers(self, name: str) -> Message:
        return email.parser.BytesHeaderParser().parsebytes(self.read(f"{self._info}/{name}"))

    def _entry_points(self) -> dict[str, str]:
        name = f"{self._info}/entry_points.txt"
        if name not in self.members:
            return {}
        try:
            return entry_points(self.read(name, most=_LARGEST_POINTS).decode())
        except (EntryPointError, UnicodeDecodeError) as problem:
            raise self.error(str(problem)) from problem

    def _record(self) -> dict[str, tuple[str, str]]:
        """``RECORD``: file → (hash, size), both as written and both empty if it gives none."""
        rows: dict[str, tuple[str, str]] = {}
        files = len(self.members)
        try:
            text = self.read(f"{self._info}/RECORD", most=_LARGEST_RECORD).decode()
            for row in filter(None, csv.reader(text.splitlines())):
                name, hashed, size = (*row, "", "", "")[:3]
                if name.startswith("/") or ".." in name.split("/"):
                    raise self.error(f"its RECORD names {name!r}, outside of the archive")
                rows[name] = (hashed, size)
                if len(rows) > files + 1000:  # some builders record what they then leave out
                    raise self.error(f"its RECORD names more files than the {files} in it")
        except UnicodeDecodeError as problem:
            raise self.error(f"its RECORD is not UTF-8: {problem}") from problem
        except csv.Error as problem:
            raise self.error(f"its RECORD cannot be read: {problem}") from problem
        return rows

    def _edited_later(self) -> Iterator[str]:
        """Files that their author changed after ``RECORD`` was written: of another size, and METADATA.

        So are PyTorch's on the package index since 1.7 (https://github.com/pytorch/pytorch/issues/47916):
        the local version goes (https://github.com/pytorch/builder, release/pypi/prep_binary_for_pypi.sh), and
        1.9.1 was stripped. pip and uv take them. What was damaged on the way has not the sha256 of the lock.
        """
        for name, (hashed, size) in self._rows.items():
            if (member := self.members.get(name)) is None:
                continue
            resized = size and size != str(member.size)
            checked = name == f"{self._info}/METADATA" and hashed.startswith("sha256=")
            if resized or (checked and _hex(hashed) != hashlib.sha256(self.read(name)).hexdigest()):
                yield name

    def _files(self, python: str, style: Style, *, slim: bool) -> dict[str, File]:
        """By path, with the RECORD that pip writes."""
        files: dict[str, File] = {}
        moved: dict[str, str] = {}
        changed: dict[str, File] = {}
        for member in self.members.values():
            path = self._destination(member.name)
            if self._is_generated(path, member.name):
                continue
            moved[member.name] = path  # also of what is left out: its line of RECORD is known by it
            if slim and left_out(_record_path(path)):
                continue
            file = self._from_member(member, path)
            if isinstance(file.content, bytes) or member.name in self._edited:
                changed[member.name] = file
            if path in files:
                raise self.error(f"two of its files are both installed as /{path}")
            files[path] = file
        generated = {file.path: file for file in self._generated(python, style)}
        lines = [
            (_record_path(moved.get(name, f"{SITE}/{name}")), *_row(changed.get(name), *row))
            for name, row in self._rows.items()
        ]
        lines += [(_record_path(path), *_row(file, "", "")) for path, file in generated.items()]
        lines += [(_record_path(path), "", "") for name, path in moved.items() if name not in self._rows]
        text = io.StringIO(newline="")
        csv.writer(text).writerows(sorted(line for line in lines if not (slim and left_out(line[0]))))
        record = _made(f"{SITE}/{self._info}/RECORD", text.getvalue().encode(), 0o644)
        return files | generated | {record.path: record}

    def _destination(self, name: str) -> str:
        """The path at which pip puts a file of the archive."""
        top, _, rest = name.partition("/")
        if not (rest and top.endswith(".data")):
            return f"{SITE}/{name}"
        scheme, _, path = rest.partition("/")
        if scheme not in _ROOTS or not path:
            schemes = ", ".join(sorted(_ROOTS))
            raise self.error(f"{name} belongs to no installation scheme ({schemes})")
        return "/".join([_ROOTS[scheme], *([self.wheel.name] if scheme == "headers" else []), path])

    def _is_generated(self, path: str, name: str) -> bool:
        """Whether this is a script that setuptools wrote for an entry point: pip writes its own."""
        if not _is_script(name):
            return False
        script = path.rpartition("/")[2]
        suffixes = (".exe", "-script.py", ".pya")
        suffix = next((suffix for suffix in suffixes if script.lower().endswith(suffix)), "")
        return script[: len(script) - len(suffix)] in self._points

    def _from_member(self, member: Member, path: str) -> File:
        mode = 0o755 if member.executable else 0o644
        hashed, _ = self._rows.get(member.name, ("", ""))
        if member.name in self._edited:
            found = hashlib.sha256()
            for piece in self.chunks(member):
                found.update(piece)
            hashed = f"sha256={found.hexdigest()}"
        start = next(filter(None, self.chunks(member)), b"") if _is_script(member.name) else b""
        if start.startswith(b"#!python"):
            content = self.read(member.name, most=64 << 20)
            self._check_hash(member.name, [content], hashed)
            # The whole line goes, with any options in it: so does pip.
            return _made(path, f"#!{_INTERPRETER}\n".encode() + content.partition(b"\n")[2], mode)
        digest = _hex(hashed) if hashed.startswith("sha256=") else None
        if digest is None:
            # sha384 and sha512 are allowed and rare; they are checked here, once, by reading the file early.
            self._check_hash(member.name, self.chunks(member), hashed)
        return File(path=path, mode=mode, size=member.size, sha256=digest, content=member)

    def _check_hash(self, name: str, content: Iterable[bytes], hashed: str) -> None:
        algorithm, _, expected = hashed.partition("=")
        if not hashed:
            return
        if algorithm not in ("sha256", "sha384", "sha512"):
            raise self.error(f"its RECORD hashes {name} with {algorithm}, which is not safe")
        found = hashlib.new(algorithm)
        for piece in content:
            found.update(piece)
        if expected.rstrip("=") not in {_text(found.digest()), found.hexdigest()}:
            raise self.error(f"{name} is not what its RECORD says: the hash differs")

    def _generated(self, python: str, style: Style) -> Iterator[File]:
        """The files that pip adds: a script for each entry point, and its two marks."""
        try:
            for name, content in scripts(self._points, interpreter=_INTERPRETER, python=python, style=style):
                yield _made(f"{_BIN}/{name}", content, 0o755)
        except EntryPointError as problem:
            raise self.error(str(problem)) from problem
        yield _made(f"{SITE}/{self._info}/INSTALLER", b"pip\n", 0o644)
        # Every wheel of a lock is asked for by name, so pip marks every one.
        yield _made(f"{SITE}/{self._info}/REQUESTED", b"", 0o644)


def _is_script(name: str) -> bool:
    parts = name.split("/", 2)
    return len(parts) == 3 and parts[0].endswith(".data") and parts[1] == "scripts"


def _made(path: str, content: bytes, mode: int) -> File:
    digest = hashlib.sha256(content).hexdigest()
    return File(path=path, mode=mode, size=len(content), sha256=digest, content=content)


def _record_path(path: str) -> str:
    """The path as ``RECORD`` writes it: relative to site-packages."""
    inside = path.removeprefix(f"{SITE}/")
    return inside if inside != path else "../../../" + path.removeprefix(f"{PREFIX}/")


def _row(file: File | None, hashed: str, size: str) -> tuple[str, str]:
    """Hash and size of a line of ``RECORD``: new for what pip made or changed, else as they were."""
    if file is None or file.sha256 is None:
        return hashed, size
    return "sha256=" + _text(bytes.fromhex(file.sha256)), str(file.size)


def parents(path: str) -> Iterator[str]:
    """The folders above ``path``, innermost first."""
    folder = path.rpartition("/")[0]
    while folder:
        yield folder
        folder = folder.rpartition("/")[0]


def _text(digest: bytes) -> str:
    return base64.urlsafe_b64encode(digest).decode().rstrip("=")


def _hex(hashed: str) -> str | None:
    """The hexadecimal form of ``sha256=…``; None if it is none."""
    encoded = hashed.partition("=")[2].rstrip("=")
    if re.fullmatch("[0-9a-f]{64}", encoded):
        return encoded  # not what the format says, and in wheels that are out there: ffmpy 0.6.0
    try:
        digest = base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4))
    except ValueError:
        return None
    return digest.hex() if len(digest) == hashlib.sha256().digest_size else None


def check_tags(wheel: Wheel, cell: Cell) -> None:
    """Raise :class:`~builder.core.errors.CellError` if the file's tags rule out the cell.

    The lock chose wheels that fit; this is for a lock that was edited, or made for another cell.
    """
    if wheel_name(wheel.file) is None:
        raise CellError(f"{wheel.file} is no name of a wheel")
    if rank(wheel.file, _tags(cell.python, cell.platform)) is None:
        hint = f"lock the cell {cell.id} again"
        raise CellError(f"{wheel.file} does not run on Python {cell.python} on {cell.platform}", hint=hint)


@functools.cache
def _tags(python: str, platform: str) -> Mapping[Tag, int]:
    """The tags of any glibc: its age is the lock's business, which knows the base."""
    return Target(python=python, platform=platform, glibc="2.99").tags()


def check_python(name: str, requires: str | None, cell: Cell) -> None:
    """Raise :class:`~builder.core.errors.CellError` if ``Requires-Python`` does not allow the cell's
    Python.
    """
    if not takes(requires, cell.named_python):
        hint = f"lock the cell {cell.id} again"
        raise CellError(f"{name} asks for Python {requires}, the cell has {cell.named_python}", hint=hint)
