"""Images of ten repositories of ``repositories.toml``, and in each what the sources import.

Each is resolved as it stands, built without a GPU and removed before the next: 1 to 8 GB of disk at a time.
What fails shows a set that installs and cannot be used.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from rtbuild_command import rtbuild
from test_repositories import COLLECTION, SECONDS

pytestmark = [pytest.mark.docker, pytest.mark.long]

BUILT = [one for one in COLLECTION if "imports" in one]
BUILD_SECONDS = 3600
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


@pytest.mark.parametrize("repository", BUILT, ids=lambda one: one["name"])
def test_an_image_imports_what_the_sources_import(repository: dict[str, str], tmp_path: Path) -> None:
    file, names = Path(repository["path"]).name, list(repository["imports"])
    (tmp_path / file).write_text(repository["requirements"])
    words = ("resolve", "-r", file, "--nearest", "--limit", "1", "--json")
    document = json.loads(rtbuild(tmp_path, *words, timeout=SECONDS).stdout)
    if not document["proposals"][0]["resolved"]:
        pytest.skip(document["proposals"][0]["reason"])
    (tmp_path / "resolved.yaml").write_text(document["matrix"])
    image = rtbuild(tmp_path, "list", "resolved.yaml", "--format", "image").stdout.strip()
    try:
        rtbuild(tmp_path, "build", "resolved.yaml", "--no-verify", "--quiet", timeout=BUILD_SECONDS)
        failed = imported(image, names)
    finally:
        subprocess.run(["docker", "image", "rm", "--force", image], capture_output=True, check=False)
    print(
        f"\n{repository['year']} {repository['name']}: {len(names) - len(failed)} of {len(names)} import",
        *failed,
        sep="\n",
        flush=True,
    )
    assert failed == []


def test_ten_are_built() -> None:
    assert len(BUILT) == 10
