"""`rtbuild dispatch` on a real Slurm: arrays, retries, dead nodes, a dead controller, a dead dispatcher."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from dispatch_scene import RTBUILD, running
from doubles.registry import RegistryDouble, serve
from slurm_cluster import NODES, Cluster
from slurm_scene import Scene, made

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.docker, pytest.mark.long]

CELLS = int(os.environ.get("RTBUILD_TEST_CELLS", "4"))
"""On four classes each: 50 make the 200 tasks of docs/dispatch.md."""

KILLS = int(os.environ.get("RTBUILD_TEST_KILLS", "2"))
"""Of the dispatcher, at moments by chance."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with running(Cluster) as cluster:
        yield cluster


@pytest.fixture
def server() -> Iterator[RegistryDouble]:
    with serve() as server:
        yield server


@pytest.fixture
def scene(cluster: Cluster, server: RegistryDouble) -> Iterator[Scene]:
    with made(cluster, server, CELLS) as scene:
        yield scene


@pytest.fixture
def small(cluster: Cluster, server: RegistryDouble) -> Iterator[Scene]:
    """One cell: four tasks, each on a class of its own."""
    with made(cluster, server, 1) as scene:
        yield scene


def cell_of(scene: Scene, number: int) -> str:
    return scene.project.matrix.cells[number].id


def test_every_task_is_verified_once(scene: Scene) -> None:
    started = time.monotonic()
    subprocess.run(scene.command(), env=scene.env(), stdout=subprocess.DEVNULL, check=True)
    sys.stderr.write(f"planned and submitted in {time.monotonic() - started:.1f} s\n")
    code, rows = scene.dispatch()
    assert {row["verdict"] for row in rows} == {"works"}, rows
    assert (code, len(rows)) == (0, 4 * CELLS)
    assert scene.runs() == {f"{row['cell']} on {row['class']}": 1 for row in rows}
    sys.stderr.write(f"{len(rows)} tasks in {time.monotonic() - started:.0f} s\n")
    code, rows = scene.dispatch()  # again: nothing is left to do
    assert code == 0
    assert set(scene.runs().values()) == {1}


@pytest.mark.nightly
def test_nodes_sign_and_an_unsigned_report_ends_no_task(small: Scene) -> None:
    """Reports from before the fleet had a key are there, and each task runs once more."""
    code, _ = small.dispatch()
    assert (code, set(small.runs().values())) == (0, {1})
    keys = ["cosign", "generate-key-pair", "--output-key-prefix", str(small.folder / "report")]
    subprocess.run(keys, capture_output=True, check=True, env=os.environ | {"COSIGN_PASSWORD": ""})
    small.fleet.write_text(small.fleet.read_text() + f"key: {small.folder}/report.key\n")
    code, rows = small.dispatch("--reported-by", f"{small.folder}/report.pub")
    assert (code, {row["verdict"] for row in rows}) == (0, {"works"}), rows
    assert set(small.runs().values()) == {2}
    code, _ = small.dispatch("--reported-by", f"{small.folder}/report.pub")
    assert (code, set(small.runs().values())) == (0, {2})


@pytest.mark.nightly
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


@pytest.mark.nightly
def test_a_node_that_dies_loses_nothing(scene: Scene, cluster: Cluster) -> None:
    slow = {f"{cell.id} on T4": ["slow"] for cell in scene.project.matrix.cells[:2]}
    scene.ask(slow)
    with scene.start() as waiting:
        for name in slow:
            scene.until(name)
        cluster.kill("n1")
        try:
            text, _ = waiting.communicate(timeout=400)
        finally:
            cluster.start("n1")
    assert {row["verdict"] for row in json.loads(text)["tasks"]} == {"works"}, cluster.logs()
    assert waiting.returncode == 0


