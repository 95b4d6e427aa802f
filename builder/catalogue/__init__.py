"""What published images are known to be, read from the registry alone."""

from builder.catalogue.audit import Audit, Question, audit
from builder.catalogue.finding import Finding, Outcome

__all__ = ["Audit", "Finding", "Outcome", "Question", "audit"]
