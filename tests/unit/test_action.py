"""The GitHub action and the hooks, as GitHub and pre-commit would call them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
ACTION = yaml.safe_load((ROOT / "action.yml").read_text())


def act(tmp_path: Path, **asked: str) -> tuple[int, dict[str, str], str]:
    """The script with the action's defaults: its exit code, outputs, and stderr."""
    output = tmp_path / "output"
    defaults = {name.upper(): str(row.get("default", "")) for name, row in ACTION["inputs"].items()}
    env = os.environ | defaults | asked
    env |= {"GITHUB_OUTPUT": str(output), "RUNNER_TEMP": str(tmp_path)}
    env |= {"RTBUILD": str(Path(sys.executable).parent / "rtbuild")}
    done = subprocess.run(
        ["bash", str(ROOT / "scripts/action")], env=env, cwd=ROOT, capture_output=True, text=True, check=False
    )
    rows = output.read_text().splitlines() if output.exists() else []
    return done.returncode, dict(row.split("=", 1) for row in rows), done.stderr


def test_check_leaves_a_report(tmp_path: Path) -> None:
    code, outputs, said = act(tmp_path, COMMAND="check", MATRIX="matrices/tf28.yaml")
    assert code == 0, said
    assert json.loads(Path(outputs["report"]).read_text())["cells"]


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"COMMAND": "probe"}, "needs image"),
        ({"COMMAND": "build"}, "needs matrix"),
        ({"COMMAND": "verify"}, "needs matrix"),
        ({"COMMAND": "rm"}, "is build, verify, check or probe, not 'rm'"),
    ],
)
def test_what_is_missing_is_named(tmp_path: Path, asked: dict[str, str], said: str) -> None:
    code, _, stderr = act(tmp_path, **asked)
    assert code == 2
    assert said in stderr


def test_no_input_is_code() -> None:
    steps = ACTION["runs"]["steps"]
    assert all("${{" not in step["run"] for step in steps)
    given: set[str] = {name for step in steps for name in step.get("env", {})}
    assert {name.upper() for name in ACTION["inputs"]} <= given


def test_the_hooks_are_commands_that_there_are() -> None:
    hooks: list[dict[str, Any]] = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    for hook in hooks:
        command = [*hook["entry"].split(), "matrices/colab-cpu.yaml"]
        command[0] = str(Path(sys.executable).parent / command[0])
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    "path", sorted((ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml")), ids=lambda p: p.stem
)
def test_issue_forms_are_yaml(path: Path) -> None:
    form = yaml.safe_load(path.read_text())
    if path.stem != "config":
        assert {"name", "description", "body"} <= form.keys()
