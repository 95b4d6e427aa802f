"""Evidence beside an image in its registry. Beside a public one it is made, checked against the image,
attached and signed; beside a staged one, for the machine that publishes, lie reports and its builder's
signature.

A report is an OCI artifact, one for each GPU, driver and time. Anyone with write access to the staging
repository can attach one, so the publisher can demand signatures. Labels can be written as easily: an image
is proven to be built from its lock by the signature of a named builder, or if this machine made the same
digest from the lock (docs/threat-model.md).
"""

import os
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from builder.core.digests import canonical_json
from builder.core.errors import CellError, EvidenceError, RegistryError
from builder.core.items import item
from builder.core.model import RootfsBase
from builder.image.recipe import Recipe
from builder.sources.oci import (
    Artifact,
    Attachment,
    Registry,
    Staged,
    attach,
    keep_in_tag,
    parse_reference,
    referrers,
)
from builder.verify.evidence.contents import Evidence, provenance, read_system, refuse_difference, sbom
from builder.verify.evidence.judgement import EXTENSION, Policy, Refusal, judge, predicate_of
from builder.verify.evidence.statement import (
    CYCLONEDX,
    MEDIA_TYPE,
    PREDICATE_ANNOTATION,
    PROVENANCE,
    TEST_RESULT,
    Cosign,
    People,
    Signer,
    Statement,
    Verifier,
    ci_identity,
)
from builder.verify.runner import Damaged, SealedReport, read_entry

Kind = Literal["verification", "sbom", "provenance"]
_SIGNING_ROUNDS = 4
KINDS: Mapping[str, Kind] = {TEST_RESULT: "verification", CYCLONEDX: "sbom", PROVENANCE: "provenance"}


@dataclass(frozen=True, kw_only=True)
class Attached:
    """A statement beside an image."""

    kind: Kind
    predicate_type: str
    digest: str
    """The digest of the artifact's manifest."""
    size: int
    """The size of the statement, in bytes."""
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


# -- beside a staged image

SIGNATURE = "io.rtbuild.signature"
"""The annotation that holds cosign's bundle."""
REPORT_TYPE = "application/vnd.rtbuild.report.v1+json"
_MOST_SIGNATURES = 128
"""Greatest number of signatures that are checked for one image: each starts a process."""


def share(registry: Registry, image: Staged, entries: Iterable[SealedReport]) -> int:
    """Attach reports to their image; the number of new ones. Raises RegistryError."""
    place = parse_reference(image.reference)
    new = 0
    for entry in entries:
        if entry.key.digest != image.digest or entry.test_double:
            raise ValueError(f"{entry.where} is no report on {image.reference}")
        notes = {
            "io.rtbuild.verdict": entry.verdict,
            "io.rtbuild.gpus": ", ".join(name for name, _ in entry.key.gpus),
            "io.rtbuild.driver": entry.key.driver or "",
            "org.opencontainers.image.created": entry.verified.isoformat(timespec="seconds"),
            SIGNATURE: entry.signature,
        }
        annotations = tuple(sorted((name, value) for name, value in notes.items() if value))
        artifact = Artifact(artifact_type=REPORT_TYPE, content=entry.text.encode(), annotations=annotations)
        new += attach(registry, place, image.manifest.descriptor, artifact).new
    return new


def shared(registry: Registry, image: Staged) -> list[SealedReport | Damaged]:
    """The reports that are attached to an image, sorted by digest; damaged ones give the reason.

    Raises RegistryError if the registry does not list all attached artifacts: an unread report may speak
    against the image.
    """
    found: list[SealedReport | Damaged] = []
    signatures = 0
    attached = f"attached to {image.reference}"
    hint = "remove what does not belong there, or push the image to another staging repository"
    listing = referrers(registry, parse_reference(image.reference))
    if not listing.complete:
        said = f"more than {len(listing.descriptors)} artifacts are {attached}"
        raise RegistryError(f"{said}, but not all reports among them can be read", hint=hint)
    for digest in sorted(d.digest for d in listing.descriptors if d.artifact_type in (REPORT_TYPE, None)):
        where = f"{image.repository}@{digest}"
        try:
            with item(where):
                entry = _read(registry, image, where)
        except CellError as error:
            found.append(Damaged(where=where, why=error.message, name=image.content.partition(":")[2]))
            continue
        if entry is not None:
            found.append(entry)
            signatures += bool(entry.signature)
    if signatures > _MOST_SIGNATURES:
        said = f"{signatures} signed reports are {attached}"
        raise RegistryError(f"{said}, and no more than {_MOST_SIGNATURES} are checked", hint=hint)
    return found


