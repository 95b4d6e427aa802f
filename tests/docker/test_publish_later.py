"""What is found against a public image, in a real registry: signed by the real cosign, and through faults.

The registry (docker-registry 2.8) has no referrers API, so all of it is listed by a tag. The reports are test
doubles.
"""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest
from doubles.project import A100, CELL, PROBE
from doubles.small_image import moment
from publish_scene import Scene, Zygote, impatient
from rtbuild_command import rtbuild

from builder.release.audit.checks import Question
from builder.release.audit.run import Audit, audit
from builder.sources.oci.registry import Registry
from builder.verify.evidence.statement import TEST_RESULT, Signer, Verifier

if TYPE_CHECKING:
    from collections.abc import Callable

    from doubles.unreliable import Proxy

pytestmark = [pytest.mark.docker, pytest.mark.long]

SCHEMA = json.loads((Path(__file__).parents[2] / "docs" / "publication.schema.json").read_text())
BROKEN = {"verdict": "broken", "cause": "cudnn-shadowed", "gpu": A100}


@pytest.fixture
def scene(tmp_path: Path, proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> Scene:
    monkeypatch.setattr(Registry, "to_write", impatient)
    monkeypatch.setattr("builder.release.publish.run.bundle", lambda: PROBE)
    made = Scene(tmp_path / "project", proxy, tmp_path.name.replace("_", "-"))
    made.project.report(made.image)
    return made


@pytest.fixture
def signer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Signer:
    if shutil.which("cosign") is None:
        pytest.skip("needs cosign: scripts/ensure-tools")
    monkeypatch.setenv("COSIGN_PASSWORD", "secret")
    subprocess.run(["cosign", "generate-key-pair"], cwd=tmp_path, check=True, capture_output=True)
    return Signer(key=str(tmp_path / "cosign.key"))


def ask(scene: Scene, signer: Signer | None = None, name: str = "latest") -> Audit:
    verifier = Verifier(key=str(signer.key).replace(".key", ".pub")) if signer is not None else None
    return audit(scene.registry, f"{scene.public}:{name}", Question(verifier=verifier))


def found_broken(scene: Scene) -> None:
    scene.project.report(scene.image, verified=moment(hours=2), **BROKEN)


def verified_by_cosign(scene: Scene, signer: Signer, *options: str) -> subprocess.CompletedProcess[str]:
    """What a reader without rtbuild runs."""
    return subprocess.run(
        ["cosign", "verify-attestation", "--key", str(signer.key).replace(".key", ".pub"),
         "--type", TEST_RESULT, "--insecure-ignore-tlog=true", "--private-infrastructure=true", *options,
         f"{scene.public}@{scene.image.digest}"],
        check=False, capture_output=True, text=True,
    )  # fmt: skip


def state(scene: Scene) -> dict[str, str | None]:
    """Every tag, those that list evidence and signatures among them."""
    names = scene.registry.tags(scene.public)
    return {name: scene.registry.digest_of(f"{scene.public}:{name}") for name in sorted(names)}


def test_signed_it_is_a_no_for_everyone_until_a_signed_report_takes_it_back(
    scene: Scene, signer: Signer, tmp_path: Path
) -> None:
    assert scene.publish(signer=signer).state == "published"
    assert ask(scene, signer).works
    found_broken(scene)
    row = scene.publish(signer=signer)
    assert (row.state, [refusal.kind for refusal in row.refusals]) == ("refused", ["broken"])
    assert [(found.new, found.attached and found.attached.signed) for found in row.failures] == [(True, True)]
    assert scene.tags() == scene.wanted, "the tags stay where they were"
    for asked in (signer, None):
        found = ask(scene, asked)
        assert not found.works
        assert (
            "found broken, cudnn-shadowed, on NVIDIA A100-SXM4-40GB with driver" in found.against[0].message
        )

    read = verified_by_cosign(scene, signer)
    assert read.returncode == 0
    envelopes = [json.loads(line) for line in read.stdout.splitlines()]
    results = [json.loads(base64.b64decode(one["payload"]))["predicate"]["result"] for one in envelopes]
    assert sorted(results) == ["FAILED", "PASSED"]

    policy = tmp_path / "policy.cue"
    policy.write_text('predicate: result: "PASSED"\n')
    refused = verified_by_cosign(scene, signer, "--policy", str(policy))
    assert refused.returncode == 1
    assert 'conflicting values "FAILED" and "PASSED"' in refused.stderr

    before = state(scene)
    scene.proxy.requests.clear()
    again = scene.publish(signer=signer)
    assert [(found.there, found.new) for found in again.failures] == [(True, False)]
    assert (state(scene), scene.proxy.writes()) == (before, [])

    scene.project.report(scene.image, gpu=A100, verified=moment(hours=1))
    row = scene.publish(signer=signer)
    assert (row.state, row.failures) == ("published", ())
    assert ask(scene, signer).works
    assert ask(scene).works


def test_unsigned_it_takes_no_signed_image_down_until_it_is_signed(scene: Scene, signer: Signer) -> None:
    scene.publish(signer=signer)
    found_broken(scene)
    assert scene.publish().state == "refused"
    found = ask(scene, signer)
    assert found.works
    assert [f.message for f in found.findings if f.what == "broken" and "not signed" in f.message]
    assert not ask(scene).works
    row = scene.publish(signer=signer)
    assert [(one.there, one.new) for one in row.failures] == [(True, True)]
    assert not ask(scene, signer).works


def test_the_command(scene: Scene, tmp_path: Path) -> None:
    said = ("publish", "tf.yaml", "--from", scene.staging, "--to", scene.public, "--progress", "plain")
    rtbuild(scene.project.folder, *said)
    found_broken(scene)
    before = state(scene)
    shown = rtbuild(scene.project.folder, *said, "--dry-run", check=6)
    assert f"{CELL}: a FAILED verification of a public image would be attached" in shown.stderr
    assert state(scene) == before

    done = rtbuild(scene.project.folder, *said, "--json", check=6)
    document = json.loads(done.stdout)
    jsonschema.Draft202012Validator(SCHEMA).validate(document)
    (failure,) = document["cells"][0]["failures"]
    assert (failure["digest"], failure["verdict"], failure["cause"], failure["tags"]) == (
        scene.image.digest,
        "broken",
        "cudnn-shadowed",
        [CELL, "latest"],
    )
    assert (failure["action"], failure["evidence"]["by"], failure["evidence"]["new"]) == (
        "attach",
        "tag",
        True,
    )
    assert f"{scene.public}@{scene.image.digest}" in done.stderr
    assert "broken, cudnn-shadowed, on NVIDIA A100-SXM4-40GB with driver" in done.stderr
    assert "NOT SIGNED" in done.stderr

    answer = rtbuild(tmp_path, "audit", f"{scene.public}:latest", check=1)
    assert "✗ not known to work" in answer.stdout
    assert "  ✗ broken, cudnn-shadowed, on NVIDIA A100-SXM4-40GB with driver" in answer.stdout


def again_and_again(scene: Scene, disturbed: Callable[[], Any]) -> list[int]:
    """A new public repository with the image in it, then a report against it; the requests that write."""
    results = scene.project.folder / "works"
    if not results.exists():
        shutil.copytree(scene.project.results, results)
    scene.publish(results=results)
    found_broken(scene)
    scene.proxy.requests.clear()
    disturbed()
    return [n for n, line in enumerate(scene.proxy.requests, 1) if line.split()[0] not in {"GET", "HEAD"}]


def test_the_registry_dies_at_any_write(scene: Scene) -> None:
    """Done and never answered, or a 503 from there on: tags stay, and the next run says what it has to."""
    points = again_and_again(scene, scene.publish)
    assert len(points) > 2
    for round_, at in enumerate(points):
        way = "lost" if round_ % 2 else "503"
        scene.publish_to(f"{round_}")

        def dying(at: int = at, way: Any = way) -> None:
            scene.proxy.fault = lambda n, _m, _p: None if n < at else way if n == at else "503"
            row = scene.publish()
            scene.proxy.fault = lambda _number, _method, _path: None
            assert row.state == "failed", f"{way} at request {at}"
            assert [refusal.kind for refusal in row.refusals] == ["broken"]

        again_and_again(scene, dying)
        assert scene.tags() == scene.wanted
        assert scene.publish().state == "refused"
        assert [found.new for found in scene.publish().failures] == [False]
        assert not ask(scene).works


def test_kill_9_when_it_is_attached_and_nobody_was_told(scene: Scene, tmp_path: Path) -> None:
    zygote = Zygote(tmp_path / "log.txt")
    try:
        last = again_and_again(scene, scene.publish)[-1]
        scene.publish_to("killed")
        command = ("publish", "tf.yaml", "--from", scene.through[0], "--to", scene.through[1], "-q")
        status: list[int] = []

        def killed() -> None:
            scene.proxy.after = lambda n, _method: zygote.kill() if n == last else None
            status.append(zygote.run(scene.project.folder, *command))
            scene.proxy.after = None

        again_and_again(scene, killed)
        assert status == [-9]
        assert not ask(scene).works
        before = state(scene)
        assert zygote.run(scene.project.folder, *command) == 6, zygote.log.read_text()[-2000:]
        assert state(scene) == before
    finally:
        zygote.close()


def test_two_publishers_at_once(scene: Scene) -> None:
    def both() -> None:
        assert [row.state for row in scene.publish_twice_at_once()] == ["refused", "refused"]

    again_and_again(scene, both)
    found = ask(scene)
    assert not found.works
    assert [row.kind for row in found.evidence].count("failed-verification") == 1
