"""Names of modules whose strings Cython keeps in one text, plain or packed."""

from __future__ import annotations

import struct

import pytest

from builder.plan.facts.reading.binary import CompiledTexts
from builder.plan.facts.reading.cython_strings import keeps_in_one, names_of_cython

NAMES = sorted(
    b"__main__ __module__ __name__ __pyx_capi__ __qualname__ __test__ _cbuffer_sizes compress compress_again "
    b"decompress numcodecs.blosc numcodecs.blosc.other zfill".split()
)
DOCS = [b"A line of a docstring, with cbuffer_sizes(source) in it.\n" * 9, "ends: é".encode()]


def packed(text: bytes) -> bytes:
    """A text in the form of ``lzss_compress`` of Cython 3.3, with back references of its three lengths."""
    out, at = bytearray(), 0
    while at < len(text):
        flags, items = 0, bytearray()
        for bit in range(8):
            if at >= len(text):
                break
            length = next(
                (
                    size
                    for size in (40, 30, 8, 4)
                    if text[at : at + size] in text[:at] and at + size <= len(text)
                ),
                0,
            )
            back = at - text.rfind(text[at : at + length], 0, at) - length if length else 0
            if length and back < 0x80:
                items += bytes([back, length - 3])
            elif length and length - 3 < 0x20 and back - 0x80 < 0x200:
                far = back - 0x80
                items += bytes([0x80 | far & 0x7F, (far & 0x180) >> 2 | length - 3])
            elif length:
                far = back - 0x80
                items += bytes([0x80 | far & 0x7F, 0x80 | far >> 7, length - 3])
            else:
                flags |= 1 << bit
                items.append(text[at])
                length = 1
            at += length
        out += bytes([flags]) + items
    return bytes(out)


def module(text: bytes, strings: list[bytes], *, release: bytes = b"3_3_0", machine: int = 62) -> bytes:
    """A library with a text of all strings, the array of their lengths, and Cython's name for its types."""
    lengths = b"".join(len(one).to_bytes(4, "little") for one in strings)
    data = (
        b"\0\0\0\0" + lengths + b"\0_cython_" + release + b"\0" + b"noise gone gone\0" + text + b"\0\xff\xff"
    )
    header = (
        b"\x7fELF\x02\x01\x01"
        + bytes(9)
        + struct.pack("<HHIQQQIHHHHHH", 3, machine, 1, 0, 64, 0, 0, 64, 56, 1, 0, 0, 0)
    )
    return header + struct.pack("<IIQQQQQQ", 1, 4, 120, 120, 120, len(data), len(data), 4096) + data


@pytest.mark.parametrize("form", [packed, bytes])
def test_the_names_of_a_text_of_all_strings(form) -> None:
    content = module(form(b"".join([*DOCS, *NAMES])), [*DOCS, *NAMES])
    assert keeps_in_one(content)
    names = names_of_cython(content)
    assert names is not None
    assert names >= set(NAMES)
    assert not {b"cbuffer_sizes", b"compress_", b"again"} & names


@pytest.mark.parametrize(
    "content",
    [
        module(packed(b"".join([*DOCS, *NAMES])), [*DOCS, *NAMES][::-1]),
        module(packed(b"".join([*DOCS, *NAMES]))[:60], [*DOCS, *NAMES]),
        module(packed(b"".join([*NAMES, b"from-import-* object has no __dict__"])), NAMES),
        module(packed(b"".join([*DOCS, *NAMES])), [*DOCS, *NAMES], release=b"3_0_12"),
        module(b"", []),
        module(packed(b"".join([*DOCS, *NAMES])), [*DOCS, *NAMES])[:300],
        b"_cython_3_3_0",
    ],
)
def test_names_that_nobody_can_tell_are_unknown(content) -> None:
    assert names_of_cython(content) is None


def test_no_text_tells_of_a_name_where_all_are_in_one() -> None:
    """pydantic 1.10.27's ``types`` has ``StrictBool``, and no text of its own that says so."""
    assert CompiledTexts(module(packed(b"".join(NAMES)), NAMES)).refers(b"StrictBool") is None


def test_what_lies_is_read_within_bounds() -> None:
    hostile = module(b"\xffaaaaaaaa\x00" + b"\x00\x05" * 40000 + b"__test__", NAMES)
    assert names_of_cython(hostile) is None
