"""What is to be run, as a pure function; and the scripts and manifests that ask for it."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import kubernetes_validate
import pytest
import yaml
from doubles.project import A100, Project, entry

from benchmarks import dispatch as bench
from builder.core.errors import MatrixError
from builder.release.dispatch import kubernetes, slurm
from builder.release.dispatch.by_logs import dstack_scripts
from builder.release.dispatch.fleet import Fleet, load_fleet
from builder.release.dispatch.tasks import Task, missing, verdicts

if TYPE_CHECKING:
    from tests.conftest import Golden

PROBE = "b" * 64
FLEET = Fleet.model_validate(
    {
        "version": "1",
        "scheduler": "slurm",
        "attempts": 3,
        "queue": "gpus",
        "classes": {
            "T4": {"partition": "gpu", "at_once": 4, "product": "Tesla-T4"},
            "A100": {"gres": "gpu:a100_80:1", "minutes": 60, "product": "NVIDIA-A100-SXM4-40GB"},
        },
    }
)


def cell(number: int, *classes: str) -> list[Task]:
    """The verification of one image on each class."""
    return [
        Task(
            column=name,
            cell=f"torch2.{number}.0-py3.11-bookworm",
            matrix="torch",
            repository="registry.example/staging",
            digest="sha256:" + f"{number:x}" * 64,
            probe=PROBE,
            inputs="sha256:" + "a" * 64,
        )
        for name in classes
    ]


TASKS = sorted([*cell(1, "T4", "A100"), *cell(2, "T4")])


def test_the_key_is_of_image_class_probe_and_lock_alone() -> None:
    task = TASKS[0]
    assert re.fullmatch("[0-9a-f]{20}", task.key)
    for changes in (
        {"digest": "x"},
        {"repository": "mirror/x"},
        {"column": "T4"},
        {"probe": "x"},
        {"inputs": "x"},
        {"suites": ("linalg",)},
    ):
        assert replace(task, **changes).key != task.key
    assert replace(task, cell="renamed", matrix="moved").key == task.key


@pytest.fixture
def known(tmp_path: Path) -> tuple[Project, Task]:
    project = Project(tmp_path / "project")
    report = entry(project.cell)
    return project, Task(
        column="T4",
        matrix="tf",
        cell=project.cell.id,
        repository="r/s",
        digest=report.key.digest,
        probe=report.key.probe,
        inputs="x",
    )


def test_a_report_on_this_digest_class_and_probe_is_a_verdict(known: tuple[Project, Task]) -> None:
    project, task = known
    found = verdicts([task], [entry(project.cell)])
    assert found[task.key].verdict == "works"
    assert missing([task], found) == ()


@pytest.mark.parametrize(
    "changes",
    [
        {"digest": "sha256:" + "e" * 64},
        {"gpu": A100},
        {"test_double": True},
        {"verdict": "host", "cause": "driver-missing"},
        {"verdict": "busy", "cause": "device-busy"},
        {"verdict": "unverified", "gpus": [], "driver": None},
        {"probe": {"version": "9.9", "sha256": "0" * 64}},
        {
            "checks": [
                {"id": "C07", "stage": "convolution", "outcome": "failed", "summary": "x", "evidence": {}}
            ]
        },
        {"checks": []},
    ],
    ids=["digest", "class", "double", "host", "busy", "no GPU", "probe", "a failed check", "no convolution"],
)
def test_other_reports_leave_it_to_be_run(known: tuple[Project, Task], changes: dict[str, Any]) -> None:
    project, task = known
    assert missing([task], verdicts([task], [entry(project.cell, **changes)])) == (task,)


def test_a_report_that_was_not_asked_for_a_suite_leaves_it_to_be_run(known: tuple[Project, Task]) -> None:
    project, task = known
    asked = replace(task, suites=("linalg", "train"))
    rows = [{"suite": name, "framework": "torch", "outcome": "not_run"} for name in ("conv", *asked.suites)]
    unnamed = [{**row, "suggested": True} for row in rows]
    for suites, run in ((None, True), (rows[:2], True), (unnamed, True), (rows, False)):
        found = verdicts([asked], [entry(project.cell, **({} if suites is None else {"suites": suites}))])
        assert (missing([asked], found) == (asked,)) is run
    broken = entry(project.cell, verdict="broken", cause="cudnn-missing")
    assert verdicts([asked], [broken])[asked.key].verdict == "broken"


def test_each_scheduler_hands_the_suites_of_a_matrix_to_its_nodes(tmp_path: Path) -> None:
    plain, asked = TASKS[0], replace(TASKS[1], suites=("linalg", "conv-kinds"))
    assert plain.column == "A100"
    one, other = (replace(task, column="T4") for task in (plain, asked))
    script = slurm.verification([one, other], FLEET)
    assert slurm.keys_in(script) == (one.key, other.key)
    told = tmp_path / "rtbuild"
    told.write_text(f'#!/bin/sh\necho "$*" >>{tmp_path}/told\n')
    told.chmod(0o755)
    for index in "01":
        environment = {
            "PATH": f"{tmp_path}:/usr/bin:/bin",
            "SLURM_ARRAY_TASK_ID": index,
            "SLURMD_NODENAME": "n",
        }
        subprocess.run(["bash", "-c", script], env=environment, check=True, capture_output=True)
    first, second = (tmp_path / "told").read_text().splitlines()
    assert first.endswith(f" {one.image}")
    assert "--suite" not in first
    assert second.endswith(f" --suite linalg,conv-kinds {other.image}")

    fleet = FLEET.model_copy(update={"scheduler": "kubernetes", "namespace": "x"})
    jobs = list(yaml.safe_load_all(kubernetes.render([one, other], fleet)["T4"]))
    commands = [job["spec"]["template"]["spec"]["containers"][0]["command"] for job in jobs]
    assert commands == [
        ["cudnn-verify", "--json"],
        ["cudnn-verify", "--json", "--suite", "linalg,conv-kinds"],
    ]
    (rented,) = dstack_scripts([other], fleet).values()
    assert "- cudnn-verify --json --suite linalg,conv-kinds\n" in rented


def test_the_newest_verdict_counts(known: tuple[Project, Task]) -> None:
    project, task = known
    old = entry(project.cell, verified=datetime(2026, 1, 1, tzinfo=UTC))
    new = entry(
        project.cell, verified=datetime(2026, 1, 2, tzinfo=UTC), verdict="broken", cause="cudnn-missing"
    )
    assert verdicts([task], [new, old])[task.key].cause == "cudnn-missing"


def rendered(tasks: list[Task]) -> dict[str, str]:
    """The batch scripts by the names of their arrays."""
    return {name: slurm.verification(part, FLEET) for name, part in slurm.arrays(tasks).items()}


def test_slurm_scripts(golden: Golden) -> None:
    scripts = rendered(TASKS)
    assert list(scripts) == ["A100", "T4"]
    golden("dispatch/slurm.sh", "\n".join(scripts.values()))
    assert slurm.keys_in(scripts["T4"]) == tuple(task.key for task in TASKS[1:])


def test_a_class_of_more_tasks_than_an_array_takes_is_several() -> None:
    many = [replace(cell(1, "T4")[0], digest=f"sha256:{number:064x}") for number in range(2001)]
    scripts = rendered(many)
    assert [(name, len(slurm.keys_in(text))) for name, text in scripts.items()] == [
        ("T4", 1000),
        ("T4.2", 1000),
        ("T4.3", 1),
    ]
    assert [key for text in scripts.values() for key in slurm.keys_in(text)] == [task.key for task in many]
    assert "#SBATCH --array=0-999%4\n" in scripts["T4.2"]


def test_shellcheck_finds_nothing_in_a_script(tmp_path: Path) -> None:
    for name, text in rendered(TASKS).items():
        path = tmp_path / f"{name}.sh"
        path.write_text(text)
        shellcheck = shutil.which("shellcheck", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
        assert shellcheck is not None
        done = subprocess.run([shellcheck, str(path)], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout


def test_kubernetes_manifests(golden: Golden) -> None:
    golden("dispatch/kubernetes.yaml", "".join(kubernetes.render(TASKS, FLEET).values()))


NEWEST = int(kubernetes_validate.latest_version().split(".")[1])


@pytest.mark.parametrize("version", [f"1.{minor}" for minor in range(29, NEWEST + 1)])
def test_manifests_are_valid_by_the_schemas_of_kubernetes(version: str) -> None:
    for text in kubernetes.render(TASKS, FLEET).values():
        for document in yaml.safe_load_all(text):
            kubernetes_validate.validate(document, version, strict=True)


def test_a_pod_has_neither_token_nor_rights() -> None:
    (policy, *jobs) = [
        document for text in kubernetes.render(TASKS, FLEET).values() for document in yaml.safe_load_all(text)
    ]
    assert policy["spec"]["policyTypes"] == ["Ingress", "Egress"]
    assert len(jobs) == len({job["metadata"]["name"] for job in jobs}) == len(TASKS)
    for job in jobs:
        pod = job["spec"]["template"]["spec"]
        assert pod["automountServiceAccountToken"] is False
        assert pod["containers"][0]["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert "@sha256:" in pod["containers"][0]["image"]


def a_job(tmp_path: Path, text: str) -> dict[str, Any]:
    """The Job of a task on a T4 by a fleet file, valid by Kubernetes' schema."""
    path = tmp_path / "fleet.yaml"
    path.write_text(f"version: 1\nscheduler: kubernetes\n{text}")
    (_, made) = kubernetes.render(cell(1, "T4"), load_fleet(path)).values()
    found: dict[str, Any] = yaml.safe_load(made)
    kubernetes_validate.validate(found, kubernetes_validate.latest_version(), strict=True)
    return found


