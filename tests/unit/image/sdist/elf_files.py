"""Shared libraries of a few bytes, as the loader would read them."""

from __future__ import annotations

import struct


def library(*needed: str, paths: str | None = None, machine: int = 62) -> bytes:
    """One that loads others by name; 62 is x86-64."""
    strings, entries = b"\0", []
    for tag, text in [(1, name) for name in needed] + ([(29, paths)] if paths is not None else []):
        entries.append((tag, len(strings)))
        strings += text.encode() + b"\0"
    start = 64 + 2 * 56
    entries += [(5, start), (10, len(strings)), (0, 0)]
    table = b"".join(struct.pack("<QQ", *entry) for entry in entries)
    place = start + len(strings)
    size = place + len(table)
    header = b"\x7fELF\x02\x01\x01" + bytes(9)
    header += struct.pack("<HHIQQQIHHHHHH", 3, machine, 1, 0, 64, 0, 0, 64, 56, 2, 64, 0, 0)
    load = struct.pack("<IIQQQQQQ", 1, 5, 0, 0, 0, size, size, 4096)
    dynamic = struct.pack("<IIQQQQQQ", 2, 6, place, place, place, len(table), len(table), 8)
    return header + load + dynamic + strings + table
