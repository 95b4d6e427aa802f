"""Images of eleven repositories of ``repositories.toml``, and in each what the sources import.

Each is resolved as it stands, built without a GPU and removed before the next: 1 to 8 GB of disk at a time.
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

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = [pytest.mark.docker, pytest.mark.long]

BUILT = [one for one in COLLECTION if "imports" in one]
BUILD_SECONDS = 3600
HUB = "registry-1.docker.io"
IMPORTS = """
import importlib, sys
for name in sys.argv[1:]:
    parent, _, last = name.rpartition(".")
    try:
        if not (parent and hasattr(importlib.import_module(parent), last)):
            importlib.import_module(name)
    except BaseException as problem:
        print(name, type(problem).__name__, *str(problem).splitlines()[:1], sep=": ")
"""
"""As ``from a.b import c`` or ``import a.b.c``, on any Python 3: one line for each name that fails."""


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


def imported(image: str, names: list[str]) -> list[str]:
    """A line for each name that fails to import in a container of ``image``, and one if the process died."""
    done = subprocess.run(
        ["docker", "run", "--rm", "--network", "none", image, "python", "-c", IMPORTS, *names],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    ended = [] if done.returncode == 0 else [f"exit {done.returncode}: {done.stderr[-1000:]}"]
    return done.stdout.splitlines() + ended


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
    (tmp_path / "resolved.yaml").write_text(document["matrix"])
    options, env = mirrored[0](document["matrix"]), mirrored[1]
    image = rtbuild(tmp_path, "list", "resolved.yaml", "--format", "image").stdout.strip()
    try:
        build = ("build", "resolved.yaml", "--no-verify", "--json", "--progress", "none", *options)
        (cell,) = json.loads(rtbuild(tmp_path, *build, check=None, env=env, timeout=BUILD_SECONDS).stdout)[
            "cells"
        ]
        assert cell["error"] is None, cell["error"]
        failed, bytes_ = imported(image, names), size(image)
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
