"""Builds as tasks: which cell is built when, what a node gets, and the command before a double of Slurm."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builder.cli.app import loaded
from builder.core.errors import MatrixError, UsageError
from builder.release.dispatch import slurm
from builder.release.dispatch.fleet import BUILD, Fleet, load_fleet
from builder.release.dispatch.run import build_script, in_waves
from builder.release.dispatch.tasks import Task

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tests.conftest import Golden
    from tests.unit.release.dispatch.conftest import Desk

KEYS = "layers_key: /etc/rtbuild/cosign.pub, key: 'env://COSIGN_KEY'"
LANE = f"build: {{partition: cpu, cpus: 4, memory: 8G, at_once: 10, {KEYS}}}\n"
FLEET = Fleet.model_validate(
    {
        "version": "1",
        "scheduler": "slurm",
        "classes": {"T4": {}},
        "build": {
            "partition": "cpu",
            "cpus": 4,
            "memory": "8G",
            "layers_key": "/etc/rtbuild/cosign.pub",
            "key": "env://COSIGN_KEY",
        },
    }
)
FILES = {"torch": ("version: 1\nname: torch\n# it's $HOME `id`\n", '{"cells": {}}')}


def render(tasks: Sequence[Task], files: Mapping[str, tuple[str, str]] = FILES) -> dict[str, str]:
    """The batch scripts by the names of their arrays."""
    lane = FLEET.build
    assert lane is not None
    return {name: build_script(part, FLEET, lane, files) for name, part in slurm.arrays(tasks).items()}


TASKS = [Task(column="T4", cell="c", matrix="m", repository="r", digest="sha256:0", probe="p", inputs="i")]


def cell(name: str) -> Task:
    inputs = f"sha256:{name:0<64}"
    return Task(column=BUILD, matrix="torch", cell=name, repository="registry.example/staging", inputs=inputs)


CELLS = {
    cell("torch2.1"): frozenset(("bookworm", "cudnn8", "torch2.1")),
    cell("torch2.2"): frozenset(("bookworm", "cudnn8", "torch2.2")),
    cell("torch2.3"): frozenset(("bookworm", "cudnn9", "torch2.3", "triton")),
    cell("tf2.8"): frozenset(("bullseye", "cudnn8.6")),
}


def test_each_layer_is_made_by_one_cell_and_found_by_the_others() -> None:
    assert [(task.wave, task.cell) for task in in_waves(CELLS)] == [
        (0, "tf2.8"),
        (0, "torch2.3"),
        (1, "torch2.1"),
        (2, "torch2.2"),
    ]


@given(st.lists(st.frozensets(st.sampled_from("abcdefgh"), max_size=5), max_size=12))
def test_in_no_wave_a_cell_needs_what_another_of_it_makes(layers: list[frozenset[str]]) -> None:
    cells = {cell(f"c{number}"): wanted for number, wanted in enumerate(layers)}
    of = {one.cell: wanted for one, wanted in cells.items()}
    there: set[str] = set()
    tasks = in_waves(cells)
    assert {task.cell for task in tasks} == set(of)
    assert in_waves(dict(reversed(cells.items()))) == tasks
    for wave in range(len(cells)):
        made = [layer for task in tasks if task.wave == wave for layer in of[task.cell] - there]
        assert len(made) == len(set(made)), "a layer is made twice"
        there.update(made)


def test_scripts_of_builds(golden: Golden, tmp_path: Path) -> None:
    scripts = render(in_waves(CELLS))
    assert list(scripts) == ["build", "build wave 2", "build wave 3"]
    golden("dispatch/build.sh", scripts["build"])
    path = tmp_path / "build.sh"
    path.write_text(scripts["build"])
    shellcheck = shutil.which("shellcheck", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    assert shellcheck is not None
    done = subprocess.run([shellcheck, str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_a_node_calls_commands_with_options_that_they_have() -> None:
    build = render(in_waves(CELLS))["build"]
    for name, text in (("build", build), ("verify-digest", slurm.verification(TASKS, FLEET))):
        (line,) = (line for line in text.splitlines() if f"rtbuild {name} " in line)
        known = {option for parameter in loaded(name).params for option in parameter.opts}
        assert set(re.findall(r" (--[a-z-]+)", line)) <= known


def test_a_node_finds_matrix_and_lock_as_they_are(tmp_path: Path) -> None:
    """The script runs, with a double of rtbuild that shows what it was called with."""
    (text,) = render(in_waves({cell("torch2.1"): frozenset()})).values()
    program = tmp_path / "rtbuild"
    program.write_text('#!/bin/bash\nprintf "%s\\n" "$@"\ncat torch.yaml torch.lock.json\n')
    program.chmod(0o755)
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "SLURM_ARRAY_TASK_ID": "0", "SLURMD_NODENAME": "n1"}
    done = subprocess.run(["bash"], input=text, env=env, capture_output=True, text=True, check=True)
    assert "--select\ntorch2.1\n--push\nregistry.example/staging\n" in done.stdout
    assert "--layers-key\n/etc/rtbuild/cosign.pub\n--key\nenv://COSIGN_KEY\n" in done.stdout
    assert done.stdout.endswith("".join(FILES["torch"]) + "\n")


def test_more_than_a_batch_script_holds() -> None:
    with pytest.raises(UsageError, match="do not fit into a batch script"):
        render(in_waves(CELLS), {"torch": ("version: 1\n", "x" * 4_000_000)})


@pytest.mark.parametrize(
    ("scheduler", "more", "said"),
    [
        ("kubernetes", LANE, "builds are dispatched by Slurm alone"),
        ("slurm", "", "does not say how to build"),
    ],
)
def test_what_a_fleet_lacks_for_builds(desk: Desk, scheduler: str, more: str, said: str) -> None:
    desk.write_fleet(scheduler, more)
    with pytest.raises(UsageError, match=said):
        desk.call("--build")


def test_an_error_in_the_part_about_builds_is_at_its_place(desk: Desk) -> None:
    desk.write_fleet("slurm", "build: {layer_key: a.pub, key: a.key}\n")
    with pytest.raises(MatrixError) as raised:
        load_fleet(desk.fleet)
    assert "fleet.yaml:5:9: error: unknown key 'layer_key'" in str(raised.value)
    assert "did you mean 'layers_key'?" in str(raised.value)


def test_what_is_there_is_not_built_and_waves_wait_for_each_other(desk: Desk) -> None:
    jobs = desk.slurm()
    desk.write_fleet("slurm", LANE)
    code, rows = desk.tasks("--build")
    assert (code, {row["verdict"] for row in rows}) == (0, {"built"})
    assert list(jobs.iterdir()) == []
    desk.server.tags.clear()
    desk.tasks("--build")
    assert "build: submitted as job 1, tasks: 1\nbuild wave 2: submitted as job 2, tasks: 1\n" in desk.said
    for _ in range(2):
        code, rows = desk.tasks("--build")
        assert {row["scheduler"] for row in rows} == {"PENDING (Resources)"}
    assert "2 are under way already" in desk.said
    orders = [path.read_text() for path in sorted(jobs.glob("*.after"))]
    assert [re.findall(r"afterany:(\S+)", text) for text in orders] == [[], ["1"]]
    texts = [(jobs / name).read_text() for name in "12"]
    assert ["--job-name=rtbuild-build" in text for text in texts] == [True, True]
    assert all(len(slurm.keys_in(text)) == 1 for text in texts), "both cells have the same wheels"
    code, text = desk.call("--build", "--dry-run")
    assert text == "".join(texts)
