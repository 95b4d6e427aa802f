"""The header, segments and dynamic section of an ELF file, read piece by piece without loading it.

64-bit little-endian files, by https://refspecs.linuxfoundation.org/elf/gabi4+/ and, for symbol versions, the
Linux Standard Base. A ``read`` is a function of offset and length in bytes, which gives fewer bytes at the
end of the file. What is cut off or makes no sense raises ValueError.

The one reader of rtbuild and its probe: :mod:`builder.image.recipe.probe_file` takes it into the probe's
file, so it needs nothing but the standard library of Python 3.6.
"""

import os
import stat
import struct
from collections import namedtuple
from collections.abc import Callable, Iterable
from itertools import takewhile

Segment = namedtuple("Segment", "kind flags offset address length")  # offset and length in the file
# needed: file names; flags: those of DT_FLAGS_1. The rest are functions that read when they are called:
# asked: [(file, version, weak)] of symbols of others, as ("libc.so.6", "GLIBC_2.27", False)
# offered: [version] of its own symbols; None if they have none
# symbols: the Symbols of its dynamic table; None without one
# defines: those of some names (bytes) that it defines, found by its hash table; None without one
Links = namedtuple("Links", "needed soname rpath runpath flags asked offered symbols defines")
# wanted: {index in the table: (name, version, file that it is asked of)} of what it cannot do without
# defined: {name: [(version, hidden)]} of what others can use; a version is None without versions
# used: a function of `lazy` that gives the indexes that relocations at load time refer to
Symbols = namedtuple("Symbols", "wanted defined used")
# A file that may be a library. problem: why it is none, or None; skipped: the loader goes on searching;
# size: bytes; kind: e_type, 3 for a library; the rest as in Links: asked is None without a dynamic section.
# A file of which the end alone is missing, which is not loaded, has a problem and the rest
ElfFile = namedtuple(
    "ElfFile", "problem skipped size kind needed soname rpath runpath flags asked offered symbols defines"
)
NO_LIBRARY = ElfFile(None, False, None, None, [], None, None, None, 0, None, None, None, None)
LOAD_SEGMENT, DYNAMIC_SEGMENT, INTERP_SEGMENT, NOTE_SEGMENT = 1, 2, 3, 4
ELF_HEADER, ELF_SEGMENT = 64, 56
"""Bytes of the header, and of a segment's row in the table behind it."""
ELF_MACHINES = {"x86_64": 62, "amd64": 62, "aarch64": 183, "arm64": 183, "ppc64le": 21}
"""``e_machine``, by the registry that the specification names."""
DT_STRTAB, DT_STRSZ = 5, 10
_DT_NEEDED, _DT_SONAME, _DT_RPATH, _DT_RUNPATH = 1, 14, 15, 29
_DT_VERNEED, _DT_VERNEEDNUM = 0x6FFFFFFE, 0x6FFFFFFF
_DT_VERDEF, _DT_VERDEFNUM, _DT_VERSYM = 0x6FFFFFFC, 0x6FFFFFFD, 0x6FFFFFF0
_DT_HASH, _DT_SYMTAB, _DT_GNU_HASH, _DT_FLAGS_1 = 4, 6, 0x6FFFFEF5, 0x6FFFFFFB
_DT_RELA, _DT_RELASZ, _DT_RELACOUNT, _DT_JMPREL, _DT_PLTRELSZ = 7, 8, 0x6FFFFFF9, 23, 2
_DT_FLAGS, _DF_BIND_NOW, _DF_1_NOW = 30, 8, 1
_LONGEST_NAME, _LONGEST_PATH = 1 << 14, 1 << 20
"""Bytes of one name, and of a search path with a folder for each library: TensorFlow 2.20 has 21,537."""
_PART, _MOST_PARTS = 1 << 16, 8
_MOST_SEGMENTS, _MOST_NAMES = 256, 4096
"""Of real libraries a few dozen and a few hundred. A table may refer to one name a million times."""
_MOST_SYMBOLS, _LARGEST_TABLE = 1 << 22, 256 << 20
"""Of PyTorch's largest library 300,000; bytes of their names 20 MiB, of its relocations 60 MiB."""
_MOST_STEPS, _READ_STEPS = 1 << 20, 64
"""Rows of a hash table that are compared for all names together, and for how many a name that is read counts.
Of 8,000 names in PyTorch's a few each: a crafted table has one chain with all of its symbols.
"""
WAITS = "a named pipe or a device"