def test_waiting_for_a_card_is_no_part_of_the_time_limit(tmp_path: Path) -> None:
    """A Job's deadline runs from its creation, and a pod's from the moment at which a node took it.

    https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/pod-v1/#lifecycle
    """
    job = a_job(tmp_path, "minutes: 20\nattempts: 3\nclasses: {T4: {}}\n")
    assert "activeDeadlineSeconds" not in job["spec"]
    assert job["spec"]["template"]["spec"]["activeDeadlineSeconds"] == 20 * 60
    assert job["spec"]["backoffLimit"] == 0


def test_a_container_states_what_it_needs(tmp_path: Path) -> None:
    text = "classes: {T4: {cpus: 3, memory: 6Gi, disk: 1Gi, resource: nvidia.com/mig-1g.10gb}}\n"
    pod = a_job(tmp_path, text)["spec"]["template"]["spec"]
    asked = {"cpu": "3", "memory": "6Gi", "ephemeral-storage": "1Gi"}
    limits = {**asked, "nvidia.com/mig-1g.10gb": 1}
    assert pod["containers"][0]["resources"] == {"requests": asked, "limits": limits}
    assert pod["volumes"][0]["emptyDir"] == {"sizeLimit": "1Gi"}


def test_a_card_by_a_resource_claim(tmp_path: Path) -> None:
    pod = a_job(tmp_path, "classes: {T4: {claim: one-t4}}\n")["spec"]["template"]["spec"]
    assert pod["resourceClaims"] == [{"name": "gpu", "resourceClaimTemplateName": "one-t4"}]
    resources = pod["containers"][0]["resources"]
    assert resources["claims"] == [{"name": "gpu"}]
    assert not [name for name in resources["limits"] if "nvidia" in name]


