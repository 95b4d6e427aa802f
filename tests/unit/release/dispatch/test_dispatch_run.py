"""The command against a registry in memory and schedulers that are doubles: programs on the PATH."""

from __future__ import annotations

import json
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from doubles.project import A100, T4, report
from doubles.small_image import moment
from rtbuild_command import RTBUILD
from typer.testing import CliRunner

from builder.cli.app import app
from builder.core.errors import (
    CellError,
    CommandError,
    MissingToolError,
    SchedulerError,
    UsageError,
)
from builder.release.dispatch import node, slurm
from builder.release.dispatch.node import PulledImages, container, verify_digest

if TYPE_CHECKING:
    from pathlib import Path

    from doubles.http_server import Request

    from builder.sources.oci.staging import Staged
    from tests.unit.release.dispatch.conftest import Desk


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


def test_a_mirror_s_tasks_are_not_those_of_the_registry_that_it_mirrors(desk: Desk) -> None:
    jobs = desk.slurm()
    desk.call()
    desk.fleet.write_text(desk.fleet.read_text().replace("/staging", "/mirror"))  # the double has no others
    code, rows = desk.tasks()
    assert (code, {row["scheduler"] for row in rows}) == (0, {"PENDING (Resources)"})
    assert "under way" not in desk.said
    assert len(list(jobs.glob("*.after"))) == 4


@pytest.mark.slow
def test_two_dispatchers_at_the_same_moment_submit_once(desk: Desk) -> None:
    """Two processes: the second begins while sbatch holds up the first, whose tasks no queue shows yet."""
    jobs = desk.slurm()
    (desk.bin / "sbatch").rename(desk.bin / "sbatch-double")
    arrived, go = desk.folder / "arrived", desk.folder / "go"
    desk.program(
        "sbatch",
        f'case "$*" in *--test-only*) exit 0 ;; esac; echo $PPID >>{arrived};'
        f' while [ ! -e {go} ]; do sleep 0.05; done; sbatch-double "$@"',
    )
    command = [*RTBUILD, "dispatch", desk.project.path, "--fleet", desk.fleet, "--json"]
    both, talk = [], [desk.folder / "talk1", desk.folder / "talk2"]
    try:
        for said in talk:
            with said.open("wb") as stream:
                both.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stream))
            end = time.monotonic() + 300
            while (
                not (arrived.exists() and (len(both) == 1 or len(set(arrived.read_text().split())) == 2))
                and "it is waited for" not in said.read_text()
            ):
                assert time.monotonic() < end, said.read_text()
                time.sleep(0.05)
    finally:
        go.touch()
        rows = [json.loads(one.communicate(timeout=300)[0])["tasks"] for one in both]
    assert "it is waited for" in talk[1].read_text()
    assert "4 are under way already" in talk[1].read_text()
    assert len(list(jobs.glob("*.after"))) == 2, "one array of each class"
    assert {row["scheduler"] for found in rows for row in found} == {"PENDING (Resources)"}


def test_what_another_dispatcher_submitted_in_between_is_withdrawn(desk: Desk) -> None:
    """Of two that share no folder, each finds the tasks missing: the later job goes."""
    jobs = desk.slurm()
    (desk.bin / "sbatch").rename(desk.bin / "sbatch-double")
    asked = desk.folder / "asked"
    desk.program(
        "sbatch",
        'text=$(cat); case $text in *gpu:t4*) sbatch-double "$@" <<<"$text" >/dev/null ;; esac;'
        ' sbatch-double "$@" <<<"$text"',
    )
    desk.program("scancel", f'echo "scancel $*" >>{asked}; rm {jobs}/${{1%_*}}')
    desk.program(
        "scontrol",
        f'case "$1" in write) cat {jobs}/$3 ;; update) echo "$*" >>{asked} ;;'
        ' show) echo "MaxArraySize = 1001" ;; esac',
    )
    code, rows = desk.tasks()
    assert (code, {row["scheduler"] for row in rows}) == (0, {"PENDING (Resources)"})
    assert asked.read_text().splitlines() == [
        "update JobId=3_[0,1] Comment=rtbuild: withdrawn, an earlier job has the task",
        "scancel 3_[0,1]",
    ]
    assert "2 tasks are withdrawn" in desk.said


