"""The names that a module which Cython compiled may bind, out of the strings that it keeps.

Up to 3.0 Cython keeps each name as a text of its own, ended by a zero byte. A later one keeps all strings
of a module in one, with an array of their lengths (``generate_pystring_constants`` in
https://github.com/cython/cython/blob/3.3.0/Cython/Compiler/Code.py), which 3.3 packs by an LZSS of its own
(``__pyx_lzss_decompress`` in ``Cython/Utility/StringTools.c``).
"""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Iterator
from itertools import islice

from builder.core.elf import LOAD_SEGMENT, elf_segments, reader_of

_WORD_ENDED = re.compile(rb"(?<!\w)(\w++)\0")
_OWN = b"__test__"
"""A name that Cython binds in each module."""
_OTHERS = frozenset((b"__main__", b"__name__", _OWN))
_IN_ONE = re.compile(rb"_cython_(?:3_[1-9]|[4-9]_)")
"""Cython's name for its types in a process, with its release: those that keep strings in one text."""
_BEGINNING = re.compile(
    rb"(?=[\x07\x0f\x17\x1f\x27\x2f\x37\x3f\x47\x4f\x57\x5f\x67\x6f\x77\x7f\x87\x8f\x97\x9f\xa7\xaf\xb7\xbf\xc7"
    rb"\xcf\xd7\xdf\xe7\xef\xf7\xff][\t\n\r\x20-\x7e\xc2-\xf4]{3})"
)
"""Eight flags and three bytes as they are: nothing can stand there before."""
_UNFIT = frozenset((*range(9), *range(14, 27), *range(28, 32), 127))
"""Bytes of which a text has none."""
_LONGEST = 8 << 20
"""Bytes of text that are unpacked in a library's data, also where they are none."""
_PLACES = 10_000
_LEAST = 10
"""Strings in order that are no accident."""


def names_of_cython(content: bytes) -> frozenset[bytes] | None:
    """The names that a module which Cython compiled may have; None if nobody knows.

    What ends in the name, ``blosc_cbuffer_sizes``, is another one. C, C++ and Rust do otherwise.
    """
    if b"from-import-*" in content:
        return None
    if b"\0" + _OWN + b"\0" in content:
        return frozenset(_WORD_ENDED.findall(content))
    return _names_in_one(content) if keeps_in_one(content) else None


def keeps_in_one(content: bytes) -> bool:
    """Whether a library has the strings of a Cython that keeps them in one text: a name is no text in it."""
    return _IN_ONE.search(content) is not None and b"\0" + _OWN + b"\0" not in content


@functools.lru_cache(maxsize=1)
def _names_in_one(content: bytes) -> frozenset[bytes] | None:
    """The names of a module whose strings are in one text; None where it is not found, or another module's
    names come in."""
    with contextlib.suppress(ValueError):
        data = [
            content[one.offset : one.offset + one.length]
            for one in elf_segments(reader_of(content))
            if one.kind == LOAD_SEGMENT and not one.flags & 1
        ]
        texts = (text for part in data for text in (part, *_unpacked(part)) if _OWN in text)
        for text in texts:
            for part in data:
                if names := _split(text, part):
                    return None if b"from-import-*" in text else names
    return None


def _unpacked(data: bytes) -> Iterator[bytes]:
    """Packed texts in a library's data that have Cython's own name."""
    done = spent = 0
    for match in _BEGINNING.finditer(data):
        if spent > _LONGEST:
            return
        if match.start() >= done:
            text, end = _decompressed(data, match.start())
            spent += len(text)
            if _OWN in text:
                done = end
                yield text


def _decompressed(data: bytes, at: int) -> tuple[bytes, int]:
    """(the text that is packed from an offset on, with what cannot be told from it behind; its end)."""
    text = bytearray()
    with contextlib.suppress(IndexError):
        while len(text) < _LONGEST:
            flags = data[at]
            at += 1
            for bit in range(8):
                if flags >> bit & 1:
                    if data[at] in _UNFIT:
                        return bytes(text), at
                    text.append(data[at])
                    at += 1
                    continue
                low, high = data[at], data[at + 1]
                at += 2
                if not low & 0x80:
                    back, length = low, high
                elif not high & 0x80:
                    back, length = 0x80 + ((high << 2 & 0x180) | (low & 0x7F)), high & 0x1F
                else:
                    back, length = 0x80 + ((high & 0x7F) << 7 | (low & 0x7F)), data[at]
                    at += 1
                length += 3
                begin = len(text) - back - length
                if begin < 0:
                    return bytes(text), at
                text += text[begin : begin + length]
    return bytes(text), at


def _split(text: bytes, data: bytes) -> frozenset[bytes]:
    """The strings about Cython's own name, which stand in their order, by an array of lengths in the data;
    empty without one.
    """
    eight = len(_OWN).to_bytes(4, "little")
    places = [match.start() for match in re.finditer(re.escape(eight), data) if match.start() % 4 == 0]
    for found in islice(re.finditer(_OWN, text), 10):
        for place in places[:_PLACES]:
            later = _strings(text, data, found.start(), place, forward=True)
            earlier = _strings(text, data, found.start(), place, forward=False)
            names = frozenset((*later, *earlier, _OWN))
            if len(names) >= _LEAST and names >= _OTHERS:
                return names
    return frozenset()


def _strings(text: bytes, data: bytes, at: int, place: int, *, forward: bool) -> Iterator[bytes]:
    """The strings behind or before one, from the offset of its length on, as long as they are in order."""
    string = text[at : at + len(_OWN)]
    while True:
        if forward:
            at, place = at + len(string), place + 4
        else:
            place -= 4
        if not 0 <= place <= len(data) - 4:
            return
        length = int.from_bytes(data[place : place + 4], "little")
        if not forward:
            at -= length
        other = text[at : at + length] if at >= 0 else b""
        if not other or len(other) != length or (other <= string) is forward:
            return
        string = other
        yield string
