"""Beside a staged image, for the machine that publishes: reports on it, and its builder's signature.

A report is an OCI artifact, one for each GPU, driver and time. Anyone with write access to the staging
repository can attach one, so the publisher can demand signatures. Labels can be written as easily: an image
is proven to be built from its lock by the signature of a named builder, or if this machine made the same
digest from the lock (docs/threat-model.md).
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Literal

from builder.core.digests import canonical_json
from builder.core.errors import CellError, RegistryError
from builder.core.items import item
from builder.core.model import RootfsBase
from builder.image.recipe import Recipe
from builder.sources.oci import Artifact, Registry, Staged, attach, parse_reference, referrers
from builder.verify.evidence.cosign import Cosign, People, Signer
from builder.verify.evidence.judgement import Refusal
from builder.verify.runner import Damaged, SealedReport, read_entry

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

Kind = Literal["signed", "made-here", "other-here", "label"]
"""``other-here``: this machine made another digest of the same inputs."""


@dataclass(frozen=True, kw_only=True)
class ImageOrigin:
    """The proof that an image was built from its lock; ``text`` is for people."""

    kind: Kind
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
    """Who signed that the image was built from its inputs; empty if none did. Raises RegistryError."""
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
    kind: Kind = "label"
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
