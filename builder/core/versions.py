"""Comparing versions of CUDA, cuDNN, drivers and Python, which are dotted numbers of unequal length."""

import functools
import re
from collections.abc import Callable, Iterable

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

NO_NUMBER = re.compile(r"[0-9]{19}")
"""Python reads none of 4,301 digits, and no version has one of 19."""
WITH_PKG_RESOURCES = "setuptools<82"
"""https://setuptools.pypa.io/en/stable/history.html: 82 has no ``pkg_resources``."""


@functools.lru_cache(maxsize=4096)
def key(text: str) -> tuple[int, ...]:
    """``"9.10.2.21-1"`` as ``(9, 10, 2, 21)``: the rest is cut. ValueError if it does not begin with one."""
    found = re.match(r"v?([0-9]{1,9}(?:\.[0-9]{1,9})*)", text)
    if found is None:
        raise ValueError(f"not a version: {text!r}")
    return tuple(int(part) for part in found[1].split("."))


def major(text: str) -> int:
    return key(text)[0]


def minor(text: str) -> int | None:
    parts = key(text)
    return parts[1] if len(parts) > 1 else None


@functools.lru_cache(maxsize=8192)
def short(text: str, parts: int) -> str:
    """The first ``parts`` numbers: ``short("12.2.140", 2)`` is ``12.2``."""
    return ".".join(str(part) for part in key(text)[:parts])


@functools.lru_cache(maxsize=8192)
def release(text: str) -> Version:
    """A version of a Python package as PEP 440 orders it: pre-releases before, post-releases after.

    Raises ValueError, as :func:`key` does.
    """
    if NO_NUMBER.search(text):
        raise ValueError(f"not a version: {text[:40]!r}")
    return Version(text)


def _newer(one: str, other: str) -> int:
    return (release(one) < release(other)) - (release(one) > release(other))


newest_first = functools.cmp_to_key(_newer)
"""A key that puts the newest version first, also amid other keys: ``0.12.0.1``, ``0.12.0``, ``0.12.0rc1``.

(Numbers that are negated one by one would put ``0.12.0`` before ``0.12.0.1``.)
"""


def closest_first(to: str, versions: Iterable[str]) -> list[str]:
    """Versions, the closest first: by the lines (``2.14``) between them, a newer one first, then by patch.

    >>> closest_first("2.3.1", ["2.1.4", "2.2.0", "2.2.3", "2.3.0", "2.4.0", "2.4.4"])
    ['2.3.0', '2.4.0', '2.4.4', '2.2.3', '2.2.0', '2.1.4']
    """
    there = set(versions)
    lines = {text: (*key(text), 0)[:2] for text in (*there, to)}
    place = {line: n for n, line in enumerate(sorted(set(lines.values())))}

    def away(text: str) -> tuple[int, bool, object]:
        steps = place[lines[text]] - place[lines[to]]
        if steps == 0:
            patches = [(*key(one), 0, 0)[2] for one in (text, to)]
            return 0, False, (abs(patches[0] - patches[1]), newest_first(text))
        return abs(steps), steps < 0, release(text) if steps > 0 else newest_first(text)

    return sorted(there, key=away)


def at_least(found: str, wanted: str) -> bool:
    """True if ``found`` is not older than ``wanted``; missing parts count as 0."""
    a, b = key(found), key(wanted)
    return a + (0,) * (len(b) - len(a)) >= b


def agree(one: str, other: str) -> bool:
    """True if two versions agree in the parts that both have: ``8.9`` and ``8.9.6`` agree."""
    return all(a == b for a, b in zip(key(one), key(other), strict=False))


def more_exact(old: str | None, new: str | None) -> bool:
    """Whether ``new`` is the same version with more parts, or the first one: ``9.3.0`` and ``9``."""
    return new is not None and (old is None or (agree(old, new) and len(key(new)) > len(key(old))))


def equal(one: str, other: str) -> bool:
    """Whether two Python versions are equal, by text if one is no version."""
    try:
        return Version(one) == Version(other)
    except ValueError:
        return one == other


@functools.lru_cache(maxsize=4096)
def requirement(text: str) -> Requirement | None:
    """The requirement, parsed; None if the text is not one."""
    try:
        return None if NO_NUMBER.search(text) else Requirement(text)
    except (ValueError, RecursionError):
        return None


def names_of(texts: Iterable[str]) -> set[str]:
    """The packages that requirements name, as indexes compare them; of a text that is none, nothing."""
    return {canonical(parsed.name) for parsed in map(requirement, texts) if parsed is not None}


