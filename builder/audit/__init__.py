"""What published images are known to be, read from the registry alone."""

from builder.audit.finding import Finding, Outcome
from builder.audit.run import Audit, Question, audit

__all__ = ["Audit", "Finding", "Outcome", "Question", "audit"]
