"""Requirements out of a project's own files: ``pyproject.toml`` (PEP 621, Poetry), ``pylock.toml`` (PEP 751).

The formats: https://packaging.python.org/en/latest/specifications/pyproject-toml/,
https://packaging.python.org/en/latest/specifications/pylock-toml/
"""

import contextlib
import re
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from packaging.markers import Marker
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from builder.core.documents import MalformedError, parse_toml, shown
from builder.core.errors import UsageError
from builder.core.versions import NO_NUMBER
from builder.plan.resolve.requirements import LONGEST, Wishes, quoted, read_text


def from_pyproject(path: Path) -> Wishes:
    """``[project]``'s dependencies and ``requires-python``, or Poetry's. Raises UsageError."""
    document = _toml(path, read_text(path))
    found = Wishes()
    project = _table(document, "project", path)
    poetry = _table(_table(document, "tool", path), "poetry", path)
    listed, bound = project.get("dependencies", []), project.get("requires-python", "")
    if not isinstance(listed, list) or not isinstance(bound, str):
        text = "project.dependencies has to be a list of texts, and requires-python a text"
        raise UsageError(f"{path}: {text}")
    for text in listed:
        found.add(str(text), f"{path}, project.dependencies")
    found.python = bound or None
    for name, value in _table(poetry, "dependencies", path).items():
        _poetry(name, value, path, found)
    for group in _table(project, "optional-dependencies", path):
        found.notes.append(f"{path}: the extra '{quoted(group)}' is not taken over; name its packages beside")
    if not found.wishes:
        raise UsageError(f"{path} names no dependencies", hint="they stand under [project], as dependencies")
    return found


def from_pylock(path: Path) -> Wishes:
    """The packages of a ``pylock.toml``, each at its version, and its Python.

    Raises UsageError, with line and column, for a document that the specification does not allow:
    https://packaging.python.org/en/latest/specifications/pylock-toml/
    """
    text = read_text(path)
    document = _toml(path, text)
    packages, version = document.get("packages"), document.get("lock-version")
    if not isinstance(packages, list) or not isinstance(version, str):
        raise UsageError(f"{path} is no lock of PEP 751", hint="it has `lock-version` and [[packages]]")
    top, inner = _places(text)
    if version.partition(".")[0] != "1":
        said = f"{path}{top.get('lock-version', '')}: its lock-version is {shown(version, most=20)}"
        raise UsageError(f"{said}, and 1.0 is read", hint="lock again with a tool that writes 1.0")
    found = Wishes()
    if (bound := document.get("requires-python")) is not None:
        where = f"{path}{top.get('requires-python', '')}"
        found.python = _checked(
            bound, where, SpecifierSet, "a set of Pythons, as in requires-python = '>=3.11'"
        )
    for number, package in enumerate(packages, 1):
        # inline tables have no header of their own, by which they would be found
        places = inner[number - 1] if len(inner) == len(packages) else {}
        _locked(package, partial(_place, path, number, places), found)
    if not found.wishes:
        raise UsageError(
            f"{path} locks no package by version", hint="each has name = 'torch', version = '2.9.1'"
        )
    return found


def _locked(package: Any, place: Callable[[str], str], found: Wishes) -> None:
    if not isinstance(package, dict) or "name" not in package:
        raise UsageError(
            f"{place('')} has no name", hint="each of [[packages]] has one, as in name = 'torch'"
        )
    a_name, a_version, a_marker = (
        "the name of a package, as in name = 'torch'",
        "one version, as in version = '2.9.1'",
        "an environment marker, as in marker = 'sys_platform == \"linux\"'",
    )
    name = _checked(package["name"], place("name"), partial(canonicalize_name, validate=True), a_name)
    if "version" not in package:
        found.leave_out(name, place(""))  # a folder, an archive or a repository
        return
    text = f"{name}=={_checked(package['version'], place('version'), Version, a_version)}"
    if "marker" in package:
        marker = _checked(package["marker"], place("marker"), Marker, a_marker)
        if re.search(r"\b(?:extras|dependency_groups)\b", re.sub(r"'[^']*'|\"[^\"]*\"", "", marker)):
            found.note(place("marker"), name, "not taken over: it is of an extra or a group; name it beside")
            return
        text += f" ; {marker}"
    found.add(text, place("version"))


