"""The words in the sources of a wheel, and the names that its modules export."""

import re
from collections.abc import Iterable, Mapping

ALL_NAMES = re.compile(rb"^__all__\b[^\n=]*\+?=[ \t]*[\[(](.*?)[\])]", re.MULTILINE | re.DOTALL)
EXPORTED_NAMES = re.compile(
    rb"^@(?:export|requires)\b[^\n]*\n(?:[@ \t)][^\n]*\n)*?(?:class|def)[ \t]+(\w+)", re.MULTILINE
)
"""A class or function that transformers' ``define_import_structure`` takes to be in ``__all__``."""
_WORD = re.compile(rb"[A-Za-z_]\w*")
_ESCAPE = re.compile(rb"\\(?:x([0-9A-Fa-f]{2})|([0-7]{1,3})|[abfnrtv])")
_ESCAPED = re.compile(rb"(?:\\(?:x[0-9A-Fa-f]{2}|[0-7]{1,3}|[abfnrtv])\w*)+")
"""Letters in a text behind escapes of Python's:
https://docs.python.org/3/reference/lexical_analysis.html#escape-sequences
"""


def words_of(sources: Iterable[tuple[str, bytes | None]]) -> frozenset[bytes] | None:
    """All words; None if a source was not read."""
    found = set[bytes]()
    for _, content in sources:
        if content is None:
            return None
        found.update(_WORD.findall(content))
        # protoc's text ``\\n\\tBoolValue`` names BoolValue, and ``\\x0b\\x44oubleValue`` DoubleValue
        for escaped in _ESCAPED.findall(content) if b"\\" in content else ():
            found.update(_WORD.findall(_ESCAPE.sub(_unescaped, escaped)))
    return frozenset(found)


def exports_of(
    sources: Iterable[tuple[str, bytes | None]], modules: Mapping[str, str]
) -> dict[str, list[str]]:
    """The modules by the names in their ``__all__``, by their paths; under an empty one those not read."""
    found: dict[str, list[str]] = {}
    for path, content in sources:
        if path in modules and content is None:
            found.setdefault("", []).append(modules[path])
        for listed in ALL_NAMES.findall(content or b"") if path in modules else ():
            for name in _WORD.findall(listed):
                found.setdefault(name.decode(), []).append(modules[path])
        for name in EXPORTED_NAMES.findall(content or b"") if path in modules else ():
            found.setdefault(name.decode(), []).append(modules[path])
    return found


def _unescaped(escape: re.Match[bytes]) -> bytes:
    """The byte that an escape of a text stands for: of those with a letter each is a space."""
    number = int(escape[1], 16) if escape[1] else int(escape[2], 8) & 0xFF if escape[2] else 0x20
    return bytes((number,))