def reader_of(content: bytes) -> "Callable[..., bytes]":
    """The ``read`` of a content in memory."""
    return lambda at, length: content[at : at + length]


def file_reader(path: str) -> "Callable[..., bytes]":
    """The ``read`` of a file, which is open only while it is read; raises OSError. Small parts are kept."""
    parts = {}  # type: dict[int, bytes]

    def straight(at: int, length: int) -> bytes:
        with open(path, "rb") as stream:
            stream.seek(at)
            return stream.read(length)

    def read(at: int, length: int) -> bytes:
        number, start = divmod(at, _PART)
        if start + length > _PART:
            return straight(at, length)
        if number not in parts:
            if len(parts) >= _MOST_PARTS:
                parts.clear()
            parts[number] = straight(number * _PART, _PART)
        return parts[number][start : start + length]

    return read


def elf_file(path: str) -> ElfFile:
    """A library, as far as its header tells.

    ``skipped`` is true if the loader passes over the file and goes on searching (no such file, another
    word size, another machine), and false if it gives up (empty, text, bad header) or does not notice
    (truncated).
    """
    size = None
    try:
        about = os.stat(path)
        if not stat.S_ISREG(about.st_mode):  # opening a pipe would wait for its other end
            return NO_LIBRARY._replace(problem="a folder" if stat.S_ISDIR(about.st_mode) else WAITS)
        size = about.st_size
        return _read_header(file_reader(path), size)
    except OSError as error:
        dangling = os.path.islink(path) and not os.path.exists(path)
        lost = "a link to %s, which is not there" % os.readlink(path) if dangling else None
        return NO_LIBRARY._replace(problem=lost or error.strerror or str(error), skipped=True, size=size)
    except (struct.error, ValueError, OverflowError, MemoryError):
        return NO_LIBRARY._replace(problem="its ELF header makes no sense", size=size)


def _read_header(read: "Callable[..., bytes]", size: int) -> ElfFile:
    def refused(problem: str, skipped: bool = False) -> ElfFile:
        return NO_LIBRARY._replace(problem=problem, skipped=skipped, size=size)

    head = read(0, 64)
    if not head:
        return refused("empty")
    if head[:4] != b"\x7fELF":
        pointer = head.startswith(b"version https://git-lfs")
        return refused("a Git LFS pointer, not the library" if pointer else "not an ELF file")
    if len(head) < 64:
        return refused("truncated within its header")
    if head[4] != 2 or head[5] != 1:
        return refused("a 32-bit library" if head[4] != 2 else "a big-endian library", skipped=True)
    machine, wanted = elf_machine(read), ELF_MACHINES.get(os.uname()[4].lower())
    if wanted is not None and machine != wanted:
        return refused("for another machine (ELF machine %d)" % (machine or 0), skipped=True)
    table, (row, count) = struct.unpack_from("<Q", head, 40)[0], struct.unpack_from("<HH", head, 58)
    missing = (table and table + row * count) - size
    try:
        segments = elf_segments(read)
    except ValueError:
        if missing > 0:
            return refused("truncated: at least %d bytes are missing" % missing)
        raise
    ends = [one.offset + one.length - size for one in segments if one.kind == LOAD_SEGMENT]
    if max([0, *ends]) > 0:
        return refused("truncated: at least %d bytes are missing" % max([missing, *ends]))
    problem = "truncated: at least %d bytes are missing" % missing if missing > 0 else None
    links, (kind,) = elf_links(read, segments), struct.unpack_from("<H", head, 16)
    if links is None:
        return NO_LIBRARY._replace(problem=problem, size=size, kind=kind)
    return ElfFile(problem, False, size, kind, *links)


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
    """The offset in the file of an address in the loaded library. Raises ValueError."""
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
    table = (read, segments, values, names)
    return Links(
        needed,
        soname,
        rpath,
        runpath,
        values.get(_DT_FLAGS_1, 0),
        lambda: [row[:3] for row in _versions_asked(*table)],
        lambda: _names_offered(_versions_offered(*table)),
        lambda: _symbols(*table),
        lambda wanted: _defined_of(wanted, *table),
    )


