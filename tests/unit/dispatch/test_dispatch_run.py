"""The command against a registry in memory and schedulers that are doubles: programs on the PATH."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from doubles.project import A100, T4, report
from doubles.small_image import moment

from builder.core.errors import (
    CellError,
    CommandError,
    MissingToolError,
    RegistryError,
    SchedulerError,
    UsageError,
)
from builder.release.dispatch import node, slurm
from builder.release.dispatch.node import container

if TYPE_CHECKING:
    from doubles.http_server import Request

    from tests.unit.dispatch.conftest import Desk


def test_a_dry_run_prints_what_would_be_submitted(desk: Desk) -> None:
    code, text = desk.call("--dry-run")
    assert code == 0
    assert text.count("#!/bin/bash") == 2
    assert text.count("verify-digest") == 2
    assert text.count("@sha256:") == 4


def test_saying_it_twice_submits_once(desk: Desk) -> None:
    jobs = desk.slurm()
    for _ in range(2):
        code, rows = desk.tasks()
        assert code == 0
    assert len(list(jobs.glob("*.after"))) == 2
    assert [row["scheduler"] for row in rows] == ["PENDING (Resources)"] * 4


def test_what_has_a_verdict_is_not_submitted(desk: Desk) -> None:
    jobs = desk.slurm()
    for image in desk.images():
        for gpu in (T4, A100):
            assert desk.report(image, report(image, gpu=gpu))
    code, text = desk.call("--wait", "--every", "0.2")
    assert code == 0
    assert text.count("works") == 4
    assert list(jobs.iterdir()) == []


def test_a_task_that_waits_in_the_queue_costs_the_registry_nothing(desk: Desk) -> None:
    desk.slurm()
    desk.call()
    before = len(desk.server.requests)
    desk.call()
    # what is in staging, and which reports there are; nothing more for the look at four pending tasks
    asked = [line for line in desk.server.requests[before:] if "/referrers/" in line]
    assert len(asked) == 2


def test_a_class_that_the_fleet_lacks_is_named_before_anything_is_submitted(desk: Desk) -> None:
    desk.fleet.write_text(desk.fleet.read_text().replace(", A100: {}", ""))
    with pytest.raises(UsageError, match="the fleet has no class A100"):
        desk.call()


def test_a_class_that_the_scheduler_refuses_keeps_no_other_from_its_turn(desk: Desk) -> None:
    jobs = desk.slurm()
    real = desk.bin / "sbatch"
    real.rename(desk.bin / "sbatch-double")
    desk.program(
        "sbatch",
        "text=$(cat); case $text in *gpu:t4*) echo 'sbatch: error: Invalid generic resource' >&2; exit 1 ;;"
        ' esac; sbatch-double "$@" <<<"$text"',
    )
    code, rows = desk.tasks()
    assert code == 5
    assert {(row["class"], row["state"], row["scheduler"]) for row in rows} == {
        ("T4", "lost", "not submitted: Invalid generic resource"),
        ("A100", "waiting", "PENDING (Resources)"),
    }
    assert len(list(jobs.glob("*.after"))) == 1


def test_arrays_are_as_large_as_the_controller_lets_them_be(desk: Desk) -> None:
    jobs = desk.slurm()
    desk.write_fleet("slurm", limits="{at_once: 3}")
    desk.program(
        "scontrol", f'case "$1" in write) cat {jobs}/$3 ;; show) echo "MaxArraySize            = 1" ;; esac'
    )
    assert desk.call()[0] == 0
    after = [(jobs / f"{number}.after").read_text() for number in (1, 2, 3, 4)]
    assert [text.partition("afterany:")[2].strip() for text in after] == ["", "1", "", "3"]
    _, rows = desk.tasks()
    assert {row["state"] for row in rows} == {"waiting"}
    assert "4 are under way already" in desk.said


def test_an_array_that_is_too_large_is_submitted_in_halves(desk: Desk) -> None:
    """A limit that `scontrol show config` does not show: of a site's plug-in, or of the user."""
    jobs = desk.slurm()
    real = desk.bin / "sbatch"
    real.rename(desk.bin / "sbatch-double")
    refusal = "Batch job submission failed: Job violates accounting/QOS policy (job submit limit, …)"
    desk.program(
        "sbatch",
        f"text=$(cat); case $text in *array=0-1*) echo 'sbatch: error: {refusal}' >&2; exit 1 ;;"
        f' esac; [ $(ls {jobs} | grep -vc after) -lt $ROOM ] || {{ echo "sbatch: error: {refusal}" >&2;'
        ' exit 1; }; sbatch-double "$@" <<<"$text"',
    )
    desk.monkeypatch.setenv("ROOM", "3")
    code, rows = desk.tasks()
    assert code == 5
    assert [row["scheduler"] for row in rows] == ["PENDING (Resources)"] * 3 + [f"not submitted: {refusal}"]
    desk.monkeypatch.setenv("ROOM", "4")
    assert desk.tasks()[0] == 0
    assert len(list(jobs.glob("*.after"))) == 4