@pytest.mark.nightly
def test_a_task_that_is_preempted_is_queued_again_by_slurm(small: Scene, cluster: Cluster) -> None:
    """It is no attempt, and what it ran when it was stopped leaves no report."""
    name = f"{cell_of(small, 0)} on A100"
    small.ask({name: ["slow"]})
    with small.start() as waiting:
        small.until(name)
        urgent = ["--partition=urgent", "--gres=gpu:a100:1", "--output=/dev/null", "--wrap=sleep 2"]
        cluster.call("sbatch", *urgent)
        text, talk = waiting.communicate(timeout=400)
    rows = json.loads(text)["tasks"]
    assert (waiting.returncode, {row["verdict"] for row in rows}) == (0, {"works"}), talk
    assert small.runs() == {f"{row['cell']} on {row['class']}": 1 for row in rows} | {name: 2}
    logs = "".join(path.read_text() for path in small.folder.glob("log-*"))
    assert "PREEMPT" in logs
    assert "attempt 2" not in logs


@pytest.mark.nightly
@pytest.mark.parametrize("above", [0, 1], ids=["script", "step"])
def test_a_step_that_is_killed(small: Scene, cluster: Cluster, above: int) -> None:
    """kill -9 of the job's script: --wait submits the task again. Of the slurmstepd above it: Slurm does."""
    name = f"{cell_of(small, 0)} on L4"
    small.ask({name: ["slow"]})
    with small.start() as waiting:
        docker = int(small.until(name).name.partition("-")[2])  # the parent of Docker's double: rtbuild
        chain = [docker]
        for _ in range(above + 1):
            chain.append(int(Path(f"/proc/{chain[-1]}/stat").read_text().rpartition(")")[2].split()[1]))
        os.kill(chain[-1], signal.SIGKILL)
        text, talk = waiting.communicate(timeout=400)
    row = next(one for one in json.loads(text)["tasks"] if f"{one['cell']} on {one['class']}" == name)
    assert (waiting.returncode, row["verdict"]) == (0, "works"), talk
    if not above:
        assert "RaisedSignal:9(Killed)" in talk, "Slurm's word for it"
        assert talk.count("L4: submitted as job") == 2, "the second time by --wait itself"


@pytest.mark.nightly
def test_a_registry_that_is_away_for_a_minute(small: Scene, server: RegistryDouble) -> None:
    """Nodes and dispatcher ask again; no container runs twice for that."""
    name = f"{cell_of(small, 0)} on T4"
    with small.start() as waiting:
        small.until(name)
        server.fault = lambda _request: 503
        time.sleep(float(os.environ.get("RTBUILD_TEST_AWAY", "20")))
        server.fault = None
        text, talk = waiting.communicate(timeout=400)
    rows = json.loads(text)["tasks"]
    assert (waiting.returncode, {row["verdict"] for row in rows}) == (0, {"works"}), talk
    assert "it is asked again" in talk
    assert "registry and scheduler answer again" in talk
    assert set(small.runs().values()) == {1}


@pytest.mark.nightly
def test_two_dispatchers_at_once(small: Scene) -> None:
    both = [small.start() for _ in range(2)]
    ends = [one.communicate(timeout=400) for one in both]
    for one, (text, talk) in zip(both, ends, strict=True):
        assert one.returncode == 0, talk
        assert {row["verdict"] for row in json.loads(text)["tasks"]} == {"works"}
    assert set(small.runs().values()) == {1}


def test_a_class_that_no_node_has(small: Scene) -> None:
    small.fleet.write_text(small.fleet.read_text().replace("H100: {}", "H100: {gres: 'gpu:h200:1'}"))
    code, rows = small.dispatch()
    assert code == 5
    assert {row["verdict"] for row in rows if row["class"] != "H100"} == {"works"}
    (said,) = {row["scheduler"] for row in rows if row["class"] == "H100"}
    assert "not submitted: Batch job submission failed: Requested node configuration is not avail" in said


