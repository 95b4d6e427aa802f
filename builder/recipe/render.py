"""Turns a lock into the text of a build context. Pure: no clock, no network, no disk but rtbuild's files."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from packaging.utils import canonicalize_name

from builder import resources
from builder.digests import digest_of
from builder.errors import CellError
from builder.model import Pinned, RegistryBase, RootfsBase, StandalonePython, Wheel
from builder.recipe.expect import expectation
from builder.recipe.quote import python_version
from builder.recipe.steps import LAYERS, settings_of, steps_of, title
from builder.recipe.template import fill
from builder.recipe.values import Recipe, RecipeFile

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOTFS = "rootfs.tar"
PYTHON = "python.tar"
_PYTHON_FOLDER = "/opt/python/bin"
"""Of a standalone Python: see :mod:`builder.image.pythontar`."""
_BUILT = "built"
"""The folder of wheels that no index has."""
_UNKNOWN = "sha256:" + "0" * 64
_SLIM = Path(__file__).with_name("slim.py")
_WITHOUT_DISTUTILS = 12
"""Python 3.12: https://peps.python.org/pep-0632/"""


def render(pinned: Pinned, *, probe: bytes, version: str) -> Recipe:
    """The build context of ``pinned``. ``probe`` is ``cudnn-verify``; ``version`` is rtbuild's own.

    The recipe's ``inputs`` stands in the Dockerfile as a label, so it is taken over the files as they are
    with zeros in that place.

    Raises:
        CellError: a value cannot stand in a Dockerfile, or the lock lacks what a recipe needs.
    """
    pip = _pip(pinned)
    blobs: dict[str, RootfsBase | StandalonePython | Wheel] = {pip.file: pip}
    blobs |= {f"{_BUILT}/{wheel.file}": wheel for wheel in pinned.wheels if wheel.source is not None}
    if isinstance(pinned.base, RootfsBase):
        blobs[ROOTFS] = pinned.base
    if pinned.python is not None:
        blobs[PYTHON] = pinned.python
    values = _values(pinned, pip, version=version)
    files = _files(pinned, values, probe=probe)
    inputs = digest_of(
        {
            "lock": pinned.inputs,
            "files": {
                name: [hashlib.sha256(file.content).hexdigest(), file.mode] for name, file in files.items()
            },
        }
    )
    values["settings"] = tuple(settings_of(pinned, version=version, inputs=inputs))
    return Recipe(
        cell=pinned.cell,
        pinned=pinned,
        files=files | {"Dockerfile": _text("Dockerfile.j2", values)},
        blobs=blobs,
        inputs=inputs,
        steps=tuple(values["steps"].values()),
        added=values["added"],
        settings=values["settings"],
    )


def _pip(pinned: Pinned) -> Wheel:
    for wheel in pinned.wheels:
        if canonicalize_name(wheel.name) == "pip":
            return wheel
    raise CellError(
        f"{pinned.cell.id}: the lock holds no pip, which installs the other wheels",
        hint="lock the matrix again with this rtbuild: `rtbuild lock`",
    )


def _values(pinned: Pinned, pip: Wheel, *, version: str) -> dict[str, Any]:
    """What the templates are given."""
    cell, base = pinned.cell, pinned.base
    values = {
        "base": base,
        "built": any(wheel.source is not None for wheel in pinned.wheels),
        "cell": cell,
        "colab": cell.profile == "colab",
        "cudnn8": any(
            canonicalize_name(wheel.name).startswith("nvidia-cudnn-") and wheel.version.startswith("8.")
            for wheel in pinned.wheels
        ),
        "epoch": pinned.epoch,
        "installs": pinned.installs,
        "needs_distutils": int(python_version(cell.python).partition(".")[2]) < _WITHOUT_DISTUTILS,
        "nvidia_wheels": cell.cuda.provider == "wheels",
        "pip": pip.file,
        "python_folder": "/usr/bin" if pinned.python is None else _PYTHON_FOLDER,
        "registry": isinstance(base, RegistryBase),
        "slim": cell.options.slim,
        "standalone": pinned.python,
        "title": title(pinned),
        "version": version,
        "wheels": sorted(pinned.wheels, key=lambda wheel: (canonicalize_name(wheel.name), wheel.version)),
    }
    steps = steps_of(pinned, values)
    made = {folder for step in steps for folder in step.makes}
    return {
        **values,
        "steps": {step.name: step for step in steps},
        "added": tuple(folder for folder in LAYERS if folder in made),
        "settings": tuple(settings_of(pinned, version=version, inputs=_UNKNOWN)),
    }


def _files(pinned: Pinned, values: Mapping[str, Any], *, probe: bytes) -> dict[str, RecipeFile]:
    cell = pinned.cell
    return {
        ".dockerignore": _text("dockerignore.j2", values),
        "Dockerfile": _text("Dockerfile.j2", values),
        "README.txt": _text("README.txt.j2", values),
        "cudnn-verify": RecipeFile(content=probe, mode=0o755),
        "expect.json": RecipeFile(content=expectation(pinned)),
        "requirements.txt": _text("requirements.txt.j2", values),
        **({"slim.py": RecipeFile(content=_SLIM.read_bytes())} if cell.options.slim else {}),
        **(_runtime_files() if cell.profile == "colab" else {}),
    }


def _text(template: str, values: Mapping[str, Any]) -> RecipeFile:
    return RecipeFile(content=fill(template, values).encode())


def _runtime_files() -> dict[str, RecipeFile]:
    """The files ``runtime/…`` of images of the profile ``colab``, by name."""
    root = resources.runtime()
    return {
        f"runtime/{path.relative_to(root).as_posix()}": RecipeFile(content=path.read_bytes())
        for path in sorted(root.rglob("*.py"))
    }
