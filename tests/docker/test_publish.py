"""Publication against a real registry: what is put where, in which order, and what is refused.

The reports are test doubles (no GPU is here), written by the product's own code about images that exist only
in the registries that these tests start.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import containers
import jsonschema
import pytest
from doubles.project import A100, CELL, MATRIX, ONE, PROBE, Project, report
from doubles.unreliable import Proxy, before
from publish_scene import EVIDENCE, MEASURED, Scene, direct, impatient
from registry import LoopbackRegistry, serve
from rtbuild_command import rtbuild
from testcontainers.core.container import DockerContainer

from builder.pipeline.events import Hooks
from builder.release.publish.gate import PublishOptions
from builder.release.publish.run import publish
from builder.sources.net.http import Client
from builder.sources.oci.registry import Registry
from builder.sources.oci.staging import read_image, staged_reference
from builder.sources.oci.wire import Login
from builder.verify.evidence.statement import Signer
from builder.verify.runner.reports import ReportStore, key_of, parse

if TYPE_CHECKING:
    from builder.sources.oci.staging import Staged
from builder.release.publish.gate import Publication

pytestmark = [pytest.mark.docker, pytest.mark.long]

SCHEMA = json.loads((Path(__file__).parents[2] / "docs" / "publication.schema.json").read_text())


@pytest.fixture
def scene(tmp_path: Path, proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> Scene:
    monkeypatch.setattr(Registry, "to_write", impatient)
    monkeypatch.setattr("builder.release.publish.run.bundle", lambda: PROBE)
    return Scene(tmp_path / "project", proxy, tmp_path.name.replace("_", "-"))


def kinds(row: Publication) -> list[str]:
    return [refusal.kind for refusal in row.refusals]


def test_what_is_verified_is_published(scene: Scene) -> None:
    scene.project.report(scene.image)
    row = scene.publish()
    assert (row.state, row.refusals, row.error) == ("published", [], None)
    assert scene.tags() == scene.wanted
    assert read_image(scene.registry, scene.public, scene.image.digest).content == scene.image.content
    assert row.copied is not None
    assert (row.copied.mounted, row.copied.sent) == (3, 0), "the same registry: nothing passes through here"
    assert {piece.kind for piece in row.evidence} == EVIDENCE
    assert {piece.by for piece in row.evidence} == {"tag"}, "this registry has no referrers API"
    assert scene.has_evidence()


def test_the_tags_come_last(scene: Scene) -> None:
    scene.project.report(scene.image)
    scene.publish()
    writes = [line.partition("?")[0].rpartition("/")[2] for line in scene.proxy.writes()]
    assert writes[-4:] == [f"{MEASURED}-{scene.image.digest[7:19]}", MEASURED, CELL, "latest"]
    assert not set(writes[:-4]) & scene.wanted.keys()


def test_publishing_twice_changes_nothing(scene: Scene) -> None:
    scene.project.report(scene.image)
    scene.publish()
    scene.proxy.requests.clear()
    row = scene.publish()
    assert row.state == "unchanged"
    assert scene.proxy.writes() == []
    assert [step.action for step in row.steps] == ["there"] * 4
    assert scene.tags() == scene.wanted


def test_a_dry_run_writes_nothing(scene: Scene) -> None:
    scene.project.report(scene.image)
    row = scene.publish(dry_run=True)
    assert row.state == "planned"
    assert scene.proxy.writes() == []
    assert [step.action for step in row.steps] == ["put"] * 4
    assert scene.tags() == {}


def test_into_another_registry(tmp_path: Path, scene: Scene) -> None:
    with serve(tmp_path / "other") as other, before(other.host) as target:
        far = Scene(tmp_path / "far", scene.proxy, "far", target=target)
        far.project.report(far.image)
        row = far.publish()
        assert row.copied is not None
        assert (row.state, row.copied.mounted, row.copied.sent) == ("published", 0, 3)
        assert far.tags() == far.wanted


def test_a_newer_image_takes_the_moving_tags_and_no_other(scene: Scene) -> None:
    scene.project.report(scene.image)
    scene.publish()
    first = dict(scene.wanted)
    scene.image = scene.project.stage(scene.registry, scene.staging, extra=b"rebuilt")
    scene.project.report(scene.image)
    row = scene.publish()
    assert row.state == "published"
    assert [step.action for step in row.steps] == ["put", "move", "move", "move"]
    assert scene.tags() == first | scene.wanted
    assert len(scene.tags()) == 5


REPORTS: list[tuple[str, dict[str, Any]]] = [
    ("unverified", {"verdict": "unverified", "gpus": [], "driver": None}),
    ("host", {"verdict": "host", "cause": "driver-too-old"}),
    ("busy", {"verdict": "busy"}),
    ("broken", {"verdict": "broken", "cause": "cudnn-shadowed"}),
    ("test-double", {"test_double": True}),
    ("claim", {"gpu": A100}),
]


@pytest.mark.parametrize(("kind", "report"), REPORTS, ids=[kind for kind, _ in REPORTS])
def test_what_is_not_known_to_work_is_not_published(scene: Scene, kind: str, report: dict[str, Any]) -> None:
    scene.project.report(scene.image, **report)
    row = scene.publish()
    assert (row.state, kinds(row)) == ("refused", [kind])
    assert scene.proxy.writes() == []
    assert scene.tags() == {}


def test_without_a_report_and_without_an_image(scene: Scene) -> None:
    assert kinds(scene.publish()) == ["missing"]
    assert kinds(scene.publish(source=f"{scene.through[0]}/empty")) == ["not-staged"]
    assert scene.tags() == {}


def test_an_image_that_does_not_hold_what_its_lock_says(scene: Scene) -> None:
    """The evidence is held against the image once more; what was copied has no tag."""
    packages = {"tensorflow": "2.15.1", "pip": "25.3", "numpy": "1.26.4"}
    scene.project.report(scene.image, fingerprint={"packages": packages, "system_packages": {}})
    for dry_run in (True, False):
        row = scene.publish(dry_run=dry_run)
        assert (row.state, kinds(row)) == ("refused", ["evidence"])
        assert "nvidia-cudnn-cu12 8.9.4.25 is in the lock and not in the image" in row.refusals[0].text
    assert scene.tags() == {}


def test_the_immutable_tag_is_never_moved(scene: Scene) -> None:
    scene.project.report(scene.image)
    other = scene.project.stage(scene.registry, scene.public, extra=b"another")
    immutable = f"{MEASURED}-{scene.image.digest[7:19]}"
    scene.registry.put_manifest(
        f"{scene.public}:{immutable}", other.manifest.content, other.manifest.media_type
    )
    for overwrite in (False, True):
        row = scene.publish(overwrite=overwrite)
        assert (row.state, kinds(row)) == ("refused", ["tag"])
        assert "never moves" in row.refusals[0].text
    assert scene.tags()[immutable] == other.digest
    assert not scene.wanted.items() & scene.tags().items()


def test_what_others_tagged_is_not_moved_unasked(scene: Scene) -> None:
    scene.project.report(scene.image)
    foreign = json.dumps(
        {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": []}
    )
    scene.registry.put_manifest(
        f"{scene.public}:latest", foreign.encode(), "application/vnd.oci.image.index.v1+json"
    )
    row = scene.publish()
    assert (row.state, kinds(row)) == ("refused", ["tag"])
    assert "which rtbuild did not publish" in row.refusals[0].text
    assert list(scene.tags()) == ["latest"]
    assert scene.publish(overwrite=True).state == "published"
    assert scene.tags() == scene.wanted


def test_cells_that_measure_the_same_are_told_apart_by_their_variant(scene: Scene) -> None:
    scene.project.write(
        MATRIX + "include:\n  - {variant: one}\n  - {variant: two}\npublish: {aliases: {latest: '*-one'}}\n"
    )
    for cell in scene.project.matrix.cells:
        scene.project.report(scene.project.stage(scene.registry, scene.staging, cell))
    rows = scene.publish_all()
    assert [row.state for row in rows] == ["published", "published"]
    assert len(scene.tags()) == 7


def test_two_cells_that_want_the_same_names(tmp_path: Path, scene: Scene) -> None:
    """Of two matrices, in one repository: none of them gets a tag."""
    other = Project(tmp_path / "other", ONE.replace("name: tf", "name: other"))
    for project in (scene.project, other):
        project.store = scene.project.store
        project.report(project.stage(scene.registry, scene.staging))
    rows = publish(
        [scene.project.matrix, other.matrix],
        [scene.project.cell, other.cell],
        PublishOptions(source=scene.through[0], target=scene.through[1], results=scene.project.results),
        Hooks(emit=lambda _event: None, cancel=threading.Event()),
    )
    assert [(row.state, kinds(row)) for row in rows] == [("refused", ["tag"])] * 2
    assert "is also wanted for" in rows[0].refusals[0].text
    assert scene.tags() == {}


def test_refused_cells_do_not_stop_the_others(scene: Scene) -> None:
    scene.project.write(MATRIX + "include:\n  - {variant: one}\n  - {variant: two}\n")
    one, two = scene.project.matrix.cells
    scene.project.report(scene.project.stage(scene.registry, scene.staging, one))
    scene.project.stage(scene.registry, scene.staging, two)
    rows = scene.publish_all()
    assert [row.state for row in rows] == ["published", "refused"]
    assert all("one" in tag for tag in scene.tags())


def test_the_command_over_tls_and_with_a_password(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("REQUESTS_CA_BUNDLE", raising=False)
    monkeypatch.delenv("CURL_CA_BUNDLE", raising=False)
    with serve(tmp_path / "registry", tls=True, login=("me", "secret")) as running:
        me = Registry(
            client=Client(ca=str(running.ca), retries=0),
            login=lambda _host: Login(username="me", password="secret"),
        )
        staging, public = f"{running.host}/team/staging", f"{running.host}/team/tf"
        said = f"publish: {{staging: '{staging}', repository: '{public}', aliases: {{latest: '*'}}}}\n"
        project = Project(tmp_path / "project", ONE + said)
        image = project.stage(me, staging)
        docker = tmp_path / "docker"
        docker.mkdir()
        auth = base64.b64encode(b"me:secret").decode()
        (docker / "config.json").write_text(json.dumps({"auths": {running.host: {"auth": auth}}}))
        trusting = {**os.environ, "SSL_CERT_FILE": str(running.ca)}
        environment = {**trusting, "DOCKER_CONFIG": str(docker)}
        environment["GITHUB_STEP_SUMMARY"] = str(project.folder / "page.md")

        shut = rtbuild(project.folder, "publish", "tf.yaml", "--json", "-q", env=environment, check=6)
        assert [r["kind"] for r in json.loads(shut.stdout)["cells"][0]["refusals"]] == ["missing"]

        project.report(image)
        done = rtbuild(project.folder, "publish", "tf.yaml", "--progress", "plain", env=environment)
        assert f"put   {public}:latest" in done.stderr
        assert "known to work on T4" in done.stderr
        assert "Tesla T4, driver 535.104.05" in done.stderr
        assert "NOT SIGNED" in done.stderr
        assert me.digest_of(f"{public}:latest") == image.digest
        assert image.digest[:19] in (project.folder / "page.md").read_text()
        assert 'failures="0"' in (project.results / "junit.xml").read_text()

        again = rtbuild(project.folder, "publish", "tf.yaml", "--json", "-q", env=environment)
        assert json.loads(again.stdout)["cells"][0]["outcome"] == "unchanged"
        for printed in (shut.stdout, again.stdout):
            jsonschema.Draft202012Validator(SCHEMA).validate(json.loads(printed))

        stranger = rtbuild(project.folder, "publish", "tf.yaml", "-q", env=trusting, check=1)
        assert "docker login" in stranger.stderr


def test_a_real_image_from_its_build_to_whoever_pulls_it(tmp_path: Path, server: LoopbackRegistry) -> None:
    """``build --push`` with a real engine; what this machine without a GPU says of it opens no gate. A double
    of a T4's word does, in this registry, and what then bears the public tags is that very image."""
    staging, public = f"{server.host}/real/staging", f"{server.host}/real/public"
    cell = "six1.17.0-py3.11-bookworm-cpu-push"
    (tmp_path / "real.yaml").write_text(
        "version: 1\ninclude:\n"
        "- {framework: six==1.17.0, python: 3.11, base: rootfs:debian/bookworm, cuda: none, variant: push}\n"
        f"publish: {{staging: '{staging}', repository: '{public}'}}\n"
    )
    try:
        built = rtbuild(tmp_path, "build", "real.yaml", "--push", staging, "--json", "-q")
        image = json.loads(built.stdout)["cells"][0]["image"]
        registry = direct()
        found = read_image(registry, staging, image["pushed"].partition("@")[2])
        assert image["pushed"] == f"{staging}@{image['digest']}"
        assert found.content == image["content"], "the same from the registry's config as from the engine"
        assert registry.digest_of(staged_reference(staging, found.inputs or "")) == found.digest

        again = rtbuild(tmp_path, "build", "real.yaml", "--push", staging, "--json", "-q")
        assert json.loads(again.stdout)["cells"][0]["image"]["pushed"] == image["pushed"]

        shut = rtbuild(tmp_path, "publish", "real.yaml", "--json", "-q", check=6)
        (refusal,) = json.loads(shut.stdout)["cells"][0]["refusals"]
        assert refusal["kind"] == "unverified"
        assert registry.request("GET", public, "tags/list", good=(404,)).status_code == 404

        told = json.loads(built.stdout)["cells"][0]["verification"]["report"]
        store_double(tmp_path / "results", found, told)
        done = rtbuild(tmp_path, "publish", "real.yaml", "--json", "-q")
        assert json.loads(done.stdout)["cells"][0]["outcome"] == "published"
        as_pulled(f"{public}:{cell}", found)
    finally:
        for name in (f"rtbuild/real:{cell}", f"{public}:{cell}"):
            subprocess.run(["docker", "image", "rm", "-f", name], capture_output=True, check=False)