def _other_user(desk: Desk, jobs: Path) -> None:
    """The squeue of a site where job 1 is another user's, whose scripts nobody else may read."""
    (desk.bin / "squeue").rename(desk.bin / "squeue-double")
    desk.program(
        "squeue", 'case "$*" in *--me*) none=-v ;; *) none= ;; esac; squeue-double | grep $none "^1|" || true'
    )
    denied = "[ $3 != 1 ] || { echo access denied >&2; exit 1; }"
    desk.program(
        "scontrol",
        f'case "$1" in write) {denied}; cat {jobs}/$3 ;; update) echo "$*" >>{desk.folder}/asked ;;'
        ' show) echo "MaxArraySize = 1001" ;; esac',
    )
    desk.program("scancel", f'echo "scancel $*" >>{desk.folder}/asked; rm {jobs}/${{1%_*}}')


def test_tasks_that_another_user_has_submitted_are_followed(desk: Desk) -> None:
    """Their arrays of the same tasks have the same names, which is all that is seen of them."""
    jobs = desk.slurm()
    desk.call()
    _other_user(desk, jobs)
    (jobs / "2").unlink()
    (jobs / "2.after").unlink()
    code, rows = desk.tasks()
    assert code == 0
    assert "2 are under way already, submitted by another user" in desk.said
    assert [row["scheduler"] for row in rows].count("PENDING (Resources), by job 1 of another user") == 2
    assert len(list(jobs.glob("*.after"))) == 2, "one array each"
    code, rows = desk.tasks("--select", "*-other")
    assert not any("another user" in row["scheduler"] for row in rows), "of other tasks the name is another"


def test_what_another_user_submitted_in_between_is_withdrawn(desk: Desk) -> None:
    """A site that hides it until then is one whose other user was a moment faster."""
    jobs = desk.slurm()
    desk.call()
    _other_user(desk, jobs)
    (jobs / "2").unlink()
    (jobs / "2.after").unlink()
    (desk.bin / "squeue").rename(desk.bin / "squeue-of-two")
    desk.program("squeue", f'[ -e {jobs}/3 ] || case "$*" in *--name*) exit 0 ;; esac; squeue-of-two "$@"')
    code, rows = desk.tasks()
    assert (code, len(rows)) == (0, 4)
    assert "2 tasks are withdrawn" in desk.said
    assert any(line.startswith("scancel ") for line in (desk.folder / "asked").read_text().splitlines())
    assert [row["scheduler"] for row in rows].count("PENDING (Resources), by job 1 of another user") == 2


def test_jobs_that_the_site_renames_are_found(desk: Desk) -> None:
    """Also by a dispatcher that did not submit them; somebody's arrays of other scripts are none of ours."""
    jobs = desk.slurm()
    (desk.bin / "squeue").rename(desk.bin / "squeue-double")
    desk.program("squeue", "squeue-double | sed 's/rtbuild-[a-z0-9-]*/site/'; echo '77|0|x|RUNNING|None'")
    desk.program(
        "scontrol",
        f'case "$1" in write) [ $3 != 77 ] || {{ echo 77 >>{desk.folder}/read; echo true; exit; }};'
        f" cat {jobs}/$3 ;;"
        ' show) echo "MaxArraySize = 1001" ;; esac',
    )
    for _ in range(2):
        code, rows = desk.tasks()
        assert (code, [row["scheduler"] for row in rows]) == (0, ["PENDING (Resources)"] * 4)
    assert len(list(jobs.glob("*.after"))) == 2
    queue = slurm.Queue()
    before = (desk.folder / "read").read_text()
    for _ in range(3):
        assert len(queue.tasks()) == 4
    assert (desk.folder / "read").read_text() == before + "77\n", "another's script is read once"


def test_a_job_that_was_withdrawn_says_nothing_of_its_task(desk: Desk) -> None:
    desk.slurm()
    desk.call()
    failed = "1|0|rtbuild-a100|FAILED|NonZeroExitCode|now|"
    withdrawn = "2|0|rtbuild-a100|CANCELLED|None|now|rtbuild: withdrawn, an earlier job has the task"
    desk.program("scontrol", f"cat {desk.folder}/jobs/1")
    desk.program("squeue", f"echo '{failed}'; echo '{withdrawn}'")
    (found,) = slurm.Queue().tasks().values()
    assert (found.word, found.again) == ("FAILED (NonZeroExitCode)", True)


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
        ("FAILED|NonZeroExitCode", True, True),
        ("FAILED|RaisedSignal:9(Killed)", True, True),
        ("TIMEOUT|TimeLimit", True, True),
        ("CANCELLED|None", True, False),
        ("COMPLETED|None", True, True),
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
    assert container(tool, "r/s@sha256:x", given, "name", ("comm", "infer")) == [
        *command,
        "--suite",
        "comm,infer",
    ]


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


