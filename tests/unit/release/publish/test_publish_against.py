"""What was found against images that are public already is said beside them, and audit heeds it.

Staging and public are two registries in memory; tests/docker has it against a real one, signed, with faults.
"""

from __future__ import annotations

import json
import shutil
import threading
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest
from doubles.project import A100, CELL, PROBE, T4, Project, report
from doubles.registry import RegistryDouble, registry_client, serve
from doubles.small_image import moment
from test_publish_docs import SCHEMA

from builder.cli.commands.publish import exit_code, summary
from builder.cli.console.terminal import Terminal
from builder.pipeline.events import Hooks, Note
from builder.release.audit.checks import Question
from builder.release.audit.run import audit
from builder.release.publish.gate import PublishOptions, publication_document
from builder.release.publish.run import publish
from builder.sources.oci.registry import Registry
from builder.sources.oci.staging import staged_tag
from builder.verify.evidence.attach import share
from builder.verify.runner.reports import key_of, parse, read_entry, seal

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from builder.sources.oci.staging import Staged
from builder.release.publish.gate import Publication

L4 = {"name": "NVIDIA L4", "compute_capability": "8.9"}
BROKEN = {"verdict": "broken", "cause": "cudnn-shadowed"}
PLAIN = Terminal(progress="none", color=False, github=False)
BOTH_WAYS = pytest.mark.parametrize("scene", [True, False], ids=["referrers", "tag"], indirect=True)
"""By a registry that lists referrers, and by one whose clients keep the list under a tag."""


def client() -> Registry:
    return registry_client()


class Scene:
    """A cell that is staged, and may be published; ``public`` is the registry that users see."""

    def __init__(self, folder: Path, staging: RegistryDouble, public: RegistryDouble) -> None:
        self.staging, self.public = staging, public
        self.registry = client()
        self.project = Project(folder)
        self.said: list[str] = []
        self.image = self.stage()

    @property
    def target(self) -> str:
        return f"{self.public.host}/public"

    def stage(self, extra: bytes = b"x") -> Staged:
        return self.project.stage(self.registry, f"{self.staging.host}/staging", extra=extra)

    def publish(self, **order: Any) -> Publication:
        asked = {"results": self.project.results, "source": f"{self.staging.host}/staging"}
        (row,) = publish(
            [self.project.matrix],
            [self.project.cell],
            PublishOptions(**asked | {"target": self.target} | order),
            Hooks(
                emit=lambda event: self.said.append(event.text) if isinstance(event, Note) else None,
                cancel=threading.Event(),
            ),
        )
        rows = publication_document(
            [row], command="rtbuild publish", started=datetime.now(UTC), dry_run=False
        )
        jsonschema.Draft202012Validator(SCHEMA).validate(json.loads(json.dumps(rows)))
        return row

    def share(self, image: Staged, **changes: Any) -> None:
        """What another machine finds, beside the staged image."""
        document = report(image, **changes)
        key = key_of(image.content, parse(json.dumps(document)), image.digest)
        assert key is not None
        text = seal(key, document, cell=CELL, matrix="tf", verified=moment(hours=2))
        share(self.registry, image, [read_entry(text, "there")])

    def works(self, name: str = "latest", **question: Any) -> bool:
        return audit(self.registry, f"{self.target}:{name}", Question(**question)).works

    def state(self) -> tuple[dict[str, Any], dict[str, str]]:
        return dict(self.public.manifests), dict(self.public.tags)


