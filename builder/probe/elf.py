"""What an ELF file says about itself, read without loading it: a truncated library kills whoever maps it."""

import mmap
import os
import re
import stat
import struct

_MACHINES = {"x86_64": 62, "amd64": 62, "aarch64": 183, "arm64": 183, "ppc64le": 21}
WAITS = "a named pipe or a device"
_SHT_NOBITS = 8
_DT_NEEDED, _DT_STRTAB, _DT_SONAME, _DT_RPATH, _DT_RUNPATH = 1, 5, 14, 15, 29


def elf_problem(path):
    """Why this file cannot be a usable library here, in a few words; None where nothing speaks against it."""
    return read_elf(path)["problem"]


def read_elf(path):
    """A library's header: {problem, skipped, size, soname, needed, rpath, runpath}.

    ``skipped`` is true where the loader passes over the file and goes on searching (no such file, another
    word size, another machine), and false where it gives up (empty, text, bad header) or does not notice
    (truncated).
    """
    facts = {"problem": None, "skipped": False, "size": None, "soname": None}
    facts.update(needed=[], rpath=None, runpath=None)
    try:
        mode = os.stat(path).st_mode
        if not stat.S_ISREG(mode):  # opening a pipe would wait for its other end
            facts["problem"] = "a folder" if stat.S_ISDIR(mode) else WAITS
            return facts
        with open(path, "rb") as stream:
            facts["size"] = os.fstat(stream.fileno()).st_size
            _read_header(stream, facts)
    except OSError as error:
        dangling = os.path.islink(path) and not os.path.exists(path)
        facts["problem"] = (
            "a link to %s, which is not there" % os.readlink(path)
            if dangling
            else error.strerror or str(error)
        )
        facts["skipped"] = True
    except (struct.error, ValueError, IndexError, OverflowError, MemoryError):
        facts["problem"] = "its ELF header makes no sense"
    return facts


def _read_header(stream, facts):
    head = stream.read(64)
    if not head:
        facts["problem"] = "empty"
        return
    if head[:4] != b"\x7fELF":
        pointer = head.startswith(b"version https://git-lfs")
        facts["problem"] = "a Git LFS pointer, not the library" if pointer else "not an ELF file"
        return
    if len(head) < 64:
        facts["problem"] = "truncated within its header"
        return
    if head[4] != 2:
        facts["problem"], facts["skipped"] = "a 32-bit library", True
        return
    if head[5] != 1:
        facts["problem"], facts["skipped"] = "a big-endian library", True
        return
    machine, offset, sections = struct.unpack_from("<H", head, 18)[0], *struct.unpack_from("<QQ", head, 32)
    wanted = _MACHINES.get(os.uname()[4].lower())
    if wanted is not None and machine != wanted:
        facts["problem"], facts["skipped"] = "for another machine (ELF machine %d)" % machine, True
        return
    size, count, section_size, section_count = struct.unpack_from("<HHHH", head, 54)
    if sections and sections + section_size * section_count > facts["size"]:
        missing = sections + section_size * section_count - facts["size"]
        facts["problem"] = "truncated: at least %d bytes are missing" % missing
        return
    stream.seek(offset)
    table = stream.read(size * count)
    segments = [struct.unpack_from("<IIQQQQQQ", table, index * size) for index in range(count)]
    for kind, _, place, _, _, length, _, _ in segments:
        if kind == 1 and place + length > facts["size"]:
            facts["problem"] = "truncated: at least %d bytes are missing" % (place + length - facts["size"])
            return
    _read_dynamic(stream, segments, facts)


def _read_dynamic(stream, segments, facts):
    loads = [(s[3], s[2], s[5]) for s in segments if s[0] == 1]
    dynamic = [s for s in segments if s[0] == 2]
    if not dynamic:
        return
    stream.seek(dynamic[0][2])
    data = stream.read(dynamic[0][5])
    entries = []
    for place in range(0, len(data) - 15, 16):
        tag, value = struct.unpack_from("<qQ", data, place)
        if tag == 0:
            break
        entries.append((tag, value))
    tables = [value for tag, value in entries if tag == _DT_STRTAB]
    if not tables:
        return
    for address, place, length in loads:
        if address <= tables[0] < address + length:
            strings = place + tables[0] - address
            break
    else:
        return

    def text(value):
        stream.seek(strings + value)
        return stream.read(4096).split(b"\0", 1)[0].decode("utf-8", "replace")

    names = {_DT_SONAME: "soname", _DT_RPATH: "rpath", _DT_RUNPATH: "runpath"}
    for tag, value in entries:
        if tag == _DT_NEEDED:
            facts["needed"].append(text(value))
        elif tag in names:
            facts[names[tag]] = text(value)


def section_spans(path):
    """[(start, end)] of the sections in a file and of what follows the last; all of it without a table."""
    with open(path, "rb") as stream:
        size = os.fstat(stream.fileno()).st_size
        head = stream.read(64)
        if len(head) < 64 or head[:4] != b"\x7fELF":
            return [(0, size)]
        place, (length, count) = struct.unpack_from("<Q", head, 40)[0], struct.unpack_from("<HH", head, 58)
        stream.seek(place)
        table = stream.read(length * count) if place else b""
    if not table or length < 64 or len(table) < length * count:
        return [(0, size)]
    rows = [struct.unpack_from("<IIQQQQ", table, index * length) for index in range(count)]
    spans = [(row[4], row[4] + row[5]) for row in rows if row[1] != _SHT_NOBITS]
    return spans + [(max([place + len(table)] + [end for _, end in spans]), size)]


def names_inside(path, pattern, limit=64 << 20):
    """The distinct texts in a file that match ``pattern`` (bytes), sorted; [] for one larger than
    ``limit``.
    """
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            return []
        with open(path, "rb") as stream:
            if not 0 < os.fstat(stream.fileno()).st_size <= limit:
                return []
            with mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
                return sorted({m.group(0).decode("ascii", "replace") for m in re.finditer(pattern, data)})
    except (OSError, ValueError):
        return []
