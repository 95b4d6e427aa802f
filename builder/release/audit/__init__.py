"""Whether published images are known to work, answered from their registry alone."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .checks import BASE_NAME as BASE_NAME, check_stated as check_stated
    from .checks import (
        FAILED as FAILED,
        AuditOutcome as AuditOutcome,
        Held as Held,
        Question as Question,
        judge_all as judge_all,
    )
    from .run import Audit as Audit, audit as audit, evidence_of as evidence_of, resolve as resolve
    from .run import Today as Today
else:
    from builder.core import faces

    __getattr__, __dir__, __all__ = faces.attach(__name__, __file__)
