"""Whether a wheel fits a cell, by its file name and its ``Requires-Python``.

The lock chose wheels that fit; this is for a lock that was edited, or made for another cell.
"""

import functools
from collections.abc import Mapping

from packaging.specifiers import SpecifierSet
from packaging.tags import Tag

from builder.errors import CellError
from builder.index.target import Target, rank, wheel_name
from builder.model import Cell, Wheel

_PATCHES = 60
"""More patch releases than a Python has had."""


def check_tags(wheel: Wheel, cell: Cell) -> None:
    """Raise :class:`~builder.errors.CellError` if the file's tags rule out the cell."""
    if wheel_name(wheel.file) is None:
        raise CellError(f"{wheel.file} is no name of a wheel")
    if rank(wheel.file, _tags(cell.python, cell.platform)) is None:
        raise CellError(
            f"{wheel.file} does not run on Python {cell.python} on {cell.platform}",
            hint=f"lock the cell {cell.id} again",
        )


@functools.cache
def _tags(python: str, platform: str) -> Mapping[Tag, int]:
    """Of any glibc: its age is the lock's business, which knows the base."""
    return Target(python=python, platform=platform, glibc="2.99").tags()


def check_python(name: str, requires: str | None, cell: Cell) -> None:
    """Raise :class:`~builder.errors.CellError` if ``Requires-Python`` allows no patch release of it."""
    if not requires:
        return
    try:
        allowed = SpecifierSet(requires)
        fits = any(allowed.contains(f"{cell.python}.{patch}") for patch in range(_PATCHES))
    except ValueError:
        return  # pip ignores what it cannot read
    if not fits:
        raise CellError(
            f"{name} asks for Python {requires}, the cell has {cell.python}",
            hint=f"lock the cell {cell.id} again",
        )