def test_a_container_that_does_not_start_is_no_report(small: Scene) -> None:
    """The real Docker is asked, for GPUs that this machine lacks and an image that cannot run: no report."""
    small.write_node("$PATH")
    small.fleet.write_text(small.fleet.read_text().replace("attempts: 3", "attempts: 2"))
    code, rows = small.dispatch()
    assert code == 5
    assert {(row["state"], row["verdict"]) for row in rows} == {("lost", None)}
    logs = [path.read_text() for path in small.folder.glob("log-*")]
    assert len(logs) == 2 * 4
    for text in logs:
        assert "docker ended with 125 and no report" in text
    assert sum("attempt 2" in text for text in logs) == 4
    assert sum("exit 30: submitted again" in text for text in logs) == 4


@pytest.mark.nightly
def test_a_controller_that_dies_and_a_dispatcher_that_is_killed(scene: Scene, cluster: Cluster) -> None:
    for _ in range(KILLS):
        with scene.start() as killed:
            time.sleep(random.uniform(0.5, 4))
            killed.kill()
    cluster.kill("ctld")
    time.sleep(2)
    _start_controller(cluster)
    code, rows = scene.dispatch()
    assert (code, {row["verdict"] for row in rows}) == (0, {"works"}), cluster.logs()
    # a controller that lost its last seconds runs again what was running then; nothing else is done twice
    again = sum(scene.runs().values()) - len(rows)
    assert 0 <= again <= len(NODES)


@pytest.mark.nightly
def test_an_old_job_does_not_speak_for_a_new_one_that_the_controller_lost(
    small: Scene, cluster: Cluster, server: RegistryDouble
) -> None:
    """It shows the COMPLETED jobs of a run whose reports were removed; those submitted since are gone."""
    assert small.dispatch()[0] == 0
    for digest, (_, content) in list(server.manifests.items()):
        if "subject" in json.loads(content):
            del server.manifests[digest]
    cluster.call("scontrol", "shutdown", "slurmctld")
    cluster.processes.pop("ctld").wait(60)
    state, saved = cluster.srv / "state", small.folder / "state"
    shutil.copytree(state, saved)
    _start_controller(cluster)
    small.ask({f"{cell_of(small, 0)} on {name}": ["slow"] for name in ("T4", "A100", "L4", "H100")})
    with small.start() as waiting:
        assert waiting.stderr is not None
        for _ in range(4):
            while "submitted as job" not in (line := waiting.stderr.readline()):
                assert line, "it ended"
        cluster.kill("ctld")
        shutil.rmtree(state)
        shutil.copytree(saved, state)
        _start_controller(cluster)
        assert "COMPLETED" in cluster.call("squeue", "--noheader", "--states=all", "--format=%T")
        until = time.monotonic() + 400
        while waiting.poll() is None and time.monotonic() < until:
            cluster.resume()
            time.sleep(2)
        text, talk = waiting.communicate(timeout=10)
    rows = json.loads(text)["tasks"]
    assert (waiting.returncode, {row["verdict"] for row in rows}) == (0, {"works"}), talk
    assert "submitted as job" in talk, "once more"


def _start_controller(cluster: Cluster) -> None:
    cluster.start("ctld")
    until = time.monotonic() + 60
    while subprocess.run([cluster.bin / "squeue"], capture_output=True, check=False).returncode:
        assert time.monotonic() < until, cluster.logs()
        time.sleep(1)


@pytest.mark.nightly
def test_a_job_that_is_held_after_its_report(small: Scene, cluster: Cluster) -> None:
    """The report ends its task, whatever the queue says; nobody has to release the job."""
    code, _ = small.dispatch()
    ended = cluster.call("squeue", "--noheader", "--states=COMPLETED", "--format=%i|%j").split()
    jobs = [row.partition("|")[0] for row in ended if "|rtbuild-a100-" in row]
    job = max(jobs, key=lambda name: int(name.partition("_")[0]))
    cluster.call("scontrol", "requeuehold", job)
    again, rows = small.dispatch()
    assert (code, again, {row["verdict"] for row in rows}) == (0, 0, {"works"})
    assert set(small.runs().values()) == {1}
    assert "held" in cluster.call("squeue", "--noheader", "--states=PENDING", "--format=%r")


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
