"""Turns a lock into the text of a build context. Pure: no clock, no network, no disk but rtbuild's files."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from packaging.utils import canonicalize_name

from builder.digests import digest_of
from builder.errors import CellError
from builder.model import Pinned, Recipe, RecipeFile, RegistryBase, RootfsBase, Wheel
from builder.recipe.expect import expectation
from builder.recipe.quote import python_version
from builder.recipe.runtime import runtime_files
from builder.recipe.template import fill

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

ROOTFS = "rootfs.tar"
_BUILT = "built"
"""The folder of wheels that no index has."""
_EXPECT = "/usr/local/share/rtbuild/expect.json"
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""What Docker sets where an image says nothing: https://docs.docker.com/engine/containers/run/"""

_GPU_VARIABLES = {"NVIDIA_VISIBLE_DEVICES": "all", "NVIDIA_DRIVER_CAPABILITIES": "compute,utility"}
"""Asks NVIDIA's container runtime for the driver, as NVIDIA's own images do:
https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/docker-specialized.html"""

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
    blobs: dict[str, RootfsBase | Wheel] = {pip.file: pip}
    blobs |= {f"{_BUILT}/{wheel.file}": wheel for wheel in pinned.wheels if wheel.source is not None}
    if isinstance(pinned.base, RootfsBase):
        blobs[ROOTFS] = pinned.base
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
    labels = tuple(_labels(pinned, version=version, inputs=inputs))
    return Recipe(
        cell=pinned.cell,
        pinned=pinned,
        files=files | {"Dockerfile": _text("Dockerfile.j2", values | {"labels": labels})},
        blobs=blobs,
        inputs=inputs,
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
    return {
        "base": base,
        "built": any(wheel.source is not None for wheel in pinned.wheels),
        "cell": cell,
        "colab": cell.profile == "colab",
        "cudnn8": any(
            canonicalize_name(wheel.name).startswith("nvidia-cudnn-") and wheel.version.startswith("8.")
            for wheel in pinned.wheels
        ),
        "env": tuple(_env(pinned)),
        "epoch": pinned.epoch,
        "labels": tuple(_labels(pinned, version=version, inputs=_UNKNOWN)),
        "needs_distutils": int(python_version(cell.python).partition(".")[2]) < _WITHOUT_DISTUTILS,
        "nvidia_wheels": cell.cuda.provider == "wheels",
        "pip": pip.file,
        "registry": isinstance(base, RegistryBase),
        "slim": cell.options.slim,
        "title": _title(pinned),
        "version": version,
        "wheels": sorted(pinned.wheels, key=lambda wheel: (canonicalize_name(wheel.name), wheel.version)),
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
        **(runtime_files() if cell.profile == "colab" else {}),
    }


def _text(template: str, values: Mapping[str, Any]) -> RecipeFile:
    return RecipeFile(content=fill(template, values).encode())


def _env(pinned: Pinned) -> Iterator[tuple[str, str]]:
    cell, base = pinned.cell, pinned.base
    there: Mapping[str, str] = dict(base.env) if isinstance(base, RegistryBase) else {}
    yield "PATH", f"/opt/runtime/bin:{there.get('PATH') or _PATH}"
    yield "CUDNN_VERIFY_EXPECT", _EXPECT
    if cell.cuda.provider == "wheels":
        chosen = dict(cell.env)
        for name, text in _GPU_VARIABLES.items():
            if name not in there and name not in chosen:
                yield name, text
    if cell.profile == "colab" and "HOME" not in dict(cell.env):
        yield "HOME", "/home/colab"  # also for a user of `--user` who is not in /etc/passwd
    yield from cell.env


def _labels(pinned: Pinned, *, version: str, inputs: str) -> Iterator[tuple[str, str]]:
    """https://github.com/opencontainers/image-spec/blob/main/annotations.md and rtbuild's own."""
    cell, base = pinned.cell, pinned.base
    if isinstance(base, RegistryBase):
        yield "org.opencontainers.image.base.digest", base.digest
        yield "org.opencontainers.image.base.name", base.reference
    yield "org.opencontainers.image.title", _title(pinned)
    yield "org.opencontainers.image.version", cell.id
    yield "io.rtbuild.cell", cell.id
    yield "io.rtbuild.matrix", cell.matrix
    if cell.profile != "plain":
        yield "io.rtbuild.profile", cell.profile
    yield "io.rtbuild.version", version
    yield "io.rtbuild.inputs", inputs


def _title(pinned: Pinned) -> str:
    cell = pinned.cell
    parts = [text.replace("==", " ") for text in cell.frameworks]
    return ", ".join([*parts, f"Python {cell.python}", str(cell.base)])
