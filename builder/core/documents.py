"""Reads documents that come from outside: JSON and times. Whatever is wrong with one is a MalformedError.

Bounded in size and depth, and refused where two readers could understand them differently or a later writer
could not write them: an exception of another kind than this is a fault of rtbuild.
"""

import json
import math
import os
import re
import stat
import tomllib
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

LARGEST = 64 << 20
"""Bytes of a document."""
DEEPEST = 64
"""Lists and objects in one another."""
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
CONTROL = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]"
)
"""Moves a terminal's cursor, or turns the order of letters."""
_LOGIN = re.compile(r"(?<=://)[^/\s?#\"]*@(?!sha256:)")
_SECRET = re.compile(
    r"https?://(?:localhost|127\.0\.0\.1|\[::1\]):\d+/\?token=[^&#\s\"']+"  # a runtime that was started here
    r"|([?&][\w.-]*(?:token|secret|passw|key|auth|sig|credential)[\w.-]*=)[^&#\s\"']+",
    re.IGNORECASE,
)
_ORDER = re.compile(r"^\s*:(?=:)|##(?=\[)", re.MULTILINE)
_TOML_PLACE = re.compile(r"(.*) \(at line (\d+), column (\d+)\)", re.DOTALL)
"""How Python's reader of TOML says where; up to 3.13 it says it in no other way."""
_LONG_NUMBER = re.compile(r"[0-9]{19}")
_LARGEST_NUMBER = 1 << 63


class MalformedError(ValueError):
    """A document that cannot be read, or not in one way alone.

    ``place`` is ``:LINE:COLUMN`` in it, to stand behind the file's name; empty where that is not known.
    """

    def __init__(self, text: str, *, place: str = "") -> None:
        super().__init__(text)
        self.place = place


def parse_json(content: bytes | str, *, strict: bool = False) -> Any:
    """A JSON document: UTF-8, at most :data:`LARGEST` and :data:`DEEPEST`, numbers that fit into 64 bits.

    With ``strict`` no object may have a key twice. Raises MalformedError.
    """
    if len(content) > LARGEST:
        raise MalformedError(f"it has more than {LARGEST >> 20} MiB")
    try:
        text = content if isinstance(content, str) else content.decode("utf-8")
        hooks: dict[str, Any] = {"parse_constant": _no_number, "parse_float": _number}
        if strict:
            hooks["object_pairs_hook"] = _pairs
        if _LONG_NUMBER.search(text):
            hooks["parse_int"] = _integer
        found = json.loads(text, **hooks)
        if _SURROGATE.search(text):
            json.dumps(found, ensure_ascii=False).encode()
    except RecursionError as problem:
        raise MalformedError(f"it is nested more than {DEEPEST} deep") from problem
    except ValueError as problem:
        raise MalformedError(f"it is no JSON: {problem}") from problem
    if isinstance(found, (dict, list)) and text.count("[") + text.count("{") > DEEPEST:
        _refuse_deep(found)
    return found


def parse_object(content: bytes | str, *, strict: bool = False) -> dict[str, Any]:
    """As :func:`parse_json`, for a document that must be an object."""
    found = parse_json(content, strict=strict)
    if not isinstance(found, dict):
        raise MalformedError("it is no JSON object")
    return found


def parse_toml(content: bytes) -> dict[str, Any]:
    """A TOML document. Raises MalformedError."""
    try:
        found = tomllib.loads(content.decode())
    except RecursionError as problem:
        raise MalformedError(f"it is nested more than {DEEPEST} deep") from problem
    except ValueError as problem:
        at = _TOML_PLACE.fullmatch(str(problem))
        text, place = (at[1], f":{at[2]}:{at[3]}") if at else (str(problem), "")
        raise MalformedError(f"it is no TOML: {text}", place=place) from problem
    _refuse_deep(found)
    return found


def parse_moment(text: object) -> datetime:
    """An ISO 8601 time with an offset, in UTC. Raises MalformedError."""
    try:
        found = datetime.fromisoformat(str(text))
        if found.tzinfo is None:
            raise MalformedError(f"{str(text)[:40]!r} is a time without an offset")
        return found.astimezone(UTC)
    except (ValueError, OverflowError) as problem:
        raise MalformedError(f"{str(text)[:40]!r} is no time") from problem


def read_file(path: Path, *, most: int = LARGEST, cut: bool = False) -> bytes:
    """The content of a regular file of at most ``most`` bytes, also where a link leads to one.

    ``cut`` gives the start of a larger one. Raises MalformedError for that, a device or a pipe, and OSError.
    """
    file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # opening a pipe would wait for a writer
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise MalformedError("it is no regular file")
    with os.fdopen(file, "rb") as opened:
        content = opened.read(most + 1)
    if len(content) > most and not cut:
        raise MalformedError(f"it has more than {most >> 20} MiB")
    return content[:most]


def redact(text: str) -> str:
    """The text without the login of any URL in it, and without a secret in its query.

    The address of a runtime on this machine keeps its token, which `rtbuild run` is there to hand out.
    """
    return _SECRET.sub(lambda found: f"{found[1]}[redacted]" if found[1] else found[0], _LOGIN.sub("", text))


def readable(text: str) -> str:
    """Foreign text without what a terminal obeys, or turns the order of letters on a page."""
    return CONTROL.sub("\N{REPLACEMENT CHARACTER}", text)


def shown(text: str, *, most: int = 400) -> str:
    """One line of foreign text for people, cut."""
    line = readable(" ".join(text.split()))
    return line if len(line) <= most else line[: most - 1] + "…"


def harmless(text: str) -> str:
    """Foreign lines for people: readable, and nothing that GitHub obeys among the lines of a job's log.

    https://docs.github.com/en/actions/reference/workflow-commands-for-github-actions; ``##[`` is older.
    """
    return _ORDER.sub(r"\g<0> ", readable(text))


def _refuse_deep(document: Any) -> None:
    level = [document]
    for _ in range(DEEPEST):
        values = (
            value for outer in level for value in (outer.values() if isinstance(outer, dict) else outer)
        )
        level = [value for value in values if isinstance(value, (dict, list))]
        if not level:
            return
    raise MalformedError(f"it is nested more than {DEEPEST} deep")


def _pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(items)
    if len(document) != len(items):
        raise MalformedError("it has a key twice, so that two readers could understand it differently")
    return document


def _no_number(name: str) -> None:
    raise MalformedError(f"it has {name}, for which JSON has no number")


def _number(text: str) -> float:
    found = float(text)
    if not math.isfinite(found):
        raise MalformedError(f"{text[:20]} is too large for a number")
    return found


def _integer(text: str) -> int:
    found = int(text)
    if not -_LARGEST_NUMBER <= found < _LARGEST_NUMBER:
        raise MalformedError(f"{text[:24]} is too large for a number")
    return found
