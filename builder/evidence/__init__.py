"""Evidence beside an image in its registry: verification, SBOM and provenance, attached, signed, read back.

Statements are in-toto's; a registry keeps them as referrers of the image's digest; cosign signs. What each of
them proves, and what it does not, is in docs/evidence.md.
"""

from builder.errors import EvidenceError
from builder.evidence.attach import attach_all, attach_failures, failure_statement, statements
from builder.evidence.cosign import Cosign, Signed, Signer, Verifier
from builder.evidence.documents import Attached, Evidence, Verification
from builder.evidence.failure import Failure, judge_failure
from builder.evidence.statement import Statement
from builder.evidence.verification import Verified, judge

__all__ = [
    "Attached",
    "Cosign",
    "Evidence",
    "EvidenceError",
    "Failure",
    "Signed",
    "Signer",
    "Statement",
    "Verification",
    "Verified",
    "Verifier",
    "attach_all",
    "attach_failures",
    "failure_statement",
    "judge",
    "judge_failure",
    "statements",
]
