"""Whose image, and whose report: what somebody who may push to staging can and cannot have published."""

from __future__ import annotations

import dataclasses
import json
import threading
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from doubles.cosign import CosignDouble
from doubles.project import PROBE, Project, report
from doubles.registry import RegistryDouble, registry_client, serve
from doubles.small_image import moment

from builder.core.errors import UsageError
from builder.pipeline.events import Hooks, Note
from builder.pipeline.run_context import MadeImages
from builder.release.publish.gate import PublishOptions
from builder.release.publish.run import publish
from builder.sources.oci.artifacts import Artifact, attach
from builder.sources.oci.registry import Registry
from builder.sources.oci.spec import parse_reference
from builder.verify.evidence.attach import BUILT_TYPE, SIGNATURE, built_text, share, sign_built
from builder.verify.evidence.statement import Cosign, People, Signer, Verifier
from builder.verify.runner.reports import ReportStore, SealedReport, key_of, parse, read_entry, seal

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from builder.sources.oci.staging import Staged
from builder.release.publish.gate import Publication

OURS, THEIRS = Signer(key="ours"), Signer(key="theirs")
PEOPLE = People(keys=(Verifier(key="colleague"), Verifier(key="ours")))


@pytest.fixture(autouse=True)
def signing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Cosign, "find", CosignDouble)


@pytest.fixture
def server() -> Iterator[RegistryDouble]:
    with serve() as running:
        yield running


class Stage:
    """A staging repository with an image of the cell, and no report on it yet."""

    def __init__(self, server: RegistryDouble, project: Project, registry: Registry) -> None:
        self.server, self.project, self.registry = server, project, registry
        self.staging, self.public = f"{server.host}/staging", f"{server.host}/public"
        self.made = MadeImages(project.folder / "cache" / "made")
        self.image = project.stage(registry, self.staging)
        self.said: list[str] = []

    @property
    def inputs(self) -> str:
        return self.project.recipes[self.project.cell.id].inputs

    def publish(self, **order: Any) -> Publication:
        self.said.clear()
        asked = PublishOptions(
            results=self.project.results,
            source=self.staging,
            target=self.public,
            cache=self.project.folder / "cache",
            **order,
        )
        (row,) = publish(
            [self.project.matrix],
            [self.project.cell],
            asked,
            Hooks(
                emit=lambda event: self.said.append(event.text) if isinstance(event, Note) else None,
                cancel=threading.Event(),
            ),
        )
        return row

    def remember(self, digest: str) -> None:
        """What this machine made of these inputs, as a build notes it."""
        self.made.remember(self.inputs, digest=digest, content=self.image.content)

    def report(
        self, *, signer: Signer | None = None, verified: datetime | None = None, **changes: Any
    ) -> None:
        """Attach a report to the staged image."""
        document = report(self.image, **changes)
        key = key_of(self.image.content, parse(json.dumps(document)), self.image.digest)
        assert key is not None
        cell = self.project.cell
        text = seal(key, document, cell=cell.id, matrix=cell.matrix, verified=verified or moment(days=1))
        entry = read_entry(text, "attached")
        if signer is not None:
            signature = CosignDouble().sign_text(text.encode(), signer)
            entry = dataclasses.replace(entry, signature=signature)
        share(self.registry, self.image, [entry])