def holds(parsed: Requirement, values: dict[str, str]) -> bool:
    """Whether a requirement's marker, if it has one, holds with these values."""
    return parsed.marker is None or parsed.marker.evaluate(values)


def pinned(parsed: Requirement) -> str | None:
    """The version that a requirement names with ``==`` and without a wildcard, else None."""
    for clause in parsed.specifier:
        if clause.operator in {"==", "==="} and not clause.version.endswith(".*"):
            return clause.version if re.match("v?[0-9]", clause.version) else None
    return None


def exact_pin(lines: Iterable[str], pattern: str) -> str | None:
    """The version that pins name of a distribution; None for a range, or for two."""
    found = {
        pinned(parsed)
        for line in lines
        if (parsed := requirement(line)) and re.fullmatch(pattern, canonical(parsed.name))
    }
    return found.pop() if len(found) == 1 else None


def without_marker(parsed: Requirement) -> str:
    """``numpy>=2; python_version > "3.9"`` → ``numpy>=2``."""
    return str(parsed) if parsed.marker is None else _without_marker(str(parsed))


@functools.lru_cache(maxsize=4096)
def _without_marker(text: str) -> str:
    plain = Requirement(text)
    plain.marker = None
    return str(plain)


@functools.lru_cache(maxsize=4096)
def canonical(name: str) -> str:
    """A distribution's name as package indexes compare it."""
    return canonicalize_name(name)


def name_pattern(name: str) -> str:
    """A pattern of a canonical name in each of its spellings: ``opencv-python``, ``opencv_python``."""
    return "[-_.]".join(map(re.escape, name.split("-")))


def lower_bound(parsed: Requirement) -> str | None:
    """The oldest version that a requirement can resolve to, if it shows one."""
    exact = pinned(parsed)
    if exact is not None:
        return exact
    bounds = [clause.version for clause in parsed.specifier if clause.operator in {">=", "~="}]
    bounds += [clause.version.removesuffix(".*") for clause in parsed.specifier if clause.operator == "=="]
    return max(bounds, key=key, default=None)


def contains(specifier: SpecifierSet, version: str) -> bool:
    """Whether a version is in a set, pre-releases included; False for what is not a version at all."""
    held = _KNOWN.get(id(specifier))
    if held is None:
        if len(_KNOWN) >= 4096:
            _KNOWN.clear()
        held = _KNOWN[id(specifier)] = (specifier, {})
    known = held[1]
    if version not in known:
        try:
            known[version] = specifier.contains(Version(version), prereleases=True)
        except ValueError:
            known[version] = False
    return known[version]


_OTHERWISE = {"<": ">=", ">=": "<", "<=": ">", ">": "<="}


def all_within(asked: SpecifierSet, versions: SpecifierSet) -> bool:
    """Whether every release that a requirement admits is within a range: of ``<=2.3.1`` within ``<2.4``."""
    clauses = [*versions]
    return bool(clauses) and all(
        one.operator in _OTHERWISE and apart(asked, SpecifierSet(_OTHERWISE[one.operator] + one.version))
        for one in clauses
    )


def apart(one: SpecifierSet, other: SpecifierSet) -> bool:
    """Whether no version is in both: tried at every bound, and next to it."""
    if not one or not other:
        return False
    versions = [clause.version.removesuffix(".*") for clause in (*one, *other)]
    near = ["0", *versions, *(f"{version.partition('+')[0]}.0.1" for version in versions)]
    return not any(contains(one, version) and contains(other, version) for version in near)


# By identity, because a set's own hash is computed anew each time and costs as much as the answer. The set is
# kept beside its answers, so that its identity stays its own.
_KNOWN: dict[int, tuple[SpecifierSet, dict[str, bool]]] = {}


def first(count: int, has: Callable[[int], bool | None]) -> int | None:
    """The first of some releases that has something, where all that come after have it, too; None if none
    has. Looked for in steps that double, then by halves.
    """
    low, high = -1, 0
    while high < count and not has(high):
        low, high = high, min(2 * high + 1, max(high + 1, count - 1))
    return _by_halves(has, low, high) if high < count else None


def since(count: int, has: Callable[[int], bool | None]) -> int | None:
    """As :func:`first`, of newer ones; what came last is nearest, and most likely still there."""
    if not count or has(0):
        return 0 if count else None
    last = count - 1
    return _by_halves(has, 0, last) if last and has(last) else None


def _by_halves(has: Callable[[int], bool | None], low: int, high: int) -> int:
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if has(middle) else (middle, high)
    return high
