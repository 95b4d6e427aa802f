"""Source distributions and a system to build them in, made on the spot."""

from __future__ import annotations

import io
import tarfile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

BACKEND = """
import os, time, zipfile

def get_requires_for_build_wheel(settings=None):
    {requires}
    return []

def build_wheel(folder, settings=None, metadata=None):
    {first}
    name = "{file}"
    with zipfile.ZipFile(os.path.join(folder, name), "w") as wheel:
        wheel.writestr("tiny.py", {content})
        about = "Metadata-Version: 2.1\\nName: {name}\\nVersion: {version}\\n{more}"
        wheel.writestr("{info}/METADATA", about)
        wheel.writestr("{info}/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        wheel.writestr("{info}/RECORD", "")
    return name
"""
PYPROJECT = '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'


def backend(
    *,
    first: str = "pass",
    requires: str = "pass",
    content: str = '"x = 1"',
    name: str = "tiny",
    version: str = "1.0",
    tags: str = "py3-none-any",
    more: str = "",
) -> dict[str, str]:
    """The files of a project whose build needs nothing but Python."""
    text = BACKEND.format(
        first=first,
        requires=requires,
        content=content,
        name=name,
        version=version,
        more=more,
        file=f"{name}-{version}-{tags}.whl",
        info=f"{name}-{version}.dist-info",
    )
    return {"backend.py": text, "pyproject.toml": PYPROJECT}


def sdist(path: Path, files: Mapping[str, str], *, others: tuple[tarfile.TarInfo, ...] = ()) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for name, text in files.items():
            entry = tarfile.TarInfo(f"tiny-1.0/{name}")
            entry.size = len(text.encode())
            archive.addfile(entry, io.BytesIO(text.encode()))
        for other in others:
            archive.addfile(other)
    return path
