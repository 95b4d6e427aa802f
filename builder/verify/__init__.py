"""Runs the probe in an image, reads what it found, keeps the reports."""

from __future__ import annotations

from builder.verify.verify import Expectation, ReportStore, verify

__all__ = ["Expectation", "ReportStore", "verify"]
