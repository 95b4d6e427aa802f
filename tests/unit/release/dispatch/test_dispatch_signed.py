"""Reports that nodes sign, what a dispatcher believes, and what containers print without end."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pytest
from doubles.cosign import CosignDouble
from doubles.project import A100, T4, report

from builder.core.errors import CellError, UsageError
from builder.release.dispatch import by_logs, kubernetes, node, tasks
from builder.release.dispatch.by_logs import _json_in
from builder.release.dispatch.fleet import load_fleet
from builder.verify.evidence.attach import shared
from builder.verify.evidence.statement import Cosign, People, Signer
from builder.verify.runner.reports import SealedReport

if TYPE_CHECKING:
    from pathlib import Path

    from tests.unit.release.dispatch.conftest import Desk

NODE = Signer(key="node.key")


@pytest.fixture(autouse=True)
def cosign(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Cosign, "find", CosignDouble)


def signatures(desk: Desk) -> list[str]:
    """Who signed each report beside the first image; empty for a report without a signature."""
    found = [one for one in shared(desk.registry, desk.images()[0]) if isinstance(one, SealedReport)]
    people = People.holding(NODE)
    return sorted(people.who(one.text.encode(), one.signature) for one in found)


def named(desk: Desk) -> str:
    """The file of the node's public key; the double calls keys by their names alone."""
    desk.monkeypatch.chdir(desk.folder)
    (desk.folder / "node.key").touch()
    return "node.key"


def test_a_node_signs_its_report(desk: Desk) -> None:
    desk.docker(report(desk.images()[0]), 0)
    assert desk.on_node(signer=NODE).attached
    assert signatures(desk) == ["key node.key"]


def test_a_signing_node_believes_no_unsigned_report(desk: Desk) -> None:
    """Whoever may push to staging could else keep an image from being verified."""
    image = desk.images()[0]
    assert desk.report(image, report(image))
    assert desk.report(image, report(image), Signer(key="another.key"))
    desk.docker(report(image), 0)
    assert not desk.on_node().attached, "without a key any report counts"
    assert desk.on_node(signer=NODE).attached
    assert desk.on_node(signer=NODE).message == "works, by a report that is there"


def test_a_key_that_cannot_be_read_is_told_before_the_card_is_used(desk: Desk) -> None:
    def unreadable(_double: CosignDouble, _key: str) -> bytes:
        raise CellError("no such key")

    desk.monkeypatch.setattr(CosignDouble, "public_key", unreadable)
    desk.docker(report(desk.images()[0]), 0)
    with pytest.raises(CellError, match="no such key"):
        desk.on_node(signer=NODE)
    assert not (desk.folder / "docker").exists()


def test_a_report_is_signed_once_however_often_it_is_sent(desk: Desk) -> None:
    """A signature differs each time; of two attempts one may have arrived."""
    image, real, calls = desk.images()[0], node.share, []

    def arrives_and_breaks_off(registry: Any, staged: Any, reports: Any) -> int:
        calls.append(reports[0].signature)
        new = real(registry, staged, reports)
        if len(calls) == 1:
            raise node.RegistryError("the connection was cut")
        return new

    desk.monkeypatch.setattr(node, "share", arrives_and_breaks_off)
    desk.monkeypatch.setattr(node, "_WAITS", (0,))
    counter = iter(range(9))
    desk.monkeypatch.setattr(CosignDouble, "sign_text", lambda *_: f"bundle {next(counter)}")
    desk.docker(report(image), 0)
    desk.on_node(signer=NODE)
    assert calls == ["bundle 0", "bundle 0"]
    assert len(shared(desk.registry, image)) == 1


def test_the_fleet_names_the_key_of_its_nodes(desk: Desk) -> None:
    desk.write_fleet("slurm", "key: /etc/rtbuild/report.key\n")
    _, text = desk.call("--dry-run")
    assert text.count("--timeout 1740 --key /etc/rtbuild/report.key ") == 2