def test_a_report_without_a_suite_that_is_asked_for_is_made_anew(desk: Desk) -> None:
    desk.docker(report(desk.images()[0]), 0)
    assert desk.on_node().attached
    desk.on_node(suites=("train",))
    runs = (desk.folder / "docker").read_text()
    assert runs.count("--suite train") == 1


def test_suites_that_nobody_named_are_handed_to_the_container(desk: Desk) -> None:
    desk.docker(report(desk.images()[0]), 0)
    assert desk.on_node(suggested=("train",)).attached
    assert (desk.folder / "docker").read_text().count("--suggested train") == 1


def test_no_container_is_left_behind(desk: Desk) -> None:
    """What a killed job left on the node goes before, and what does not end goes after."""
    desk.docker(report(desk.images()[0]), 0)
    desk.program("docker", f"echo $* >>{desk.folder}/docker; [ $1 != run ] || exec sleep 60")
    desk.monkeypatch.setenv("SLURM_JOB_GPUS", "1")
    with pytest.raises(CommandError, match="not done after 1 s"):
        desk.on_node(seconds=1)
    name = f"rtbuild-{desk.images()[0].digest[7:19]}-1"
    said = [line for line in (desk.folder / "docker").read_text().splitlines() if "image" not in line.split()]
    assert [line.split()[0] for line in said] == ["rm", "run", "rm"]
    assert said[0] == said[2] == f"rm --force {name}"
    assert f"--name {name}" in said[1]


def test_an_engine_that_hangs_says_so_beside_the_image(desk: Desk) -> None:
    desk.docker(report(desk.images()[0]), 0)
    desk.program("docker", "[ $1 != rm ] || exec sleep 60")
    desk.monkeypatch.setattr(node, "_PATIENCE", 0.2)
    with pytest.raises(MissingToolError, match="docker on this node did not answer"):
        desk.on_node()
    assert "did not answer" in note(desk)


def test_a_container_that_is_late_is_told_though_its_engine_hangs(desk: Desk) -> None:
    desk.docker(report(desk.images()[0]), 0)
    begun = desk.folder / "begun"
    desk.program(
        "docker",
        f"case $1 in run) touch {begun}; exec sleep 60;; rm) [ ! -e {begun} ] || exec sleep 60;; esac",
    )
    desk.monkeypatch.setattr(node, "_PATIENCE", 0.2)
    with pytest.raises(CommandError, match="not done after 1 s"):
        desk.on_node(seconds=1)


def test_a_node_that_cannot_note_what_it_pulled_attaches_its_report(desk: Desk, capsys: Any) -> None:
    desk.docker(report(desk.images()[0]), 0)
    lock = PulledImages(tool="docker", gigabytes=50).path.with_suffix(".lock")
    lock.parent.mkdir(parents=True)
    lock.symlink_to(desk.folder / "elsewhere")
    assert desk.on_node(keep_images=50).attached
    assert "images that were pulled stay on this node: the cache cannot be written" in capsys.readouterr().err


def _pulling(desk: Desk, gigabytes: int) -> Path:
    """A double of Docker that keeps what it pulled, each image of that size; the folder of its images."""
    images = desk.folder / "images"
    images.mkdir()
    desk.program(
        "docker",
        f'at={images}/$(echo "${{@: -1}}" | tail -c 9)\n'
        'case "$1 $2" in\n'
        f'"image inspect") [ -e $at ] && echo {gigabytes}000000000 ;;\n'
        '"image rm") [ ! -e $at.used ] && rm $at ;;\n'
        f'run*) touch {images}/$(echo "${{@: -2:1}}" | tail -c 9); cat {desk.folder}/document ;;\nesac',
    )
    return images