def _read(registry: Registry, image: Staged, where: str) -> SealedReport | None:
    """One report by its artifact; None if the artifact is something else."""
    document = registry.manifest(where).document
    if document.get("artifactType") != REPORT_TYPE:
        return None
    try:
        (layer,) = document["layers"]
        content = registry.blob(image.repository, str(layer["digest"]))
    except (LookupError, TypeError, ValueError) as error:
        raise RegistryError(f"{where} holds no report ({error!r})") from error
    entry = read_entry(content, where)
    if entry.key.digest != image.digest:
        raise CellError(f"{where} is attached to {image.digest}, but is about {entry.key.digest}")
    return replace(entry, signature=_signature_in(document))


BUILT_TYPE = "application/vnd.rtbuild.built.v1+json"
_MOST = 16
"""Greatest number of signatures that are checked for one image, from the end of the list."""

OriginKind = Literal["signed", "made-here", "other-here", "label"]
"""``other-here``: this machine made another digest of the same inputs."""


@dataclass(frozen=True, kw_only=True)
class ImageOrigin:
    """The proof that an image was built from its lock; ``text`` is for people."""

    kind: OriginKind
    text: str
    refused: Refusal | None = None
    """Why the image is not taken."""

    @property
    def proven(self) -> bool:
        return self.kind in ("signed", "made-here")


def built_text(image: Staged) -> bytes:
    """The text that a builder signs: these inputs gave this digest."""
    return canonical_json({"rtbuild": "image", "inputs": image.inputs, "digest": image.digest})


def sign_built(registry: Registry, image: Staged, signer: Signer, own: People) -> bool:
    """Attach the builder's signature to an image; False if it is there already. Raises CommandError."""
    if built_by(registry, image, own):
        return False
    text = built_text(image)
    notes = ((SIGNATURE, Cosign.find().sign_text(text, signer)),)
    artifact = Artifact(artifact_type=BUILT_TYPE, content=text, annotations=notes)
    return attach(registry, parse_reference(image.reference), image.manifest.descriptor, artifact).new


def built_by(registry: Registry, image: Staged, people: People) -> str:
    """The signer of the statement that the image was built from its inputs; empty if none did. Raises
    RegistryError.
    """
    listed = referrers(registry, parse_reference(image.reference)).descriptors
    wanted = [entry.digest for entry in listed if entry.artifact_type in (BUILT_TYPE, None)]
    for digest in wanted[-_MOST:]:
        try:
            document = registry.manifest(f"{image.repository}@{digest}").document
        except RegistryError:  # listed but missing, or of another type than listed
            continue
        who = people.who(built_text(image), _signature_in(document))
        if who and document.get("artifactType") == BUILT_TYPE:
            return who
    return ""


def origin_of(
    registry: Registry, image: Staged, recipe: Recipe, *, here: str | None, builders: People | None
) -> ImageOrigin:
    """The origin of the image of a recipe; ``here``: the digest that this machine made of it last, if it did.

    Raises RegistryError.

    It is refused if builders are named, none of them signed it, and this machine did not make it. It is also
    refused if this machine made another digest of a lock that fixes the digest. (A lock with a base from a
    registry does not: apt installs what the archive has that day.)
    """
    if builders is not None and (who := built_by(registry, image, builders)):
        return ImageOrigin(kind="signed", text=f"built by {who}")
    if here == image.digest:
        return ImageOrigin(kind="made-here", text="this machine made the same digest of the same lock")
    why = "no builder was named" if builders is None else "none of the named builders signed it"
    kind: OriginKind = "label"
    text = f"only its label says that it was built from its lock: {why}"
    if here is not None:
        kind, text = "other-here", f"this machine made {here[:19]}… of the same lock"
    refused = None
    if builders is not None or (isinstance(recipe.pinned.base, RootfsBase) and here is not None):
        said = f"{image.reference} is not proven to be built from its lock: {text}"
        again = "build it again with the builder's key: rtbuild build --no-cache --push … --key KEY"
        refused = Refusal("unproven", said, f"{again}; or on this machine")
    return ImageOrigin(kind=kind, text=text, refused=refused)


def _signature_in(document: dict[str, Any]) -> str:
    """The bundle among a manifest's annotations; empty if there is none."""
    notes = document.get("annotations")
    found = notes.get(SIGNATURE) if isinstance(notes, dict) else None
    return found if isinstance(found, str) else ""
