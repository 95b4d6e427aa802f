"""Packages that are compiled from sources: where that can be, in which system, and what it asks of the image.

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

COMPILER = ("build-essential", "python3-dev")
"""What every build of compiled code has; no image does."""


def refuse_place(cell: Cell, here: str) -> None:
    """Raise CellError where what is compiled here, on a ``here``, would not run in the cell's image."""
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


def system(base: Base, needs: Sequence[str], *, platform: str, debian: Debian) -> RootfsBase:
    """What one package is compiled in: the release's compiler, and the packages that its build names.

    Each package has a system of its own and not one for all: what a build finds it links with, and so
    would the packages of one build decide what another comes out as.
    """
    suite = base.name.rpartition("/")[2]
    return debian.resolve(suite, platform=platform, packages=sorted({*COMPILER, *needs}))


def refuse_missing(wheels: Iterable[Wheel], base: RootfsBase) -> None:
    """Raise CellError where the image would lack libraries that the wheels load, naming them all at once."""
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
