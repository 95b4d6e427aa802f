"""Whether a wheel fits a cell, by its file name and its ``Requires-Python``.

The lock chose wheels that fit; this is for a lock that was edited, or made for another cell.
"""

from __future__ import annotations

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.tags import compatible_tags, cpython_tags
from packaging.utils import InvalidWheelFilename, parse_wheel_filename

from builder.errors import CellError
from builder.model import Cell, Wheel

_ARCHITECTURES = {"amd64": "x86_64", "arm64": "aarch64"}
_PATCHES = 60
"""More patch releases than a Python has had."""


def check_tags(wheel: Wheel, cell: Cell) -> None:
    """Raise :class:`~builder.errors.CellError` if the file's tags rule out the cell."""
    try:
        tags = parse_wheel_filename(wheel.file)[3]
    except InvalidWheelFilename as problem:
        raise CellError(f"{wheel.file} is no name of a wheel: {problem}") from problem
    version = tuple(int(part) for part in cell.python.split("."))
    # The C library's age is the lock's business, which knows the base: any of this architecture will do here.
    supported = {
        (tag.interpreter, tag.abi)
        for tag in (*cpython_tags(version, platforms=["any"]), *compatible_tags(version, platforms=["any"]))
    }
    if not any((tag.interpreter, tag.abi) in supported and _runs_on(tag.platform, cell) for tag in tags):
        raise CellError(
            f"{wheel.file} does not run on Python {cell.python} on {cell.platform}",
            hint=f"lock the cell {cell.id} again",
        )


def check_python(name: str, requires: str | None, cell: Cell) -> None:
    """Raise :class:`~builder.errors.CellError` if ``Requires-Python`` allows no patch release of it."""
    if not requires:
        return
    try:
        allowed = SpecifierSet(requires)
    except InvalidSpecifier:
        return  # pip ignores what it cannot read
    if not any(allowed.contains(f"{cell.python}.{patch}") for patch in range(_PATCHES)):
        raise CellError(
            f"{name} asks for Python {requires}, the cell has {cell.python}",
            hint=f"lock the cell {cell.id} again",
        )


def _runs_on(tag: str, cell: Cell) -> bool:
    operating_system, _, architecture = cell.platform.partition("/")
    machine = _ARCHITECTURES.get(architecture, architecture)
    return tag == "any" or (tag.startswith((operating_system, "manylinux")) and tag.endswith(f"_{machine}"))
