"""Modules and names of the standard library that some releases of Python 3 lack.

Up to Python 3.13 they are what interpreters have: ``scripts/python-names`` asks them and writes the table. A
name that came or went with a patch (``tarfile.data_filter``) stands nowhere, nor one that no release lacks.
Python 3.14 is from the page "What's New in Python 3.14", section Removed, and the notes "Added in version" of
https://docs.python.org/3/library/ (read 2026-11-28).
"""

import functools
import itertools
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

_FIRST = 6
"""The minor release that stands for each older one."""
_PYTHONS = 32
_GONE_IN_14: Mapping[str, tuple[str, ...]] = {
    "ast": ("Bytes", "Ellipsis", "NameConstant", "Num", "Str"),
    "asyncio": ("AbstractChildWatcher", "SafeChildWatcher", "get_child_watcher", "set_child_watcher"),
    "pkgutil": ("find_loader", "get_loader"),
    "urllib.request": ("FancyURLopener", "URLopener"),
}
_CAME_IN_14 = ("annotationlib", "compression", "concurrent.interpreters", "string.templatelib")


@functools.cache
def _pythons(span: str) -> int:
    """``8-12``: one bit for each Python of the span, whose ends may be open."""
    first, _, last = span.partition("-")
    low = int(first) if first else 0
    high = int(last) if last else _PYTHONS - 1
    return sum(1 << minor for minor in range(low, high + 1))


def _loaded() -> tuple[dict[str, int], dict[tuple[str, str], int]]:
    table = json.loads(Path(__file__).with_name("python-names.json").read_text("utf-8"))
    modules = {name: _pythons(span) for span, names in table["modules"].items() for name in names.split()}
    modules |= dict.fromkeys(_CAME_IN_14, _pythons("14-"))
    names = {
        (module, name): _pythons(span)
        for module, spans in table["names"].items()
        for span, found in spans.items()
        for name in found.split()
    }
    until = _pythons("-13")
    gone = ((module, name) for module, found in _GONE_IN_14.items() for name in found)
    return modules, names | {key: names.get(key, until) & until for key in gone}


_MODULES, _NAMES = _loaded()
"""On which Pythons each is there, one bit for each."""
OF_PYTHON = sys.stdlib_module_names | {name.partition(".")[0] for name in _MODULES}
"""Modules of the standard library, which come before a wheel's, of some Python or other."""
VARIES = frozenset({*_MODULES, *(module for module, _ in _NAMES)})
"""Modules that some release lacks, or names of which one does."""


def lacks(module: str, python: int) -> str | None:
    """The part of a module's name that Python 3.``python`` does not have, as far as is known."""
    return next((part for part in _parts(module) if not _is_there(_MODULES.get(part), python)), None)


def lacks_name(module: str, name: str, python: int) -> bool:
    """Whether a module of Python 3.``python`` is without a name that another release has there."""
    return not _is_there(_NAMES.get((module, name)), python)


def _is_there(pythons: int | None, python: int) -> bool:
    return pythons is None or bool(pythons >> max(python, _FIRST) & 1)


def varies(module: str, name: str | None) -> bool:
    """Whether it is of use to know that a module, or a name of it, is taken."""
    if name is not None and (module, name) in _NAMES:
        return True
    return any(part in _MODULES for part in _parts(f"{module}.{name}" if name else module))


def _parts(module: str) -> Iterator[str]:
    """A module's name and those of the packages that it lies in, the outermost first."""
    return itertools.accumulate(module.split("."), "{}.{}".format)
