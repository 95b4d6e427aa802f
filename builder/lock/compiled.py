"""Packages that are compiled from sources: on which machine, in which system, with which needs in the image.

A compiled file loads the libraries that it was linked with, in the versions of their names that it found
there. So it is made of the packages of the very Debian release that the image stands on, and no other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from builder.errors import CellError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from builder.debian.archive import Debian
    from builder.model import Base, Cell, RootfsBase, Wheel

COMPILER = ("build-essential",)
"""What every build of compiled code has, and no image. Python's headers are ``python3-dev``, or come with a
standalone Python."""


def refuse_place(cell: Cell, here: str) -> None:
    """Raise CellError if code compiled on this machine, a ``here``, would not run in the cell's image."""
    names = ", ".join(name for name, _ in cell.compiled)
    if cell.base.kind != "rootfs":
        raise CellError(
            f"{names} is compiled with a Debian release's own libraries, and {cell.base} stands on others",
            hint="put the cell on rootfs:debian/<suite>, or name an index that has wheels (`index:`)",
        )
    if cell.platform != here:
        raise CellError(
            f"{names} is compiled, for {here} on this machine, and the cell is for {cell.platform}",
            hint=f"lock and build it on a machine of {cell.platform}, or name an index that has wheels",
        )


def system(
    base: Base, needs: Sequence[str], *, platform: str, debian: Debian, python: bool = True
) -> RootfsBase:
    """The system in which one package is compiled: the compiler, and the packages that its build names; the
    release's own Python unless ``python`` is false.

    Each package has a system of its own: a build links with every library that it finds, so the packages of
    one build would change the result of another.
    """
    suite = base.name.rpartition("/")[2]
    headers = ("python3-dev",) if python else ()
    packages = sorted({*COMPILER, *headers, *needs})
    return debian.resolve(suite, platform=platform, packages=packages, python=python)


def refuse_missing(wheels: Iterable[Wheel], base: RootfsBase) -> None:
    """Raise CellError, naming all of them, if the image would lack libraries that the wheels load."""
    there = {deb.package for deb in base.debs}
    missing: dict[str, list[str]] = {}
    for wheel in wheels:
        compiled = wheel.source.compiled if wheel.source is not None else None
        for package in compiled.libraries if compiled is not None else ():
            if package not in there:
                missing.setdefault(package, []).append(wheel.name)
    if missing:
        listed = "; ".join(f"{package}, by {', '.join(names)}" for package, names in sorted(missing.items()))
        raise CellError(
            f"libraries are loaded of Debian packages that the image would not have: {listed}",
            hint=f"add {', '.join(sorted(missing))} to 'apt'",
        )