def test_what_a_site_adds_to_a_job(tmp_path: Path) -> None:
    job = a_job(
        tmp_path,
        """
patch:
  metadata: {labels: {team: ml}}
  spec:
    ttlSecondsAfterFinished: 60
    template:
      spec:
        imagePullSecrets: [{name: pull}]
        tolerations: [{key: pool, operator: Exists}]
        containers: [{name: probe, env: [{name: A, value: 'true'}]}]
classes:
  T4:
    product: Tesla-T4
    patch: {spec: {ttlSecondsAfterFinished: 90, template: {spec: {runtimeClassName: x, nodeSelector: null}}}}
""",
    )
    pod = job["spec"]["template"]["spec"]
    assert (job["metadata"]["labels"]["team"], job["spec"]["ttlSecondsAfterFinished"]) == ("ml", 90)
    assert job["metadata"]["labels"][kubernetes.LABEL] == kubernetes.MANAGER
    assert (pod["runtimeClassName"], pod["imagePullSecrets"]) == ("x", [{"name": "pull"}])
    assert [one["key"] for one in pod["tolerations"]] == ["nvidia.com/gpu", "pool"]
    (container,) = pod["containers"]
    assert (container["command"], container["env"][0]["value"]) == (["cudnn-verify", "--json"], "true")
    assert "nodeSelector" not in pod


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("version: 2\nscheduler: slurm\nclasses: {T4: {}}\n", ["fleet.yaml:1:10", "version"]),
        ("version: 1\nscheduler: slrum\nclasses: {T4: {}}\n", ["fleet.yaml:2:12", "scheduler"]),
        ("version: 1\nscheduler: slurm\nclasses: {}\n", ["fleet.yaml:3:10", "classes"]),
        (
            "version: 1\nscheduler: slurm\nclasses:\n  T4: {partitoin: gpu}\n",
            ["fleet.yaml:4:8", "unknown key 'partitoin'", "did you mean 'partition'?"],
        ),
        (
            "version: 1\nscheduler: slurm\nclasses:\n  T4: {partition: 'a; rm -rf /'}\n",
            ["fleet.yaml:4:19", "classes.T4.partition"],
        ),
        (
            "version: 1\nscheduler: slurm\nattempts: 0\nminutes: x\nclasses:\n  T4: {}\n",
            ["fleet.yaml:3:11", "fleet.yaml:4:10"],
        ),
        ("version: 1\nscheduler: [\n", ["fleet.yaml:3:1"]),
        ("version: 1\nscheduler: slurm\nclasses: {'T4$(id)': {}}\n", ["fleet.yaml:3"]),
    ],
)
def test_every_error_of_a_fleet_file_is_at_its_place(tmp_path: Path, text: str, said: list[str]) -> None:
    path = tmp_path / "fleet.yaml"
    path.write_text(text)
    with pytest.raises(MatrixError) as raised:
        load_fleet(path)
    for part in said:
        assert part in str(raised.value)


