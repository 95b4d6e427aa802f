"""The packages that apt brought into an image: recorded, and compared with the time before.

On a registry's base the versions are what the distribution's archives hold on the day of the build; no lock
fixes them. The build leaves a list in the image; this reads it there, and names what is another than it was.
"""

import contextlib
import json
from collections.abc import Sequence
from pathlib import Path

from builder.engine.engine import Engine
from builder.errors import CellError
from builder.files import write_whole
from builder.model import Cell, DebianPackage, Image

LIST = "/usr/local/share/rtbuild/apt.txt"
"""A line for each package: name, version, architecture."""
_NAMED = 6
"""Differences that are written out; the files have all of them."""


def read_packages(engine: Engine, image: Image) -> tuple[DebianPackage, ...]:
    """The packages that apt brought in; none if no step had to install any. Raises CellError."""
    content = engine.read_file(image.digest, LIST)
    if content is None:
        return ()
    try:
        rows = (line.split(" ") for line in content.decode().splitlines())
        found = [DebianPackage(name=row[0], version=row[1], architecture=row[2]) for row in rows]
        return tuple(sorted(found))
    except (ValueError, IndexError) as problem:
        raise CellError(f"{image.reference}: {LIST} is not as rtbuild wrote it: {problem}") from problem


def remember(folder: Path, cell: Cell, image: Image, packages: Sequence[DebianPackage]) -> str | None:
    """Keep ``packages`` below ``folder`` for the next time; what drifted since the last, in one line.

    Raises OSError if the folder cannot be written.
    """
    path = folder / cell.matrix / f"{cell.id}.json"
    before = None
    # None, or of another rtbuild, or cut short: nothing is known of the time before
    with contextlib.suppress(FileNotFoundError, ValueError, TypeError, LookupError):
        before = [DebianPackage(**entry) for entry in json.loads(path.read_bytes())["packages"]]
    rows = [vars(package) for package in packages]
    document = {"schema": 1, "cell": cell.id, "digest": image.digest, "packages": rows}
    write_whole(path, (json.dumps(document, indent=2) + "\n").encode())
    return drift(before, packages) if before is not None else None


def drift(before: Sequence[DebianPackage], now: Sequence[DebianPackage]) -> str | None:
    """``libssl3 3.0.14-1 is now 3.0.15-1``: all that differs, in one line; None if nothing does."""
    old, new = ({(one.name, one.architecture): one.version for one in packages} for packages in (before, now))
    parts = []
    for key in sorted(old.keys() | new.keys()):
        if key not in new:
            parts.append(f"{key[0]} {old[key]} is gone")
        elif key not in old:
            parts.append(f"{key[0]} {new[key]} is new")
        elif old[key] != new[key]:
            parts.append(f"{key[0]} {old[key]} is now {new[key]}")
    if len(parts) > _NAMED:
        parts[_NAMED:] = [f"and {len(parts) - _NAMED} more"]
    return "the distribution's packages drifted: " + ", ".join(parts) if parts else None