def _names_offered(rows: "list[tuple[int, str]] | None") -> "list[str] | None":
    return None if rows is None else [name for _, name in rows]


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
) -> "list[tuple[str, str, bool, int]]":
    """(file, version, weak, index): by the index symbols refer to it."""
    found = []  # type: list[tuple[str, str, bool, int]]
    at = place_in_file(values[_DT_VERNEED], segments) if _DT_VERNEED in values else 0
    for _ in range(values.get(_DT_VERNEEDNUM, 0) if at else 0):
        count, file, first, further = _unpack("<HIII", read(at + 2, 14))
        one, owner = at + first, _name_at(read, names + file)
        for _ in range(count):
            flags, index, name, onward = _unpack("<HHII", read(one + 4, 12))
            found.append((owner, _name_at(read, names + name), bool(flags & 2), index))
            if len(found) > _MOST_NAMES:
                raise ValueError("versions without an end")
            one += onward
        if not further:
            break
        at += further
    return found


def _versions_offered(
    read: "Callable[..., bytes]", segments: "list[Segment]", values: "dict[int, int]", names: int
) -> "list[tuple[int, str]] | None":
    """(index, version) of its own; None if it has none. The first is the file itself."""
    if _DT_VERDEF not in values:
        return None
    found = []
    at = place_in_file(values[_DT_VERDEF], segments)
    for _ in range(values.get(_DT_VERDEFNUM, 0)):
        index, count, first, further = _unpack("<HH4xII", read(at + 4, 16))
        if count:
            (name,) = _unpack("<I", read(at + first, 4))
            found.append((index, _name_at(read, names + name)))
        if len(found) > _MOST_NAMES:
            raise ValueError("versions without an end")
        if not further:
            break
        at += further
    return found


