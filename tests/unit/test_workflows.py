"""Workflows get no more than they need, run no action that can change, and keep forks from GPUs."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / ".github" / "workflows"
FILES = sorted(FOLDER.glob("*.yml"))
GPU = "images-verify.yml"
"""The one workflow whose jobs run on machines of the project's own."""


def load(name: str) -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load((FOLDER / name).read_text())
    document["on"] = document.pop(True)  # YAML 1.1 reads the key `on` as true
    return document


def steps(job: dict[str, Any]) -> list[dict[str, Any]]:
    return job.get("steps", [])


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_permissions_and_pins(path: Path) -> None:
    document = load(path.name)
    assert document["permissions"] == {}
    for job in document["jobs"].values():
        assert job["permissions"]
        if "uses" in job:  # a workflow of this repository, at this very commit
            assert job["uses"].startswith("./.github/workflows/")
            assert "secrets" not in job
            continue
        assert job["timeout-minutes"] <= 360
        for step in steps(job):
            if "uses" in step:
                assert re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", step["uses"])
            if str(step.get("uses", "")).startswith("actions/checkout@"):
                assert step["with"]["persist-credentials"] is False
            # an expression inside a script is code that somebody else may write
            assert "${{" not in step.get("run", "")


def test_every_pin_says_its_version_and_no_action_has_two() -> None:
    pins: dict[str, set[tuple[str, str]]] = {}
    for path in FILES:
        for action, commit, version in re.findall(
            r"uses: ([\w-]+/[\w./-]+)@([0-9a-f]{40}) # (v[\d.]+)$", path.read_text(), re.MULTILINE
        ):
            pins.setdefault(action, set()).add((commit, version))
    used = sum(len(re.findall(r"uses: (?!\./)", path.read_text())) for path in FILES)
    assert used == sum(
        len(re.findall(rf"uses: {re.escape(action)}@", path.read_text())) for path in FILES for action in pins
    )
    assert {action: len(found) for action, found in pins.items()} == dict.fromkeys(pins, 1)


def test_what_is_said_to_run_each_night_does() -> None:
    rows = re.findall(r"^\| (`make .+?) \| nightly\b", (ROOT / "CONTRIBUTING.md").read_text(), re.MULTILINE)
    said = {target for row in rows for target in re.findall(r"`make ([\w-]+)`", row)}
    run = set(re.findall(r"\bmake ([\w-]+)$", (FOLDER / "nightly.yml").read_text(), re.MULTILINE))
    assert len(said) > 5
    assert said <= run


def test_nothing_that_a_fork_starts_is_trusted() -> None:
    for path in FILES:
        triggers = set(load(path.name)["on"])
        # these run with the rights of this repository on what somebody else wrote
        assert not triggers & {"pull_request_target", "workflow_run", "issue_comment", "repository_dispatch"}
        if "pull_request" in triggers:
            for job in load(path.name)["jobs"].values():
                assert job["permissions"] == {"contents": "read"}
                assert re.fullmatch(r"ubuntu-\d\d\.04", job["runs-on"])
                assert "secrets." not in path.read_text()


def test_only_merged_code_reaches_a_gpu() -> None:
    own = [
        path.name
        for path in FILES
        for job in load(path.name)["jobs"].values()
        if "uses" not in job and not str(job["runs-on"]).startswith("ubuntu-")
    ]
    assert own == [GPU]
    assert set(load(GPU)["on"]) == {"workflow_call"}
    (verify,) = load(GPU)["jobs"].values()
    assert verify["permissions"] == {"contents": "read", "packages": "write"}
    assert "pull_request" in verify["if"]
    callers = [path.name for path in FILES if f"uses: ./.github/workflows/{GPU}" in path.read_text()]
    assert callers == ["images.yml"]
    images = load("images.yml")
    assert set(images["on"]) == {"push", "workflow_dispatch"}
    assert images["on"]["push"]["branches"] == ["main"]
    assert images["jobs"]["plan"]["if"] == "github.ref_name == github.event.repository.default_branch"
    for job in images["jobs"].values():
        needs = job.get("needs", [])
        assert job is images["jobs"]["plan"] or "plan" in ([needs] if isinstance(needs, str) else needs)


