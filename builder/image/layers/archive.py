"""Reads a wheel's zip file without believing it: every name, size and checksum is checked.

Unlike :mod:`zipfile`, which is used for the table of contents only, the data is inflated by ISA-L if it is
installed (twice as fast as zlib) and outside the interpreter's lock.
"""

import os
import stat
import struct
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from builder.core.documents import shown
from builder.core.errors import CellError
from builder.image.layers.compression import INFLATE_ERRORS, crc32, inflater

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
        """Where the data begins, by the header in front of it, which must name the same file."""
        header = os.pread(self._file.fileno(), _LOCAL_HEADER, entry.header_offset)
        if len(header) < _LOCAL_HEADER or header[:4] != b"PK\x03\x04":
            raise self.error(f"{entry.filename} has no header where the table of contents says")
        name_size, extra_size = (int.from_bytes(header[i : i + 2], "little") for i in (26, 28))
        name = os.pread(self._file.fileno(), name_size, entry.header_offset + _LOCAL_HEADER)
        encoding = "utf-8" if entry.flag_bits & 0x800 else "cp437"
        if name != entry.orig_filename.encode(encoding, "replace"):
            raise self.error(f"{entry.filename} has another name in its own header")
        return entry.header_offset + _LOCAL_HEADER + name_size + extra_size
