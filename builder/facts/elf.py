"""What a shared library asks of the system: libraries by name, and the oldest glibc with all of its symbols.

64-bit little-endian ELF, which all of the wheels here are. Format: https://refspecs.linuxfoundation.org/elf/gabi4+/
and, for symbol versions, the Linux Standard Base, section "Symbol Versioning".
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

from builder.facts.versions import key

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

_DT_NEEDED, _DT_STRTAB, _DT_STRSZ, _DT_VERNEED, _DT_VERNEEDNUM = 1, 5, 10, 0x6FFFFFFE, 0x6FFFFFFF
_DT_RPATH, _DT_RUNPATH = 15, 29
_PT_LOAD, _PT_DYNAMIC = 1, 2


_SEARCHED = frozenset({_DT_RPATH, _DT_RUNPATH})


@dataclass(frozen=True, kw_only=True)
class Needs:
    libraries: tuple[str, ...] = ()
    """As ``DT_NEEDED`` has them: ``libcudnn.so.9``."""
    glibc: str | None = None
    """None if no symbol of glibc's is versioned."""
    paths: tuple[str, ...] = ()
    """Where it looks first, ``$ORIGIN`` and all: ``DT_RPATH`` and ``DT_RUNPATH``."""


def needs_of(content: bytes) -> Needs | None:
    """What the library asks for; None for what is no such library, or not a whole one."""
    try:
        return _needs(content)
    except (struct.error, ValueError, IndexError, UnicodeDecodeError):
        return None


def _needs(content: bytes) -> Needs | None:
    if content[:6] != b"\x7fELF\x02\x01":
        return None
    headers = program_headers(content)
    loads = [(address, start, length) for kind, _, start, address, _, length in headers if kind == _PT_LOAD]

    def place(address: int) -> int:
        """Where in the file something is that the loader finds at this address."""
        at, start = next((at, start) for at, start, length in loads if at <= address < at + length)
        return int(start + address - at)

    try:
        dynamic = next((start, length) for kind, _, start, _, _, length in headers if kind == _PT_DYNAMIC)
        entries = list(_entries(content, *dynamic))
        values = dict(entries)
        names = place(values[_DT_STRTAB])
    except (StopIteration, KeyError):
        return None
    strings = content[names : names + values.get(_DT_STRSZ, 0)]

    def text(at: int) -> str:
        return strings[at : strings.index(b"\0", at)].decode("ascii")

    glibc = [
        version.removeprefix("GLIBC_")
        for version in _versions(content, place, values, text)
        if version.startswith("GLIBC_2")
    ]
    return Needs(
        libraries=tuple(text(value) for tag, value in entries if tag == _DT_NEEDED),
        glibc=max(glibc, key=key, default=None),
        paths=tuple(
            path for tag, value in entries if tag in _SEARCHED for path in text(value).split(":") if path
        ),
    )


def program_headers(content: bytes) -> list[tuple[int, ...]]:
    """Type, flags, offset, virtual and physical address, and size in the file, of each segment."""
    (offset,) = struct.unpack_from("<Q", content, 32)
    size, count = struct.unpack_from("<HH", content, 54)
    return [struct.unpack_from("<IIQQQQ", content, offset + n * size) for n in range(count)]


def _entries(content: bytes, start: int, length: int) -> Iterator[tuple[int, int]]:
    """Tags and values of the dynamic section, up to the tag that ends it."""
    for at in range(start, start + length, 16):
        tag, value = struct.unpack_from("<QQ", content, at)
        if tag == 0:
            return
        yield tag, value


def _versions(
    content: bytes, place: Callable[[int], int], values: Mapping[int, int], text: Callable[[int], str]
) -> Iterator[str]:
    """Every symbol version that is asked of another library: ``GLIBC_2.27``."""
    if _DT_VERNEED not in values:
        return
    at = place(values[_DT_VERNEED])
    for _ in range(values.get(_DT_VERNEEDNUM, 0)):
        count, _, first, further = struct.unpack_from("<HIII", content, at + 2)
        one = at + first
        for _ in range(count):
            name, onward = struct.unpack_from("<II", content, one + 8)
            yield text(name)
            one += onward
        at += further
