"""`rtbuild size` beside what an engine then has, and a budget that is broken."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import docker
import pytest
from rtbuild_command import rtbuild

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.docker

MATRIX = """\
version: 1
name: size-test
defaults: {python: 3.11, base: rootfs:debian/bookworm, cuda: none}
include: [{framework: six==1.17.0}]
"""
CELL = "six1.17.0-py3.11-bookworm-cpu"
BYTECODE = 15_000_000
"""At least what the recipe adds: compiled Python of pip, and the probe."""


def told(folder: Path, *arguments: str, code: int = 0) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(rtbuild(folder, *arguments, "--json", check=code).stdout)
    return document


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("size")
    (folder / "size.yaml").write_text(MATRIX)
    told(folder, "lock", "size.yaml")
    yield folder
    engine = docker.from_env()
    for image in engine.images.list("rtbuild/size-test"):
        engine.images.remove(image.id, force=True)
    engine.close()


def test_what_is_said_is_what_an_engine_has(project: Path) -> None:
    built = told(project, "build", "size.yaml", "--locked", "--no-verify", "--progress", "none")
    (cell,) = built["cells"]
    said = told(project, "size", CELL, "size.yaml")
    assert all(layer["made"] for layer in said["layers"])
    assert said["unpacked"] < cell["image"]["size"] < said["unpacked"] + 2 * BYTECODE
    assert {package["name"] for package in said["packages"]} == {"pip", "six"}
    assert not said["doubled"]


def test_a_broken_budget_fails_the_cell_and_names_what_is_large(project: Path) -> None:
    (project / "size.yaml").write_text(MATRIX + "options: {max-size: 20MB}\n")
    built = told(
        project, "build", "size.yaml", "--locked", "--no-verify", "--no-cache", "--progress", "none", code=1
    )
    (cell,) = built["cells"]
    assert cell["outcome"] == "failed"
    assert "its budget is 0.02 GB; largest are pip" in cell["error"]["message"]
    assert f"rtbuild size {CELL}" in cell["error"]["hint"]
