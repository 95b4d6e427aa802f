"""Archives of packages, read without running them: members of a zip file on a server, by HTTP ranges, and the
facts of a source distribution.

Of a zip file the directory at its end is read, then single members.

A framework's wheel has thousands of members and a directory of more than a megabyte, so the directory is read
from both ends, up to :data:`LIMIT`. Anything wrong (no range support, a wrong ``Content-Range``, a page of
HTML, a short answer, a wrong checksum) is an :class:`UnknownError`.

Formats: PKWARE APPNOTE 6.3.9, sections 4.3 and 4.5.3; RFC 9110, section 14;
https://packaging.python.org/en/latest/specifications/source-distribution-format/,
https://packaging.python.org/en/latest/specifications/core-metadata/, and setuptools' ``requires.txt``:
https://setuptools.pypa.io/en/latest/deprecated/python_eggs.html
"""

import io
import lzma
import re
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from email.parser import HeaderParser
from pathlib import Path, PurePosixPath
from typing import BinaryIO
from zipfile import BadZipFile, ZipFile, ZipInfo

import requests
from packaging.requirements import Requirement

from builder.core.documents import redact, shown
from builder.core.errors import PackageIndexError
from builder.sources.net import Client

LIMIT = 1 << 20
"""Most bytes read of one file, in all answers, unless its reader asks for more."""
DEEP_LIMIT = 16 << 20
"""The same for reading GPU code and constants in the frameworks' own libraries."""
UNPACKED = 256 << 20
"""Most bytes unpacked of the beginning of a member."""
PIECE = 4 << 20
"""Bytes of a part of a member that is unpacked part by part."""
TAIL = 64 << 10
HEAD_OF_DIRECTORY = 160 << 10
TAIL_OF_DIRECTORY = 448 << 10


class UnknownError(Exception):
    """The file cannot be read; the text says why."""


