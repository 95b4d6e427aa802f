"""A yes only where a verification of this very content holds; every way to fake or lose one is a no."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from doubles import small_image
from doubles.cosign import CosignDouble
from doubles.registry import INDEX, RegistryDouble

from builder.cli.commands.audit import answer
from builder.core.errors import MissingToolError, RegistryError
from builder.release.audit.checks import AuditOutcome, DriverAnswer, Question
from builder.release.audit.run import Audit, audit
from builder.sources.oci.artifacts import Artifact, attach
from builder.sources.oci.spec import MANIFEST, Descriptor, parse_reference
from builder.verify.evidence.attach import statements
from builder.verify.evidence.statement import MEDIA_TYPE, PROVENANCE, TEST_RESULT, Cosign, Statement, Verifier

if TYPE_CHECKING:
    from pathlib import Path

    from builder.sources.oci.registry import Registry
    from builder.sources.oci.staging import Staged
    from builder.verify.evidence.contents import Evidence


def ask(registry: Registry, image: Staged, **question: Any) -> Audit:
    return audit(registry, f"{image.repository}:1", Question(**question))


def outcome(found: Audit, what: str) -> AuditOutcome:
    return next(finding.outcome for finding in found.findings if finding.what == what)


def hang_on(registry: Registry, image: Staged, predicate: dict[str, Any], kind: str = TEST_RESULT) -> None:
    """Attach a statement as whoever may push could, without any of rtbuild's checks."""
    statement = Statement(subjects=(image.digest,), predicate_type=kind, predicate=predicate)
    subject = Descriptor(media_type=MANIFEST, digest=image.digest, size=len(image.manifest.content))
    name = parse_reference(image.repository).at(image.digest)
    attach(registry, name, subject, Artifact(artifact_type=MEDIA_TYPE, content=statement.content))


def test_known_to_work(registry: Registry, pushed: Staged) -> None:
    small_image.attach_all(registry, pushed, small_image.evidence(pushed, exempt=("K80",)))
    found = ask(registry, pushed)
    assert found.works
    assert found.claims == ("T4",)
    assert [(row.kind, row.holds, row.signed) for row in found.evidence] == [
        ("verification", True, False),
        ("sbom", True, False),
        ("provenance", True, False),
    ]
    assert found.image.digest == pushed.digest
    assert found.against == ()


def test_no_evidence_at_all(registry: Registry, pushed: Staged) -> None:
    found = ask(registry, pushed)
    assert not found.works
    assert "there is no verification" in found.against[0].message


def test_an_sbom_and_provenance_alone_prove_nothing(
    server: RegistryDouble, registry: Registry, pushed: Staged
) -> None:
    made = small_image.attach_all(registry, pushed, small_image.evidence(pushed))
    del server.manifests[made[0].digest]
    found = ask(registry, pushed)
    assert not found.works
    assert [row.kind for row in found.evidence] == ["sbom", "provenance"]


def test_by_digest(registry: Registry, pushed: Staged) -> None:
    small_image.attach_all(registry, pushed, small_image.evidence(pushed))
    assert audit(registry, pushed.reference, Question()).works


def test_the_tag_is_asked_for_once(server: RegistryDouble, registry: Registry, pushed: Staged) -> None:
    small_image.attach_all(registry, pushed, small_image.evidence(pushed))
    server.requests.clear()
    ask(registry, pushed)
    assert [r for r in server.requests if r.endswith("/manifests/1")] == ["HEAD /v2/team/tf/manifests/1"]


def test_of_an_index_the_image_for_this_platform(
    server: RegistryDouble, registry: Registry, pushed: Staged
) -> None:
    small_image.attach_all(registry, pushed, small_image.evidence(pushed))
    entry = {
        "mediaType": MANIFEST,
        "digest": pushed.digest,
        "size": len(pushed.manifest.content),
        "platform": {"os": "linux", "architecture": "amd64"},
    }
    index = json.dumps({"schemaVersion": 2, "mediaType": INDEX, "manifests": [entry]}).encode()
    registry.put_manifest(f"{pushed.repository}:both", index, INDEX)
    found = audit(registry, f"{pushed.repository}:both", Question())
    assert found.works
    assert found.image.digest == pushed.digest


