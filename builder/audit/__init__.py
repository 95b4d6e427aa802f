"""Whether published images are known to work, answered from their registry alone."""

from builder.audit.finding import AuditFinding, AuditOutcome, Question
from builder.audit.run import Audit, audit

__all__ = ["Audit", "AuditFinding", "AuditOutcome", "Question", "audit"]