def test_a_fleet_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "fleet.yaml"
    path.write_text(
        "version: 1\nscheduler: kubernetes\nnamespace: ml\nclasses:\n  t4: {product: Tesla-T4, at_once: 3}\n"
    )
    fleet = load_fleet(path)
    lane = fleet.lane("T4")
    assert (fleet.namespace, lane.product, lane.at_once) == ("ml", "Tesla-T4", 3)


def test_the_page_on_scale_says_what_was_measured() -> None:
    assert bench.page(json.loads(bench.MEASURED.read_text())) == bench.PAGE.read_text()


def test_suites_that_nobody_named_reach_the_nodes_and_make_no_other_task(tmp_path: Path) -> None:
    task = replace(TASKS[1], column="T4", suggested=("linalg", "train"))
    assert task.key == replace(task, suggested=()).key
    told = tmp_path / "rtbuild"
    told.write_text(f'#!/bin/sh\necho "$*; $RTBUILD_SUGGESTED" >>{tmp_path}/told\n')
    told.chmod(0o755)
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "SLURM_ARRAY_TASK_ID": "0", "SLURMD_NODENAME": "n"}
    script = slurm.verification([task], FLEET)
    subprocess.run(["bash", "-c", script], env=environment, check=True, capture_output=True)
    (line,) = (tmp_path / "told").read_text().splitlines()
    assert line.endswith(f" {task.image}; linalg,train")
    assert "--suite" not in line

    fleet = FLEET.model_copy(update={"scheduler": "kubernetes", "namespace": "x"})
    (job,) = yaml.safe_load_all(kubernetes.render([task], fleet)["T4"])
    (container,) = job["spec"]["template"]["spec"]["containers"]
    assert container["command"][-2:] == ["--suggested", "linalg,train"]
