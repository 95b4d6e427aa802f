"""Evidence out of a registry that is not trusted: sizes, digests and subjects are checked.

Documents with a wrong digest, about another image, or that are no statements are put aside with the reason.
The reader of the result has to consider that a registry can withhold evidence, and that anyone with write
access can attach unsigned evidence.
"""

from dataclasses import dataclass, replace

from builder.core.errors import CellError, EvidenceError, ImageMissingError
from builder.core.items import item
from builder.sources.oci import Descriptor, Kept, Reference, Registry, referrers, tag_of
from builder.verify.evidence.cosign import Cosign, Verifier
from builder.verify.evidence.statement import MEDIA_TYPE, Statement, parse_statement

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


def check_signatures(
    gathered: Gathered, cosign: Cosign, image: str, verifier: Verifier, kinds: tuple[str, ...]
) -> tuple[Gathered, tuple[str, ...]]:
    """The same pieces, ``signed`` set on those that cosign verified, and why other kinds are not signed.

    A statement that cosign verified and no referrer repeats is evidence, too: a registry cannot hide it by
    withholding one of the two.
    """
    signed: list[Statement] = []
    reasons = []
    digest = image.rpartition("@")[2]
    for kind in kinds:
        found = cosign.verify(image, kind, verifier)
        signed += [statement for statement in found.statements if statement.subjects == (digest,)]
        if not found.statements:
            reasons.append(f"{kind}: {found.reason}" if found.present else f"{kind}: not signed")
    pieces = [replace(piece, signed=piece.statement in signed) for piece in gathered.pieces]
    for statement in signed:
        if statement not in [piece.statement for piece in pieces]:
            pieces.append(Piece(statement=statement, digest="", signed=True))
    done = replace(gathered, pieces=tuple(pieces), signatures=gathered.signatures or bool(signed))
    return done, tuple(reasons)


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
