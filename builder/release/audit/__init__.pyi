from .checks import BASE_NAME, check_stated
from .findings import FAILED, AuditOutcome, Held, Question, judge_all
from .run import Audit, audit, evidence_of, resolve
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
    "resolve",
]
