"""The GitHub action against a real engine: one step builds an image, the next probes any image."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

pytestmark = [pytest.mark.docker]

ROOT = Path(__file__).resolve().parents[2]
ACTION = yaml.safe_load((ROOT / "action.yml").read_text())
MATRIX = """\
version: 1
name: action
include:
- {framework: six==1.17.0, python: 3.11, base: rootfs:debian/bookworm, cuda: none, variant: action}
"""
IMAGE = "rtbuild/action:six1.17.0-py3.11-bookworm-cpu-action"


def step(folder: Path, **asked: str) -> tuple[int, dict[str, str], str]:
    """The action's script with its defaults, as a runner calls it."""
    output = folder / "output"
    output.write_text("")
    defaults = {name.upper(): str(row.get("default", "")) for name, row in ACTION["inputs"].items()}
    paths = {"GITHUB_OUTPUT": str(output), "RUNNER_TEMP": str(folder)}
    paths["RTBUILD"] = str(Path(sys.executable).parent / "rtbuild")
    done = subprocess.run(
        ["bash", str(ROOT / "scripts/action")],
        cwd=folder,
        env=os.environ | defaults | paths | asked,
        capture_output=True,
        text=True,
        check=False,
    )
    rows = dict(row.split("=", 1) for row in output.read_text().splitlines())
    return done.returncode, rows, done.stdout + done.stderr


def test_build_then_probe(tmp_path: Path) -> None:
    (tmp_path / "action.yaml").write_text(MATRIX)
    try:
        code, rows, said = step(tmp_path, COMMAND="build", MATRIX="action.yaml")
        assert code == 0, said
        assert json.loads(Path(rows["report"]).read_text())["cells"][0]["image"]["reference"] == IMAGE
        code, rows, said = step(tmp_path, COMMAND="probe", IMAGE=IMAGE, GPUS="none")
        assert (code, rows["verdict"]) == (10, "unverified"), said
        assert json.loads(Path(rows["report"]).read_text())["verdict"] == "unverified"
    finally:
        subprocess.run(["docker", "image", "rm", "-f", IMAGE], capture_output=True, check=False)


def test_an_image_that_is_not_there_is_no_verdict(tmp_path: Path) -> None:
    code, rows, said = step(tmp_path, COMMAND="probe", IMAGE="127.0.0.1:1/nothing:1", GPUS="none")
    assert (code, rows["verdict"]) == (125, "none")
    assert "127.0.0.1:1" in said