def test_images_beyond_the_budget_go_from_a_node(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    """Of those that tasks pulled, and those first that ran the longest ago; somebody's own stay."""
    images = _pulling(desk, 30)
    first, second = desk.images()

    def run(image: Staged, keep: int = 50) -> None:
        (desk.folder / "document").write_text(
            json.dumps(report(image, verdict="host", cause="driver-missing"))
        )
        with suppress(CellError):
            verify_digest(
                desk.registry,
                image.repository,
                image.digest,
                card="T4",
                tool="docker",
                seconds=20,
                keep_images=keep,
            )

    (images / first.digest[-8:]).touch()
    run(first)
    run(second)
    assert len(list(images.iterdir())) == 2, "the first is not a task's"
    (images / first.digest[-8:]).unlink()
    run(first)
    assert [path.name for path in images.iterdir()] == [first.digest[-8:]]
    assert f"{second.reference} is removed from this node, which keeps 50 GB" in capsys.readouterr().err
    run(second, keep=60)
    (images / f"{first.digest[-8:]}.used").touch()
    run(second, keep=0)
    assert sorted(path.name[:8] for path in images.iterdir()) == [first.digest[-8:]] * 2, (
        "a container runs it"
    )
    (images / f"{first.digest[-8:]}.used").unlink()
    run(second, keep=0)
    assert list(images.iterdir()) == []


@pytest.mark.parametrize(("keep", "cached"), [(50, True), (0, False)])
def test_apptainer_keeps_nothing_without_a_budget(desk: Desk, keep: int, cached: bool) -> None:
    desk.program("apptainer", f"echo $* >>{desk.folder}/asked; cat {desk.folder}/document")
    (desk.folder / "document").write_text(json.dumps(report(desk.images()[0])))
    image = desk.images()[0]
    verify_digest(
        desk.registry,
        image.repository,
        image.digest,
        card="T4",
        tool="apptainer",
        seconds=20,
        keep_images=keep,
    )
    assert ("exec --disable-cache --nv" not in (desk.folder / "asked").read_text()) == cached


def test_a_budget_is_handed_to_the_nodes(desk: Desk) -> None:
    desk.write_fleet("slurm", "keep_images: 7\n")
    assert desk.call("--dry-run")[1].count("--keep-images 7 ") == 2
    desk.write_fleet("slurm")
    assert "--keep-images" not in desk.call("--dry-run")[1]


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


def refuse_after_the_run(desk: Desk, status: int, times: int = 1000) -> None:
    """The registry goes when the container has run."""
    known = desk.images()
    desk.monkeypatch.setattr(desk, "images", lambda: known)
    left = [status] * times

    def gone(_request: Request) -> int | None:
        return left.pop() if left and (desk.folder / "docker").exists() else None

    desk.server.fault = gone


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """No pause between questions to a registry."""
    assert sum(node._WAITS) < 60, "seconds, for which a card is held"
    monkeypatch.setattr(node, "_WAITS", (0,) * len(node._WAITS))


@pytest.mark.usefixtures("at_once")
def test_a_short_silence_of_the_registry_is_waited_out(desk: Desk) -> None:
    desk.docker(report(desk.images()[0]), 0)
    refuse_after_the_run(desk, 503, times=2)
    assert desk.on_node().attached


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("status", [403, 429, 500])
def test_a_report_that_the_registry_does_not_take_is_kept_and_handed_in(desk: Desk, status: int) -> None:
    desk.docker(report(desk.images()[0]), 0)
    refuse_after_the_run(desk, status)
    kept = desk.on_node()
    assert (kept.exit_code, kept.attached) == (node.KEPT, False)
    assert kept.message.startswith("registry: ")
    assert kept.message.endswith("; the report (works) is kept on this node")
    assert desk.on_node().exit_code == node.AWAY, "still away, and nothing runs"
    desk.server.fault = None
    handed_in = desk.on_node(hand_in=True)
    assert (handed_in.exit_code, handed_in.message, handed_in.attached) == (0, "works on T4", True)
    assert (desk.folder / "docker").read_text().count("run --rm") == 1, "the card ran once"
    assert not list((desk.folder / "cache").rglob("*.json"))
    assert desk.on_node().message == "works, by a report that is there"


def test_without_a_kept_report_nothing_runs_where_there_is_no_card(desk: Desk) -> None:
    desk.docker(report(desk.images()[0]), 0)
    assert desk.on_node(hand_in=True).exit_code == node.AWAY
    assert not (desk.folder / "docker").exists()


def test_what_stands_in_the_place_of_a_kept_report_is_passed_over(desk: Desk) -> None:
    desk.docker(report(desk.images()[0]), 0)
    place = node.KeptReport.of(desk.images()[0], "T4").path
    place.parent.mkdir(parents=True)
    for text in ("", "{}", "[" * 10_000, '{"reports": [{"text": "{}"}], "verdict": "works", "seen": null}'):
        place.write_text(text)
        assert node.KeptReport.of(desk.images()[0], "T4").read() is None
    assert desk.on_node().attached


@pytest.mark.usefixtures("at_once")
def test_a_registry_that_is_away_before_the_run_is_no_attempt(desk: Desk) -> None:
    desk.docker(report(desk.images()[0]), 0)
    known = desk.images()
    desk.monkeypatch.setattr(desk, "images", lambda: known)
    desk.server.fault = lambda _request: 503
    found = desk.on_node()
    assert (found.exit_code, found.message[:10]) == (node.AWAY, "registry: ")
    assert not (desk.folder / "docker").exists()


def note(desk: Desk, card: str = "T4") -> str:
    (found,) = (said[card] for image in desk.images() if (said := node.notes_beside(desk.registry, image)))
    return found.partition(" UTC: ")[2]


def test_a_node_without_nvidias_runtime_says_so_beside_the_image(desk: Desk) -> None:
    said = 'docker: Error response from daemon: could not select device driver "" with capabilities: [[gpu]].'
    desk.program("docker", f"[ $1 = run ] || exit 0; echo '{said}' >&2; exit 125")
    found = desk.on_node()
    assert (found.exit_code, found.attached) == (30, False)
    assert "NVIDIA's container toolkit is not set up" in note(desk)
    assert "could not select device driver" in note(desk)


def test_a_node_without_a_container_tool_says_so_beside_the_image(desk: Desk) -> None:
    image = desk.images()[0]
    desk.monkeypatch.setenv("PATH", str(desk.bin))
    desk.monkeypatch.setenv("SLURMD_NODENAME", "n7")
    with pytest.raises(MissingToolError):
        node.verify_digest(desk.registry, image.repository, image.digest, card="T4", tool=None, seconds=9)
    (said,) = node.notes_beside(desk.registry, image).values()
    assert said.startswith("n7, ")
    assert said.endswith("there is no docker or podman or apptainer or singularity on this node")


def test_a_wrong_card_says_so_beside_the_image_and_in_the_table(desk: Desk) -> None:
    desk.docker(report(desk.images()[0]), 0)
    desk.on_node(card="A100")
    assert note(desk, "A100") == "the fleet says A100, and its node has T4: mend the fleet file"
    desk.slurm()
    desk.program("squeue", "true")  # each job is gone at once
    _, rows = desk.tasks("--wait", "--every", "0.2")
    words = [row["scheduler"] for row in rows if row["class"] == "A100" and row["state"] == "lost"]
    assert sum("the fleet says A100, and its node has T4" in word for word in words) == 1


def test_a_controller_that_gives_an_id_again_is_not_taken_at_its_old_word(desk: Desk) -> None:
    """It was killed before it wrote down its newest jobs; the next submission gets the id of one of them."""
    jobs = desk.slurm()
    desk.call()
    queue = slurm.Queue()
    line = "echo '1|0|rtbuild-{}|RUNNING|None|2026-01-01T00:00:{}|'"
    desk.program("squeue", line.format("a100", "01"))
    (before,) = queue.tasks()
    (jobs / "1").write_text((jobs / "2").read_text())
    desk.program("squeue", line.format("t4", "09"))
    (after,) = queue.tasks()
    assert before != after


@pytest.mark.parametrize("state", ["COMPLETED|None", "CANCELLED|None", "FAILED|NonZeroExitCode"])
def test_how_an_old_job_ended_says_nothing_of_a_new_one_that_is_gone(desk: Desk, state: str) -> None:
    """The controller shows ended jobs for minutes; it was killed, and lost those submitted since."""
    jobs = desk.slurm()
    desk.call()
    row = "echo '{}|{}|rtbuild-{}|" + state + "|2026-01-01T00:00:01|rtbuild: n7: exit 22'"
    old = [row.format(job, index, name) for job, name in ((1, "a100"), (2, "t4")) for index in (0, 1)]
    desk.program("squeue", "; ".join(old))
    code, rows = desk.tasks("--wait", "--every", "0.2")
    assert (code, {row["state"] for row in rows}) == (5, {"lost"})
    assert {row["scheduler"] for row in rows} == {"ended without a verdict: it is gone"}
    assert len(list(jobs.glob("*.after"))) == 2 + 2 * 3, "each class as often as `attempts` says"


@pytest.mark.parametrize(
    ("comment", "again", "reason"),
    [
        ("rtbuild: n7: rtbuild is not on this node", False, "n7: rtbuild is not on this node"),
        ("again, rtbuild: n7: exit 22", True, "n7: exit 22"),
        ("somebody's own | words", True, ""),
        ("", True, ""),  # a controller that was killed ended it: a script that decides says so
    ],
)
def test_the_comment_of_a_job_says_why_it_failed(desk: Desk, comment: str, again: bool, reason: str) -> None:
    desk.slurm()
    desk.call()
    row = f"1|0|rtbuild-a100|FAILED|NonZeroExitCode|2026-01-01T00:00:01|{comment}"
    desk.program("squeue", f'echo "{row}"')
    (found,) = slurm.Queue().tasks().values()
    assert (found.again, found.reason) == (again, reason)
    desk.program("squeue", f'echo "{row}"'.replace("FAILED|NonZeroExitCode", "PENDING|BeginTime"))
    (found,) = slurm.Queue().tasks().values()
    assert found.word == "PENDING (BeginTime)" + (f": {reason}" if reason else "")


@dataclass
class ScriptRun:
    """What a batch script did with the exit code of its task."""

    code: int
    submitted: list[str]
    comments: list[str]


def run_script(
    desk: Desk,
    code: int,
    *,
    said: str = "no driver on this node",
    submits: bool = True,
    before: tuple[str, ...] = (),
    **variables: str,
) -> ScriptRun:
    """Run the batch script of the first class by bash, with doubles of what it calls.

    ``said``: the reason that rtbuild hands over; ``before``: the words of what starts bash.
    """
    _, text = desk.call("--dry-run")
    script = desk.folder / "script"
    script.write_text(text[: text.index("#!/bin/bash", 1)])
    log = desk.folder / "calls"
    log.unlink(missing_ok=True)
    desk.program("rtbuild", f"printf '{said}' >$RTBUILD_REASON; exit {code}")
    if code == 127:
        (desk.bin / "rtbuild").unlink()
    here = 'gres=$(grep -c "^#SBATCH --gres" "${@: -1}" 2>/dev/null || grep -c "^#SBATCH --gres")'
    desk.program(
        "sbatch",
        f'{here}; echo "sbatch ${{RTBUILD_HAND_IN:-0}} $gres $*" >>{log}; exit {0 if submits else 1}',
    )
    desk.program("scontrol", f'echo "scontrol $*" >>{log}')
    given = {"SLURM_ARRAY_TASK_ID": "0", "SLURM_ARRAY_JOB_ID": "5", "SLURMD_NODENAME": "n7"}
    path = f"{desk.bin}:/usr/bin:/bin"
    done = subprocess.run(
        [*before, "bash", str(script)],
        env={"PATH": path, **given, **variables},
        capture_output=True,
        check=False,
    )
    lines = log.read_text().splitlines() if log.exists() else []
    return ScriptRun(
        done.returncode,
        [line.removeprefix("sbatch ") for line in lines if line.startswith("sbatch ")],
        [line.partition("Comment=")[2] for line in lines if line.startswith("scontrol ")],
    )


def test_a_verdict_ends_a_script(desk: Desk) -> None:
    for code in (0, 20, 21):
        done = run_script(desk, code)
        assert (done.code, done.submitted) == (code, [])
    wrong = run_script(desk, 2)
    assert (wrong.code, wrong.submitted, wrong.comments) == (2, [], ["rtbuild: n7: no driver on this node"])


def test_a_script_submits_its_task_again_and_says_why(desk: Desk) -> None:
    done = run_script(desk, 22)
    (order,) = done.submitted
    assert done.code == 0
    assert "--comment=rtbuild: n7: no driver on this node" in order
    assert "--exclude=n7" in order
    last = run_script(desk, 22, RTBUILD_ATTEMPT="3")
    assert (last.code, last.submitted) == (1, [])
    assert last.comments == ["rtbuild: n7: no driver on this node"]


def test_a_node_whose_rtbuild_does_not_know_an_option_is_named_and_left(desk: Desk) -> None:
    """An older one ends as a fleet file that is wrong about a card does, which is so on every node."""
    done = run_script(desk, 2, said="")
    assert (done.code, len(done.submitted)) == (0, 1)
    assert "--exclude=n7" in done.submitted[0]
    assert "rtbuild: n7: rtbuild on this node is of another version" in done.submitted[0]


def test_a_node_without_rtbuild_is_named(desk: Desk) -> None:
    done = run_script(desk, 127, RTBUILD_ATTEMPT="3")
    assert done.comments == ["rtbuild: n7: rtbuild is not on this node"]


@pytest.mark.parametrize("compatible", ["", "4.4"], ids=["bash", "as bash 4.4"])
def test_a_node_without_room_for_a_temporary_file_is_named_and_left(desk: Desk, compatible: str) -> None:
    """It was a task without a subject, which no other node was asked to run, or an exit without a word."""
    full = desk.folder / "full"
    full.mkdir()
    alone = ("unshare", "--user", "--map-root-user", "--mount", "sh", "-ec")
    mount = f'mount -t tmpfs -o size=4k,nr_inodes=1 none {full}; exec "$@"'
    before = (*alone, mount, "sh")
    if subprocess.run([*before, "true"], capture_output=True, check=False).returncode:
        pytest.skip("needs a namespace of its own")
    done = run_script(desk, 0, before=before, TMPDIR=str(full), BASH_COMPAT=compatible)
    said = "rtbuild: n7: no temporary file can be made on this node"
    assert (done.code, len(done.submitted)) == (0, 1)
    assert "--exclude=n7" in done.submitted[0]
    assert said in done.submitted[0]


def test_a_reason_that_cannot_be_written_costs_no_verdict(desk: Desk) -> None:
    desk.docker(report(desk.images()[0]), 0)
    desk.monkeypatch.setenv("RTBUILD_REASON", "/dev/full")
    words = ["verify-digest", desk.images()[0].reference, "--card", "T4", "--runtime", "docker"]
    result = CliRunner().invoke(app, words, standalone_mode=False)
    assert result.return_value == 0, result.exception
    assert "No space left on device" in result.stderr


def test_where_no_node_may_submit_the_dispatcher_does(desk: Desk) -> None:
    done = run_script(desk, 22, submits=False)
    assert done.code == 1
    assert done.comments == ["again, rtbuild: n7: no driver on this node"]


def test_a_card_is_given_back_while_the_registry_is_away(desk: Desk) -> None:
    away = run_script(desk, node.AWAY, RTBUILD_ATTEMPT="3")
    assert away.code == 0
    assert ("--begin=now+60" in away.submitted[0], "--gres=gpu:a100:1" in away.submitted[0]) == (True, True)
    kept = run_script(desk, node.KEPT, RTBUILD_LATER="2")
    (order,) = kept.submitted
    assert (kept.code, order[:4]) == (0, "1 0 "), "hand in, and no line that asks for a card"
    assert "--gres" not in order
    assert "--begin=now+180" in order
    assert "--nodelist=n7" in order
    late = run_script(desk, node.KEPT, RTBUILD_LATER="20")
    assert (late.code, late.submitted, len(late.comments)) == (1, [], 1)


def test_a_site_s_own_lines_options_memory_and_processors(desk: Desk) -> None:
    limits = "{cpus: 4, memory: 8G, setup: ['module load apptainer'], options: {mail-type: FAIL, time: '9'}}"
    desk.write_fleet("slurm", "setup: [source /etc/profile]\n", limits=limits)
    _, text = desk.call("--dry-run")
    script = text[: text.index("#!/bin/bash", 1)].splitlines()
    for line in ("--cpus-per-task=4", "--mem=8G", "--mail-type=FAIL", "--time=30"):
        assert f"#SBATCH {line}" in script
    assert script.index("source /etc/profile") + 1 == script.index("module load apptainer")
    assert script.index("module load apptainer") < next(
        n for n, line in enumerate(script) if "verify-digest" in line
    )


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
