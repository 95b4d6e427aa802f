"""Evidence is made, checked against the image, attached to it in the registry, and signed."""

import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from builder.core.errors import EvidenceError
from builder.sources.oci import Artifact, Attachment, Registry, Staged, attach, keep_in_tag, parse_reference
from builder.verify.evidence.contents import Evidence, provenance, read_system, refuse_difference, sbom
from builder.verify.evidence.cosign import Cosign, Signer, Verifier, ci_identity
from builder.verify.evidence.judgement import EXTENSION, Policy, judge, predicate_of
from builder.verify.evidence.statement import (
    CYCLONEDX,
    MEDIA_TYPE,
    PREDICATE_ANNOTATION,
    PROVENANCE,
    TEST_RESULT,
    Statement,
)
from builder.verify.runner import SealedReport

Kind = Literal["verification", "sbom", "provenance"]
_SIGNING_ROUNDS = 4
KINDS: Mapping[str, Kind] = {TEST_RESULT: "verification", CYCLONEDX: "sbom", PROVENANCE: "provenance"}


@dataclass(frozen=True, kw_only=True)
class Attached:
    """A statement beside an image."""

    kind: Kind
    predicate_type: str
    digest: str
    """Of the artifact's manifest."""
    size: int
    """Of the statement, in bytes."""
    by: Literal["referrers", "tag"]
    """The list that has it: the registry's referrers API, or the tag ``sha256-<hex>``."""
    new: bool
    """False if it and the requested signature were there already."""
    signed: bool


def failure_statement(image: Staged, report: SealedReport) -> Statement:
    """The statement that would be attached for a report against the image. Raises EvidenceError."""
    _refuse_other_digest(image, report)
    predicate = predicate_of(report, image, claims=(), exempt=())
    if judge(predicate, image, Policy(now=datetime.now(UTC))).side != "against":
        raise EvidenceError(f"its report says {report.verdict}, which does not speak against the image")
    return _about(image, TEST_RESULT, predicate)


def attach_statements(
    registry: Registry,
    image: Staged,
    made: Sequence[Statement],
    *,
    signer: Signer | None = None,
    note: Callable[[str], None] = lambda _text: None,
) -> tuple[Attached, ...]:
    """Attach statements about the image to it in its repository, in their order, and sign them.

    The image itself must be there; its tags need not. Evidence that is there already is left as it is, so a
    second run changes nothing, and a run after an interruption continues.

    Raises RegistryError, MissingToolError (no cosign), CommandError (cosign refused), and EvidenceError for
    signatures that were lost or do not hold.
    """
    name = parse_reference(image.repository).at(image.digest)
    placed: list[tuple[Statement, Attachment]] = []
    for statement in made:
        notes = ((PREDICATE_ANNOTATION, statement.predicate_type),)
        artifact = Artifact(artifact_type=MEDIA_TYPE, content=statement.content, annotations=notes)
        note(f"attaching {KINDS[statement.predicate_type]}")
        placed.append((statement, attach(registry, name, image.manifest.descriptor, artifact)))
    by_tag = tuple(found.descriptor for _, found in placed if found.kept == "tag")
    if by_tag:  # again, since another writer of the same tag may have come between two of ours
        keep_in_tag(registry, name, image.digest, by_tag)
    fresh = () if signer is None else _sign_all(str(name), made, signer, note)
    return tuple(
        Attached(
            kind=KINDS[statement.predicate_type],
            predicate_type=statement.predicate_type,
            digest=found.descriptor.digest,
            size=len(statement.content),
            by=found.kept,
            new=found.new or any(statement is other for other in fresh),
            signed=signer is not None,
        )
        for statement, found in placed
    )