def test_only_publication_signs_and_it_waits_for_its_environment() -> None:
    signing = [
        (path.name, name)
        for path in FILES
        for name, job in load(path.name)["jobs"].items()
        if "id-token" in job["permissions"]
    ]
    assert signing == [("images.yml", "publish"), ("release.yml", "publish")]
    release = load("release.yml")
    assert release["on"] == {"push": {"tags": ["v[0-9]+.[0-9]+.[0-9]+"]}}
    assert release["jobs"]["publish"]["environment"] == "release"
    assert not [step for step in steps(release["jobs"]["publish"]) if "checkout" in step.get("uses", "")]
    images = load("images.yml")
    assert images["jobs"]["publish"]["environment"] == "publication"
    assert images["concurrency"] == {"group": "images", "cancel-in-progress": False}


def test_a_bad_cell_or_runner_stops_no_other() -> None:
    images = load("images.yml")
    for name in ("build", "verify"):
        assert images["jobs"][name]["strategy"]["fail-fast"] is False
        (inner,) = load(f"images-{name}.yml")["jobs"].values()
        assert inner["strategy"]["fail-fast"] is False
        assert inner["strategy"]["matrix"] == "${{ fromJSON(inputs.jobs) }}"
    for name in ("verify", "publish"):
        assert "!cancelled()" in images["jobs"][name]["if"]


def test_every_judgement_but_works_fails_the_job_in_a_step_that_says_why() -> None:
    (verify,) = load(GPU)["jobs"].values()
    judged = {
        re.findall(r"judgement == '(\w+)'", step["if"])[0]: step
        for step in steps(verify)
        if "judgement" in step.get("if", "")
    }
    assert set(judged) == {"image", "runner", "none"}
    assert all("exit 1" in step["run"] for step in judged.values())
    assert "nothing is said about the image" in judged["runner"]["name"]


def test_the_refresh_runs_by_the_clock_and_by_hand_only() -> None:
    document = load("refresh.yml")
    assert set(document["on"]) == {"schedule", "workflow_dispatch"}
    assert document["jobs"]["facts"]["permissions"] == {"contents": "write", "pull-requests": "write"}


def test_the_login_at_colab_is_for_the_default_branch_only() -> None:
    document = load("colab.yml")
    assert set(document["on"]) == {"schedule", "workflow_dispatch"}
    (job,) = document["jobs"].values()
    assert job["environment"] == "colab"
    assert "github.event.repository.default_branch" in job["if"]
    assert job["permissions"] == {"actions": "read", "contents": "read"}
    assert [name for step in steps(job) for name in step.get("env", {})] == ["GH_TOKEN", "CREDENTIALS"]


def program(name: str) -> str:
    """A program beside this Python, or on PATH; skips the test without it."""
    beside = Path(sys.executable).parent / name
    found = str(beside) if beside.is_file() else shutil.which(name)
    if found is None:
        pytest.skip(f"needs {name}")
    return found


