"""Evidence beside an image in its registry: verification, SBOM and provenance, attached, signed, read back.

Statements are in-toto's; a registry keeps them as referrers of the image's digest; cosign signs. What each of
them proves, and what it does not, is in docs/evidence.md.
"""

from builder.errors import EvidenceError
from builder.evidence.attach import attach_all, statements
from builder.evidence.cosign import Cosign, Signed, Signer, Verifier
from builder.evidence.documents import Attached, Evidence, Subject, Verification
from builder.evidence.statement import Statement
from builder.evidence.verification import Verified, judge

__all__ = [
    "Attached",
    "Cosign",
    "Evidence",
    "EvidenceError",
    "Signed",
    "Signer",
    "Statement",
    "Subject",
    "Verification",
    "Verified",
    "Verifier",
    "attach_all",
    "judge",
    "statements",
]
