"""Images of eleven repositories of ``repositories.toml``, and in each what the sources import.

Each is resolved as it stands, gets what its sources import under ``imports``, is built without a GPU and
removed before the next: 1 to 8 GB of disk at a time. The probe executes the imports.
Where Docker Hub does not answer, ``ubuntu`` is put together of Ubuntu's packages, what stands on NVIDIA's
images is skipped, and a standalone Python 3.8, which builds pure sources, is this machine's own.
What fails shows a set that installs and cannot be used.
"""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from doubles.python_mirror import installed, machine_pythons
from registry import serve
from rtbuild_command import rtbuild
from test_repositories import COLLECTION, SECONDS
from ubuntu_base import ubuntu

from builder.core import resources
from builder.plan.matrix import load

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = [pytest.mark.docker, pytest.mark.long]

BUILT = [one for one in COLLECTION if "imports" in one]
BUILD_SECONDS = 3600
HUB = "registry-1.docker.io"


@pytest.fixture(scope="module")
def mirrored(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[Callable[[str], tuple[str, ...]], dict[str, str]]]:
    """For a matrix: the options of a build by which its bases are reached; and its environment."""
    try:
        socket.create_connection((HUB, 443), timeout=10).close()
    except OSError:
        folder, made = tmp_path_factory.mktemp("bases"), set[str]()
        cache, own = resources.cache() / "tests", installed().keys() & {"3.8"}
        with serve(folder / "registry") as registry, machine_pythons(*own, cache=cache) as variables:

            def options(matrix: str) -> tuple[str, ...]:
                if "nvidia/cuda:" in matrix:
                    pytest.skip("needs Docker Hub: NVIDIA's image is its base")
                for tag in set(re.findall(r'"ubuntu:([\d.]+)"', matrix)) - made:
                    ubuntu(folder / tag, registry.host, tag)
                    made.add(tag)
                return ("--registry-mirror", f"docker.io={registry.host}")

            yield options, {**os.environ, **(variables if own else {})}
    else:
        yield lambda _matrix: (), dict(os.environ)


def own(matrix: str, names: list[str]) -> str:
    """The matrix with what the sources import in each of its cells: ``a.b.c`` may be a name of ``a.b``."""
    rows = "".join(f'\n      - "{":".join(name.rsplit(".", 1))}"' for name in names)
    return re.sub(r"^    python: .*$", rf"\g<0>\n    imports:{rows}", matrix, flags=re.MULTILINE)


def failing(cell: dict[str, Any]) -> list[str]:
    """A line for each import of the probe's check that fails, or one for a check that did not pass."""
    (check,) = (one for one in cell["verification"]["report"]["checks"] if one["id"] == "F08")
    told = check["evidence"].get("imports", {})
    lines = [f"{statement}: {said}" for statement, said in told.items() if said is not None]
    return lines or [check["summary"]] * (check["outcome"] != "passed")


def size(image: str) -> str:
    form = ("--format", "{{.Size}}")
    done = subprocess.run(["docker", "image", "ls", image, *form], capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.mark.parametrize("repository", BUILT, ids=lambda one: one["name"])
def test_an_image_imports_what_the_sources_import(
    repository: dict[str, Any],
    tmp_path: Path,
    mirrored: tuple[Callable[[str], tuple[str, ...]], dict[str, str]],
) -> None:
    started = time.monotonic()
    file, names = Path(repository["path"]).name, repository["imports"]
    (tmp_path / file).write_text(repository["requirements"])
    words = ("resolve", "-r", file, "--nearest", "--limit", "1", "--json")
    document = json.loads(rtbuild(tmp_path, *words, timeout=SECONDS).stdout)
    if not document["proposals"][0]["resolved"]:
        pytest.skip(document["proposals"][0]["reason"])
    (tmp_path / "resolved.yaml").write_text(own(document["matrix"], names))
    options, env = mirrored[0](document["matrix"]), mirrored[1]
    image = rtbuild(tmp_path, "list", "resolved.yaml", "--format", "image").stdout.strip()
    try:
        build = ("build", "resolved.yaml", "--json", "--progress", "none", *options)
        (cell,) = json.loads(rtbuild(tmp_path, *build, check=None, env=env, timeout=BUILD_SECONDS).stdout)[
            "cells"
        ]
        assert cell["error"] is None, cell["error"]
        failed, bytes_ = failing(cell), size(image)
    finally:
        subprocess.run(["docker", "image", "rm", "--force", image], capture_output=True, check=False)
    print(
        f"\n{repository['year']} {repository['name']}: {len(names) - len(failed)} of {len(names)} import; "
        f"{time.monotonic() - started:.0f} s, {bytes_}, {cell['id']}",
        *failed,
        sep="\n",
        flush=True,
    )
    assert failed == []


def test_eleven_are_built() -> None:
    assert len(BUILT) == 11


@pytest.mark.parametrize("repository", BUILT, ids=lambda one: one["name"])
def test_what_the_sources_import_is_read_as_a_cell_s_key(repository: dict[str, Any], tmp_path: Path) -> None:
    lines = ("framework: torch==2.3.0", 'python: "3.11"', "base: rootfs:debian/bookworm", "cuda: wheels")
    text = "version: 1\nname: a\ninclude:\n  - " + "\n    ".join(lines) + "\n"
    (tmp_path / "a.yaml").write_text(own(text, repository["imports"]))
    (cell,) = load(tmp_path / "a.yaml").cells
    assert [text.replace(":", ".") for text in cell.imports] == repository["imports"]