def statements(
    registry: Registry, image: Staged, evidence: Evidence, *, note: Callable[[str], None] = lambda _text: None
) -> tuple[Statement, ...]:
    """All statements about the image; nothing is written.

    Raises EvidenceError if the evidence is about another image, contradicts it, or does not cover its claims,
    and RegistryError.
    """
    if image.inputs != evidence.recipe.inputs:
        said = f"{image.reference} was built from other inputs ({image.inputs})"
        hint = "build and verify the image again: rtbuild build --push"
        raise EvidenceError(f"{said} than matrix and lock give now ({evidence.recipe.inputs})", hint=hint)
    if not evidence.verifications:
        hint = "verify it on a machine with a GPU: rtbuild verify"
        raise EvidenceError(f"there is no report about {image.digest}", hint=hint)
    tests = [_test(report, image, evidence) for report in evidence.verifications]
    covered = {name for test in tests for name in test[EXTENSION]["claims"]}
    if open_claims := sorted(set(evidence.claims) - covered):
        hint = "verify it on such a GPU, or exempt it in the matrix (publish: exempt)"
        said = f"the image is to be published for {', '.join(open_claims)}"
        raise EvidenceError(f"{said}, but no report comes from such a GPU", hint=hint)
    system = read_system(registry, image, image.manifest.document["layers"], note=note)
    refuse_difference(evidence, system, [v.document for v in evidence.verifications])
    return (
        *(_about(image, TEST_RESULT, test) for test in tests),
        _about(image, CYCLONEDX, sbom(evidence, image, system)),
        _about(image, PROVENANCE, provenance(evidence, image)),
    )


def _about(image: Staged, predicate_type: str, predicate: Mapping[str, Any]) -> Statement:
    name = str(parse_reference(image.repository))
    return Statement(subjects=(image.digest,), name=name, predicate_type=predicate_type, predicate=predicate)


def _refuse_other_digest(image: Staged, report: SealedReport) -> None:
    if report.key.digest != image.digest:
        raise EvidenceError(f"the report is about {report.key.digest}, not about {image.digest}")


def _test(report: SealedReport, image: Staged, evidence: Evidence) -> Mapping[str, Any]:
    """One report as a predicate that would pass the audit."""
    _refuse_other_digest(image, report)
    predicate = predicate_of(
        report, image, claims=evidence.claims, exempt=evidence.exempt, as_of=evidence.as_of
    )
    judged = judge(predicate, image, Policy(now=datetime.now(UTC)))
    if judged.side != "for":
        raise EvidenceError(f"its report says {judged.text}")
    return predicate


def _sign_all(
    image: str, made: Sequence[Statement], signer: Signer, say: Callable[[str], None]
) -> tuple[Statement, ...]:
    """Sign the statements that are not signed yet, and return them.

    cosign keeps all envelopes under one tag and replaces it without a comparison, so one signer can remove
    the signature of another: a lost signature is made again.
    """
    cosign = Cosign.find()
    with tempfile.TemporaryDirectory(prefix="rtbuild-key-") as folder:
        verifier = _own_verifier(cosign, signer, Path(folder) / "cosign.pub")
        missing, why = (list(made), "") if verifier is None else _unsigned(cosign, image, made, verifier)
        fresh = tuple(missing)
        for _ in range(_SIGNING_ROUNDS):
            for statement in missing:
                say(f"signing {KINDS[statement.predicate_type]}")
                cosign.sign(image, statement, signer)
            if signer.key is None or verifier is None:
                return fresh
            missing, why = _unsigned(cosign, image, missing, verifier)
            if not missing:
                return fresh
    if why:
        hint = "check that it reads and writes the same registry, with the same login and key"
        raise EvidenceError(f"cosign does not verify its own signature on {image}: {why}", hint=hint)
    hint = "several publishers are signing this image: publish again"
    raise EvidenceError(f"signatures on {image} were lost {_SIGNING_ROUNDS} times", hint=hint)


def _own_verifier(cosign: Cosign, signer: Signer, public: Path) -> Verifier | None:
    """The verifier that recognises earlier signatures of this signer.

    None if the signer's identity is not known: then every statement is signed again.
    """
    if signer.key is None:
        who = ci_identity(os.environ)
        return None if who is None else Verifier(identity=who[0], issuer=who[1])
    public.write_bytes(cosign.public_key(signer.key))
    return Verifier(key=str(public))


def _unsigned(
    cosign: Cosign, image: str, made: Sequence[Statement], verifier: Verifier
) -> tuple[list[Statement], str]:
    """The statements without a signature for this verifier, and cosign's message about refused ones."""
    kinds = sorted({statement.predicate_type for statement in made})
    answers = [cosign.verify(image, kind, verifier) for kind in kinds]
    signed = [statement for answer in answers for statement in answer.statements]
    why = next((answer.reason for answer in answers if answer.present and answer.reason), "")
    return [one for one in made if one not in signed], why
