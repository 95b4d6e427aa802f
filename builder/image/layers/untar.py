"""Reads the tar stream of a layer forward, entry by entry.

Like :mod:`builder.image.layers.tar` because :mod:`tarfile` spends most of its time on choices: of the 1.7 s
of processor time that unpacking a small Debian into memory took, 1.2 were its own.
"""

import contextlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from builder.core.documents import shown
from builder.core.errors import CellError
from builder.image.layers.compression import DAMAGED, plain

_BLOCK = 512
_BUFFER = 1 << 20
_FILES = frozenset(b"0\x007")
"""A plain file in ustar, in older archives, and in those for machines that knew contiguous files."""
_KINDS = {b"1": "hardlink", b"2": "symlink", b"3": "device", b"4": "device", b"6": "device"}
_LARGEST_STREAM = 256 << 30
"""Bytes of a whole layer."""
_DEEPEST, _LONGEST = 128, 4096
"""Folders and letters of a path."""


@dataclass(frozen=True, slots=True)
class TarEntry:
    """One file, folder or link. ``name`` is as it stands in the archive, without ``./`` and closing slash."""

    name: str
    kind: str
    """``file``, ``folder``, ``symlink``, ``hardlink``, or ``device`` for whatever else has no content."""
    mode: int
    size: int
    link: str


class TarReader:
    """The entries of a stream, each with its content if that is asked for before the next one is."""

    def __init__(self, stream: Any, what: str, *, most: int = _LARGEST_STREAM) -> None:
        self._stream = stream
        self._what = what
        self._most = self._room = most
        self._buffer = b""
        self._at = 0
        self._left = 0
        """Bytes of the entry's content that nobody has read, without the padding behind it."""
        self._padding = 0

    def __iter__(self) -> Iterator[TarEntry]:
        """Raises :class:`~builder.core.errors.CellError` for what is no tar stream, or is cut short."""
        extended: dict[str, str] = {}
        before = 0
        while True:
            self._skip(self._left + self._padding)
            self._left = self._padding = 0
            header = self._take(_BLOCK)
            if not any(header):
                return
            self._check(header)
            size = self._size(header, extended)
            kind = header[156:157]
            if kind in (b"x", b"g", b"L", b"K"):
                before += size
                if before > 1 << 20:  # of names and attributes; Linux takes paths of 4,096 bytes
                    raise self.error(f"its extended headers have {before} bytes")
                content = self._take(size)
                self._skip(-size % _BLOCK)
                if kind == b"x":
                    extended |= self._records(content)
                elif kind != b"g":
                    extended.setdefault("path" if kind == b"L" else "linkpath", _text(content))
                continue
            self._left = 0 if kind == b"5" or kind in _KINDS else size
            self._padding = -self._left % _BLOCK
            yield self._entry(header, kind, extended)
            extended, before = {}, 0

    def content(self) -> Iterator[bytes]:
        """The unread rest of the last entry's content, in pieces."""
        while self._left:
            piece = self._take(min(self._left, _BUFFER))
            self._left -= len(piece)
            yield piece

    def read(self) -> bytes:
        """The same at once."""
        size, self._left = self._left, 0
        return self._take(size)

    def _entry(self, header: bytes, kind: bytes, extended: dict[str, str]) -> TarEntry:
        prefix = _text(header[345:500]) if header[257:263] == b"ustar\0" else ""
        own = _text(header[:100])  # empty below a prefix: a folder, as for Go's archive/tar
        name = extended.get("path", f"{prefix}/{own}" if prefix else own)
        if name.count("/") > _DEEPEST or len(name) > _LONGEST:
            raise self.error(f"it holds a path of {name.count('/')} folders and {len(name)} letters")
        link = extended.get("linkpath", _text(header[157:257]))
        folder = kind == b"5" or (kind[0] in _FILES and name.endswith("/"))
        if kind not in _KINDS and not folder and kind[0] not in _FILES:
            raise self.error(f"{name} is of a kind ({kind!r}) that no layer needs")
        return TarEntry(
            name.removeprefix("./").strip("/"),
            "folder" if folder else _KINDS.get(kind, "file"),
            _number(header[100:108]) & 0o7777,
            self._left,
            link,
        )

    def _size(self, header: bytes, extended: dict[str, str]) -> int:
        stated = extended.get("size")
        if stated is None:
            return _number(header[124:136])
        if not re.fullmatch(r"[0-9]{1,18}", stated):
            raise self.error(f"an extended header says a size of {shown(stated, most=40)!r}")
        return int(stated)

    def _check(self, header: bytes) -> None:
        try:
            for field in (header[100:108], header[124:136]):
                _number(field)
            # The sum is taken with blanks in its own place.
            right = sum(header) - sum(header[148:156]) + 8 * 0x20 == _number(header[148:156])
        except ValueError:
            right = False
        if not right:
            raise self.error("an entry's checksum differs")

    def _records(self, content: bytes) -> dict[str, str]:
        """https://pubs.opengroup.org/onlinepubs/9699919799/utilities/pax.html#tag_20_92_13_03"""
        found: dict[str, str] = {}
        try:
            while content:
                length = int(content[: content.index(b" ", 0, 20)])
                if not 0 < length <= len(content):
                    raise ValueError(length)  # noqa: TRY301 - told below
                key, _, value = content[content.index(b" ") + 1 : length - 1].partition(b"=")
                found[key.decode()] = _text(value)
                content = content[length:]
        except ValueError:
            raise self.error("an extended header is damaged") from None
        if any(key.startswith("GNU.sparse") for key in found):
            raise self.error("it holds a sparse file, which no layer needs")
        return found

    def error(self, problem: str) -> CellError:
        return CellError(f"{self._what} cannot be unpacked: {problem}")

    def _take(self, size: int) -> bytes:
        """The next ``size`` bytes, all of them."""
        have = self._buffer[self._at : self._at + size]
        self._at += len(have)
        if len(have) == size:
            return have
        pieces, missing = [have], size - len(have)
        while missing:
            self._buffer, self._at = self._fill(), 0
            pieces.append(self._buffer[:missing])
            self._at = len(pieces[-1])
            missing -= self._at
        return b"".join(pieces)

    def _skip(self, size: int) -> None:
        while size > len(self._buffer) - self._at:
            size -= len(self._buffer) - self._at
            self._buffer, self._at = self._fill(), 0
        self._at += size

    def _fill(self) -> bytes:
        try:
            found = bytes(self._stream.read(_BUFFER))
        except DAMAGED as problem:
            if isinstance(problem, OSError) and problem.errno is not None:
                raise  # the disk's, and not the decompressor's
            raise self.error(str(problem)) from problem
        if not found:
            raise self.error("it is cut short")
        self._room -= len(found)
        if self._room < 0:
            raise self.error(f"it unpacks to more than {self._most >> 20} MiB")
        return found


def _number(field: bytes) -> int:
    """Octal digits, or for what does not fit a number of 255 bits behind a set one, as GNU's tar writes."""
    if field[0] & 0x80:
        return int.from_bytes(field, "big") & ((1 << (8 * len(field) - 1)) - 1)
    return int(field.strip(b" \0") or b"0", 8)


def _text(field: bytes) -> str:
    return field.partition(b"\0")[0].decode("utf-8", "surrogateescape")


@contextlib.contextmanager
def open_layer(blob: Path, media_type: str, *, most: int = _LARGEST_STREAM) -> Iterator[TarReader]:
    """The entries of a layer's blob, of ``most`` bytes unpacked."""
    with blob.open("rb") as file:
        yield TarReader(plain(file, media_type), f"the layer {blob.name[:12]}", most=most)
