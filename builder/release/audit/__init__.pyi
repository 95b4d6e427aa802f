from .checked_statements import FAILED, Held, judge_all
from .drift import BASE_NAME
from .findings import AuditOutcome, Question
from .machine import check_stated
from .run import Audit, audit, evidence_of, lock_of, resolve
from .stated import pinned_of

__all__ = [
    "BASE_NAME",
    "FAILED",
    "Audit",
    "AuditOutcome",
    "Held",
    "Question",
    "audit",
    "check_stated",
    "evidence_of",
    "judge_all",
    "lock_of",
    "pinned_of",
    "resolve",
]