@pytest.fixture
def stage(server: RegistryDouble, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    registry = registry_client()
    monkeypatch.setattr(Registry, "to_write", lambda: registry)
    monkeypatch.setattr("builder.release.publish.run.bundle", lambda: PROBE)
    return Stage(server, Project(tmp_path / "project"), registry)


def kinds(row: Publication) -> list[str]:
    return [refusal.kind for refusal in row.refusals]


# -- whose image


def test_by_its_label_alone_it_is_published_and_said(stage: Stage) -> None:
    stage.report()
    row = stage.publish()
    assert row.state == "published"
    assert row.found is not None
    assert row.found.origin.kind == "label"
    assert any("only its label says" in text for text in stage.said)


def test_what_this_machine_made_needs_no_signature(stage: Stage) -> None:
    stage.report()
    stage.remember(stage.image.digest)
    row = stage.publish(builders=PEOPLE)
    assert row.state == "published"
    assert row.found is not None
    assert row.found.origin.kind == "made-here"
    assert not any("label" in text for text in stage.said)


def test_another_image_than_this_machine_made_of_the_same_lock_is_refused(stage: Stage) -> None:
    """Whoever may push puts his own image under the cell's label; nobody has to ask for this."""
    stage.report()
    stage.remember("sha256:" + "e" * 64)
    row = stage.publish()
    assert kinds(row) == ["unproven"]
    assert "this machine made sha256:eeeee" in row.refusals[0].text


def attach_built(stage: Stage, about: Staged, signature: str) -> None:
    artifact = Artifact(
        artifact_type=BUILT_TYPE, content=built_text(about), annotations=((SIGNATURE, signature),)
    )
    image = stage.image
    attach(stage.registry, parse_reference(image.reference), image.manifest.descriptor, artifact)


def test_an_image_that_a_named_builder_signed_is_published(stage: Stage) -> None:
    stage.report()
    stage.remember("sha256:" + "e" * 64)  # apt brings other packages another day; the signature outweighs it
    own = People.holding(OURS)
    assert sign_built(stage.registry, stage.image, OURS, own)
    assert not sign_built(stage.registry, stage.image, OURS, own)
    row = stage.publish(builders=PEOPLE)
    assert row.state == "published"
    assert row.found is not None
    assert (row.found.origin.kind, row.found.origin.text) == ("signed", "built by key ours")


@pytest.mark.parametrize("case", ["none", "stranger", "garbage", "of another image", "huge", "seventeen"])
def test_one_that_no_named_builder_signed_is_refused(stage: Stage, case: str) -> None:
    stage.report()
    image = stage.image
    match case:
        case "stranger":
            sign_built(stage.registry, image, THEIRS, People.holding(THEIRS))
        case "garbage":
            attach_built(stage, image, "{")
        case "of another image":  # a true signature of ours, moved here
            other = dataclasses.replace(
                image, manifest=dataclasses.replace(image.manifest, digest="sha256:" + "f" * 64)
            )
            attach_built(stage, other, CosignDouble().sign_text(built_text(other), OURS))
        case "huge":
            attach_built(stage, image, "ours " + "x" * 100_000)
        case "seventeen":  # behind more than are looked at: a refusal, and no yes
            attach_built(stage, image, CosignDouble().sign_text(built_text(image), OURS))
            for number in range(16):
                attach_built(stage, image, f"{number}")
    assert kinds(stage.publish(builders=PEOPLE)) == ["unproven"]
    assert stage.server.tags.keys().isdisjoint({"latest"})


# -- whose report


def test_a_report_that_nobody_named_has_signed_makes_no_yes(stage: Stage) -> None:
    stage.report()
    row = stage.publish(reporters=PEOPLE)
    assert kinds(row) == ["unsigned"]
    assert "--key" in (row.refusals[0].hint or "")
    stage.report(signer=THEIRS)
    assert "unsigned" in kinds(stage.publish(reporters=PEOPLE))
    stage.report(signer=OURS)
    assert stage.publish(reporters=PEOPLE).state == "published"


def test_a_newer_unsigned_report_takes_nothing_from_a_signed_one(stage: Stage) -> None:
    stage.report(signer=OURS, verified=moment(days=2))
    stage.report(verified=moment(days=1))
    stage.report(
        signer=THEIRS, verified=moment(days=1) + timedelta(hours=1), verdict="busy", cause="gpu-busy"
    )
    row = stage.publish(reporters=PEOPLE)
    assert row.state == "published"
    assert row.decision is not None
    assert [entry.signature.split()[0] for entry in row.decision.counted] == ["ours"]


def test_a_signature_on_one_report_is_worth_nothing_on_another(stage: Stage) -> None:
    stage.report(signer=OURS, verdict="busy", cause="gpu-busy", verified=moment(days=1))
    (busy,) = (entry for entry in _shared(stage) if entry.signature)
    document = report(stage.image)
    key = key_of(stage.image.content, parse(json.dumps(document)), stage.image.digest)
    assert key is not None
    cell = stage.project.cell
    text = seal(key, document, cell=cell.id, matrix=cell.matrix, verified=moment(hours=1))
    forged = dataclasses.replace(read_entry(text, "forged"), signature=busy.signature)
    share(stage.registry, stage.image, [forged])
    assert stage.publish(reporters=PEOPLE).state == "refused"


def _shared(stage: Stage) -> list[SealedReport]:
    from builder.verify.evidence.attach import shared

    return [entry for entry in shared(stage.registry, stage.image) if isinstance(entry, SealedReport)]


def test_an_unsigned_no_keeps_the_cell_back_and_is_not_repeated_in_public(stage: Stage) -> None:
    """The publisher's own signature under it would take the image from all who have it."""
    stage.report(signer=OURS, verified=moment(days=2))
    assert stage.publish(reporters=PEOPLE).state == "published"
    stage.report(verdict="broken", cause="cudnn-shadowed", verified=moment(days=1))
    row = stage.publish(reporters=PEOPLE)
    assert (kinds(row), row.failures) == (["broken"], ())
    stage.report(signer=OURS, verdict="broken", cause="cudnn-shadowed", verified=moment(hours=2))
    row = stage.publish(reporters=PEOPLE)
    assert kinds(row) == ["broken"]
    assert [found.entry.signature.split()[0] for found in row.failures] == ["ours"]


def test_more_signatures_than_are_checked_fail_the_cell(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("builder.verify.evidence.attach._MOST_SIGNATURES", 3)
    for number in range(4):
        stage.report(signer=Signer(key=f"k{number}"))
    row = stage.publish(reporters=PEOPLE)
    assert row.state == "failed"
    assert row.error is not None
    assert "4 signed reports" in row.error.message


# -- the folder of reports


def store(folder: Path, signer: Signer) -> ReportStore:
    own = People.holding(signer)
    return ReportStore(
        folder,
        sign=lambda text: CosignDouble().sign_text(text, signer),
        signed=lambda entry: bool(own.who(entry.text.encode(), entry.signature)),
    )


def test_reports_are_signed_as_they_are_kept_and_only_ones_own_are_reused(stage: Stage) -> None:
    folder = stage.project.results / "reports"
    document = report(stage.image)
    key = key_of(stage.image.content, parse(json.dumps(document)), stage.image.digest)
    assert key is not None
    ReportStore(folder).save(key, document)
    assert store(folder, OURS).load(key) is None  # somebody put it there
    path = store(folder, OURS).save(key, document)
    assert path is not None
    assert store(folder, OURS).load(key) == document
    assert store(folder, THEIRS).load(key) is None
    (entry,) = ReportStore(folder).entries()
    assert isinstance(entry, SealedReport)
    assert entry.signature == CosignDouble().sign_text(path.read_bytes(), OURS)
    ReportStore(folder).save(key, document | {"summary": "again"})
    (entry,) = ReportStore(folder).entries()
    assert isinstance(entry, SealedReport)
    assert entry.signature == ""


# -- who is named


def test_people_are_files_that_are_there(tmp_path: Path) -> None:
    key = tmp_path / "cosign.pub"
    key.write_text("a key")
    assert People.named((), "--built-by") is None
    found = People.named((str(key), "awskms://alias/x"), "--built-by")
    assert found is not None
    assert [str(one) for one in found.keys] == [f"key {key}", "key awskms://alias/x"]
    for wrong in ("", str(tmp_path), str(tmp_path / "none.pub")):
        with pytest.raises(UsageError, match="--built-by"):
            People.named((wrong,), "--built-by")


def test_require_signed_names_the_keys_own_holder_where_nobody_is_named(tmp_path: Path) -> None:
    from builder.cli.commands.publish import _people

    key = tmp_path / "colleague.pub"
    key.write_text("a key")
    assert _people(OURS, None, None, both=False) == (None, None)
    builders, reporters = _people(OURS, [str(key)], None, both=True)
    assert builders == People(keys=(Verifier(key=str(key)),))
    assert reporters == People(keys=(Verifier(key="ours", public=b"ours"),))
    for nobody in (None, Signer()):
        with pytest.raises(UsageError, match="nobody is named"):
            _people(nobody, [str(key)], None, both=True)
