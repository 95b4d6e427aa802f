"""Reports are attached to the staged image, for the machine that publishes.

A report is an OCI artifact, one for each GPU, driver and time. Anyone with write access to the staging
repository can attach one, so the publisher can demand signatures.
"""

from collections.abc import Iterable
from dataclasses import replace

from builder.core.errors import CellError, RegistryError
from builder.core.items import item
from builder.sources.oci import Artifact, Registry, Staged, attach, parse_reference, referrers
from builder.verify.evidence.cosign import SIGNATURE, signature_in
from builder.verify.runner import Damaged, SealedReport, read_entry

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
    return replace(entry, signature=signature_in(document))
