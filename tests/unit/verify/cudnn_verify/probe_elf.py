"""Writes small ELF shared objects, so that the loader's rules can be tested without a compiler."""

import platform
import struct
from pathlib import Path

_MACHINE = {"x86_64": 62, "aarch64": 183}[platform.machine()]
_TAGS = {"needed": 1, "soname": 14, "rpath": 15, "runpath": 29}


def write_elf(
    path: Path, *, needed=(), soname=None, rpath=None, runpath=None, machine=_MACHINE, bits=2
) -> Path:
    """A 64-bit little-endian shared object with one PT_LOAD, one PT_DYNAMIC and a string table."""
    strings = b"\0"
    entries = []
    for kind, text in [("needed", n) for n in needed] + [
        ("soname", soname),
        ("rpath", rpath),
        ("runpath", runpath),
    ]:
        if text is not None:
            entries.append((_TAGS[kind], len(strings)))
            strings += text.encode() + b"\0"
    start = 64 + 2 * 56
    entries.append((5, start))
    table = b"".join(struct.pack("<qQ", *entry) for entry in [*entries, (0, 0)])
    size = start + len(strings) + len(table)
    ident = b"\x7fELF" + bytes([bits, 1, 1]) + bytes(9)
    header = ident + struct.pack("<HHIQQQIHHHHHH", 3, machine, 1, 0, 64, 0, 0, 64, 56, 2, 64, 0, 0)
    load = struct.pack("<IIQQQQQQ", 1, 5, 0, 0, 0, size, size, 4096)
    place = start + len(strings)
    dynamic = struct.pack("<IIQQQQQQ", 2, 6, place, place, place, len(table), len(table), 8)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(header + load + dynamic + strings + table)
    return path


def mapped_libc() -> Path:
    """A real library of this machine: the C library of the running interpreter."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        name = line.split(maxsplit=5)[-1]
        if Path(name).name.startswith(("libc.so", "libc-")):
            return Path(name)
    raise AssertionError("no C library is mapped")