@pytest.mark.parametrize(
    ("state", "ended", "again"),
    [
        ("RUNNING|None", False, False),
        ("FAILED|NonZeroExitCode", True, False),
        ("FAILED|RaisedSignal:9(Killed)", True, True),
        ("TIMEOUT|TimeLimit", True, True),
        ("CANCELLED|None", True, False),
        ("COMPLETED|None", True, False),
    ],
)
def test_what_slurm_says_of_a_job_that_it_has_or_had(
    desk: Desk, state: str, ended: bool, again: bool
) -> None:
    desk.slurm()
    desk.call()
    desk.program("squeue", f"echo '1|0|rtbuild-a100|{state}'; echo '1|1|rtbuild-a100|PENDING|Priority'")
    queue = slurm.Queue()
    first, second = queue.tasks().values()
    assert (first.ended, first.again, second.queued) == (ended, again, True)
    desk.program("scontrol", "echo 'Invalid job id specified' >&2; exit 1")  # the script goes before the job
    desk.program("squeue", f"echo '1|0|rtbuild-a100|{state}'; echo '9|0|rtbuild-t4|RUNNING|None'")
    assert [found.ended for found in queue.tasks().values()] == [ended]


@pytest.mark.parametrize(
    ("reason", "queued"),
    [
        ("JobHeldUser", False),
        ("launch failed requeued held", False),
        ("JobHoldMaxRequeue", False),
        ("QOSUsageThreshold", True),
    ],
)
def test_a_held_job_may_have_its_report(desk: Desk, reason: str, queued: bool) -> None:
    """Slurm holds a job that it cannot start a second time: the registry is asked about its task."""
    desk.slurm()
    desk.call()
    desk.program("squeue", f"echo '1|0|rtbuild-a100|PENDING|{reason}'")
    (held,) = slurm.Queue().tasks().values()
    assert (held.queued, held.ended, held.word) == (queued, False, f"PENDING ({reason})")


def test_a_job_that_was_killed_runs_again_by_itself(desk: Desk) -> None:
    """The double loses each job at once; the third time it is lost for good."""
    jobs = desk.slurm()
    desk.program("squeue", "true")
    code, rows = desk.tasks("--wait", "--every", "0.2")
    assert (code, {row["state"] for row in rows}) == (5, {"lost"})
    assert len(list(jobs.glob("*.after"))) == 2 * 3, "two classes, as often as `attempts`"


def test_a_login_that_may_not_push_is_told_before_anything_is_submitted(desk: Desk) -> None:
    jobs = desk.slurm()
    desk.server.fault = lambda request: 403 if request.method == "POST" else None
    assert desk.call()[0] == 0
    said = f"warning: this machine's login may not push to {desk.server.host}/staging (HTTP 403)"
    assert f"{said}: the nodes need one that may" in desk.said.splitlines()
    assert len(list(jobs.glob("*.after"))) == 2


