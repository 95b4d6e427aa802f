"""Everything about an image goes beside it, or nothing that is wrong does."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from doubles import small_image
from doubles.cosign import CosignDouble

from builder.core.errors import EvidenceError, RegistryError
from builder.sources.net.http import Client
from builder.sources.oci.registry import Registry
from builder.sources.oci.spec import parse_reference
from builder.verify.evidence.attach import statements
from builder.verify.evidence.statement import Cosign, Signed, Signer, gather

if TYPE_CHECKING:
    from doubles.registry import RegistryDouble

    from builder.sources.oci.staging import Staged

OTHER = "sha256:" + "9" * 64


@pytest.mark.parametrize("api", [True, False])
def test_three_pieces(api: bool, server: RegistryDouble, registry: Registry, pushed: Staged) -> None:
    server.referrers = api
    said: list[str] = []
    made = small_image.attach_all(registry, pushed, small_image.evidence(pushed), note=said.append)
    assert [(row.kind, row.by, row.new, row.signed) for row in made] == [
        (kind, "referrers" if api else "tag", True, False) for kind in ("verification", "sbom", "provenance")
    ]
    assert "attaching sbom" in said
    found = gather(registry, parse_reference(pushed.repository).at(pushed.digest))
    assert {piece.digest for piece in found.pieces} == {row.digest for row in made}
    assert (found.refused, found.signatures) == ((), False)


def test_twice_changes_nothing(server: RegistryDouble, registry: Registry, pushed: Staged) -> None:
    evidence = small_image.evidence(pushed)
    first = small_image.attach_all(registry, pushed, evidence)
    before = dict(server.manifests)
    second = small_image.attach_all(registry, pushed, evidence)
    assert [replace(row, new=True) for row in second] == list(first)
    assert not any(row.new for row in second)
    assert server.manifests == before


def test_it_goes_on_where_it_was(server: RegistryDouble, registry: Registry, pushed: Staged) -> None:
    server.referrers = False
    evidence = small_image.evidence(pushed)
    whole = statements(registry, pushed, evidence)
    puts: list[str] = []

    def die(reference: str) -> None:
        puts.append(reference)
        if len(puts) == 3:
            raise ConnectionResetError

    server.before_put = die
    with pytest.raises((RegistryError, OSError)):
        small_image.attach_all(registry, pushed, evidence)
    server.before_put = None
    registry = Registry(client=Client(retries=0), login=lambda _host: None)  # the next run's own
    made = small_image.attach_all(registry, pushed, evidence)
    assert [row.new for row in made] == [False, True, True]
    assert len(whole) == len(made)


def test_what_is_attached_is_named_by_its_image(registry: Registry, pushed: Staged) -> None:
    for statement in statements(registry, pushed, small_image.evidence(pushed)):
        document = json.loads(statement.content)
        assert document["_type"] == "https://in-toto.io/Statement/v1"
        assert document["subject"] == [
            {"name": pushed.repository, "digest": {"sha256": pushed.digest.removeprefix("sha256:")}}
        ]


def test_provenance(registry: Registry, pushed: Staged) -> None:
    predicate = statements(registry, pushed, small_image.evidence(pushed))[-1].predicate
    definition = predicate["buildDefinition"]
    assert definition["externalParameters"]["cell"]["frameworks"] == ["tensorflow==2.15.1"]
    assert definition["internalParameters"]["inputs"] == small_image.INPUTS
    by_name = {row["name"]: row for row in definition["resolvedDependencies"]}
    assert {"matrix", "lock", small_image.WHEELS[0].file, "libc6_2.36-9+deb12u9_amd64.deb"} <= by_name.keys()
    assert by_name["libc6_2.36-9+deb12u9_amd64.deb"]["digest"] == {"sha256": "c6" * 32}
    assert predicate["runDetails"]["byproducts"][0]["name"] == "recipe/Dockerfile"
    assert predicate["runDetails"]["builder"]["version"] == {"rtbuild": "0.1.0"}


def test_provenance_names_the_base(registry: Registry, pushed: Staged) -> None:
    lock = small_image.on_registry_base("nvidia/cuda:12.2.2-base-ubuntu22.04", "sha256:" + "b" * 64)
    evidence = small_image.evidence(pushed, recipe=small_image.recipe(lock))
    base = statements(registry, pushed, evidence)[-1].predicate["buildDefinition"]["resolvedDependencies"][0]
    assert base["uri"] == "oci://nvidia/cuda:12.2.2-base-ubuntu22.04"
    assert base["digest"] == {"sha256": "b" * 64}


@pytest.mark.parametrize(
    ("verification", "changes", "reason"),
    [
        ({"manifest": OTHER}, {}, f"the report is about {OTHER}"),
        ({"content": OTHER}, {}, "about other content"),
        ({"document": small_image.double_report(verdict="unverified")}, {}, "says unverified"),
        ({"document": small_image.double_report(test_double=True)}, {}, "a test double"),
        ({"verified": small_image.moment(days=-1)}, {}, "from the future"),
        ({}, {"verifications": ()}, "there is no report"),
        ({}, {"claims": ("T4", "H100")}, "published for H100, but no report comes from such"),
        ({}, {"recipe": replace(small_image.recipe(), inputs=OTHER)}, "built from other inputs"),
    ],
)
def test_nothing_is_attached_that_does_not_hold(
    verification: dict[str, Any],
    changes: dict[str, Any],
    reason: str,
    server: RegistryDouble,
    registry: Registry,
    pushed: Staged,
) -> None:
    fields: dict[str, Any] = {"verifications": (small_image.verification(pushed, **verification),)} | changes
    before = dict(server.manifests)
    with pytest.raises(EvidenceError, match=reason):
        small_image.attach_all(registry, pushed, small_image.evidence(pushed, **fields))
    assert server.manifests == before


def test_each_report_is_a_statement_of_its_own(registry: Registry, pushed: Staged) -> None:
    a100 = small_image.double_report(
        gpus=[{"name": "NVIDIA A100-SXM4-40GB", "compute_capability": "8.0"}],
        driver={"version": "550.54.15", "api": "12.4"},
    )
    both = (small_image.verification(pushed), small_image.verification(pushed, document=a100))
    made = statements(
        registry, pushed, small_image.evidence(pushed, verifications=both, claims=("A100", "T4"))
    )
    assert [s.predicate["rtbuildVerification"]["claims"] for s in made[:2]] == [["T4"], ["A100"]]


US = "https://github.com/o/r/.github/workflows/images.yml@refs/heads/main"


@pytest.fixture
def workflow(monkeypatch: pytest.MonkeyPatch) -> None:
    """A CI job of ours."""
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_SERVER_URL", "https://github.com")
    monkeypatch.setenv("GITHUB_WORKFLOW_REF", US.removeprefix("https://github.com/"))


@pytest.fixture
def cosign(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> CosignDouble:
    double = CosignDouble(loses=request.param)
    double.identity = US
    monkeypatch.setattr(Cosign, "find", lambda: double)
    return double


@pytest.mark.parametrize("cosign", [0, 1, 4], indirect=True)
def test_a_signature_that_got_lost_is_made_again(
    cosign: CosignDouble, registry: Registry, pushed: Staged
) -> None:
    made = small_image.attach_all(registry, pushed, small_image.evidence(pushed), signer=Signer(key="k"))
    assert all(row.signed for row in made)
    assert len(cosign.signed) == 3
    assert cosign.calls == 3 + cosign.loses


@pytest.mark.parametrize("cosign", [1000], indirect=True)
def test_signatures_that_never_stay(cosign: CosignDouble, registry: Registry, pushed: Staged) -> None:
    with pytest.raises(EvidenceError, match="were lost 4 times"):
        small_image.attach_all(registry, pushed, small_image.evidence(pushed), signer=Signer(key="k"))


@pytest.mark.parametrize("cosign", [0], indirect=True)
def test_signatures_that_cosign_does_not_verify_are_no_other_publisher_s_fault(
    cosign: CosignDouble, registry: Registry, pushed: Staged, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = Signed(statements=(), reason="x509: certificate signed by unknown authority")
    monkeypatch.setattr(cosign, "verify", lambda *_arguments: refused)
    with pytest.raises(
        EvidenceError, match=r"does not verify its own signature on .*: x509: certificate signed by unknown"
    ):
        small_image.attach_all(registry, pushed, small_image.evidence(pushed), signer=Signer(key="k"))


@pytest.mark.usefixtures("workflow")
@pytest.mark.parametrize("cosign", [0], indirect=True)
def test_an_identity_signs_once(cosign: CosignDouble, registry: Registry, pushed: Staged) -> None:
    evidence = small_image.evidence(pushed)
    for _ in range(2):
        small_image.attach_all(registry, pushed, evidence, signer=Signer())
    assert cosign.calls == 3


@pytest.mark.usefixtures("workflow")
@pytest.mark.parametrize("cosign", [0], indirect=True)
def test_what_another_identity_signed_does_not_keep_our_signature_away(
    cosign: CosignDouble, registry: Registry, pushed: Staged
) -> None:
    """Whoever may push can sign the very same statements; our readers ask for our name."""
    evidence = small_image.evidence(pushed)
    cosign.foreign = list(statements(registry, pushed, evidence))
    small_image.attach_all(registry, pushed, evidence, signer=Signer())
    assert cosign.signed == cosign.foreign


@pytest.mark.parametrize("cosign", [0], indirect=True)
def test_who_does_not_know_his_identity_signs_anew(
    cosign: CosignDouble, registry: Registry, pushed: Staged, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)
    for _ in range(2):
        small_image.attach_all(registry, pushed, small_image.evidence(pushed), signer=Signer())
    assert cosign.calls == 6
