"""Evidence beside an image in its registry: verification, SBOM and provenance, attached, signed, read back.

Statements are in-toto's; a registry keeps them as referrers of the image's digest; cosign signs. What each of
them proves, and what it does not, is in docs/evidence.md.
"""

from builder.errors import EvidenceError
from builder.evidence.attach import attach_all, attach_failures, failure_statement, statements
from builder.evidence.cosign import Cosign, Signed, Signer, Verifier
from builder.evidence.documents import Attached, Evidence
from builder.evidence.judgement import JudgedReport, Policy, judge
from builder.evidence.statement import Statement

__all__ = [
    "Attached",
    "Cosign",
    "Evidence",
    "EvidenceError",
    "JudgedReport",
    "Policy",
    "Signed",
    "Signer",
    "Statement",
    "Verifier",
    "attach_all",
    "attach_failures",
    "failure_statement",
    "judge",
    "statements",
]
