"""Each form of `rtbuild export`, installed by its own tool, and the probe beside the image of the cell.

The image's row of ``matrices/built.json`` is the measure: the same frameworks, the same cuDNN loaded, the
same verdict. 1 to 3 GB each, one after the other, each removed before the next. conda's channels are out of
reach of many machines, so its form is read by conda-lock, and its packages are installed with the command
that conda runs for them: https://github.com/conda/conda/blob/main/conda/env/installers/pip.py
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from doubles.python_mirror import installed as machine_pythons
from packaging.utils import canonicalize_name
from pages.built import cudnn, imported, read
from rtbuild_command import RTBUILD
from sound_installs import probed
from uv import find_uv_bin

from builder.plan.lock import pinned_cell, read_lock, requirements
from builder.plan.matrix import load

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from builder.core.model import Pinned

MATRICES = Path(__file__).resolve().parents[2] / "matrices"
CELLS = {
    "tensorflow2.7.4-py3.9-bullseye-cudnn8.6.0.163": "tf2",
    "torch1.13.1-py3.9-bullseye-cudawheels": "torch",
    "jax0.4.30-py3.11-bookworm-cudawheels": "jax",
    "onnxruntime-gpu1.23.2-py3.13-trixie-cudawheels": "onnxruntime",
}
"""CUDA 11 whose cuDNN the framework looks for by name only; NVIDIA's wheels pinned by the framework, all in
one folder; three generations of cuDNN 9; and a plug-in that is loaded late."""
CONDA_LOCK = """
import sys
from pathlib import Path
from conda_lock.src_parser.environment_yaml import parse_environment_file
found = parse_environment_file(Path("environment.yml"), ["linux-64"], Path("names.yml").absolute().as_uri())
for one in found.dependencies["linux-64"]:
    print(one.manager, one.name, one.version)
"""


class NotShownError(Exception):
    """The tool of this machine cannot do it; says which and why."""


@dataclass(frozen=True)
class Place:
    """An empty folder, in which one export is installed into ``venv``."""

    folder: Path
    python: Path
    """The interpreter of the cell's version."""
    pinned: Pinned

    def run(self, *words: str | Path) -> str:
        ours = ("LD_LIBRARY_PATH", "VIRTUAL_ENV", "PYTHONPATH")
        environment = {name: value for name, value in os.environ.items() if name not in ours}
        environment |= {"UV_PROJECT_ENVIRONMENT": "venv", "PIP_NO_INPUT": "1"}
        done = subprocess.run(
            [str(word) for word in words],
            cwd=self.folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=3600,
            check=False,
        )
        assert done.returncode == 0, f"{' '.join(map(str, words))}\n{done.stderr[-3000:]}"
        return done.stdout

    def uv(self, *words: str | Path) -> str:
        return self.run(find_uv_bin(), "--quiet", *words)

    def export(self, form: str, name: str) -> Path:
        cell, path = self.pinned.cell, self.folder / name
        matrix = MATRICES / f"{cell.matrix}.yaml"
        self.run(*RTBUILD, "export", cell.id, matrix, "--format", form, "--output", path)
        return path

    def newest_pip(self) -> dict[str, str]:
        """An environment as ``python -m venv`` makes it, with the newest pip; what is in it."""
        self.run(self.python, "-m", "venv", "venv")
        self.pip("install", "--no-compile", "--upgrade", "pip")
        return self.installed()

    def pip(self, *words: str | Path) -> str:
        return self.run("venv/bin/python", "-m", "pip", "--no-cache-dir", *words)

    def installed(self) -> dict[str, str]:
        rows = json.loads(self.uv("pip", "list", "--format", "json", "--python", "venv"))
        return {canonicalize_name(row["name"]): row["version"] for row in rows}


def _pylock_by_uv(place: Place) -> None:
    place.uv("venv", "--python", place.python, "venv")
    place.uv("pip", "sync", "--python", "venv", place.export("pylock", "pylock.toml"))


def _pylock_by_pip(place: Place) -> None:
    path = place.export("pylock", "pylock.toml")
    pip = place.newest_pip()["pip"]
    if "pylock" not in place.pip("install", "--help"):
        raise NotShownError(
            f"pip {pip}, the newest for Python {place.pinned.cell.python}, reads no pylock.toml"
        )
    place.pip("install", "--no-compile", "-r", path)


def _requirements(place: Place) -> None:
    place.newest_pip()
    path = place.export("requirements", "requirements.txt")
    place.pip("install", "--no-compile", "--no-deps", "--require-hashes", "-r", path)


def _constraints(place: Place) -> None:
    place.newest_pip()
    path = place.export("constraints", "constraints.txt")
    place.pip("install", "--no-compile", "-c", path, *requirements(place.pinned.cell))


