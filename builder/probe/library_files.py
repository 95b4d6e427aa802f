"""Faults of a library file, found without loading it: a truncated one kills the process that maps it."""

import mmap
import os
import re
import stat
import struct

from ..elf import ELF_MACHINES, LOAD_SEGMENT, elf_links, elf_machine, elf_segments
from .maps import is_cuda_library

WAITS = "a named pipe or a device"
_SHT_NOBITS = 8
_ADDED = re.compile(r"-[0-9a-f]{8}$|\.alt$")
"""The hash that packagers put into a name, and NVRTC's second build."""


def another_library(name, soname):
    """That a CUDA library is another one, or cuDNN of another major, by its DT_SONAME; None if it is not."""
    if not soname or not is_cuda_library(name):
        return None
    (stem, major), (true_stem, true_major) = _stem_and_major(name), _stem_and_major(soname)
    same = stem == true_stem and (major in ("", true_major) or not stem.startswith("libcudnn"))
    return None if same else "it is %s under another name" % soname


def _stem_and_major(name):
    stem, _, version = name.partition(".so")
    return _ADDED.sub("", stem), version.strip(".").partition(".")[0]


def read_elf(path):
    """A library's header: {problem, skipped, size, soname, needed, rpath, runpath}.

    ``skipped`` is true if the loader passes over the file and goes on searching (no such file, another
    word size, another machine), and false if it gives up (empty, text, bad header) or does not notice
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
        lost = "a link to %s, which is not there"
        facts["problem"] = lost % os.readlink(path) if dangling else error.strerror or str(error)
        facts["skipped"] = True
    except (struct.error, ValueError, OverflowError, MemoryError):
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

    def read(at, length):
        stream.seek(at)
        return stream.read(length)

    machine, wanted = elf_machine(read), ELF_MACHINES.get(os.uname()[4].lower())
    if wanted is not None and machine != wanted:
        facts["problem"], facts["skipped"] = "for another machine (ELF machine %d)" % machine, True
        return
    sections, (size, count) = struct.unpack_from("<Q", head, 40)[0], struct.unpack_from("<HH", head, 58)
    missing = (sections and sections + size * count) - facts["size"]
    if missing <= 0:  # otherwise the table of segments may be cut off, too
        segments = elf_segments(read)
        ends = [one.offset + one.length for one in segments if one.kind == LOAD_SEGMENT]
        missing = max(ends + [0]) - facts["size"]
    if missing > 0:
        facts["problem"] = "truncated: at least %d bytes are missing" % missing
        return
    links = elf_links(read, segments)
    if links is not None:
        facts.update(needed=links.needed, soname=links.soname, rpath=links.rpath, runpath=links.runpath)


def section_spans(path):
    """[(start, end)] of the sections in a file and of the rest behind them; the whole without a table.

    The table is the last thing in most files, and the first that a write which failed leaves as zeros.
    """
    with open(path, "rb") as stream:
        size = os.fstat(stream.fileno()).st_size
        head = stream.read(64)
        if len(head) < 64 or head[:4] != b"\x7fELF":
            return [(0, size)]
        place, (length, count) = struct.unpack_from("<Q", head, 40)[0], struct.unpack_from("<HH", head, 58)
        stream.seek(place)
        table = stream.read(length * count) if place else b""
    if not any(table) or length < 64 or len(table) < length * count:
        return [(0, size)]
    rows = [struct.unpack_from("<IIQQQQ", table, index * length) for index in range(count)]
    spans = [(row[4], row[4] + row[5]) for row in rows if row[1] != _SHT_NOBITS]
    return spans + [(max([place + len(table)] + [end for _, end in spans]), size)]


def names_inside(path, pattern, limit=64 << 20):
    """The distinct texts in a file that match ``pattern`` (bytes), sorted; [] beyond ``limit`` bytes."""
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
