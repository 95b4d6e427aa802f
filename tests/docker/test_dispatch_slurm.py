"""`rtbuild dispatch` on a real Slurm: arrays, retries, dead nodes, a dead controller, a dead dispatcher."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from publish_doubles import MATRIX, Project
from registry_double import RegistryDouble, serve
from slurm_cluster import NODES, Cluster

from builder.net.http import Client
from builder.oci.registry import Registry

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.docker, pytest.mark.long]

TESTS = Path(__file__).resolve().parents[1]
RTBUILD = str(Path(sys.executable).parent / "rtbuild")
CELLS = int(os.environ.get("RTBUILD_TEST_CELLS", "4"))
"""On four classes each: 50 make the 200 tasks of docs/dispatch.md."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with tempfile.TemporaryDirectory(prefix="rtbuild-slurm-", ignore_cleanup_errors=True) as folder:
        running = Cluster(Path(folder))
        try:
            running.up()
            yield running
        finally:
            running.down()


@pytest.fixture
def server() -> Iterator[RegistryDouble]:
    with serve() as running:
        yield running


class Scene:
    """A project whose images are staged, a fleet, and what each node is to do."""

    def __init__(self, folder: Path, cluster: Cluster, server: RegistryDouble, cells: int) -> None:
        self.folder, self.cluster = folder, cluster
        variants = "".join(f"  - {{variant: v{number}}}\n" for number in range(cells))
        text = MATRIX.replace("[T4]", "[T4, A100, L4, H100]") + "include:\n" + variants
        self.project = Project(folder / "project", text=text)
        registry = Registry(client=Client(retries=0, backoff=0.01, read_timeout=5), login=lambda _host: None)
        for number, cell in enumerate(self.project.matrix.cells):
            self.project.stage(registry, f"{server.host}/staging", cell, extra=b"%d" % number)
        node = folder / "node"
        python = f"PYTHONPATH={TESTS.parent}:{TESTS} {sys.executable} {TESTS}/docker/node_double.py"
        # the card is the third word: verify-digest --card T4 --runtime auto IMAGE
        node.write_text(
            f"#!/bin/bash\nexec nsenter --target {os.getpid()} --mount -- "
            f'env HOME=/root {python} {folder} "$3" "${{@: -1}}"\n'
        )
        node.chmod(0o755)
        self.fleet = folder / "fleet.yaml"
        self.fleet.write_text(
            f"version: 1\nscheduler: slurm\nstaging: {server.host}/staging\n"
            "attempts: 3\npause: 1\nminutes: 5\n"
            f"command: {node}\nlog: {folder}/log-%A_%a\n"
            "classes: {T4: {at_once: 2}, A100: {}, L4: {}, H100: {}}\n"
        )
        self.ask({})

    def ask(self, codes: dict[str, list[Any]]) -> None:
        (self.folder / "asked.json").write_text(json.dumps(codes))

    def command(self, *words: str) -> list[str]:
        return [
            *(RTBUILD, "dispatch", str(self.project.path)),
            *("--fleet", str(self.fleet), *words),
        ]

    def env(self) -> dict[str, str]:
        path = f"{self.cluster.bin}:{os.environ['PATH']}"
        return os.environ | {"PATH": path, "PYTHONPATH": str(TESTS.parent)}

    def dispatch(self, *words: str) -> tuple[int, list[dict[str, Any]]]:
        done = subprocess.run(
            self.command("--wait", "--every", "1", "--json", *words),
            env=self.env(),
            capture_output=True,
            text=True,
            check=False,
            timeout=570,
        )
        assert done.stdout, done.stderr + self.cluster.logs()
        for log in sorted(self.folder.glob("log-*"))[:3]:
            sys.stderr.write(f"{log.name}: {log.read_text()[-600:]}")
        return done.returncode, json.loads(done.stdout)["tasks"]

    def runs(self) -> dict[str, int]:
        folder = self.folder / "runs"
        return {path.name: len(list(path.iterdir())) for path in folder.iterdir()} if folder.exists() else {}