@dataclass
class RemoteZip:
    """One zip file by its URL. ``size`` is by the index, and is checked."""

    url: str
    session: Client
    size: int | None
    limit: int = LIMIT
    transferred: int = 0

    def find(
        self, patterns: Sequence[str], *, first: bool = False
    ) -> tuple[dict[str, list[ZipInfo]], str | None]:
        """The entries by the pattern that their whole name matches, and why not all of them were seen.

        With ``first`` no more of the directory is read than holds one for each pattern. Raises UnknownError
        if none was found, because the directory could not be read.
        """
        found: dict[str, list[ZipInfo]] = {pattern: [] for pattern in patterns}
        try:
            for entry in self.entries():
                for pattern, entries in found.items():
                    if re.fullmatch(pattern, entry.filename):
                        entries.append(entry)
                if first and all(found.values()):
                    break
        except UnknownError as problem:
            if not any(found.values()):
                raise
            return found, str(problem)
        return found, None

    def content(self, entry: ZipInfo, most: int | None = None) -> bytes:
        """A member unpacked, or the beginning of it that ``most`` packed bytes hold.

        Raises UnknownError if it is not where the directory says, does not unpack, or the limit is reached.
        """
        name, whole = entry.filename, entry.compress_size
        length = whole if most is None else min(whole, most)
        # the local header repeats the name and may carry another extra field, hence the room
        data = self._range(entry.header_offset, 30 + len(name.encode()) + 512 + length, cut=True)
        return unpacked(entry, data, length)

    def pieces(self, entry: ZipInfo) -> Iterator[bytes]:
        """A member unpacked, piece by piece, of which two are in memory at a time.

        Raises UnknownError as :meth:`content` does, for a wrong checksum at the end.
        """
        name = entry.filename
        head = self._range(entry.header_offset, 30, cut=True)
        if head[:4] != b"PK\x03\x04" or len(head) < 30:
            raise UnknownError(f"no member begins where its directory puts {name}")
        at = entry.header_offset + 30 + sum(struct.unpack("<HH", head[26:30]))
        left, length, checksum = entry.compress_size, 0, 0
        unpacker = zlib.decompressobj(-zlib.MAX_WBITS)
        while left:
            packed = self._range(at, min(left, PIECE))
            at, left = at + len(packed), left - len(packed)
            while packed:
                try:
                    piece = packed if entry.compress_type == 0 else unpacker.decompress(packed, PIECE)
                except zlib.error as problem:
                    raise UnknownError(f"{name} does not unpack") from problem
                packed = b"" if entry.compress_type == 0 else unpacker.unconsumed_tail
                length, checksum = length + len(piece), zlib.crc32(piece, checksum)
                if length > entry.file_size:
                    raise UnknownError(f"{name} is larger than its directory says")
                yield piece
        if entry.compress_type not in {0, 8} or length < entry.file_size or checksum != entry.CRC:
            raise UnknownError(f"{name} does not have the checksum that its directory gives")

    def ending(self, entry: ZipInfo, most: int) -> bytes:
        """The end of a member, as far as ``most`` packed bytes at its end tell it; empty if they do not.

        No checksum covers it. Raises UnknownError if the limit is reached.
        """
        head = self._range(entry.header_offset, 30, cut=True)
        if head[:4] != b"PK\x03\x04" or len(head) < 30:
            raise UnknownError(f"no member begins where its directory puts {entry.filename}")
        end = entry.header_offset + 30 + sum(struct.unpack("<HH", head[26:30])) + entry.compress_size
        length = min(most, entry.compress_size)
        data = self._range(end - length, length)
        return data if entry.compress_type == 0 else _end_of_stream(data)

    def packed(self, entries: Iterable[ZipInfo], gap: int = 64 << 10) -> Iterator[tuple[ZipInfo, bytes]]:
        """Members with their headers, packed as they are; what lies close together comes in one answer.

        Raises UnknownError as :meth:`content` does, which :func:`unpacked` does for what it finds in them.
        """
        group: list[ZipInfo] = []
        for entry in sorted(entries, key=lambda one: one.header_offset):
            if group and entry.header_offset - _end(group[-1]) > gap:
                yield from self._together(group)
                group = []
            group.append(entry)
        yield from self._together(group)

    def _together(self, group: Sequence[ZipInfo]) -> Iterator[tuple[ZipInfo, bytes]]:
        if group:
            start = group[0].header_offset
            data = self._range(start, _end(group[-1]) - start, cut=True)
            for entry in group:
                yield entry, data[entry.header_offset - start : _end(entry) - start]

    def entries(self) -> Iterator[ZipInfo]:
        """Entries of the directory, from its start, then from its end; each part is read when needed.

        Raises UnknownError if it could not be read, or not within the limit.
        """
        end, total = self._get(None, TAIL)
        start, length = _directory(end, total)
        first = total - len(end)
        if start >= first:
            yield from _entries(end[start - first : start - first + length])
            return
        known = end[: max(0, start + length - first)]  # the end of the directory
        if length <= max(HEAD_OF_DIRECTORY + TAIL_OF_DIRECTORY, self.limit // 2):
            yield from _entries(self._range(start, min(length, first - start)) + known)
            return
        head_end = start + HEAD_OF_DIRECTORY
        tail_start = max(head_end, start + length - TAIL_OF_DIRECTORY)
        yield from _entries(self._range(start, HEAD_OF_DIRECTORY))
        yield from _entries(_resynchronise(self._range(tail_start, first - tail_start) + known))
        room = self.limit - self.transferred - (128 << 10)
        middle = self._range(head_end, min(room, tail_start - head_end))
        yield from _entries(_resynchronise(middle, complete=False))
        if len(middle) < tail_start - head_end:
            raise UnknownError(f"its directory of {length} bytes is larger than what is read of one")

    def _range(self, start: int, length: int, *, cut: bool = False) -> bytes:
        return self._get(start, length, cut=cut)[0] if length > 0 else b""

    def _get(self, start: int | None, length: int, *, cut: bool = True) -> tuple[bytes, int]:
        """Bytes from ``start`` on, or else the last ones, and the file's size; ``cut``: as many as it has."""
        if self.transferred + length > self.limit:
            raise UnknownError(f"more than {self.limit >> 10} KiB of it would have to be read")
        wanted = f"bytes=-{length}" if start is None else f"bytes={start}-{start + length - 1}"
        headers = {"Range": wanted, "Accept-Encoding": "identity"}
        with self.session.get(self.url, stream=True, headers=headers) as answer:
            if answer.status_code == 200:
                what = "answers with a page" if is_html(answer) else "does not support ranges"
                raise UnknownError(f"the server {what}")
            if answer.status_code != 206:
                raise UnknownError(f"the server answers {answer.status_code}")
            first, last, total = _content_range(answer)
            begin = max(0, total - length) if start is None else start
            end = min(begin + length, total) if cut else begin + length
            if (first, last + 1) != (begin, end) or not first <= last < total:
                raise UnknownError(f"the server was asked for {wanted} and sends {first}-{last}/{total}")
            if self.size not in {None, 0, total}:
                raise UnknownError(f"it has {total} bytes, the index says {self.size}")
            body = self.body(answer, end - begin)
        if len(body) != end - begin:
            raise UnknownError(f"{end - begin} bytes were announced, {len(body)} came")
        return body, total

    def body(self, answer: requests.Response, limit: int) -> bytes:
        """The body of an answer. Raises UnknownError if it has more than ``limit`` bytes."""
        body = bytearray()
        for chunk in answer.iter_content(32 << 10):
            body += chunk
            self.transferred += len(chunk)
            if len(body) > limit:
                raise UnknownError("the server sends more than it announced")
        return bytes(body)


def _end(entry: ZipInfo) -> int:
    """The last byte that a member may take; its header may carry another extra field than the directory."""
    return entry.header_offset + 30 + len(entry.filename.encode()) + 512 + entry.compress_size


def unpacked(entry: ZipInfo, data: bytes, length: int | None = None) -> bytes:
    """A member out of the bytes from its header on, or what the first ``length`` packed bytes hold.

    Raises UnknownError if it is not there, or does not unpack.
    """
    name, whole = entry.filename, entry.compress_size
    length = whole if length is None else length
    if data[:4] != b"PK\x03\x04" or len(data) < 30:
        raise UnknownError(f"no member begins where its directory puts {name}")
    packed = data[30 + sum(struct.unpack("<HH", data[26:30])) :][:whole]
    if len(packed) < length:
        raise UnknownError(f"{name} is cut short")
    try:
        unpacker = zlib.decompressobj(-zlib.MAX_WBITS)
        content = packed if entry.compress_type == 0 else unpacker.decompress(packed, UNPACKED)
    except zlib.error as problem:
        raise UnknownError(f"{name} does not unpack") from problem
    if entry.compress_type not in {0, 8} or (length == whole and zlib.crc32(content) != entry.CRC):
        raise UnknownError(f"{name} does not have the checksum that its directory gives")
    return content


_PAST = (bytes(range(256)) * 128, bytes(range(255, -1, -1)) * 128)
"""Two texts of 32 KiB that differ at each place."""
_BLOCK = re.compile(
    b"[%b][^%b]"
    % tuple(
        b"".join(re.escape(bytes([one])) for one in every)
        for every in (
            [one for one in range(256) if one & 6 == 4 and one >> 3 < 30],
            [one for one in range(256) if one & 31 > 29],
        )
    ),
    re.DOTALL,
)
"""How a block with codes of its own begins: RFC 1951, section 3.2.7."""
_STEP = 4 << 10


def _end_of_stream(data: bytes) -> bytes:
    """The end of what a deflate stream holds, out of its last bytes; empty if no block is found in them.

    A block may copy from 32 KiB before it, which nobody knows here. The stream is unpacked from the first
    block that leads to its end, with two pasts: what differs comes from the past, and what is behind it does
    not. By the method of https://arxiv.org/abs/1905.07224.
    """
    number = int.from_bytes(data, "little")
    shifted = [(number >> bits).to_bytes(len(data), "little") for bits in range(8)]
    for start in range(0, len(data), _STEP):
        for content in shifted:
            for found in _BLOCK.finditer(content, start, start + _STEP + 1):
                if not _has_code(content, found.start()):
                    continue
                first = _unpacked_after(_PAST[0], content[found.start() : found.start() + _STEP])
                first = _unpacked_after(_PAST[0], content[found.start() :], ends=True) if first else b""
                if first:
                    second = _unpacked_after(_PAST[1], content[found.start() :], ends=True)
                    apart = int.from_bytes(first) ^ int.from_bytes(second)
                    same = ((apart & -apart).bit_length() - 1) // 8 if apart else len(first)
                    return first[len(first) - same :]
    return b""


_SHARES = tuple(
    sum(128 >> length for length in (number & 7, number >> 3 & 7, number >> 6 & 7, number >> 9) if length)
    for number in range(1 << 12)
)
"""The share of all codes, of 128, that four lengths of three bits take together."""


def _has_code(content: bytes, at: int) -> bool:
    """Whether the first code of a block is complete: of one that is not, zlib says so at once, but an object
    of zlib's takes ten times as long (``inftrees.c``; RFC 1951, section 3.2.7).
    """
    head = int.from_bytes(content[at + 1 : at + 10], "little") >> 5  # HCLEN, and up to 19 lengths
    lengths = head >> 4 & (1 << 3 * ((head & 15) + 4)) - 1
    shares = 0
    while lengths:
        shares += _SHARES[lengths & 4095]
        lengths >>= 12
    return shares == 128


def _unpacked_after(past: bytes, data: bytes, *, ends: bool = False) -> bytes:
    """A stream unpacked behind a past; empty if it is none, or does not end with the data if it ``ends``."""
    unpacker = zlib.decompressobj(-zlib.MAX_WBITS, zdict=past)
    try:
        content = unpacker.decompress(data, UNPACKED // 4)
    except zlib.error:
        return b""
    return b"" if ends and (not unpacker.eof or unpacker.unused_data.strip(b"\0")) else content


def is_html(answer: requests.Response) -> bool:
    return "html" in answer.headers.get("Content-Type", "").lower()


def _content_range(answer: requests.Response) -> tuple[int, int, int]:
    text = answer.headers.get("Content-Range", "")
    found = re.fullmatch(r"bytes ([0-9]{1,18})-([0-9]{1,18})/([0-9]{1,18})", text.strip())
    if found is None:
        raise UnknownError(f"the server sends the range {redact(text)!r}")
    return int(found[1]), int(found[2]), int(found[3])


def _directory(end: bytes, total: int) -> tuple[int, int]:
    """Offset and length of the central directory, from the end of the file."""
    at = end.rfind(b"PK\x05\x06")
    if at < 0 or at + 22 > len(end):
        raise UnknownError("it does not end as a zip file does")
    length, start = struct.unpack("<II", end[at + 12 : at + 20])
    if start == 0xFFFFFFFF or length == 0xFFFFFFFF:
        big = end.rfind(b"PK\x06\x06", 0, at)
        if big < 0 or big + 56 > len(end):
            raise UnknownError("its zip64 directory is out of reach")
        length, start = struct.unpack("<QQ", end[big + 40 : big + 56])
        at = big
    if start + length != total - len(end) + at:
        raise UnknownError("its directory is not where its end says")
    return start, length


def _entries(directory: bytes) -> list[ZipInfo]:
    """Entries of a part of the directory, up to the first that is cut off."""
    ends = [end for end in _chain(directory, 0) if end <= len(directory)]
    length = ends[-1] if ends else 0
    if directory[:length][-20:].startswith(b"PK\x06\x07"):  # zipfile would read it as the end of a zip64 file
        raise UnknownError("its directory cannot be read: an entry ends as a zip64 file does")
    end = struct.pack("<4s4H2IH", b"PK\x05\x06", 0, 0, len(ends) & 0xFFFF, len(ends) & 0xFFFF, length, 0, 0)
    try:
        with ZipFile(io.BytesIO(directory[:length] + end)) as part:
            return part.infolist()
    except (BadZipFile, NotImplementedError, ValueError, struct.error) as problem:
        raise UnknownError(f"its directory cannot be read: {shown(str(problem))}") from problem


def _chain(part: bytes, at: int) -> list[int]:
    """The ends of the entries that follow one another from ``at`` on; the last may be behind the part's."""
    ends = []
    while part[at : at + 4] == b"PK\x01\x02" and at + 46 <= len(part):
        at += 46 + sum(struct.unpack("<HHH", part[at + 28 : at + 34]))  # name, extra field, comment
        ends.append(at)
    return ends


def _resynchronise(part: bytes, *, complete: bool = True) -> bytes:
    """The part from its first real entry on: the one whose chain of entries reaches the end of the part.

    The signature can occur in a name or an extra field; a false start does not chain up.
    """
    at = part.find(b"PK\x01\x02")
    while at >= 0:
        ends = _chain(part, at) or [at]
        if ends[-1] == len(part) or (not complete and (len(ends) > 8 or ends[-1] > len(part))):
            return part[at:]
        at = part.find(b"PK\x01\x02", at + 1)
    return b""


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
_TEXTS = re.compile(
    r"[^/]+/(?:PKG-INFO|setup\.py|pyproject\.toml|(?:[^/]+/)*__init__\.py|"
    r"(?:[^/]+/)?[^/]+\.egg-info/(?:requires|top_level)\.txt)"
)
_NO_CODE = re.compile(
    r"(?i)PKG-INFO|setup\.(?:py|cfg)|pyproject\.toml|MANIFEST\.in|PACKAGE_NAME|\.gitignore|"
    r"[^/]+\.(?:md|rst|txt)|(?:LICEN[CS]E|COPYING|NOTICE|AUTHORS|README|CHANGES|CHANGELOG)[^/]*"
)
"""Names of files in an archive that hold what is told of a package, and nothing of it."""
_STUB_INDEX = re.compile(r"\[tool\.wheel_stub\][^\[]*?index_url\s*=\s*[\"'](?P<index>https://[^\"']+)")
"""https://github.com/NVIDIA/wheel-stub: an archive whose build downloads the wheel from another index."""
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
    empty: bool = False
    """Whether it has no code and asks for no other package: the placeholder of a name."""
    elsewhere: str | None = None
    """The index from which its build would download the wheel, as the archive names it; it has no code."""


def sdist_contents(path: Path) -> SdistContents:
    """Raises PackageIndexError if it is no archive, or larger than any that is built."""
    texts: dict[str, str] = {}
    sources, others = False, list[str]()
    with path.open("rb") as stream:
        for name, content in sdist_files(stream, path.name, _TEXTS):
            parts = PurePosixPath(name).parts[1:]
            if not _NO_CODE.fullmatch(parts[-1] if parts else "") and not _of_egg_info(parts):
                others += [name] if content is None or content.strip() else []
            aside = any(part.lower() in _ASIDE for part in parts[:-1])
            sources = sources or (not aside and PurePosixPath(name).suffix.lower() in _COMPILED)
            if content is not None:
                texts[name] = content.decode("utf-8", "replace")
    requires = tuple(_requires(texts))
    project = next((text for name, text in texts.items() if name.endswith("/pyproject.toml")), "")
    stub = _STUB_INDEX.search(project)
    return SdistContents(
        requires=requires,
        compiled=sources and _compiles(texts),
        empty=_is_whole(texts) and not requires and not sources and not _modules(others, texts),
        elsewhere=stub["index"] if stub is not None else None,
    )


def _is_whole(texts: Mapping[str, str]) -> bool:
    """Whether an archive has the file that each archive of an index has."""
    return any(PurePosixPath(name).parts[1:] == ("PKG-INFO",) for name in texts)


def _of_egg_info(parts: Sequence[str]) -> bool:
    return any(part.endswith(".egg-info") for part in parts[:-1])


def _modules(others: Sequence[str], texts: Mapping[str, str]) -> list[str]:
    """The files of an archive that would be installed: those beside setup.py, which it imports itself, only
    if they are named among the modules of the package, or no list of these is there.
    """
    lists = [text for name, text in texts.items() if name.endswith(".egg-info/top_level.txt")]
    named = {line.strip() for text in lists for line in text.splitlines() if line.strip()}
    found = []
    for name in others:
        at = PurePosixPath(*PurePosixPath(name).parts[1:])
        helper = len(at.parts) == 1 and at.suffix == ".py" and bool(lists) and at.stem not in named
        found += [] if helper else [name]
    return found


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
