"""The whole line against a registry in memory; tests/docker has it against a real one, with its faults."""

from __future__ import annotations

import errno
import json
import threading
from typing import TYPE_CHECKING

import pytest
from doubles.project import A100, CELL, PROBE, Project, report
from doubles.registry import INDEX, RegistryDouble, registry_client, serve, sha256
from doubles.small_image import moment

from builder.core.digests import canonical_json
from builder.pipeline.events import Hooks
from builder.release.publish.gate import PublishOptions
from builder.release.publish.run import publish
from builder.sources.net.http import Client
from builder.sources.oci.registry import Registry
from builder.sources.oci.staging import read_image, staged_tag
from builder.verify.evidence.attach import share
from builder.verify.runner.reports import key_of, parse, read_entry, seal

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

from builder.release.publish.gate import Publication

INDEX_OF_NOTHING = canonical_json({"schemaVersion": 2, "mediaType": INDEX, "manifests": []})
FOREIGN = sha256(INDEX_OF_NOTHING)


@pytest.fixture
def server() -> Iterator[RegistryDouble]:
    with serve() as running:
        yield running


@pytest.fixture
def project(server: RegistryDouble, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    registry = registry_client()
    monkeypatch.setattr(Registry, "to_write", lambda: registry)
    monkeypatch.setattr("builder.release.publish.run.bundle", lambda: PROBE)
    project = Project(tmp_path / "project")
    project.report(project.stage(registry, f"{server.host}/staging"))
    return project


def publish_one(project: Project, server: RegistryDouble, *, overwrite: bool = False) -> Publication:
    order = PublishOptions(
        results=project.results,
        source=f"{server.host}/staging",
        target=f"{server.host}/public",
        overwrite=overwrite,
    )
    hooks = Hooks(emit=lambda _event: None, cancel=threading.Event())
    (row,) = publish([project.matrix], [project.cell], order, hooks)
    return row


def taken_meanwhile(server: RegistryDouble, name: str) -> None:
    """Somebody else puts a tag while the evidence is on its way: after the gate, before the tags."""

    def before_put(reference: str) -> None:
        if reference.startswith("sha256:"):
            server.manifests[FOREIGN] = (INDEX, INDEX_OF_NOTHING)
            server.tags[name] = FOREIGN

    server.before_put = before_put


def test_what_is_verified_is_published(project: Project, server: RegistryDouble) -> None:
    row = publish_one(project, server)
    assert (row.state, row.refusals, row.error) == ("published", [], None)
    assert row.found is not None
    assert {server.tags[step.name] for step in row.steps} == {row.found.staged.digest}
    assert [step.action for step in row.steps] == ["put"] * 4


def test_a_tag_that_somebody_took_after_the_gate_is_left_alone_and_no_other_put(
    project: Project, server: RegistryDouble
) -> None:
    taken_meanwhile(server, "latest")
    row = publish_one(project, server)
    assert (row.state, [refusal.kind for refusal in row.refusals]) == ("refused", ["tag"])
    assert "latest" in row.refusals[0].text
    assert server.tags["latest"] == FOREIGN
    assert CELL not in server.tags


def test_and_is_moved_where_that_was_asked_for(project: Project, server: RegistryDouble) -> None:
    taken_meanwhile(server, "latest")
    row = publish_one(project, server, overwrite=True)
    assert row.state == "published"
    assert row.found is not None
    assert server.tags["latest"] == row.found.staged.digest
    assert [step.was for step in row.steps if step.name == "latest"] == [FOREIGN]


def test_a_report_that_came_while_it_was_copied_is_heard(project: Project, server: RegistryDouble) -> None:
    """Another machine finds it broken after the gate, and before the tags."""
    door = Registry(client=Client(retries=0), login=lambda _host: None)
    staged = read_image(door, f"{server.host}/staging", next(iter(server.manifests)))
    document = report(staged, verdict="broken", cause="cudnn-shadowed", gpu=A100)
    key = key_of(staged.content, parse(json.dumps(document)), staged.digest)
    assert key is not None
    text = seal(key, document, cell=project.cell.id, matrix="tf", verified=moment(hours=1))
    before = dict(server.manifests)
    share(door, staged, [read_entry(text, "there")])
    after, server.manifests = server.manifests, before
    server.before_put = lambda _reference: server.manifests.update(after)
    row = publish_one(project, server)
    assert (row.state, [refusal.kind for refusal in row.refusals]) == ("refused", ["broken"])
    assert server.tags.keys() == {staged_tag(staged.inputs or "")}


def test_a_full_disk_ends_its_cell_and_not_the_run(
    project: Project, server: RegistryDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_arguments: object, **_options: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "/tmp/rtbuild-copy-x/blob")

    monkeypatch.setattr("builder.release.publish.run.copy_image", full)
    row = publish_one(project, server)
    assert (row.state, row.refusals) == ("failed", [])
    assert row.error is not None
    assert "No space left on device" in row.error.message
    assert "TMPDIR" in (row.error.hint or "")
    assert CELL not in server.tags
    monkeypatch.undo()