def _uv_project(place: Place) -> None:
    """Another locking, another sync, and a run move nothing."""
    place.export("uv", "pyproject.toml")
    place.uv("sync", "--python", place.python)
    lock, packages = (place.folder / "uv.lock").read_bytes(), place.installed()
    place.uv("run", "python", "-c", "pass")
    assert ((place.folder / "uv.lock").read_bytes(), place.installed()) == (lock, packages)


def _conda(place: Place) -> None:
    path = place.export("conda", "environment.yml")
    cell = place.pinned.cell
    (place.folder / "names.yml").write_text("{}\n")
    parsed = place.uv("run", "--no-project", "--with", "conda-lock", "python", "-c", CONDA_LOCK)
    rows = [line.split(" ", 2) for line in parsed.splitlines()]
    assert ["conda", "python", f"{cell.named_python}.*"] in rows
    pips = {
        canonicalize_name(name): version.lstrip("=") for manager, name, version in rows if manager == "pip"
    }
    assert pips == _locked(place.pinned)
    place.newest_pip()
    *_, packages = yaml.safe_load(path.read_text())["dependencies"]
    (place.folder / "condaenv.requirements.txt").write_text("\n".join(packages["pip"]))
    place.pip("install", "--no-compile", "-U", "-r", "condaenv.requirements.txt", "--exists-action=b")


WAYS: dict[str, Callable[[Place], None]] = {
    "pylock, uv pip sync": _pylock_by_uv,
    "pylock, pip": _pylock_by_pip,
    "requirements, pip": _requirements,
    "constraints, pip": _constraints,
    "uv, uv sync and run": _uv_project,
    "conda, conda-lock and pip": _conda,
}


def _locked(pinned: Pinned) -> dict[str, str]:
    return {canonicalize_name(wheel.name): wheel.version for wheel in pinned.wheels}


def _said(report: dict[str, Any]) -> tuple[Any, ...]:
    return report["verdict"], report["cause"], imported(report), cudnn(report)


def _loaders_part(folder: Path) -> dict[str, str]:
    """What docs/export.md says to add, as the image has it: the link for cuDNN 8, and the loader's paths."""
    folders = sorted(folder.glob("venv/lib/python*/site-packages/nvidia/*/lib"))
    for library in [one for path in folders for one in path.glob("libnvrtc.so.*")]:
        library.with_name("libnvrtc.so").symlink_to(library.name)
    return {"LD_LIBRARY_PATH": os.pathsep.join(map(str, folders))}


@pytest.fixture(scope="module")
def table() -> Iterator[dict[tuple[str, str], str]]:
    """What came of each way for each cell, printed at the end."""
    rows: dict[tuple[str, str], str] = {}
    yield rows
    print("", *(f"| {cell} | {way} | {said} |" for (cell, way), said in rows.items()), sep="\n")


def _python(version: str) -> Path:
    here = machine_pythons().get(version)
    if here is not None:
        return here / "bin/python"
    found = subprocess.run(
        [find_uv_bin(), "python", "find", version], capture_output=True, text=True, check=True
    )
    return Path(found.stdout.strip())


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", CELLS)
def test_the_probe_says_the_same_as_in_the_image(
    name: str, way: str, tmp_path: Path, table: dict[tuple[str, str], str]
) -> None:
    matrix = load(MATRICES / f"{CELLS[name]}.yaml")
    cell = next(cell for cell in matrix.cells if cell.id == name)
    pinned = pinned_cell(cell, read_lock(MATRICES / f"{CELLS[name]}.lock.json"))
    assert pinned is not None
    image = next(row for row in read((MATRICES / "built.json").read_text()) if row.cell == name)
    place = Place(tmp_path, _python(cell.python), pinned)
    wanted = (image.verdict, None, image.frameworks, image.cudnn)
    table[name, way], start = "failed", time.monotonic()
    try:
        WAYS[way](place)
        packages, report = place.installed(), probed(tmp_path, {})
        said, steps = _said(report), ""
        if said != wanted:
            steps = f"as it is {said[0]}, {said[1]}; with the loader's part, "
            said = _said(probed(tmp_path, _loaders_part(tmp_path)))
    except NotShownError as why:
        table[name, way] = f"not shown: {why}"
        pytest.skip(str(why))
    finally:
        shutil.rmtree(tmp_path)
    # python -m venv brings its own setuptools, up to Python 3.11
    beside = {} if "setuptools" in _locked(pinned) else {"setuptools": packages.get("setuptools")}
    words = f"{said[0]}, {said[1] or 'no cause'}, {', '.join(said[2])}, cuDNN {'; '.join(said[3])}"
    table[name, way] = f"{len(packages)} packages, {time.monotonic() - start:.0f} s: {steps}{words}"
    print(f"\n{name}, {way}: {table[name, way]}", flush=True)
    assert {**packages, **_locked(pinned)} == packages
    assert packages.keys() - _locked(pinned).keys() <= beside.keys()
    assert said == wanted