def test_zizmor_finds_nothing() -> None:
    done = subprocess.run(
        [program("zizmor"), "--offline", "--no-progress", "--quiet", "--color=never", str(FOLDER)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_actionlint_finds_nothing() -> None:
    files = [str(path) for path in FILES]
    with_shellcheck = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = subprocess.run(
        [program("actionlint"), *files], env=with_shellcheck, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_shellcheck_finds_nothing() -> None:
    scripts = [str(path) for path in (*sorted((ROOT / "scripts").iterdir()), ROOT / ".ci" / "run")]
    shell = [path for path in scripts if "bash" in Path(path).read_text().partition("\n")[0]]
    assert any(path.endswith("ci-verify") for path in shell)
    done = subprocess.run([program("shellcheck"), *shell], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def record(verdict: str | None, *, double: bool = False) -> str:
    verification = None if verdict is None else {"verdict": verdict, "test_double": double}
    return json.dumps({"cells": [{"id": "cell", "verification": verification}]})


@pytest.mark.parametrize(
    ("code", "said", "judgement"),
    [
        (0, record("works"), "works"),
        (0, record("works", double=True), "none"),
        (1, record("broken"), "image"),
        (1, record("unsupported-gpu"), "image"),
        (1, record("works"), "none"),  # it works, and its report could not be put beside it
        (1, record(None), "none"),
        (5, record("host"), "runner"),
        (5, record("busy"), "runner"),
        (5, record("unverified"), "runner"),
        (5, "", "runner"),
        (4, "", "none"),
        (70, "", "none"),
        (130, record("works"), "none"),
        (0, "{", "none"),
    ],
)
def test_a_runner_that_is_unusable_is_no_image_that_is_bad(
    code: int, said: str, judgement: str, tmp_path: Path
) -> None:
    double = tmp_path / "rtbuild"
    double.write_text(
        "#!/bin/sh\n# test double of rtbuild\n"
        f"echo \"$@\" >>'{tmp_path}/asked'\ncat <<'END'\n{said}\nEND\nexit {code}\n"
    )
    double.chmod(0o755)
    done = subprocess.run(
        [ROOT / "scripts" / "ci-verify", "m.yaml", "cell", "registry.example.invalid/staging"],
        env={"PATH": "/usr/bin:/bin", "RTBUILD": str(double), "GITHUB_OUTPUT": str(tmp_path / "output")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "output").read_text() == f"judgement={judgement}\n"
    asked = (tmp_path / "asked").read_text()
    assert (
        asked
        == "verify m.yaml --select cell --from registry.example.invalid/staging --gpus all --rm --json\n"
    )


PLAN = ROOT / "scripts" / "ci-plan"


def planned(tmp_path: Path, *words: str, said: str, listed: str = "", **variables: str) -> dict[str, Any]:
    """The lines of ci-plan, with doubles of rtbuild and gh that print what is ``said`` and ``listed``."""
    (tmp_path / "said").write_text(said)
    (tmp_path / "listed").write_text(listed)
    for name in ("rtbuild", "gh"):
        path = tmp_path / name
        path.write_text(
            f"#!/bin/bash\n[ $1 != list ] || exec cat {tmp_path}/listed\ncat {tmp_path}/said; exit 1\n"
        )
        path.chmod(0o755)
    (tmp_path / "gh").write_text(f"#!/bin/bash\ncat {tmp_path}/said\n")
    env = {"PATH": f"{tmp_path}:/usr/bin:/bin", "GITHUB_REPOSITORY": "o/r", **variables}
    done = subprocess.run([PLAN, *words], env=env, capture_output=True, text=True, check=False)
    lines = (line.partition("=") for line in done.stdout.splitlines())
    return {"code": done.returncode, "said": done.stderr} | {key: json.loads(text) for key, _, text in lines}


def jobs(*rows: tuple[str, str]) -> list[dict[str, Any]]:
    return [{"include": [{"name": name, "gpu": gpu} for name, gpu in rows]}]


def test_an_impossible_cell_and_a_class_without_a_runner_hold_up_no_other(tmp_path: Path) -> None:
    rows = [
        {"matrix": "m", "id": "good", "answer": "possible"},
        {"matrix": "m", "id": "bad", "answer": "impossible"},
        {"matrix": "other", "id": "bad", "answer": "possible"},
    ]
    both = jobs(("m good", ""), ("m bad", ""), ("other bad", ""))
    verify = jobs(("m good", "T4"), ("m good", "H100"), ("m good", "any"), ("m bad", "T4"))
    listed = json.dumps({"build": both, "verify": verify})
    said = json.dumps({"schema": 1, "cells": rows})
    found = planned(tmp_path, "plan", said=said, listed=listed)
    assert (found["code"], found["build"]) == (0, jobs(("m good", ""), ("other bad", "")))
    assert found["verify"] == jobs(("m good", "T4"), ("m good", "H100"), ("m good", "any"))
    assert "m bad is impossible, and left out: rtbuild explain bad\n" in found["said"]
    found = planned(tmp_path, "plan", said=said, listed=listed, GPU_CLASSES="L4 T4")
    assert found["verify"] == jobs(("m good", "T4"), ("m good", "any"))
    assert "no runner has the class H100" in found["said"]
    assert planned(tmp_path, "plan", said=said, listed=listed, GPU_CLASSES="T40")["verify"] == jobs(
        ("m good", "any")
    )
    assert planned(tmp_path, "plan", said='{"kind": "error", "message": "no such file"}')["code"] == 1


def test_a_cell_that_was_not_built_asks_for_no_gpu(tmp_path: Path) -> None:
    verify = jobs(("m one", "T4"), ("m two", "T4"), ("m two", "A100"), ("other two", "T4"))
    found = planned(tmp_path, "built", json.dumps(verify), "7", said="build (1) / m two\n")
    assert found["verify"] == jobs(("m one", "T4"), ("other two", "T4"))
    assert planned(tmp_path, "built", json.dumps(verify), "7", said="")["verify"] == verify
    needs = load("images.yml")["jobs"]["verify"]["needs"]
    assert needs == ["plan", "built"]
