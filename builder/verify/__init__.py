"""Runs the probe in an image, reads what it found, keeps the reports."""

from __future__ import annotations

from builder.verify.document import ProbeDocument
from builder.verify.entry import Damaged, ReportKey, SealedReport, read_entry
from builder.verify.expectation import Expectation
from builder.verify.store import ReportStore
from builder.verify.verify import verify

__all__ = [
    "Damaged",
    "Expectation",
    "ProbeDocument",
    "ReportKey",
    "ReportStore",
    "SealedReport",
    "read_entry",
    "verify",
]
