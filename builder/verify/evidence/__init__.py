"""Evidence beside an image in its registry: verification, SBOM and provenance, attached, signed, read back.

Statements are in-toto's; a registry keeps them as referrers of the image's digest; cosign signs.
docs/evidence.md says what each of them proves.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .attach import (
        KINDS as KINDS,
        Attached as Attached,
        ImageOrigin as ImageOrigin,
        attach_statements as attach_statements,
        failure_statement as failure_statement,
        origin_of as origin_of,
        share as share,
        shared as shared,
        sign_built as sign_built,
        statements as statements,
    )
    from .contents import Evidence as Evidence, pinned_of as pinned_of, python_packages as python_packages
    from .judgement import (
        CLOCKS as CLOCKS,
        JudgedReport as JudgedReport,
        Policy as Policy,
        Refusal as Refusal,
        broken as broken,
        claim_text as claim_text,
        clock_behind as clock_behind,
        clocks_apart as clocks_apart,
        covered_class as covered_class,
        denied as denied,
        drivers_of as drivers_of,
        judge as judge,
        no_proof as no_proof,
        standing as standing,
        timestamp as timestamp,
        without_exempt as without_exempt,
    )
    from .statement import (
        CYCLONEDX as CYCLONEDX,
        PROVENANCE as PROVENANCE,
        TEST_RESULT as TEST_RESULT,
        Cosign as Cosign,
        Gathered as Gathered,
        People as People,
        Piece as Piece,
        Refused as Refused,
        Signer as Signer,
        Statement as Statement,
        Verifier as Verifier,
        check_signatures as check_signatures,
        gather as gather,
    )
else:
    from builder.core import faces

    __getattr__, __dir__, __all__ = faces.attach(__name__, __file__)
