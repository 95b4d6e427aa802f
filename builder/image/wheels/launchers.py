"""The scripts that pip writes for a wheel's entry points, byte for byte.

pip has had three templates: distlib's until 25.1, its own since (class ``PipScriptMaker`` in
``pip/_internal/operations/install/wheel.py``), and one for Python 3.9 and later since 26.0. Which one an
image gets follows the pip in its lock, because the plain way installs with that one.
"""

import configparser
import re
from collections.abc import Iterator
from typing import Literal

from packaging.version import Version

from builder.core.documents import shown

Style = Literal["re", "endswith", "removesuffix"]

_TEMPLATES: dict[Style, str] = {
    "re": """\
# -*- coding: utf-8 -*-
import re
import sys
from {module} import {top}
if __name__ == '__main__':
    sys.argv[0] = re.sub(r'(-script\\.pyw|\\.exe)?$', '', sys.argv[0])
    sys.exit({attribute}())
""",
    "endswith": """\
import sys
from {module} import {top}
if __name__ == '__main__':
    if sys.argv[0].endswith('.exe'):
        sys.argv[0] = sys.argv[0][:-4]
    sys.exit({attribute}())
""",
    "removesuffix": """\
import sys
from {module} import {top}
if __name__ == '__main__':
    sys.argv[0] = sys.argv[0].removesuffix('.exe')
    sys.exit({attribute}())
""",
}

NAMED_FOR_PYTHON = ("pip", "setuptools")
"""Distributions whose scripts pip names after the Python that it installs for."""
_TARGET = re.compile(r"(?P<module>\w+(?:\.\w+)*):(?P<attribute>\w+(?:\.\w+)*)\s*(?:\[.*\])?\s*")


class EntryPointError(ValueError):
    """An entry point that no script can be made for."""


def style(pip: str) -> Style:
    """The template of this version of pip."""
    version = Version(pip)
    if version >= Version("26.0"):
        return "removesuffix"
    return "endswith" if version >= Version("25.2") else "re"


def entry_points(text: str) -> dict[str, str]:
    """Console and graphical scripts of an ``entry_points.txt``: name → target. On Linux the two are alike."""
    parser = configparser.ConfigParser(delimiters=("=",), interpolation=None, strict=False)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    try:
        parser.read_string(text)
    except configparser.Error as problem:
        raise EntryPointError(f"entry_points.txt cannot be read: {problem}") from problem
    groups = filter(parser.has_section, ("console_scripts", "gui_scripts"))
    return {name: target for group in groups for name, target in parser.items(group)}


def scripts(
    points: dict[str, str], *, interpreter: str, python: str, style: Style
) -> Iterator[tuple[str, bytes]]:
    """Name and content of each script; ``python`` is ``3.9``. Raises :class:`EntryPointError`."""
    for name, target in _named_for(python, points).items():
        if name in ("", ".", "..") or "/" in name or name != shown(name) or len(name.encode()) > 255:
            raise EntryPointError(f"entry point {shown(name, most=60)!r} is no file name")
        match = _TARGET.fullmatch(target)
        if match is None:
            raise EntryPointError(f"entry point {name} = {target} names no callable in a module")
        attribute = match["attribute"]
        body = _TEMPLATES[style].format(
            module=match["module"], top=attribute.partition(".")[0], attribute=attribute
        )
        yield name, f"#!{interpreter}\n{body}".encode()


def _named_for(python: str, points: dict[str, str]) -> dict[str, str]:
    """``points`` with the versioned names that pip gives to itself and to ``easy_install``.

    Same rule as ``get_console_script_specs`` in ``pip/_internal/operations/install/wheel.py``.
    """
    rest = dict(points)
    named: dict[str, str] = {}
    for name, versioned, pattern in (
        ("pip", (f"pip{python.partition('.')[0]}", f"pip{python}"), r"pip(\d+(\.\d+)?)?"),
        ("easy_install", (f"easy_install-{python}",), r"easy_install(-\d+\.\d+)?"),
    ):
        target = rest.pop(name, None)
        if target:
            named |= dict.fromkeys((name, *versioned), target)
            rest = {k: v for k, v in rest.items() if not re.fullmatch(pattern, k)}
    return named | rest