def _checked(value: Any, place: str, read: Callable[[str], Any], wanted: str) -> str:
    """The value, if it is a text that ``read`` takes; else UsageError, which says what was ``wanted``."""
    if isinstance(value, str) and len(value) <= LONGEST and not NO_NUMBER.search(value):
        with contextlib.suppress(ValueError, RecursionError):
            read(value)
            return value
    raise UsageError(f"{place}: {quoted(str(value))!r} is not {wanted.partition(',')[0]}", hint=wanted)


def _place(path: Path, number: int, places: Mapping[str, str], key: str) -> str:
    found = places.get(key) or places.get("")
    return f"{path}{found}" if found else f"{path}, package {number}"


def _places(text: str) -> tuple[dict[str, str], list[dict[str, str]]]:
    """Where values stand, as ``:12:11``: the document's own keys, and those of each of its ``[[packages]]``.

    A package's header is at ``""``. Python's reader of TOML tells no places.
    """
    top: dict[str, str] = {}
    inner: list[dict[str, str]] = []
    now: dict[str, str] | None = top
    for number, line in enumerate(text.split("\n"), 1):
        key = re.match(r"[ \t]*([\w-]+)[ \t]*=[ \t]*", line[:LONGEST])
        if re.match(r"[ \t]*\[\[[ \t]*packages[ \t]*\]\]", line[:LONGEST]):
            now = {"": f":{number}:{line.index('[') + 1}"}
            inner.append(now)
        elif line.lstrip(" \t").startswith("["):
            now = None
        elif key and now is not None:
            now.setdefault(key[1], f":{number}:{key.end() + 1}")
    return top, inner


def _toml(path: Path, text: str) -> dict[str, Any]:
    try:
        return parse_toml(text.encode())
    except MalformedError as problem:
        raise UsageError(f"{path}{problem.place}: {problem}", hint="its syntax: https://toml.io") from problem


def _table(document: dict[str, Any], name: str, path: Path) -> dict[str, Any]:
    found = document.get(name, {})
    if not isinstance(found, dict):
        raise UsageError(f"{path}: '{name}' is no table")
    return found


def _poetry(name: str, value: Any, path: Path, found: Wishes) -> None:
    place = f"{path}, tool.poetry.dependencies"
    table = value if isinstance(value, dict) else {"version": value}
    version = table.get("version")
    if not isinstance(version, str):
        found.leave_out(name, place)
        return
    bounds = ",".join(_poetry_bound(part.strip()) for part in version.split(","))
    if name == "python":
        found.python = bounds
        return
    extras = table.get("extras")
    brackets = f"[{','.join(map(str, extras))}]" if isinstance(extras, list) and extras else ""
    marker = f" ; {table['markers']}" if table.get("markers") else ""
    found.add(f"{name}{brackets}{bounds}{marker}", place)


def _poetry_bound(text: str) -> str:
    """``^2.1`` and ``~2.1`` as Python's own specifiers; ``*`` is every version."""
    sign = re.fullmatch(r"([\^~])\s*([0-9]{1,9}(?:\.[0-9]{1,9})*)", text)
    if sign is None:
        return "" if text == "*" else f"=={text}" if re.match(r"\d", text) else text
    parts = [int(part) for part in sign[2].split(".")]
    keep = next((n for n, part in enumerate(parts) if part), len(parts) - 1) if sign[1] == "^" else 1
    keep = min(keep, len(parts) - 1)
    upper = [*parts[:keep], parts[keep] + 1]
    return f">={sign[2]},<{'.'.join(map(str, upper))}"
