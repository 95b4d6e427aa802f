"""The command against a registry in memory and schedulers that are doubles: programs on the PATH."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest
from publish_doubles import A100, T4, Project, report
from typer.testing import CliRunner

from builder.cli.app import app
from builder.dispatch.node import attach_report, container, verify_digest
from builder.errors import CellError, ImageMissingError, MissingToolError, UsageError
from builder.oci.staging import read_image

if TYPE_CHECKING:
    from pathlib import Path

    from registry_double import RegistryDouble

    from builder.dispatch import node
    from builder.oci.registry import Registry
    from builder.oci.staging import Staged

FLEET = "version: 1\nscheduler: {scheduler}\nstaging: {host}/staging\nclasses: {{T4: {{}}, A100: {{}}}}\n"


@pytest.fixture
def fleet(project: Project, server: RegistryDouble) -> Path:
    path = project.folder / "fleet.yaml"
    path.write_text(FLEET.format(scheduler="slurm", host=server.host))
    return path


def program(folder: Path, name: str, script: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A double of a command, first on the PATH."""
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/bash\n{script}\n")
    path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return path


def slurm_double(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A controller that keeps what is submitted as pending for ever. Jobs are files."""
    jobs = folder / "jobs"
    jobs.mkdir(parents=True)
    program(
        folder, "sbatch", f'n=$(($(ls {jobs} | wc -l) + 1)); cat >{jobs}/$n; echo "$n;cluster"', monkeypatch
    )
    squeue = (
        f"for job in {jobs}/*; do [ -e $job ] || exit 0; name=$(sed -n 's/#SBATCH --job-name=//p' $job);"
        ' count=$(grep -c "^  \'" $job);'
        ' for i in $(seq 0 $((count - 1))); do echo "$(basename $job)|$i|$name|PENDING|Resources"; done; done'
    )
    program(folder, "squeue", squeue, monkeypatch)
    program(folder, "scontrol", f'[ "$1 $2" = "write batch_script" ] && cat {jobs}/$3', monkeypatch)
    return jobs


def call(*words: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["dispatch", *words], standalone_mode=False)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.return_value, result.stdout


def images(project: Project, registry: Registry, server: RegistryDouble) -> list[Staged]:
    return [
        read_image(registry, f"{server.host}/staging", digest)
        for name, digest in server.tags.items()
        if name.startswith("staged-")
    ]


def test_a_dry_run_prints_what_would_be_submitted(project: Project, fleet: Path) -> None:
    code, text = call(str(project.path), "--fleet", str(fleet), "--dry-run")
    assert code == 0
    assert text.count("#!/bin/bash") == 2
    assert text.count("verify-digest") == 2
    assert text.count("@sha256:") == 4


def test_saying_it_twice_submits_once(
    project: Project, fleet: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = slurm_double(tmp_path / "bin", monkeypatch)
    for _ in range(2):
        code, text = call(str(project.path), "--fleet", str(fleet), "--json")
        assert code == 0
    assert len(list(jobs.iterdir())) == 2
    rows = json.loads(text)["tasks"]
    assert [row["scheduler"] for row in rows] == ["PENDING (Resources)"] * 4


def test_what_has_a_verdict_is_not_submitted(
    project: Project,
    fleet: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    registry: Registry,
    server: RegistryDouble,
) -> None:
    jobs = slurm_double(tmp_path / "bin", monkeypatch)
    for image in images(project, registry, server):
        for gpu in (T4, A100):
            assert attach_report(registry, image, json.dumps(report(image, gpu=gpu)).encode())[2]
    code, text = call(str(project.path), "--fleet", str(fleet), "--wait", "--every", "0.2")
    assert code == 0
    assert text.count("works") == 4
    assert list(jobs.iterdir()) == []


def test_a_class_that_the_fleet_lacks_is_named_before_anything_is_submitted(
    project: Project, fleet: Path
) -> None:
    fleet.write_text(fleet.read_text().replace(", A100: {}", ""))
    with pytest.raises(UsageError, match="the fleet has no class A100"):
        call(str(project.path), "--fleet", str(fleet))


def test_an_image_that_is_not_staged_is_named(project: Project, fleet: Path, server: RegistryDouble) -> None:
    server.tags.clear()
    with pytest.raises(ImageMissingError, match="2 of 2 images are not in staging"):
        call(str(project.path), "--fleet", str(fleet))


def test_without_slurm_it_is_said(
    project: Project, fleet: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingToolError, match="there is no squeue here"):
        call(str(project.path), "--fleet", str(fleet))


def test_kubernetes_logs_become_reports(
    project: Project,
    fleet: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    registry: Registry,
    server: RegistryDouble,
) -> None:
    fleet.write_text(FLEET.format(scheduler="kubernetes", host=server.host))
    folder = tmp_path / "bin"
    first = images(project, registry, server)[0]
    log = tmp_path / "log"
    log.write_text("a line of stderr\n" + json.dumps(report(first, gpu=T4)) + "\nand another\n")
    script = f"""
case "$1" in
    apply) cat >>{tmp_path}/applied; echo applied ;;
    get) python3 - <<'END'