@pytest.fixture
def scene(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    monkeypatch.setattr("time.sleep", lambda _seconds: None)
    monkeypatch.setattr("builder.release.publish.run.bundle", lambda: PROBE)
    with serve() as staging, serve(RegistryDouble(referrers=getattr(request, "param", True))) as public:
        made = Scene(tmp_path / "project", staging, public)
        monkeypatch.setattr(Registry, "to_write", lambda: made.registry)
        made.project.report(made.image)
        yield made


@pytest.fixture
def published(scene: Scene) -> Scene:
    assert scene.publish().state == "published"
    assert scene.works()
    return scene


def kinds(row: Publication) -> list[str]:
    return [refusal.kind for refusal in row.refusals]


@BOTH_WAYS
def test_found_broken_elsewhere_it_is_refused_and_those_who_have_it_are_told(published: Scene) -> None:
    scene = published
    tags = dict(scene.public.tags)
    scene.project.report(scene.image, gpu=A100, verified=moment(hours=1), **BROKEN)
    row = scene.publish()
    assert (row.state, kinds(row), exit_code([row])) == ("refused", ["broken"], 6)
    (found,) = row.failures
    assert (found.image.digest, found.there, found.new) == (scene.image.digest, False, True)
    assert found.tags == (CELL, "latest")
    assert scene.public.tags.items() >= {name: tags[name] for name in (CELL, "latest")}.items()
    answer = audit(scene.registry, f"{scene.target}:latest", Question())
    assert not answer.works
    assert answer.failed[0].text.startswith(
        "broken, cudnn-shadowed, on NVIDIA A100-SXM4-40GB with driver 535"
    )
    lines = summary([row], PLAIN, signed=False, dry_run=False)
    assert f"{CELL}: a FAILED verification of a public image is attached" in lines
    assert f"still on it, until a digest that works is published: {CELL}, latest" in lines
    assert "NOT SIGNED" in lines


@BOTH_WAYS
def test_a_second_time_nothing_is_attached(published: Scene) -> None:
    published.project.report(published.image, gpu=A100, **BROKEN)
    published.publish()
    before = published.state()
    row = published.publish()
    assert (row.state, [(found.there, found.new) for found in row.failures]) == ("refused", [(True, False)])
    assert published.state() == before
    assert "is there already" in summary([row], PLAIN, signed=False, dry_run=False)


def test_a_dry_run_shows_it_and_writes_nothing(published: Scene) -> None:
    published.project.report(published.image, gpu=A100, **BROKEN)
    before = published.state()
    row = published.publish(dry_run=True)
    assert [(found.there, found.attached) for found in row.failures] == [(False, None)]
    assert published.state() == before
    assert "would be attached" in summary([row], PLAIN, signed=False, dry_run=True)
    assert published.works()


@pytest.mark.slow
@BOTH_WAYS
def test_a_report_that_works_there_takes_it_back(published: Scene) -> None:
    scene = published
    scene.project.report(scene.image, gpu=A100, verified=moment(hours=3), **BROKEN)
    scene.publish()
    assert not scene.works()
    scene.project.report(scene.image, gpu=A100, verified=moment(hours=1))
    row = scene.publish()
    assert (row.state, row.failures) == ("published", ())
    assert scene.works(gpu="A100")
    assert scene.works(gpu="T4")


def test_what_nobody_published_is_only_refused(scene: Scene) -> None:
    scene.project.report(scene.image, gpu=A100, **BROKEN)
    row = scene.publish()
    assert (row.state, row.failures) == ("refused", ())
    assert scene.state() == ({}, {})


@pytest.mark.parametrize("verdict", ["busy", "host", "unverified"])
def test_what_says_nothing_about_the_image_is_not_said(published: Scene, verdict: str) -> None:
    published.project.report(published.image, gpu=A100, verdict=verdict)
    assert published.publish().failures == ()
    assert published.works()


def test_nor_what_a_double_says(published: Scene) -> None:
    published.project.report(published.image, gpu=A100, test_double=True, **BROKEN)
    row = published.publish()
    assert row.failures == ()
    assert published.works()


def test_an_older_digest_that_the_tags_are_on_by_what_lies_in_staging(published: Scene) -> None:
    """Another image is staged by now, and nobody verified it; the machine that publishes has no report."""
    scene, first = published, published.image
    scene.share(first, gpu=A100, **BROKEN)
    scene.stage(extra=b"newer")
    row = scene.publish(results=scene.project.folder / "elsewhere")
    assert (row.state, kinds(row)) == ("refused", ["missing"])
    assert [(found.image.digest, found.tags) for found in row.failures] == [(first.digest, (CELL, "latest"))]
    assert not scene.works()
    assert [found.there for found in scene.publish().failures] == [True]


def test_an_older_digest_that_only_a_report_names(published: Scene) -> None:
    """A newer image has the moving tags; the tag that never moves is on the one that is broken."""
    scene, first = published, published.image
    immutable = next(name for name in scene.public.tags if name.endswith(first.digest[7:19]))
    newer = scene.stage(extra=b"newer")
    scene.project.report(newer)
    scene.project.report(first, verified=moment(hours=1), **BROKEN)
    row = scene.publish()
    assert row.state == "published", "what is found of the old one keeps the new one from nobody"
    assert [found.image.digest for found in row.failures] == [first.digest]
    assert (scene.works(immutable), scene.works()) == (False, True)
    again = scene.publish()
    assert (again.state, [found.tags for found in again.failures]) == ("unchanged", [()])


def test_and_is_mended_by_a_newer_report_about_that_digest(published: Scene) -> None:
    scene, first = published, published.image
    scene.project.report(first, gpu=A100, verified=moment(hours=3), **BROKEN)
    scene.share(first, gpu=A100)
    scene.stage(extra=b"newer")
    assert scene.publish().failures == ()


def test_where_nothing_is_staged_of_what_matrix_and_lock_say_now(published: Scene) -> None:
    scene = published
    scene.project.report(scene.image, gpu=A100, **BROKEN)
    del scene.staging.tags[staged_tag(scene.image.inputs or "")]
    row = scene.publish()
    assert (kinds(row), len(row.failures)) == (["not-staged"], 1)
    hint = str(row.refusals[0].hint)  # whoever pastes it builds this cell alone
    assert hint.endswith(f"--select {row.cell.id} --push {row.source}")
    assert not scene.works()


def test_a_gpu_that_it_was_published_for_and_does_not_run_on(scene: Scene) -> None:
    """The matrix asks for a T4 alone, so the gate is open; the A100 was claimed because it was verified."""
    scene.project.report(scene.image, gpu=A100, verified=moment(hours=9))
    scene.publish()
    assert scene.works(gpu="A100")
    scene.project.report(scene.image, gpu=A100, verified=moment(hours=3), verdict="unsupported-gpu")
    scene.project.report(scene.image, gpu=L4, verified=moment(hours=3), verdict="unsupported-gpu")
    row = scene.publish()
    assert (row.state, row.refusals) == ("published", [])
    assert [found.failure.gpu_class for found in row.failures] == ["A100"], "nobody was told of an L4"
    assert (scene.works(gpu="A100"), scene.works(gpu="T4")) == (False, True)
    assert scene.publish().state == "unchanged"


def test_a_claim_that_another_driver_denies_is_refused_and_said(published: Scene) -> None:
    scene = published
    other = {"version": "470.1", "api": "11.4"}
    scene.project.report(scene.image, verified=moment(days=80), verdict="unsupported-gpu", driver=other)
    row = scene.publish()
    assert (kinds(row), [found.failure.verdict for found in row.failures]) == (
        ["unsupported-gpu"],
        ["unsupported-gpu"],
    )
    assert not scene.works()


def test_a_report_from_the_future_shuts_the_gate_and_is_not_said(published: Scene) -> None:
    """Nothing newer could ever take it back."""
    later = datetime.now(UTC) + timedelta(days=900)
    published.project.report(published.image, gpu=A100, verified=later, **BROKEN)
    row = published.publish()
    assert (kinds(row), row.failures) == (["broken"], ())
    assert any("is from the future" in text for text in published.said)


def test_an_image_of_somebody_else_is_none_of_ours(published: Scene, tmp_path: Path) -> None:
    """The name of the cell is on an image of another matrix; a report says that ours was that digest."""
    scene = published
    other = Project(tmp_path / "other", scene.project.text.replace("name: tf", "name: other"))
    foreign = other.stage(scene.registry, scene.target)
    scene.public.tags[CELL] = foreign.digest
    document = report(foreign, **BROKEN)
    key = key_of(foreign.content, parse(json.dumps(document)), foreign.digest)
    assert key is not None
    scene.project.store.save(key, document, cell=CELL, matrix="tf", verified=moment(hours=1))
    assert scene.publish().failures == ()


@BOTH_WAYS
def test_a_registry_that_takes_it_not_is_tried_again_by_the_next_run(published: Scene) -> None:
    scene = published
    scene.project.report(scene.image, gpu=A100, **BROKEN)

    def down(_reference: str) -> None:
        raise ConnectionResetError("down")

    scene.public.before_put = down
    row = scene.publish()
    assert (row.state, kinds(row), exit_code([row])) == ("failed", ["broken"], 1)
    assert "could not be attached" in summary([row], PLAIN, signed=False, dry_run=False)
    scene.public.before_put = None
    scene.registry = client()  # the other one remembers that it did not answer
    assert scene.works()
    row = scene.publish()
    assert (row.state, [found.new for found in row.failures]) == ("refused", [True])
    assert not scene.works()


def test_found_while_it_was_copied(scene: Scene) -> None:
    """Between gate and tags: no tag is put, and the digest that lies there by then is not left with a yes."""
    found: list[str] = []

    def meanwhile(reference: str) -> None:
        if not found:
            found.append(reference)
            scene.share(scene.image, gpu=T4, driver={"version": "550.1", "api": "12.4"}, **BROKEN)

    scene.public.before_put = meanwhile
    row = scene.publish()
    assert (row.state, kinds(row)) == ("refused", ["broken"])
    assert CELL not in scene.public.tags
    assert [(one.new, one.tags) for one in row.failures] == [(True, ())]
    assert not audit(scene.registry, f"{scene.target}@{scene.image.digest}", Question()).works


@pytest.mark.slow
@BOTH_WAYS
@pytest.mark.parametrize("at", ["layer", "evidence"])
def test_a_claim_that_is_denied_after_the_gate_is_not_published(scene: Scene, at: str) -> None:
    """The T4 stays verified, so nothing shuts the image out; of the A100 nobody may be told that it works."""
    scene.project.report(scene.image, gpu=A100, verified=moment(hours=9))
    found: list[str] = []

    def meanwhile(reference: str) -> None:
        early = at == "layer" or len(scene.public.manifests) > 2  # the image's own, and a first statement's
        if not found and early:
            found.append(reference)
            scene.share(scene.image, gpu=A100, verdict="unsupported-gpu")

    scene.public.before_put = meanwhile
    row = scene.publish()
    assert found
    digest = f"{scene.target}@{scene.image.digest}"
    assert not audit(scene.registry, digest, Question(gpu="A100")).works
    if at == "layer":
        assert (row.state, row.refusals) == ("published", [])
        assert audit(scene.registry, digest, Question()).claims == ("T4",)
    else:
        assert (row.state, kinds(row)) == ("refused", ["claim"])
        assert CELL not in scene.public.tags
        assert scene.publish().state == "published"
    assert (scene.works(gpu="A100"), scene.works(gpu="T4")) == (False, True)


def test_a_word_beside_the_public_image_that_is_not_given_shuts_the_gate(published: Scene) -> None:
    """It may be that the image is broken, and no answer of a registry makes a yes."""
    scene, elsewhere = published, published.project.folder / "elsewhere"
    shutil.copytree(scene.project.results, elsewhere)
    scene.project.report(scene.image, gpu=A100, verified=moment(hours=3), **BROKEN)
    (found,) = scene.publish().failures
    assert found.attached is not None
    scene.public.lies[found.attached.digest] = b"{}"
    row = scene.publish(results=elsewhere)
    assert row.state == "failed"
    assert row.error is not None
    assert "could not be read" in row.error.message


def test_what_another_publisher_said_shuts_the_gate_as_well(published: Scene) -> None:
    """His report is on his machine alone; this one would put tags on a digest that audit says no to."""
    scene, elsewhere = published, published.project.folder / "elsewhere"
    shutil.copytree(scene.project.results, elsewhere)
    scene.project.report(scene.image, gpu=A100, verified=moment(hours=3), **BROKEN)
    scene.publish()
    row = scene.publish(results=elsewhere)
    assert (row.state, kinds(row), row.failures) == ("refused", ["broken"], ())
    assert "beside the public image says broken, cudnn-shadowed, on NVIDIA A100" in row.refusals[0].text

    scene.project.report(scene.image, gpu=A100, verified=moment(hours=1))
    assert scene.publish().state == "published"
    assert scene.publish(results=elsewhere).state == "unchanged", "taken back by a report that is public, too"


def test_and_so_does_a_claim_that_he_found_denied(published: Scene) -> None:
    scene, elsewhere = published, published.project.folder / "elsewhere"
    shutil.copytree(scene.project.results, elsewhere)
    other = {"version": "470.1", "api": "11.4"}
    scene.project.report(scene.image, verified=moment(hours=3), verdict="unsupported-gpu", driver=other)
    scene.publish()
    row = scene.publish(results=elsewhere)
    assert (row.state, kinds(row)) == ("refused", ["unsupported-gpu"])
    assert "publish: exempt" in (row.refusals[0].hint or "")