@pytest.mark.parametrize("first", [True, False])
def test_an_index_with_an_image_that_the_engine_takes_instead_is_refused(
    server: RegistryDouble, registry: Registry, pushed: Staged, tmp_path: Path, *, first: bool
) -> None:
    """The verified image under one variant, another one beside it: docker run may take the other."""
    small_image.attach_all(registry, pushed, small_image.evidence(pushed))
    other = small_image.push_image(
        registry, pushed.repository, tmp_path, layers=(small_image.LAYERS[0],), tag="other"
    )
    entries = [
        {
            "mediaType": MANIFEST,
            "digest": image.digest,
            "size": len(image.manifest.content),
            "platform": {"os": "linux", "architecture": "amd64", **variant},
        }
        for image, variant in ((pushed, {"variant": "v2"}), (other, {}))
    ]
    listed = entries if first else entries[::-1]
    index = json.dumps({"schemaVersion": 2, "mediaType": INDEX, "manifests": listed}).encode()
    registry.put_manifest(f"{pushed.repository}:both", index, INDEX)
    with pytest.raises(RegistryError, match="2 images that an engine may take"):
        audit(registry, f"{pushed.repository}:both", Question())


@pytest.mark.parametrize("more", [{"manifests": []}, {"layers": [], "manifests": []}])
def test_a_document_that_is_index_and_image_at_once_is_refused(
    registry: Registry, pushed: Staged, more: dict[str, Any]
) -> None:
    """CVE-2021-41190: one digest that is one thing to this reader and another thing to an engine."""
    both = json.dumps(json.loads(pushed.manifest.content) | more).encode()
    registry.put_manifest(f"{pushed.repository}:both", both, MANIFEST)
    with pytest.raises(RegistryError, match="index and image at once"):
        audit(registry, f"{pushed.repository}:both", Question())


def test_a_tag_that_is_not_there(registry: Registry, pushed: Staged) -> None:
    with pytest.raises(RegistryError, match="does not exist"):
        audit(registry, f"{pushed.repository}:2", Question())


def test_a_report_replayed_from_another_image(registry: Registry, pushed: Staged, tmp_path: Path) -> None:
    """True evidence about one image, rewritten to name the digest of another."""
    other = small_image.push_image(
        registry, pushed.repository, tmp_path, layers=(small_image.LAYERS[0],), tag="other"
    )
    small_image.attach_all(registry, pushed, small_image.evidence(pushed))
    found = audit(registry, f"{pushed.repository}:1", Question())
    true = _predicate(registry, found)
    hang_on(registry, other, true)
    replayed = audit(registry, f"{pushed.repository}:other", Question())
    assert not replayed.works
    assert "other content" in replayed.against[0].message


def _predicate(registry: Registry, found: Audit) -> dict[str, Any]:
    from builder.verify.evidence.statement import gather

    name = parse_reference(found.image.repository).at(found.image.digest)
    pieces = gather(registry, name).pieces
    return dict(next(p.statement.predicate for p in pieces if p.statement.predicate_type == TEST_RESULT))


def test_the_layers_were_exchanged(registry: Registry, pushed: Staged, tmp_path: Path) -> None:
    """The tag now leads to an image with the same labels and other layers; its evidence stays behind."""
    small_image.attach_all(registry, pushed, small_image.evidence(pushed))
    layers = (*small_image.LAYERS, small_image.layer({"usr/bin/evil": b"x"}))
    small_image.push_image(registry, pushed.repository, tmp_path, layers=layers, tag="1")
    assert not ask(registry, pushed).works


@pytest.mark.parametrize(
    "report",
    [
        {"verdict": "unverified"},
        {"test_double": True},
        {"gpus": []},
        {"driver": None},
        {"checks": []},
    ],
)
def test_a_report_that_proves_nothing(report: dict[str, Any], registry: Registry, pushed: Staged) -> None:
    from builder.verify.evidence.judgement import predicate_of

    document = small_image.double_report(**report)
    predicate = predicate_of(
        small_image.verification(pushed, document=document), pushed, claims=("T4",), exempt=()
    )
    hang_on(registry, pushed, predicate)
    found = ask(registry, pushed)
    assert not found.works
    assert found.verified == ()