def test_trying_to_push_leaves_nothing_behind(desk: Desk) -> None:
    desk.slurm()
    before = len(desk.server.requests)
    desk.call()
    asked = [line for line in desk.server.requests[before:] if "uploads" in line]
    assert [line.split()[0] for line in asked] == ["POST", "DELETE"]
    assert asked[1].rpartition("/")[2] != ""


def test_words_of_a_site_around_a_jobs_id(desk: Desk) -> None:
    desk.slurm()
    desk.program("sbatch", "cat >/dev/null; echo 'Welcome to the 2nd cluster'; echo '17;gpu1'; echo 'Bye 3'")
    assert desk.call()[0] == 0
    assert "T4: submitted as job 17" in desk.said
    desk.program("sbatch", "cat >/dev/null; echo 'Welcome'")
    assert desk.call()[0] == 5


def test_an_image_that_is_not_staged_is_named(desk: Desk) -> None:
    desk.server.tags.clear()
    with pytest.raises(MissingToolError, match="2 of 2 images are not in staging"):
        desk.call()


def test_without_slurm_it_is_said(desk: Desk) -> None:
    desk.monkeypatch.setenv("PATH", str(desk.folder))
    with pytest.raises(MissingToolError, match="there is no squeue here"):
        desk.call()


@pytest.mark.parametrize(
    ("tool", "words"),
    [
        ("docker", ["--gpus", '"device=2"', "--entrypoint", "cudnn-verify"]),
        ("podman", ["--device", "nvidia.com/gpu=2"]),
        ("apptainer", ["exec", "--nv", "--containall", "CUDA_VISIBLE_DEVICES=GPU-1"]),
    ],
)
def test_the_container_gets_the_device_that_the_scheduler_gave(tool: Any, words: list[str]) -> None:
    given = {"SLURM_JOB_GPUS": "2", "CUDA_VISIBLE_DEVICES": "GPU-1"}
    command = container(tool, "r/s@sha256:x", given, "name")
    assert command[0] == tool
    assert [word for word in words if word in command] == words
    if tool != "apptainer":
        assert command[command.index("--network") + 1] == "none"


@pytest.mark.parametrize(
    ("tool", "words"),
    [
        ("docker", ["--gpus", '"device=MIG-1b2c"']),
        ("podman", ["--device", "nvidia.com/gpu=MIG-1b2c"]),
        ("apptainer", ["--nv", "--env", "CUDA_VISIBLE_DEVICES=MIG-1b2c"]),
    ],
)
def test_the_container_gets_the_part_of_a_gpu_that_the_scheduler_gave(tool: Any, words: list[str]) -> None:
    """Slurm counts parts as if they were GPUs: the third part is not the third GPU."""
    given = {"SLURM_JOB_GPUS": "2", "CUDA_VISIBLE_DEVICES": "MIG-1b2c"}
    command = container(tool, "r/s@sha256:x", given, "name")
    assert [word for word in command if word in words] == words
    assert "nvidia.com/gpu=2" not in command


def test_a_node_attaches_its_report(desk: Desk) -> None:
    desk.docker(report(desk.images()[0]), 0)
    found = desk.on_node()
    assert (found.exit_code, found.message, found.attached) == (0, "works on T4", True)


def test_a_task_that_was_submitted_twice_runs_once(desk: Desk) -> None:
    desk.docker(report(desk.images()[0]), 0)
    assert desk.on_node().attached
    again = desk.on_node()
    assert (again.exit_code, again.attached) == (0, False)
    assert "by a report that is there" in again.message
    runs = (desk.folder / "docker").read_text()
    assert runs.count("run --rm") == 1
    # a late report of a node that was thought dead is one more, not an error
    assert desk.report(desk.images()[0], report(desk.images()[0]), verified=moment(days=1))