def _symbol_count(read: "Callable[..., bytes]", segments: "list[Segment]", values: "dict[int, int]") -> int:
    """The rows of the dynamic table, which only its hash tables tell."""
    if _DT_HASH in values:
        return _unpack("<I", read(place_in_file(values[_DT_HASH], segments) + 4, 4))[0]
    if _DT_GNU_HASH not in values:
        return 0
    at = place_in_file(values[_DT_GNU_HASH], segments)
    buckets, first, bloom = _unpack("<III", read(at, 12))
    if buckets > _MOST_SYMBOLS or bloom > _MOST_SYMBOLS:
        raise ValueError("symbols without an end")
    chains = at + 16 + 8 * bloom + 4 * buckets
    last = max(_unpack("<%dI" % buckets, read(chains - 4 * buckets, 4 * buckets)) or (0,))
    if last < first:
        return first
    while last <= _MOST_SYMBOLS:
        data = read(chains + 4 * (last - first), 1024)
        for place in range(0, len(data) // 4 * 4, 4):
            last += 1
            if data[place] & 1:
                return last
        if len(data) < 1024:
            raise ValueError("cut off")
    raise ValueError("symbols without an end")


def _symbols(
    read: "Callable[..., bytes]", segments: "list[Segment]", values: "dict[int, int]", names: int
) -> "Symbols | None":
    if _DT_SYMTAB not in values:
        return None
    count, size = _symbol_count(read, segments, values), values.get(DT_STRSZ, 0)
    if count > _MOST_SYMBOLS or size > _LARGEST_TABLE:
        raise ValueError("symbols without an end")
    rows = read(place_in_file(values[_DT_SYMTAB], segments), 24 * count)
    texts = read(names, size)
    if len(rows) < 24 * count or len(texts) < size:
        raise ValueError("cut off")
    marks = _unpack("<%dH" % count, _versions_of_symbols(read, segments, values, count))
    asked = {row[3]: (row[1], row[0]) for row in _versions_asked(read, segments, values, names)}
    own = {index: name for index, name in _versions_offered(read, segments, values, names) or () if index > 1}
    versioned = _DT_VERSYM in values
    wanted, defined = {}, {}  # type: ignore[var-annotated]
    for index, (name, info, other, section, value, _) in enumerate(struct.iter_unpack("<IBBHQQ", rows)):
        binding, kind = info >> 4, info & 15
        if not name or not binding or kind not in (0, 1, 2, 5, 6, 10) or other & 3 in (1, 2):
            continue  # local, or of a kind or visibility that nobody else sees
        mark = marks[index]
        if section == 0:
            if binding != 2:
                text = texts[name : texts.index(b"\0", name)]
                wanted[index] = (text, *(asked.get(mark & 0x7FFF) or (None, None)))
        elif value or kind == 6 or section == 0xFFF1:
            text = texts[name : texts.index(b"\0", name)]
            version = own.get(mark & 0x7FFF, "") if versioned else None
            hidden = bool(mark & 0x8000) and mark & 0x7FFF != 2  # the loader takes the first version of all
            defined.setdefault(text, []).append((version, hidden))
    return Symbols(wanted, defined, lambda lazy: _relocated(read, segments, values, lazy))


def _defined_of(
    wanted: "Iterable[bytes]",
    read: "Callable[..., bytes]",
    segments: "list[Segment]",
    values: "dict[int, int]",
    names: int,
) -> "set[bytes] | None":
    """The wanted symbols that a library defines, found as the loader does by DT_GNU_HASH, without the whole
    table.

    https://sourceware.org/git/?p=glibc.git;a=blob;f=elf/dl-lookup.c
    """
    if _DT_GNU_HASH not in values or _DT_SYMTAB not in values:
        return None
    at, rows = place_in_file(values[_DT_GNU_HASH], segments), place_in_file(values[_DT_SYMTAB], segments)
    buckets, first, bloom = _unpack("<III", read(at, 12))
    count = _symbol_count(read, segments, values)
    if not buckets or buckets > _MOST_SYMBOLS or bloom > _MOST_SYMBOLS or count > _MOST_SYMBOLS:
        raise ValueError("symbols without an end")
    start = at + 16 + 8 * bloom
    heads = _unpack("<%dI" % buckets, read(start, 4 * buckets))
    length = max(count - first, 0)
    chains = _unpack("<%dI" % length, read(start + 4 * buckets, 4 * length))
    found, steps = set(), _MOST_STEPS
    for name in wanted:
        number = 5381
        for byte in name:
            number = (number * 33 + byte) & 0xFFFFFFFF
        index = heads[number % buckets]
        while first <= index < first + length:
            alike = (chains[index - first] ^ number) < 2
            steps -= _READ_STEPS if alike else 1
            if steps < 0:
                raise ValueError("a hash table that is searched without an end")
            if alike:
                (text,) = _unpack("<I", read(rows + 24 * index, 4))
                if read(names + text, len(name) + 1) == name + b"\0":
                    found.add(name)
                    break
            if chains[index - first] & 1:
                break
            index += 1
    return found


def _versions_of_symbols(
    read: "Callable[..., bytes]", segments: "list[Segment]", values: "dict[int, int]", count: int
) -> bytes:
    if _DT_VERSYM not in values:
        return bytes(2 * count)
    return read(place_in_file(values[_DT_VERSYM], segments), 2 * count)


def _relocated(
    read: "Callable[..., bytes]", segments: "list[Segment]", values: "dict[int, int]", lazy: bool
) -> "set[int]":
    """Indexes of the symbols that relocations refer to; ``lazy``: without those of calls."""
    spans = [(values.get(_DT_RELA), values.get(_DT_RELASZ, 0), values.get(_DT_RELACOUNT, 0))]
    now = values.get(_DT_FLAGS_1, 0) & _DF_1_NOW or values.get(_DT_FLAGS, 0) & _DF_BIND_NOW
    if now or not lazy:
        spans.append((values.get(_DT_JMPREL), values.get(_DT_PLTRELSZ, 0), 0))
    found = set()  # type: set[int]
    for address, size, relative in spans:
        if address is not None and size - 24 * relative > 0:
            if size > _LARGEST_TABLE:
                raise ValueError("relocations without an end")
            data = read(place_in_file(address, segments) + 24 * relative, size - 24 * relative)
            found.update(struct.unpack("<%dI" % (len(data) // 4), data[: len(data) // 4 * 4])[3::6])
    return found
