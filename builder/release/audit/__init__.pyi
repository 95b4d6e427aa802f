from .checked_statements import FAILED, Held, judge_all
from .drift import BASE_NAME
from .findings import AuditOutcome, Question
from .machine import check_stated
from .run import Audit, audit, evidence_of, resolve
from .stated import pinned_of
from .today import Today

__all__ = [
    "BASE_NAME",
    "FAILED",
    "Audit",
    "AuditOutcome",
    "Held",
    "Question",
    "Today",
    "audit",
    "check_stated",
    "evidence_of",
    "judge_all",
    "pinned_of",
    "resolve",
]