def test_junk_beside_good_evidence_changes_nothing(registry: Registry, pushed: Staged) -> None:
    small_image.attach_all(registry, pushed, small_image.evidence(pushed))
    hang_on(registry, pushed, {"result": "PASSED"})
    hang_on(
        registry,
        pushed,
        {"metadata": {"component": {"version": "sha256:other"}}},
        "https://cyclonedx.org/bom",
    )
    hang_on(registry, pushed, {"x": 1}, "https://example.invalid/other")
    hang_on(registry, pushed, {"buildDefinition": []}, PROVENANCE)
    found = ask(registry, pushed)
    assert found.works
    assert [row.reason != "" for row in found.evidence] == [False] * 3 + [True] * 4


def test_too_old(registry: Registry, pushed: Staged) -> None:
    small_image.attach_all(registry, pushed, small_image.evidence(pushed))
    assert ask(registry, pushed, max_age=timedelta(days=3)).works
    found = ask(registry, pushed, max_age=timedelta(days=1))
    assert not found.works
    assert "older than 1 day" in found.against[0].message


def test_an_older_digest_that_was_put_back(registry: Registry, pushed: Staged) -> None:
    """Its evidence holds, and its signatures do not grow old: the asker has seen a newer one."""
    small_image.attach_all(registry, pushed, small_image.evidence(pushed))
    (newest,) = {found.when for found in ask(registry, pushed).verified}
    assert ask(registry, pushed, at_least=newest).works
    found = ask(registry, pushed, at_least=newest + timedelta(seconds=1))
    assert not found.works
    assert [finding.what for finding in found.against] == ["rollback"]


def test_old_is_said(registry: Registry, pushed: Staged) -> None:
    old = (small_image.verification(pushed, verified=small_image.moment(days=200)),)
    small_image.attach_all(registry, pushed, small_image.evidence(pushed, verifications=old))
    found = ask(registry, pushed)
    assert found.works
    assert outcome(found, "age") is AuditOutcome.MIND


def test_the_reader_s_clock_is_years_behind(registry: Registry, pushed: Staged) -> None:
    small_image.attach_all(registry, pushed, small_image.evidence(pushed))
    found = audit(
        registry, f"{pushed.repository}:1", Question(), now=datetime.now(UTC) - timedelta(days=1000)
    )
    assert not found.works
    assert "a clock is wrong" in found.against[0].message


class TestSignatures:
    """With a test double of cosign: what it verified is what counts."""

    @pytest.fixture
    def signed(self, monkeypatch: pytest.MonkeyPatch) -> list[Statement]:
        double = CosignDouble()
        monkeypatch.setattr(Cosign, "find", lambda: double)
        return double.signed

    def test_unsigned_evidence_does_not_count(
        self, signed: list[Statement], registry: Registry, pushed: Staged
    ) -> None:
        small_image.attach_all(registry, pushed, small_image.evidence(pushed))
        found = ask(registry, pushed, verifier=Verifier(key="k"))
        assert not found.works
        assert outcome(found, "signature") is AuditOutcome.FAILS
        assert "not signed by key k" in found.evidence[0].reason

    def test_signed_evidence_counts(
        self, signed: list[Statement], registry: Registry, pushed: Staged
    ) -> None:
        from builder.verify.evidence.attach import statements

        evidence = small_image.evidence(pushed)
        small_image.attach_all(registry, pushed, evidence)
        signed += statements(registry, pushed, evidence)
        found = ask(registry, pushed, verifier=Verifier(key="k"))
        assert found.works
        assert outcome(found, "signature") is AuditOutcome.PASSES
        assert all(row.signed for row in found.evidence)

    def test_only_a_verification_makes_a_yes(
        self, signed: list[Statement], registry: Registry, pushed: Staged
    ) -> None:
        """An attacker adds an unsigned verification to what is signed."""
        from builder.verify.evidence.attach import statements

        evidence = small_image.evidence(pushed)
        small_image.attach_all(registry, pushed, evidence)
        signed += statements(registry, pushed, evidence)[1:]
        found = ask(registry, pushed, verifier=Verifier(key="k"))
        assert not found.works
        assert found.verified == ()

    def test_a_signed_statement_that_is_withheld_as_referrer(
        self, signed: list[Statement], registry: Registry, pushed: Staged
    ) -> None:
        from builder.verify.evidence.attach import statements

        signed += statements(registry, pushed, small_image.evidence(pushed))
        found = ask(registry, pushed, verifier=Verifier(key="k"))
        assert found.works
        assert [row.digest for row in found.evidence] == ["", "", ""]


