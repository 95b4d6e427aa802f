"""In-toto statements, and those of a registry that is not trusted: sizes, digests, subjects are checked.

A statement is a predicate about digests:
https://github.com/in-toto/attestation/blob/main/spec/v1/statement.md. A document that two parsers could read
in two ways (a key twice, NaN) is refused. Documents with a wrong digest, about another image, or that are no
statements are put aside with the reason. The reader has to consider that a registry can withhold evidence,
and that anyone with write access can attach unsigned evidence.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from builder.core.digests import canonical_json
from builder.core.documents import MalformedError, parse_json
from builder.core.errors import CellError, EvidenceError, ImageMissingError
from builder.core.items import item
from builder.sources.oci import Descriptor, Kept, Reference, Registry, referrers, tag_of

MEDIA_TYPE = "application/vnd.in-toto+json"
PREDICATE_ANNOTATION = "in-toto.io/predicate-type"
"""BuildKit's name: https://github.com/moby/buildkit/blob/master/docs/attestations/attestation-storage.md"""

TYPE = "https://in-toto.io/Statement/v1"
_TYPES = frozenset({TYPE, "https://in-toto.io/Statement/v0.1"})
"""cosign 2 still writes v0.1 around the predicate; the fields used here are the same in both."""

TEST_RESULT = "https://in-toto.io/attestation/test-result/v0.1"
CYCLONEDX = "https://cyclonedx.org/bom"
PROVENANCE = "https://slsa.dev/provenance/v1"


@dataclass(frozen=True, kw_only=True)
class Statement:
    """A predicate about images. ``subjects`` are digests, ``sha256:…``."""

    subjects: tuple[str, ...]
    predicate_type: str
    predicate: Mapping[str, Any]
    name: str = field(default="", compare=False)
    """The subject's name, for readers only."""

    @property
    def content(self) -> bytes:
        name = {"name": self.name} if self.name else {}
        subjects = [{**name, "digest": {"sha256": text.removeprefix("sha256:")}} for text in self.subjects]
        whole = {"_type": TYPE, "subject": subjects, "predicateType": self.predicate_type}
        return canonical_json({**whole, "predicate": self.predicate})


def parse_statement(content: bytes) -> Statement:
    """Raises EvidenceError for anything but a statement about sha256 digests that has one reading."""
    try:
        document = parse_json(content, strict=True)
    except MalformedError as error:
        raise EvidenceError(str(error)) from error
    if not isinstance(document, dict) or str(document.get("_type")) not in _TYPES:
        raise EvidenceError("it is no in-toto statement")
    match document:
        case {"subject": list(subjects), "predicateType": str(kind), "predicate": dict(predicate)}:
            return Statement(subjects=tuple(map(_digest, subjects)), predicate_type=kind, predicate=predicate)
        case _:
            raise EvidenceError("it is an in-toto statement without subject, type or predicate")


def _digest(subject: object) -> str:
    match subject:
        case {"digest": {"sha256": str(text)}} if re.fullmatch("[0-9a-f]{64}", text):
            return f"sha256:{text}"
    raise EvidenceError("it is an in-toto statement about something without a sha256 digest")


MOST = 256
"""Greatest number of statements that are read, from the end of the list."""
LARGEST = 16 << 20
"""Bytes of one statement."""
_LARGEST_IN_ALL = 64 << 20
_BUNDLE = "application/vnd.dev.sigstore.bundle"
"""What cosign 3 attaches: https://docs.sigstore.dev/about/bundle/"""


@dataclass(frozen=True, kw_only=True)
class Piece:
    """A statement about the image. ``digest`` is its artifact's, empty if only cosign has it."""

    statement: Statement
    digest: str
    signed: bool = False


@dataclass(frozen=True, kw_only=True)
class Refused:
    digest: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class Gathered:
    pieces: tuple[Piece, ...]
    refused: tuple[Refused, ...]
    kept: Kept
    signatures: bool
    """True if cosign signed something, whoever the signer was."""
    unread: int = 0
    """What is there and could not be read, and may speak against the image."""


def gather(registry: Registry, image: Reference) -> Gathered:
    """The statements that are attached to an image, which is named by digest.

    Raises RegistryError if the registry does not list the attached documents.
    """
    listing = referrers(registry, image)
    pieces: list[Piece] = []
    refused: list[Refused] = []
    unread = int(not listing.complete)
    if not listing.complete:
        refused.append(Refused(digest="", reason="the registry did not list all attached documents"))
    if listing.left_out:
        refused.append(Refused(digest="", reason=f"{listing.left_out} entries of the list were not read"))
    wanted = [d for d in listing.descriptors if d.artifact_type in (MEDIA_TYPE, None)]
    left = _LARGEST_IN_ALL
    for number, descriptor in enumerate(wanted):
        if number < len(wanted) - MOST or left <= 0:
            reason = f"more than {MOST} statements, or {_LARGEST_IN_ALL >> 20} MiB, are attached"
            refused.append(Refused(digest=descriptor.digest, reason=reason))
            continue
        try:
            with item(descriptor.digest):
                statement, size = _read(registry, image, descriptor)
        except CellError as error:
            refused.append(Refused(digest=descriptor.digest, reason=error.message))
            unread += not isinstance(error, (EvidenceError, ImageMissingError))
            continue
        left -= size
        pieces.append(Piece(statement=statement, digest=descriptor.digest))
    bundles = any((d.artifact_type or "").startswith(_BUNDLE) for d in listing.descriptors)
    # cosign 2's own tag: https://github.com/sigstore/cosign/blob/main/specs/SIGNATURE_SPEC.md
    tagged = registry.digest_of(image.tagged(f"{tag_of(image.digest or '')}.att")) is not None
    return Gathered(
        pieces=tuple(pieces),
        refused=tuple(refused),
        kept=listing.kept,
        unread=unread,
        signatures=bundles or tagged,
    )


def _read(registry: Registry, image: Reference, descriptor: Descriptor) -> tuple[Statement, int]:
    match registry.manifest(image.at(descriptor.digest)).document:
        case {"subject": {"digest": str(subject)}, "layers": [{"digest": str(digest), "size": int(size)}]}:
            pass
        case _:
            raise EvidenceError("its manifest is not that of one document about an image")
    if subject != image.digest:
        raise EvidenceError(f"it is attached to {subject}, which is another image")
    if not 0 < size <= LARGEST:
        raise EvidenceError(f"its manifest gives {size} bytes; up to {LARGEST >> 20} MiB are read")
    content = registry.blob(image, digest)
    if len(content) != size:
        raise EvidenceError(f"it has {len(content)} bytes, and its manifest says {size}")
    statement = parse_statement(content)
    if statement.subjects != (image.digest,):
        raise EvidenceError(f"it is a statement about {', '.join(statement.subjects) or 'nothing'}")
    return statement, size
