"""What the beginning of a shared library says of it: names, symbols and GPU code, without its end.

A loader goes by the dynamic section, which lies near the end of a file; the table of symbols and the texts
that it names lie near the start. Of a library that was not read to its end, the names of other libraries are
taken out of these texts: they hold nothing else that looks like ``libfoo.so.1`` but its own name.
"""

import contextlib
import re
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from builder.core.elf import LOAD_SEGMENT, elf_links, elf_machine, elf_segments, reader_of
from builder.core.versions import key

LIBRARY = re.compile(r"[\w.+-]+\.so(?:\.[\w.]+)?")
_SYMBOL = struct.Struct("<IBBHQQ")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_DYNAMIC_SYMBOLS = 11
_UNDEFINED, _WEAK = 0, 2
_MOST_SYMBOLS = 1 << 20
_LANDMARKS = (
    b"__gmon_start__",
    b"_ITM_deregisterTMCloneTable",
    b"__cxa_finalize",
    b"__stack_chk_fail",
    b"free",
)
"""Names that compilers put into nearly every library; one of them leads to the others."""


@dataclass(frozen=True, kw_only=True)
class SharedLibrary:
    """What one shared library says of itself."""

    needed: tuple[str, ...]
    """Names of other libraries that it is linked with."""
    glibc: str | None
    undefined: frozenset[str]
    """Symbols that others have to define, without weak ones."""
    defined: frozenset[str]


def library_of(content: bytes, name: str, *, whole: bool) -> SharedLibrary | None:
    """What (the beginning of) a library says; None for what is none, or for a beginning without its names."""
    read = reader_of(content)
    try:
        if elf_machine(read) is None:
            return None
        segments = elf_segments(read)
    except ValueError:
        return None
    exact = None
    if whole:
        # one that is broken is told by its texts, as one that was not read to its end
        with contextlib.suppress(ValueError):
            links = elf_links(read, segments)
            exact = (links.needed, [row[1] for row in links.asked()]) if links is not None else None
    table = _section(content) if whole else None
    texts = _texts(content, [s.offset + s.length for s in segments if s.kind == LOAD_SEGMENT][:1])
    if exact is None and texts is None:
        return None
    said = content[slice(*texts)].decode("latin-1").split("\0") if texts is not None else []
    if table is None and texts is not None:
        table = (_rows(content, texts[0]), *texts)
    undefined, defined = _symbols(content, *table) if table is not None else (frozenset(), frozenset())
    needed, versions = exact if exact is not None else (_libraries(said, name), said)
    glibc = [text.removeprefix("GLIBC_") for text in versions if re.fullmatch(r"GLIBC_2\.[\d.]+", text)]
    return SharedLibrary(
        needed=tuple(dict.fromkeys(needed)),
        glibc=max(glibc, key=key, default=None),
        undefined=undefined,
        defined=defined,
    )


def _libraries(texts: list[str], own: str) -> list[str]:
    """Names of libraries among the texts but the library's own, which can differ from its file's."""
    stem = re.split(r"[.-]", own, maxsplit=1)[0]
    found = sorted({text for text in texts if LIBRARY.fullmatch(text)})
    return [text for text in found if re.split(r"[.-]", text, maxsplit=1)[0] != stem]


def _texts(content: bytes, ends: list[int]) -> tuple[int, int] | None:
    """Where the texts that symbols are named by begin and end; None if they are not whole in the content."""
    for landmark in _LANDMARKS:
        at = content.find(b"\0" + landmark + b"\0", 0, ends[0] if ends else None)
        if at < 0:
            continue
        # no text is empty, so that two zeros end the table before, and two come after the last text
        start, end = content.rfind(b"\0\0", 0, at + 1) + 1, content.find(b"\0\0", at)
        return (start, end) if 0 < start < end else None
    return None


def _section(content: bytes) -> tuple[Iterable[int], int, int] | None:
    """Of a whole library: where the rows of its table of symbols are, and where their texts begin and end."""
    (table,) = struct.unpack_from("<Q", content, 40)
    row, count = struct.unpack_from("<HH", content, 58)
    if row != _SECTION.size or not 0 < table <= len(content) - row * count:
        return None
    sections = [_SECTION.unpack_from(content, table + number * row) for number in range(count)]
    for _, kind, _, _, offset, size, link, _, _, entry in sections:
        if kind == _DYNAMIC_SYMBOLS and entry == _SYMBOL.size and link < count:
            end = min(offset + size, len(content) - entry + 1, offset + _MOST_SYMBOLS * entry)
            texts = sections[link]
            return range(offset, end, entry), texts[4], min(texts[4] + texts[5], len(content))
    return None


def _symbols(
    content: bytes, rows: Iterable[int], start: int, end: int
) -> tuple[frozenset[str], frozenset[str]]:
    """Undefined and defined symbols of a table whose texts lie between ``start`` and ``end``."""
    undefined, defined = set[str](), set[str]()
    for at in rows:
        name, info, _, section, _, _ = _SYMBOL.unpack_from(content, at)
        close = content.find(b"\0", start + name, end + 1)
        if not name or start + name >= end or close < 0:
            continue
        text = content[start + name : close].decode("latin-1")
        if section != _UNDEFINED:
            defined.add(text)
        elif info >> 4 != _WEAK:
            undefined.add(text)
    return frozenset(undefined), frozenset(defined)


def _rows(content: bytes, end: int) -> Iterator[int]:
    """Offsets of the table's rows, back from its end to its first row, which is empty."""
    for number in range(1, _MOST_SYMBOLS):
        at = end - number * _SYMBOL.size
        if at < 0 or not any(content[at : at + _SYMBOL.size]):
            return
        yield at
