"""The header, segments and dynamic section of an ELF file, read piece by piece without loading it.

64-bit little-endian files, by https://refspecs.linuxfoundation.org/elf/gabi4+/ and, for symbol versions, the
Linux Standard Base. A ``read`` is a function of offset and length in bytes, which gives fewer bytes at the
end of the file. What is cut off or makes no sense raises ValueError.

The one module that rtbuild and its probe share: :mod:`builder.image.recipe.probe_file` takes it into the
probe's file, so it needs nothing but the standard library of Python 3.6.
"""

import struct
from collections import namedtuple
from collections.abc import Callable
from itertools import takewhile

Segment = namedtuple("Segment", "kind flags offset address length")  # offset and length in the file
# needed: file names; versions: a function that gives the symbol versions asked of others, as GLIBC_2.27
Links = namedtuple("Links", "needed soname rpath runpath versions")
LOAD_SEGMENT, DYNAMIC_SEGMENT, INTERP_SEGMENT, NOTE_SEGMENT = 1, 2, 3, 4
ELF_HEADER, ELF_SEGMENT = 64, 56
"""Bytes of the header, and of a segment's row in the table behind it."""
ELF_MACHINES = {"x86_64": 62, "amd64": 62, "aarch64": 183, "arm64": 183, "ppc64le": 21}
"""``e_machine``, by the registry that the specification names."""
DT_STRTAB, DT_STRSZ = 5, 10
_DT_NEEDED, _DT_SONAME, _DT_RPATH, _DT_RUNPATH = 1, 14, 15, 29
_DT_VERNEED, _DT_VERNEEDNUM = 0x6FFFFFFE, 0x6FFFFFFF
_LONGEST_NAME, _LONGEST_PATH = 1 << 14, 1 << 20
"""Bytes of one name, and of a search path with a folder for each library: TensorFlow 2.20 has 21,537."""
_MOST_SEGMENTS, _MOST_NAMES = 256, 4096
"""Of real libraries a few dozen and a few hundred. A table may refer to one name a million times."""


def reader_of(content: bytes) -> "Callable[..., bytes]":
    """The ``read`` of a content in memory."""
    return lambda at, length: content[at : at + length]


def _unpack(layout: str, data: bytes) -> "tuple[int, ...]":
    if len(data) < struct.calcsize(layout):
        raise ValueError("cut off")
    return struct.unpack(layout, data)


def elf_machine(read: "Callable[..., bytes]") -> "int | None":
    """The number of the machine; None for anything but a 64-bit little-endian ELF file."""
    head = read(0, 20)
    whole = head[:6] == b"\x7fELF\x02\x01" and len(head) == 20
    return struct.unpack_from("<H", head, 18)[0] if whole else None


def elf_segments(read: "Callable[..., bytes]") -> "list[Segment]":
    """The table of segments."""
    (table,) = _unpack("<Q", read(32, 8))
    row, count = _unpack("<HH", read(54, 4))
    data = read(table, row * count) if count <= _MOST_SEGMENTS else b""
    if row != ELF_SEGMENT or len(data) < row * count:
        raise ValueError("a table of segments that is cut off, or of another kind")
    rows = struct.iter_unpack("<IIQQQQ16x", data)
    return [Segment(kind, flags, offset, address, size) for kind, flags, offset, address, _, size in rows]


def place_in_file(address: int, segments: "list[Segment]") -> int:
    """Where in the file something is that the loader finds at this address."""
    for one in segments:
        if one.kind == LOAD_SEGMENT and one.address <= address < one.address + one.length:
            return int(one.offset + address - one.address)
    raise ValueError("an address in no segment")


def dynamic_entries(data: bytes) -> "list[tuple[int, int]]":
    """(tag, value) of a dynamic section, up to the tag that ends it."""
    rows = struct.iter_unpack("<QQ", data[: len(data) // 16 * 16])
    return list(takewhile(lambda entry: entry[0] != 0, rows))


def elf_links(read: "Callable[..., bytes]", segments: "list[Segment]") -> "Links | None":
    """The names and versions in the dynamic section; None without one."""
    spans = [one for one in segments if one.kind == DYNAMIC_SEGMENT]
    data = read(spans[0].offset, spans[0].length) if spans else b""
    if spans and len(data) < spans[0].length:
        raise ValueError("a dynamic section that is cut off")
    entries = dynamic_entries(data)
    values = dict(entries)
    if DT_STRTAB not in values:
        return None
    names = place_in_file(values[DT_STRTAB], segments)
    places = [names + value for tag, value in entries if tag == _DT_NEEDED]
    if len(places) > _MOST_NAMES:
        raise ValueError("names without an end")
    needed = [_name_at(read, place) for place in places]
    soname, rpath, runpath = [
        _name_at(read, names + values[tag], longest) if tag in values else None
        for tag, longest in (
            (_DT_SONAME, _LONGEST_NAME),
            (_DT_RPATH, _LONGEST_PATH),
            (_DT_RUNPATH, _LONGEST_PATH),
        )
    ]
    return Links(needed, soname, rpath, runpath, lambda: _versions_asked(read, segments, values, names))


def _name_at(read: "Callable[..., bytes]", place: int, longest: int = _LONGEST_NAME) -> str:
    data = b""
    while b"\0" not in data:
        more = read(place + len(data), 4096)
        if not more or len(data) > longest:
            raise ValueError("a name without an end")
        data += more
    return data[: data.index(b"\0")].decode("utf-8", "replace")


def _versions_asked(
    read: "Callable[..., bytes]", segments: "list[Segment]", values: "dict[int, int]", names: int
) -> "list[str]":
    found = []
    at = place_in_file(values[_DT_VERNEED], segments) if _DT_VERNEED in values else 0
    for _ in range(values.get(_DT_VERNEEDNUM, 0) if at else 0):
        count, _, first, further = _unpack("<HIII", read(at + 2, 14))
        one = at + first
        for _ in range(count):
            name, onward = _unpack("<II", read(one + 8, 8))
            found.append(_name_at(read, names + name))
            if len(found) > _MOST_NAMES:
                raise ValueError("versions without an end")
            one += onward
        if not further:
            break
        at += further
    return found