import json, pathlib, re
path = pathlib.Path("{tmp_path}/applied")
text = path.read_text() if path.exists() else ""
keys = sorted(set(re.findall(r"name: rtbuild-([0-9a-f]{{20}})", text)))
done = {{"conditions": [{{"type": "Complete", "status": "True"}}]}}
named = [{{"labels": {{"io.rtbuild/key": key}}}} for key in keys]
print(json.dumps({{"items": [{{"metadata": one, "status": done}} for one in named]}}))
END
    ;;
    logs) cat {log} ;;
esac"""
    program(folder, "kubectl", script, monkeypatch)
    code, text = call(str(project.path), "--fleet", str(fleet), "--wait", "--every", "0.2", "--json")
    rows = {(row["image"].partition("@")[2], row["class"]): row for row in json.loads(text)["tasks"]}
    assert rows[first.digest, "T4"]["verdict"] == "works"
    assert rows[first.digest, "A100"]["verdict"] is None  # its log is about a T4, and stays a report on that
    assert code == 5


@pytest.mark.parametrize(
    ("tool", "words"),
    [
        ("docker", ["--gpus", '"device=2"', "--entrypoint", "cudnn-verify"]),
        ("podman", ["--device", "nvidia.com/gpu=2"]),
        ("apptainer", ["exec", "--nv", "--containall"]),
    ],
)
def test_the_container_gets_the_device_that_the_scheduler_gave(tool: Any, words: list[str]) -> None:
    command = container(tool, "r/s@sha256:x", {"SLURM_JOB_GPUS": "2"})
    assert command[0] == tool
    assert [word for word in words if word in command] == words
    if tool != "apptainer":
        assert command[command.index("--network") + 1] == "none"


def docker_double(folder: Path, document: dict[str, Any], code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder.parent / "document").write_text(json.dumps(document))
    program(folder, "docker", f"cat {folder.parent}/document; exit {code}", monkeypatch)


def on_node(
    project: Project, registry: Registry, server: RegistryDouble, card: str = "T4"
) -> node.NodeResult:
    image = images(project, registry, server)[0]
    return verify_digest(registry, image.repository, image.digest, card=card, tool="docker", seconds=20)


def test_a_node_attaches_its_report(
    project: Project,
    registry: Registry,
    server: RegistryDouble,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    image = images(project, registry, server)[0]
    docker_double(tmp_path / "bin", report(image), 0, monkeypatch)
    found = on_node(project, registry, server)
    assert (found.exit_code, found.verdict, found.card, found.attached) == (0, "works", "T4", True)
    again = on_node(
        project, registry, server
    )  # a late second report of the same node is one more, not an error
    assert again.exit_code == 0


def test_a_fleet_that_lies_about_a_card_is_told(
    project: Project,
    registry: Registry,
    server: RegistryDouble,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    image = images(project, registry, server)[0]
    docker_double(tmp_path / "bin", report(image), 0, monkeypatch)
    found = on_node(project, registry, server, card="A100")
    assert found.exit_code == 2
    assert found.attached
    assert "the fleet says A100, and this node has T4" in found.message


def test_a_test_double_is_never_attached(
    project: Project,
    registry: Registry,
    server: RegistryDouble,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    image = images(project, registry, server)[0]
    docker_double(tmp_path / "bin", report(image, test_double=True), 0, monkeypatch)
    assert not on_node(project, registry, server).attached


def test_a_probe_that_fails_says_nothing_about_the_image(
    project: Project,
    registry: Registry,
    server: RegistryDouble,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    program(tmp_path / "bin", "docker", "echo 'no such image'; exit 125", monkeypatch)
    found = on_node(project, registry, server)
    assert (found.exit_code, found.verdict, found.attached) == (30, None, False)


def test_a_report_that_contradicts_its_exit_code_is_none(
    project: Project,
    registry: Registry,
    server: RegistryDouble,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    image = images(project, registry, server)[0]
    docker_double(tmp_path / "bin", report(image), 20, monkeypatch)
    with pytest.raises(CellError, match="says works and ended with 20"):
        on_node(project, registry, server)
