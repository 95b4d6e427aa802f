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
from rtbuild_command import inside

from builder.verify.runner.reports import EXIT_CODES

ROOT = Path(__file__).resolve().parents[2]
ACTION = yaml.safe_load((ROOT / "action.yml").read_text())


def act(tmp_path: Path, **asked: str) -> tuple[int, dict[str, str], str]:
    """The script with the action's defaults: its exit code, outputs, log. The page is ``tmp_path/page``."""
    output = tmp_path / "output"
    defaults = {name.upper(): str(row.get("default", "")) for name, row in ACTION["inputs"].items()}
    env = os.environ | defaults | {"RTBUILD": str(Path(sys.executable).parent / "rtbuild")} | asked
    env |= {"GITHUB_OUTPUT": str(output), "RUNNER_TEMP": str(tmp_path)}
    env |= {"GITHUB_STEP_SUMMARY": str(tmp_path / "page"), "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", str(ROOT / "scripts/action")], env=env, cwd=ROOT, capture_output=True, text=True, check=False
    )
    rows = output.read_text().splitlines() if output.exists() else []
    return done.returncode, dict(row.split("=", 1) for row in rows), done.stdout + done.stderr


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
    code, _, log = act(tmp_path, **asked)
    assert code == 2
    assert said in log


IMPOSSIBLE = """\
version: 1
name: x
include:
- {framework: tensorflow==2.8.4, python: "3.12", base: rootfs:debian/bookworm, cuda: wheels}
"""


@pytest.mark.slow
def test_an_impossible_cell_is_told_in_the_log_and_on_the_page(tmp_path: Path) -> None:
    (tmp_path / "matrix.yaml").write_text(IMPOSSIBLE)
    code, outputs, log = act(tmp_path, COMMAND="check", MATRIX=str(tmp_path / "matrix.yaml"))
    assert code == 1
    assert json.loads(Path(outputs["report"]).read_text())["cells"][0]["answer"] == "impossible"
    for told in (log, (tmp_path / "page").read_text()):
        assert "TensorFlow 2.8.4 has no wheel for Python 3.12" in told


def test_a_matrix_that_does_not_read_is_told_in_the_log_and_on_the_page(tmp_path: Path) -> None:
    code, _, log = act(tmp_path, COMMAND="check", MATRIX="nowhere.yaml")
    assert code == 2
    assert "nowhere.yaml" in log
    assert "nowhere.yaml" in (tmp_path / "page").read_text()


@pytest.mark.parametrize("command", ["build", "verify"])
def test_what_ends_before_the_first_cell_is_told_on_the_page(tmp_path: Path, command: str) -> None:
    code, outputs, log = act(tmp_path, COMMAND=command, MATRIX="nowhere.yaml")
    assert code == 2
    assert json.loads(Path(outputs["report"]).read_text())["exit_code"] == 2
    for told in (log, (tmp_path / "page").read_text()):
        assert told.count("no matrix file nowhere.yaml") == 1


def obeyed(log: str) -> list[str]:
    """The lines of a log that GitHub's runner takes for commands."""
    found, closed = [], None
    for line in log.splitlines():
        if closed is not None:
            closed = None if line.strip() == f"::{closed}::" else closed
        elif (stop := line.strip().removeprefix("::stop-commands::")) != line.strip():
            closed = stop
        elif line.lstrip().startswith(("::", "##[")):
            found.append(line)
    return found


@pytest.mark.parametrize(
    "document",
    [
        '{"verdict": "works\\nreport=/etc/passwd\\n::set-env name=X::y"}',
        '{"verdict": "::error::no"}',
        '{"verdict": "sound"}',
        '{"verdict": null}',
        '{"verdict": ["works"]}',
        '{"verdict": {}}',
        "[" * 100_000,
        "1" * 5_000,
        "[]",
        "",
        "\\xff",
    ],
    ids=lambda text: text[:30],
)
def test_only_a_verdict_of_the_probes_gets_out_of_an_image(tmp_path: Path, document: str) -> None:
    docker_double(tmp_path, document, "::error::from the image\n##[error]older\n<img src=x>\n\x1b[31m")
    code, outputs, log = act(tmp_path, COMMAND="probe", IMAGE="anybodys", RTBUILD="true")
    assert code == 10
    assert outputs == {"report": outputs["report"], "verdict": "none"}
    assert str(tmp_path) in outputs["report"]
    assert obeyed(log) == []
    assert "from the image" in log
    assert "\x1b" not in log
    page = (tmp_path / "page").read_text()
    assert all(line.startswith("    ") for line in page.splitlines() if line)


@pytest.mark.parametrize("verdict", EXIT_CODES)
def test_a_verdict_is_an_output(tmp_path: Path, verdict: str) -> None:
    docker_double(tmp_path, json.dumps({"verdict": verdict}))
    code, outputs, log = act(tmp_path, COMMAND="probe", IMAGE="anybodys", RTBUILD="true")
    assert (code, outputs["verdict"]) == (10, verdict)
    assert f"cudnn-verify: {verdict} (exit code 10)" in log
    assert verdict in ACTION["outputs"]["verdict"]["description"]


def docker_double(folder: Path, document: str, said: str = "") -> None:
    """A ``docker`` on PATH whose container prints this and exits with 10."""
    (folder / "document").write_text(document)
    (folder / "said").write_text(said)
    program = folder / "docker"
    program.write_text(f"#!/bin/sh\ncat {folder}/document\ncat {folder}/said >&2\nexit 10\n")
    program.chmod(0o755)


def test_no_input_is_code() -> None:
    steps = ACTION["runs"]["steps"]
    assert all("${{" not in step["run"] for step in steps)
    given: set[str] = {name for step in steps for name in step.get("env", {})}
    assert {name.upper() for name in ACTION["inputs"]} <= given


def test_the_hooks_are_commands_that_there_are() -> None:
    hooks: list[dict[str, Any]] = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    for hook in hooks:
        program, *words = hook["entry"].split()
        assert program == "rtbuild"
        inside(ROOT, *words, "matrices/colab-cpu.yaml")


@pytest.mark.parametrize(
    "path", sorted((ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml")), ids=lambda p: p.stem
)
def test_issue_forms_are_yaml(path: Path) -> None:
    form = yaml.safe_load(path.read_text())
    if path.stem != "config":
        assert {"name", "description", "body"} <= form.keys()
