"""The JSON Schemas in ``docs/`` that are made from pydantic models."""

from __future__ import annotations

from typing import Any

from builder.plan.lock.file import Document
from builder.verify.evidence.judgement import TestResult
from builder.verify.runner.reports import ProbeDocument


def of_lock() -> dict[str, Any]:
    """For ``docs/lock.schema.json``."""
    return {"$id": "urn:rtbuild:schema:lock:1", **Document.model_json_schema(by_alias=True)}


def of_report() -> dict[str, Any]:
    """For ``docs/report.schema.json``."""
    return _titled(ProbeDocument.model_json_schema(by_alias=True), "report", "cudnn-verify report")


def of_verification() -> dict[str, Any]:
    """For ``docs/verification.schema.json``."""
    schema = TestResult.model_json_schema(by_alias=True)
    return _titled(schema, "verification", "rtbuild's test-result predicate")


def _titled(schema: dict[str, Any], name: str, title: str) -> dict[str, Any]:
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:rtbuild:schema:{name}:1",
        **schema,
        "title": title,
    }