def store_double(results: Path, image: Staged, told: dict[str, Any]) -> None:
    """What the probe said of the image without a GPU, made into a double of what it says on a T4."""
    kept = {name: told[name] for name in ("probe", "python", "machine", "fingerprint", "expectation")}
    document = report(image, **kept)
    document["frameworks"] = []
    key = key_of(image.content, parse(json.dumps(document)), image.digest)
    assert key is not None
    labels = {name: image.label(f"io.rtbuild.{name}") or "" for name in ("cell", "matrix")}
    assert ReportStore(results / "reports").save(key, document, **labels) is not None


def as_pulled(reference: str, image: Staged) -> None:
    """Start what a client gets by a public tag, and have it examine itself."""
    container = DockerContainer(reference).with_kwargs(labels=containers.labels())
    container.with_command(["cudnn-verify", "--json"])
    with container:
        status = container.wait()
        stdout, _ = container.get_logs()
        pulled = container.get_wrapped_container().image
    document = json.loads(stdout)
    assert (status, document["verdict"]) == (10, "unverified"), "sound, and there is no GPU here"
    assert document["expectation"] == image.label("io.rtbuild.cell")
    assert {name.partition("@")[2] for name in pulled.attrs["RepoDigests"]} == {image.digest}
    for name in ("cell", "matrix", "inputs", "version"):
        assert pulled.labels[f"io.rtbuild.{name}"] == image.label(f"io.rtbuild.{name}")


def test_signed_it_is_what_audit_and_cosign_find(
    tmp_path: Path, scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unsigned first; then signed, which is a change; then once more, which is none."""
    if shutil.which("cosign") is None:
        pytest.skip("needs cosign: scripts/ensure-tools")
    monkeypatch.setenv("COSIGN_PASSWORD", "secret")
    subprocess.run(["cosign", "generate-key-pair"], cwd=tmp_path, check=True, capture_output=True)
    signer = Signer(key=str(tmp_path / "cosign.key"))
    scene.project.report(scene.image)
    assert scene.publish().state == "published"
    row = scene.publish(signer=signer)
    assert (row.state, {piece.signed for piece in row.evidence}) == ("published", {True})
    assert scene.publish(signer=signer).state == "unchanged"
    audited = rtbuild(tmp_path, "audit", f"{scene.public}:latest", "--key", "cosign.pub", "--json")
    found = json.loads(audited.stdout)
    assert (found["digest"], found["works"]) == (scene.image.digest, True)
