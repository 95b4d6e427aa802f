from .attach import KINDS, Attached, attach_statements, failure_statement, statements
from .contents import Evidence, python_packages
from .cosign import Cosign, People, Signer, Verifier
from .gathering import Gathered, Piece, Refused, check_signatures, gather
from .judgement import (
    CLOCKS,
    JudgedReport,
    Policy,
    Refusal,
    broken,
    claim_text,
    clocks_apart,
    denied,
    drivers_of,
    judge,
    standing,
    without_exempt,
)
from .local_builds import MadeImages
from .staged import ImageOrigin, origin_of, share, shared, sign_built
from .statement import CYCLONEDX, PROVENANCE, TEST_RESULT, Statement
from .verification import covered_class, no_proof, timestamp

__all__ = [
    "CLOCKS",
    "CYCLONEDX",
    "KINDS",
    "PROVENANCE",
    "TEST_RESULT",
    "Attached",
    "Cosign",
    "Evidence",
    "Gathered",
    "ImageOrigin",
    "JudgedReport",
    "MadeImages",
    "People",
    "Piece",
    "Policy",
    "Refusal",
    "Refused",
    "Signer",
    "Statement",
    "Verifier",
    "attach_statements",
    "broken",
    "check_signatures",
    "claim_text",
    "clocks_apart",
    "covered_class",
    "denied",
    "drivers_of",
    "failure_statement",
    "gather",
    "judge",
    "no_proof",
    "origin_of",
    "python_packages",
    "share",
    "shared",
    "sign_built",
    "standing",
    "statements",
    "timestamp",
    "without_exempt",
]