def test_cosign_is_missing(
    registry: Registry, pushed: Staged, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingToolError):
        ask(registry, pushed, verifier=Verifier(key="k"))


def test_a_config_that_is_not_the_manifest_s(
    server: RegistryDouble, registry: Registry, pushed: Staged
) -> None:
    small_image.attach_all(registry, pushed, small_image.evidence(pushed))
    server.lies[pushed.config_digest] = b"{}"
    with pytest.raises(RegistryError, match="another content"):
        ask(registry, pushed)


def test_a_manifest_that_is_not_what_the_digest_says(
    server: RegistryDouble, registry: Registry, pushed: Staged
) -> None:
    small_image.attach_all(registry, pushed, small_image.evidence(pushed))
    server.lies[pushed.digest] = pushed.manifest.content + b" "
    with pytest.raises(RegistryError, match="another content"):
        ask(registry, pushed)


def test_labels_are_not_believed_over_content(registry: Registry, pushed: Staged, tmp_path: Path) -> None:
    """The same layers under the labels of another cell: the content is another, too."""
    small_image.attach_all(registry, pushed, small_image.evidence(pushed))
    other = small_image.push_image(
        registry, pushed.repository, tmp_path, labels={"io.rtbuild.cell": "jax0.4"}, tag="2"
    )
    assert other.content != pushed.content
    hang_on(registry, other, _predicate(registry, ask(registry, pushed)))
    assert not audit(registry, f"{pushed.repository}:2", Question()).works


def test_several_machines(registry: Registry, pushed: Staged) -> None:
    a100 = small_image.double_report(
        gpus=[{"name": "NVIDIA A100-SXM4-40GB", "compute_capability": "8.0"}],
        driver={"version": "550.54.15", "api": "12.4"},
    )
    both = (
        small_image.verification(pushed),
        small_image.verification(pushed, document=a100, verified=small_image.moment(hours=1)),
    )
    evidence = replace(small_image.evidence(pushed), verifications=both, claims=("A100", "T4"))
    small_image.attach_all(registry, pushed, evidence)
    found = ask(registry, pushed)
    assert found.claims == ("A100", "T4")
    assert [v.gpu for v in found.verified] == ["NVIDIA A100-SXM4-40GB", "Tesla T4"]


def ran_with(image: Staged, *drivers: str) -> Evidence:
    """Doubles of reports of a T4 with these drivers, one for each."""
    reports = tuple(
        small_image.verification(
            image,
            document=small_image.double_report(driver={"version": version, "api": "12.4"}),
            verified=small_image.moment(hours=hours),
        )
        for hours, version in enumerate(drivers, 1)
    )
    return small_image.evidence(image, verifications=reports)


def test_each_driver_of_a_class_adds_to_the_claim(registry: Registry, pushed: Staged) -> None:
    for count, drivers in enumerate((["550.54.15"], ["580.65.06"], ["535.104.05"]), 1):
        small_image.attach_all(registry, pushed, ran_with(pushed, *drivers))
        assert len(ask(registry, pushed).verified) == count
    found = ask(registry, pushed)
    assert found.drivers == {"T4": ["535.104.05", "550.54.15", "580.65.06"]}
    assert answer(found) == "known to work on T4 from driver 535.104.05 on"
    for driver, known in {"535": "ran", "550.40": "ran", "560": "newer", "590": "newer"}.items():
        asked = ask(registry, pushed, gpu="T4", driver=driver)
        assert (asked.works, asked.on_driver) == (True, known)


@pytest.mark.parametrize(
    ("driver", "known", "says"),
    [
        ("550", DriverAnswer.RAN, "known to work on T4 with driver 550"),
        ("580", DriverAnswer.NEWER, "known to work on T4 with driver 580"),
        (
            "535",
            DriverAnswer.SHOULD,
            (
                "not known to work on T4 with driver 535: it ran on Tesla T4 with driver 550.54.15 only, "
                "and the rules say that it should with 535"
            ),
        ),
        ("470", DriverAnswer.NO, "driver 470 is older than 525.60.13"),
        (
            "525",
            DriverAnswer.NO,
            "the rules do not say that it should",
        ),  # a branch that began before the floor
    ],
)
def test_a_driver_that_it_ran_with_or_should_run_with_or_not(
    driver: str, known: DriverAnswer, says: str, registry: Registry, pushed: Staged
) -> None:
    small_image.attach_all(registry, pushed, ran_with(pushed, "550.54.15"))
    found = ask(registry, pushed, gpu="T4", driver=driver)
    assert found.on_driver is known
    assert found.works is (known in (DriverAnswer.RAN, DriverAnswer.NEWER))
    assert found.should is (known is DriverAnswer.SHOULD)
    assert says in answer(found)