def test_no_container_is_left_behind(desk: Desk) -> None:
    """What a killed job left on the node goes before, and what does not end goes after."""
    desk.docker(report(desk.images()[0]), 0)
    desk.program("docker", f"echo $* >>{desk.folder}/docker; [ $1 = rm ] || exec sleep 60")
    desk.monkeypatch.setenv("SLURM_JOB_GPUS", "1")
    with pytest.raises(CommandError, match="not done after 1 s"):
        desk.on_node(seconds=1)
    name = f"rtbuild-{desk.images()[0].digest[7:19]}-1"
    said = (desk.folder / "docker").read_text().splitlines()
    assert [line.split()[0] for line in said] == ["rm", "run", "rm"]
    assert said[0] == said[2] == f"rm --force {name}"
    assert f"--name {name}" in said[1]


def test_a_fleet_that_lies_about_a_card_is_told(desk: Desk) -> None:
    desk.docker(report(desk.images()[0]), 0)
    found = desk.on_node(card="A100")
    assert found.exit_code == 2
    assert found.attached
    assert "the fleet says A100, and its node has T4" in found.message


def test_a_test_double_is_never_attached(desk: Desk) -> None:
    desk.docker(report(desk.images()[0], test_double=True), 0)
    assert not desk.on_node().attached


def test_a_probe_that_fails_says_nothing_about_the_image(desk: Desk) -> None:
    desk.program("docker", "echo 'no such image'; exit 125")
    found = desk.on_node()
    assert (found.exit_code, found.attached) == (30, False)
    assert "ended with 125 and no report\n  no such image" in found.message


def test_a_report_that_contradicts_its_exit_code_is_none(desk: Desk) -> None:
    desk.docker(report(desk.images()[0]), 20)
    with pytest.raises(CellError, match="says works, and its container ended with 20"):
        desk.on_node()


@pytest.mark.parametrize(("back_after", "attached"), [(2, True), (99, False)])
def test_a_report_outlives_a_registry_that_is_away(desk: Desk, back_after: int, attached: bool) -> None:
    """The registry goes when the container has run."""
    desk.docker(report(desk.images()[0]), 0)
    refused: list[str] = []

    def gone(request: Request) -> int | None:
        ran = (desk.folder / "docker").exists()
        if not ran or request.method != "HEAD" or "/manifests/" not in request.path:
            return None
        if len(refused) == back_after:
            return None
        refused.append(request.path)
        return 503

    assert sum(node._WAITS) > 200, "seconds"
    desk.monkeypatch.setattr(node, "_WAITS", (0,) * len(node._WAITS))
    desk.server.fault = gone
    if attached:
        assert desk.on_node().attached
        return
    with pytest.raises(RegistryError):
        desk.on_node()
    assert len(refused) == len(node._WAITS) + 1


def test_a_controller_that_does_not_tell_a_job_s_tasks_is_no_absence(desk: Desk) -> None:
    desk.slurm()
    desk.call()
    told = (desk.bin / "scontrol").read_text()
    desk.program("scontrol", "echo 'Unable to contact slurm controller' >&2; exit 1")
    desk.program("squeue", "echo '1|0|rtbuild-a100|RUNNING|None'")
    queue = slurm.Queue()
    with pytest.raises(SchedulerError):
        queue.tasks()
    desk.program("squeue", "echo '1|0|rtbuild-a100|CANCELLED|None'")
    assert queue.tasks() == {}
    (desk.bin / "scontrol").write_text(told)
    assert len(queue.tasks()) == 1, "it is asked again"


@pytest.mark.parametrize("status", [429, 503])
def test_a_registry_that_cannot_say_whether_one_may_push_is_no_yes(desk: Desk, status: int) -> None:
    desk.slurm()
    desk.server.fault = lambda request: (
        status if request.method == "POST" and "uploads" in request.path else None
    )
    with pytest.raises(MissingToolError, match=rf"begins no upload \(HTTP {status}\)"):
        desk.call()
