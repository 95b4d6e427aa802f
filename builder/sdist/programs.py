"""Programs of the wheels that a build requires, where the build finds them: meson, ninja, cython."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from builder.layers.scripts import EntryPointError, entry_points, scripts

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from builder.layers.archive import Archive

FOLDER = ".bin"
"""Below the folder of the wheels; no module has such a name."""
_POINTS = re.compile(r"[^/]+\.dist-info/entry_points\.txt")
_SCRIPT = re.compile(r"[^/]+\.data/scripts/(?P<name>[^/]+)")


def lay(archive: Archive, folder: Path, *, program: str, python: str) -> None:
    """Put the programs of a wheel into ``folder``, for the ``program`` of the build's Python."""
    folder.mkdir(exist_ok=True)
    for name, content in _programs(archive, program, python):
        (folder / name).write_bytes(content)
        (folder / name).chmod(0o755)


def _programs(archive: Archive, interpreter: str, python: str) -> Iterator[tuple[str, bytes]]:
    for member in archive.members:
        if _POINTS.fullmatch(member):
            try:
                points = entry_points(archive.read(member).decode())
                yield from scripts(points, interpreter=interpreter, python=python, style="endswith")
            except (EntryPointError, UnicodeDecodeError):
                continue  # a build that needs it fails by itself, and says of what
        elif script := _SCRIPT.fullmatch(member):
            content = archive.read(member)
            # https://packaging.python.org/en/latest/specifications/binary-distribution-format/
            if content.startswith(b"#!python"):
                content = f"#!{interpreter}\n".encode() + content.partition(b"\n")[2]
            yield script["name"], content
