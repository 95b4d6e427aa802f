"""Runs the probe in an image, reads what it found, keeps the reports."""

from __future__ import annotations

from builder.verify.document import ProbeDocument, json_schema
from builder.verify.expectation import Expectation
from builder.verify.store import ReportKey, ReportStore
from builder.verify.verify import verify

__all__ = ["Expectation", "ProbeDocument", "ReportKey", "ReportStore", "json_schema", "verify"]
