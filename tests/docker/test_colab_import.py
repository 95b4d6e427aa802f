"""A runtime's lists to a matrix, an image and its parity: real packages, a real engine, the real commands.

The list is an excerpt of Colab's 2025.07 (https://github.com/googlecolab/backend-info, Apache-2.0), small
enough to be quick: JAX without its large library, one package without a wheel, one of Google's own and a line
that pip cannot read.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import docker
import pytest
from rtbuild_command import rtbuild

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.docker, pytest.mark.long]

FREEZE = """\
google-colab @ file:///colabtools/dist/google_colab-1.0.0.tar.gz
gym==0.25.2
jax==0.5.2
lightgbm 4.5.0
opt_einsum==3.4.0
pip==24.1.2
zipp==3.23.0
six==1.17.0
"""
CELL = "jax0.5.2-py3.11-bookworm-cpu"


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("project")
    (folder / "lists").mkdir()
    (folder / "lists/pip-freeze.txt").write_text(FREEZE)
    (folder / "lists/os-info.txt").write_text(
        "Ubuntu 22.04.4 LTS\nPython 3.11.2\n"
    )  # bookworm's own: no standalone one is fetched
    yield folder
    client = docker.from_env()
    for image in client.images.list("rtbuild/colab-excerpt"):
        client.images.remove(image.id, force=True)
    client.close()


@pytest.fixture(scope="module")
def imported(project: Path) -> subprocess.CompletedProcess[str]:
    arguments = ("lists", "--name", "excerpt", "--profile", "plain", "--json", "--progress", "plain")
    return rtbuild(project, "colab", "import", *arguments, check=1)  # one line could not be read


@pytest.fixture(scope="module")
def parity(project: Path, imported: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    del imported
    rtbuild(project, "build", "matrices/colab-excerpt.yaml", "-s", CELL, "--locked", "--no-verify")
    image = f"rtbuild/colab-excerpt:{CELL}"
    found: dict[str, Any] = json.loads(
        rtbuild(project, "colab", "diff", image, "--against", "excerpt", "--json").stdout
    )
    table = rtbuild(project, "colab", "diff", image, "--against", "excerpt", "--check", check=1).stdout
    return found | {"table": table}


def test_what_is_not_to_be_had_is_named(imported: subprocess.CompletedProcess[str]) -> None:
    document = json.loads(imported.stdout)
    assert {row["name"]: row["reason"] for row in document["missing"]} == {
        "google-colab": "own",
        "gym": "source-only",
    }
    assert document["locked"][CELL] == "done"
    assert "pip-freeze.txt:4: error: neither 'name==version' nor" in imported.stderr
    assert "5 of 7 packages (71.4 %) at Colab's version" in imported.stderr


def test_the_image_holds_the_list_and_nothing_else(parity: dict[str, Any]) -> None:
    assert {row["name"]: row["status"] for row in parity["core"]} == {"Python": "same", "jax": "same"}
    assert parity["exact"] is True
    assert parity["counts"] == {"same": 4, "other": 0, "missing": 2, "unasked": 0, "extra": 0}
    assert {row["name"]: row["why"] for row in parity["packages"]} == {
        "google-colab": "Google's own package, published nowhere",
        "gym": "the index has only the sources of 0.25.2, no wheel",
    }
    assert parity["probe"]["verdict"] == "broken"
    assert "jaxlib" in parity["probe"]["summary"]


def test_the_table_has_the_figures_and_the_reasons(parity: dict[str, Any]) -> None:
    assert "6 other packages: present 66.7 % (goal 99 %), same version 66.7 % (goal 97 %)" in parity["table"]
    assert "only the sources of 0.25.2" in parity["table"]
    assert "cudnn-verify: broken" in parity["table"]
