from .document import (
    CONVOLUTIONS,
    EXIT_CODES,
    Expectation,
    ProbeDocument,
    compare,
    family,
    parse,
    printed_report,
)
from .entry import AGAINST_IMAGE, Damaged, ReportKey, ReportStore, SealedReport, key_of, read_entry, seal
from .probe_run import CONFINED, PROBE_FAILED, host_fault, verify

__all__ = [
    "AGAINST_IMAGE",
    "CONFINED",
    "CONVOLUTIONS",
    "EXIT_CODES",
    "PROBE_FAILED",
    "Damaged",
    "Expectation",
    "ProbeDocument",
    "ReportKey",
    "ReportStore",
    "SealedReport",
    "compare",
    "family",
    "host_fault",
    "key_of",
    "parse",
    "printed_report",
    "read_entry",
    "seal",
    "verify",
]