@pytest.fixture
def scene(cluster: Cluster, server: RegistryDouble) -> Iterator[Scene]:
    with tempfile.TemporaryDirectory(prefix="rtbuild-scene-", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o755)
        yield Scene(Path(folder), cluster, server, CELLS)


def cell_of(scene: Scene, number: int) -> str:
    return scene.project.matrix.cells[number].id


def test_every_task_is_verified_once(scene: Scene) -> None:
    started = time.monotonic()
    code, rows = scene.dispatch()
    assert {row["verdict"] for row in rows} == {"works"}, rows
    assert (code, len(rows)) == (0, 4 * CELLS)
    assert scene.runs() == {f"{row['cell']} on {row['class']}": 1 for row in rows}
    sys.stderr.write(f"{len(rows)} tasks in {time.monotonic() - started:.0f} s\n")
    code, rows = scene.dispatch()  # again: nothing is left to do
    assert code == 0
    assert set(scene.runs().values()) == {1}


def test_a_busy_card_is_tried_again_and_a_broken_image_is_not(scene: Scene) -> None:
    busy, broken, hopeless = (f"{cell_of(scene, number)} on T4" for number in range(3))
    scene.ask({busy: [23, 0], broken: [20], hopeless: [22, 22, 22, 22]})
    code, rows = scene.dispatch()
    found = {f"{row['cell']} on {row['class']}": row for row in rows}
    assert found[busy]["verdict"] == "works"
    assert (found[broken]["verdict"], found[broken]["cause"]) == ("broken", "cudnn-missing")
    assert (found[hopeless]["verdict"], found[hopeless]["state"]) == (None, "lost")
    assert (scene.runs()[busy], scene.runs()[broken], scene.runs()[hopeless]) == (2, 1, 3)
    assert code == 1


def test_a_node_that_dies_loses_nothing(scene: Scene, cluster: Cluster) -> None:
    slow = {f"{cell.id} on T4": ["slow"] for cell in scene.project.matrix.cells[:2]}
    scene.ask(slow)
    with subprocess.Popen(
        scene.command("--wait", "--every", "1", "--json"), env=scene.env(), stdout=subprocess.PIPE, text=True
    ) as waiting:
        until = time.monotonic() + 60
        while sum(scene.runs().get(name, 0) for name in slow) < 2:
            assert time.monotonic() < until, cluster.logs()
            time.sleep(0.5)
        cluster.kill("n1")
        try:
            text, _ = waiting.communicate(timeout=400)
        finally:
            cluster.start("n1")
    assert {row["verdict"] for row in json.loads(text)["tasks"]} == {"works"}, cluster.logs()
    assert waiting.returncode == 0


def test_a_controller_that_dies_and_a_dispatcher_that_is_killed(scene: Scene, cluster: Cluster) -> None:
    first = subprocess.Popen(
        scene.command("--wait", "--every", "1", "--json"), env=scene.env(), stdout=subprocess.DEVNULL
    )
    time.sleep(4)
    first.send_signal(signal.SIGKILL)
    first.wait()
    cluster.kill("ctld")
    time.sleep(2)
    cluster.start("ctld")
    until = time.monotonic() + 60
    while time.monotonic() < until:
        try:
            cluster.call("squeue")
            break
        except subprocess.SubprocessError:
            time.sleep(1)
    code, rows = scene.dispatch()
    assert (code, {row["verdict"] for row in rows}) == (0, {"works"}), cluster.logs()
    # a controller that lost its last seconds runs again what was running then; nothing else is done twice
    again = sum(scene.runs().values()) - len(rows)
    assert 0 <= again <= len(NODES)


def test_the_fleet_is_tried_before(scene: Scene) -> None:
    scene.fleet.write_text(scene.fleet.read_text().replace("H100: {}", "H100: {}, B200: {}"))
    done = subprocess.run(
        [RTBUILD, "doctor", "--fleet", str(scene.fleet), "--json"],
        env=scene.env(),
        capture_output=True,
        text=True,
        check=False,
    )
    answers = json.loads(done.stdout)["classes"]
    assert done.returncode == 5
    assert [name for name, problem in answers.items() if problem] == ["B200"]
