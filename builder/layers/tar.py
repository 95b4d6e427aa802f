"""Tar headers that depend on nothing but what they say: POSIX ustar, with pax for what does not fit.

Written by hand because :mod:`tarfile` spends most of its time on choices that are fixed here.
"""

MTIME = 315619200
"""1980-01-02T00:00:00Z, the time of every entry. A constant, so that a wheel's layer depends on the wheel
alone; not 0, because zip files begin in 1980 and a file with an older time cannot be put into one by
:mod:`zipfile` (in any time zone: hence the second of January)."""

_BLOCK = 512
NAME = 100
_PREFIX = 155
MAX_SIZE = 8**11 - 1
_REST = b"\0" * 64 + b"0000000\0" * 2  # user and group names, device numbers

END = b"\0" * (2 * _BLOCK)
"""The end of an archive."""


def padding(size: int) -> bytes:
    """The zeros between a file's content of ``size`` bytes and the next header."""
    return b"\0" * (-size % _BLOCK)


def file_header(path: str, *, mode: int, size: int) -> bytes:
    return _header(path, b"0", mode, size)


def directory_header(path: str) -> bytes:
    return _header(path + "/", b"5", 0o755, 0)


def _header(path: str, kind: bytes, mode: int, size: int) -> bytes:
    name = path.encode()
    split = split_name(name) if name.isascii() else None
    if split is not None and size <= MAX_SIZE:
        return block(split[1], split[0], kind, mode, size)
    records = b"" if split is not None else pax_record(b"path", name)
    if size > MAX_SIZE:
        records += pax_record(b"size", b"%d" % size)
    extended = block(b"pax-header", b"", b"x", 0o644, len(records)) + records + padding(len(records))
    # A reader without pax sees the end of the name: enough to recognise the file by.
    return extended + block(name[-NAME:], b"", kind, mode, min(size, MAX_SIZE))


def split_name(name: bytes) -> tuple[bytes, bytes] | None:
    """``name`` as (prefix, name) of a ustar header; None if it does not fit."""
    if len(name) <= NAME:
        return b"", name
    # The last slash that leaves a prefix short enough; a directory's own closing slash is none.
    cut = name.rfind(b"/", 0, min(_PREFIX + 1, len(name) - 1))
    rest = name[cut + 1 :]
    return (name[:cut], rest) if cut > 0 and 0 < len(rest) <= NAME else None


def pax_record(key: bytes, value: bytes) -> bytes:
    """``<length> key=value\\n``, where the length counts its own digits."""
    body = b" %b=%b\n" % (key, value)
    length = len(body)
    while length != len(body) + len(str(length)):
        length = len(body) + len(str(length))
    return b"%d%b" % (length, body)


def block(
    name: bytes,
    prefix: bytes,
    kind: bytes,
    mode: int,
    size: int,
    *,
    mtime: int = MTIME,
    link: bytes = b"",
    rest: bytes = _REST,
) -> bytes:
    """One header, with its checksum. ``rest``: user and group names, device numbers."""
    front = name.ljust(NAME, b"\0") + b"%07o\0%07o\0%07o\0%011o\0%011o\0" % (mode, 0, 0, size, mtime)
    back = kind + link.ljust(NAME, b"\0") + b"ustar\x0000" + rest + prefix.ljust(_PREFIX, b"\0") + b"\0" * 12
    checksum = sum(front) + sum(back) + 8 * 0x20
    return front + b"%06o\0 " % checksum + back