def test_a_dispatcher_that_names_reporters_runs_what_nobody_of_them_signed(desk: Desk) -> None:
    for image in desk.images():
        for gpu in (T4, A100):
            desk.report(image, report(image, gpu=gpu))
    option = ("--reported-by", named(desk), "--dry-run")
    assert desk.call("--dry-run")[1] == "", "all have a verdict"
    assert desk.call(*option)[1].count("@sha256:") == 4
    for image in desk.images():
        desk.report(image, report(image, gpu=T4), NODE)
    assert desk.call(*option)[1].count("@sha256:") == 2
    with pytest.raises(UsageError, match="no such file"):
        desk.call("--reported-by", "nowhere.pub", "--dry-run")


def test_the_dispatcher_signs_what_it_reads_in_logs(desk: Desk) -> None:
    desk.write_fleet("kubernetes", "key: node.key\n")
    image = desk.images()[0]
    log = json.dumps(report(image, gpu=T4))

    def jobs(fleet: object) -> dict[str, kubernetes.JobState]:
        assert fleet == load_fleet(desk.fleet)
        planned = json.loads(desk.project.folder.joinpath("keys").read_text())
        job = kubernetes.JobState(
            uid="1", version="1", pod="pod", exit_code=0, word="complete", ended=True, stuck=False
        )
        return dict.fromkeys(planned, job)

    desk.monkeypatch.setattr(kubernetes, "jobs", lambda _fleet: {})
    desk.monkeypatch.setattr(by_logs.OnKubernetes, "submit", lambda *_: {})
    _, rows = desk.tasks()
    keys = [row["key"] for row in rows if row["image"].endswith(image.digest) and row["class"] == "T4"]
    (desk.project.folder / "keys").write_text(json.dumps(keys))
    desk.monkeypatch.setattr(kubernetes, "jobs", jobs)
    desk.monkeypatch.setattr(kubernetes, "log_of", lambda *_: log)
    desk.tasks("--reported-by", named(desk))
    assert signatures(desk) == ["key node.key"]


def test_a_container_that_prints_without_end(desk: Desk) -> None:
    """It was kept in memory, all that it printed in half an hour."""
    desk.program("docker", "[ $1 = run ] || [ $1 = image ] || exit 0; exec cat /dev/zero")
    with pytest.raises(CellError, match="printed more than 8 MiB"):
        desk.on_node(seconds=60)


def test_a_container_whose_child_holds_the_pipe(desk: Desk) -> None:
    """Apptainer's container is a child of its starter, which is all that a time limit killed."""
    desk.program("docker", "[ $1 = run ] || exit 0; sleep 600 & exec sleep 600")
    began = time.monotonic()
    with pytest.raises(CellError, match="not done after 1 s"):
        desk.on_node(seconds=1)
    assert time.monotonic() - began < 60


def test_a_log_that_begins_a_document_in_every_line() -> None:
    began = time.process_time()
    for log in ("{\n" * 2_000_000, '{"a":\n' * 500_000, '{"a": 1}\n' * 500_000):
        with pytest.raises(CellError, match="the log begins"):
            _json_in(log)
    assert time.process_time() - began < 10


def test_a_log_that_is_not_utf_8(tmp_path: Path) -> None:
    program = tmp_path / "kubectl"
    program.write_text("#!/bin/sh\nprintf '\\377\\n'\n")
    program.chmod(0o755)
    scheduler = tasks.SchedulerClient(name="x", absent="", silent="", refused="")
    assert scheduler.ask([str(program)]) == "\N{REPLACEMENT CHARACTER}\n"


def test_what_nobody_could_sign_is_not_waited_for(desk: Desk) -> None:
    desk.write_fleet("kubernetes")
    with pytest.raises(UsageError, match="names no key for those in logs"):
        desk.call("--reported-by", named(desk), "--dry-run")
