"""What a cell's image gets above the wheels: steps that make small files, and the image's settings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from builder.model import RegistryBase
from builder.recipe.template import fill
from builder.recipe.values import RecipeSetting, RecipeStep

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from builder.model import Pinned

_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""Docker's defaults for an image without these settings: https://docs.docker.com/engine/containers/run/"""

_GPU_VARIABLES = {"NVIDIA_VISIBLE_DEVICES": "all", "NVIDIA_DRIVER_CAPABILITIES": "compute,utility"}
"""Asks NVIDIA's container runtime for the driver, as NVIDIA's own images do:
https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/docker-specialized.html"""

_EXPECT = "/usr/local/share/rtbuild/expect.json"
_PYTHON = ("/opt/runtime/bin/python", "-I", "-m")
LAYERS = ("interpreter", "bytecode", "environment", "probe", "profile", "writable")
"""All that steps may make, in the order of an image's layers."""


def steps_of(pinned: Pinned, values: Mapping[str, Any]) -> tuple[RecipeStep, ...]:
    """The steps in the order in which they run; ``values`` are those of the templates."""
    nvidia = pinned.cell.cuda.provider == "wheels"
    steps = [
        *([_step("interpreter", values)] if pinned.python is not None else []),
        _step("environment", values, reads="libraries" if nvidia else "nothing"),
        _step("bytecode", values, reads="sources"),
        _step(
            "probe",
            values,
            files=(("cudnn-verify", "/mnt/cudnn-verify"), ("expect.json", "/mnt/expect.json")),
        ),
    ]
    if pinned.cell.profile == "colab":
        steps.append(
            _step(
                "profile",
                values,
                makes=("profile", "writable"),
                files=(("runtime", "/mnt/runtime"),),
                needs=("bytecode", "environment"),
                reads="libraries",
            )
        )
    return tuple(steps)


def _step(name: str, values: Mapping[str, Any], *, makes: tuple[str, ...] = (), **given: Any) -> RecipeStep:
    return RecipeStep(name=name, script=fill(f"{name}.sh.j2", values), makes=makes or (name,), **given)


def settings_of(pinned: Pinned, *, version: str, inputs: str) -> Iterator[RecipeSetting]:
    """The image's config, in the order in which a Dockerfile says it."""
    for name, text in _env(pinned):
        yield RecipeSetting(kind="ENV", name=name, value=text)
    if pinned.cell.profile == "colab":
        yield RecipeSetting(kind="USER", value="1000:1000")
        yield RecipeSetting(
            kind="HEALTHCHECK",
            value=(*_PYTHON, "rtbuild_runtime.health"),
            durations=(("interval", 30), ("timeout", 10), ("start-period", 60)),
        )
        yield RecipeSetting(kind="ENTRYPOINT", value=("/usr/bin/tini", "-s", "--"))
        yield RecipeSetting(kind="CMD", value=(*_PYTHON, "rtbuild_runtime"))
    elif not isinstance(pinned.base, RegistryBase):
        yield RecipeSetting(kind="CMD", value=("bash",))
    for name, text in _labels(pinned, version=version, inputs=inputs):
        yield RecipeSetting(kind="LABEL", name=name, value=text)


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
    yield "org.opencontainers.image.title", title(pinned)
    yield "org.opencontainers.image.version", cell.id
    yield "io.rtbuild.cell", cell.id
    yield "io.rtbuild.matrix", cell.matrix
    if cell.profile != "plain":
        yield "io.rtbuild.profile", cell.profile
    yield "io.rtbuild.version", version
    yield "io.rtbuild.inputs", inputs


def title(pinned: Pinned) -> str:
    """What an image is called for people: frameworks, Python and base."""
    cell = pinned.cell
    parts = [text.replace("==", " ") for text in cell.frameworks]
    version = cell.python if pinned.python is None else pinned.python.version
    return ", ".join([*parts, f"Python {version}", str(cell.base)])