def test_it_should_is_said_only_where_all_else_speaks_for_it(registry: Registry, pushed: Staged) -> None:
    """Without the provenance nothing says what the rules are to be asked about: absence is no yes."""
    made = ran_with(pushed, "550.54.15")
    for statement in statements(registry, pushed, made):
        if statement.predicate_type == TEST_RESULT:
            hang_on(registry, pushed, statement.predicate)
    found = ask(registry, pushed, gpu="T4", driver="535")
    assert (found.works, found.should, found.on_driver) == (False, False, DriverAnswer.NO)
    small_image.attach_all(registry, pushed, made)
    assert ask(registry, pushed, driver="535").should
    old = ask(registry, pushed, gpu="T4", driver="535", max_age=timedelta(minutes=5))
    assert (old.should, old.on_driver) == (False, DriverAnswer.NO)
    lacking = ask(registry, pushed, gpu="T4", driver="535", suites=("attention",))
    assert (lacking.should, lacking.on_driver) == (False, DriverAnswer.NO)


A100 = {
    "gpus": [{"name": "NVIDIA A100-SXM4-40GB", "compute_capability": "8.0"}],
    "driver": {"version": "550.54.15", "api": "12.4"},
}


def test_an_exemption_takes_back_what_an_earlier_statement_claims(registry: Registry, pushed: Staged) -> None:
    """Published for both; then the A100 is found not to run it, and exempted. Nothing is ever removed."""
    monday, tuesday, wednesday = (small_image.moment(days=days) for days in (3, 2, 1))
    t4 = small_image.verification(pushed, verified=monday)
    a100 = small_image.verification(pushed, document=small_image.double_report(**A100), verified=tuesday)
    evidence = replace(small_image.evidence(pushed), verifications=(t4, a100), claims=("A100", "T4"))
    small_image.attach_all(registry, pushed, evidence)
    assert ask(registry, pushed, gpu="A100").works
    taken = replace(evidence, verifications=(t4,), claims=("T4",), exempt=("A100",), as_of=wednesday)
    small_image.attach_all(registry, pushed, taken)
    assert not ask(registry, pushed, gpu="A100").works
    found = ask(registry, pushed, gpu="T4")
    assert (found.works, found.claims) == (True, ("T4",))
    mended = replace(a100, verified=small_image.moment(hours=1))
    small_image.attach_all(registry, pushed, replace(evidence, verifications=(t4, mended)))
    assert ask(registry, pushed, gpu="A100").works, "a newer report brings the claim back"


def test_cosign_is_sent_where_the_mirror_is() -> None:
    from builder.sources.oci.registry import Registry as Client

    mirrored = Client({"docker.io": "127.0.0.1:5000/hub"})
    assert mirrored.address("nvidia/cuda") == "127.0.0.1:5000/hub/nvidia/cuda"
    assert mirrored.address("registry.example/team/tf") == "registry.example/team/tf"
    assert Client().address("nvidia/cuda") == "docker.io/nvidia/cuda"


@pytest.mark.parametrize("kind", ["manifest", "statement"])
def test_a_document_that_is_listed_and_not_given_may_be_against_it(
    registry: Registry, server: RegistryDouble, pushed: Staged, kind: str
) -> None:
    """Else one failing answer of the registry is a yes for an image that was found broken."""
    made = small_image.attach_all(registry, pushed, small_image.evidence(pushed))
    assert ask(registry, pushed).works
    manifest = next(one.digest for one in made if one.kind == "sbom")
    statement = json.loads(server.manifests[manifest][1])["layers"][0]["digest"]
    server.lies[manifest if kind == "manifest" else statement] = b"{}"  # the FAILED that nobody has seen
    found = ask(registry, pushed)
    assert not found.works
    assert [row.what for row in found.against] == ["unread"]
