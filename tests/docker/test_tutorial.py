"""The tutorial as it is typed, in an empty folder, from the lock to the finished image."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import docker
import pytest
from rtbuild_command import rtbuild

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.docker, pytest.mark.long]

TUTORIAL = (Path(__file__).resolve().parents[2] / "docs/tutorial.md").read_text()
CELL = "tensorflow2.8.4-py3.9-bullseye-cudnn8.6.0.163"
IMAGE = f"rtbuild/tf28:{CELL}"
WRITTEN = {
    "export": "pylock.toml",
    "render": "recipes/**/Dockerfile",
    "devcontainer": ".devcontainer/devcontainer.json",
}


def typed(heading: str) -> list[list[str]]:
    """The rtbuild commands of a section, in blocks or in a table."""
    section = TUTORIAL.partition(f"## {heading}")[2].partition("\n## ")[0]
    found = re.findall(r"^\$ (rtbuild [^#\n]*)|`(rtbuild [^`]*)`", section, re.MULTILINE)
    return [shlex.split(line or cell) for line, cell in found]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("tutorial")
    (matrix,) = re.findall(r"```yaml\n(version: 1.*?)```", TUTORIAL, re.DOTALL)
    (folder / "matrices").mkdir()
    (folder / "matrices/tf28.yaml").write_text(matrix)
    commands = [*typed("3. Fix every version"), *typed("4. Build and verify")]
    assert [words[1] for words in commands] == ["lock", "build"]
    for words in commands:
        rtbuild(folder, *words[1:])
    yield folder
    docker.from_env().images.remove(IMAGE, force=True)


def test_the_image_says_what_the_tutorial_promises(built: Path) -> None:
    container = docker.from_env().containers.run(IMAGE, "cudnn-verify", detach=True)
    try:
        assert container.wait()["StatusCode"] == 10
        assert "UNVERIFIED: no GPU here" in container.logs().decode()
    finally:
        container.remove(force=True)
    assert (built / "matrices/tf28.lock.json").is_file()


# test_reproducible builds a cell twice, and completion would be written into this user's own shell.
GO_ON = [words for words in typed("5. Go on") if words[1] not in ("build", "--install-completion")]


@pytest.mark.parametrize("words", GO_ON, ids=lambda words: words[1])
def test_where_to_go_on(built: Path, words: list[str]) -> None:
    if words[1] == "doctor":
        assert "Docker" in rtbuild(built, "doctor", check=None).stdout
        return
    dry = ["--dry-run"] if "--shell" in words else []  # there is no terminal here
    done = rtbuild(built, *words[1:], *dry)
    if words[1] in WRITTEN:
        assert list(built.glob(WRITTEN[words[1]]))
    else:
        assert done.stdout
