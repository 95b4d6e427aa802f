"""The versioned JSON document of a publication: for each cell the decision, its reasons and the steps."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from builder import __version__

if TYPE_CHECKING:
    from builder.publish.publication import Failing, Publication
    from builder.verify import SealedReport

SCHEMA = 1


def publication_document(
    rows: Sequence[Publication], *, command: str, started: datetime, dry_run: bool
) -> dict[str, Any]:
    """The document; its schema is ``docs/publication.schema.json``."""
    return {
        "schema": SCHEMA,
        "kind": "publication",
        "rtbuild": __version__,
        "command": command,
        "started": started.isoformat(timespec="seconds"),
        "seconds": round((datetime.now(UTC) - started).total_seconds(), 1),
        "dry_run": dry_run,
        "cells": [_cell(row) for row in rows],
    }


def _cell(row: Publication) -> dict[str, Any]:
    staged = row.found.staged if row.found is not None else None
    decision = row.decision
    return {
        "id": row.cell.id,
        "matrix": row.cell.matrix,
        "outcome": row.state,
        "source": row.source,
        "target": row.target,
        "digest": staged.digest if staged else None,
        "content": staged.content if staged else None,
        "inputs": row.found.recipe.inputs if row.found else None,
        "origin": row.found.origin.kind if row.found else None,
        "claims": list(decision.claims) if decision else [],
        "exempt": list(decision.exempt) if decision else [],
        "reports": [_report(entry) for entry in decision.counted] if decision else [],
        "refusals": [vars(refusal) for refusal in row.refusals],
        "tags": [
            {"name": step.tag.name, "kind": step.tag.kind, "action": step.action, "was": step.was}
            for step in row.steps
        ],
        "copied": None
        if row.copied is None
        else {
            "there": row.copied.there,
            "mounted": row.copied.mounted,
            "sent": row.copied.sent,
            "bytes_sent": row.copied.bytes_sent,
        },
        "evidence": [vars(piece) for piece in row.evidence],
        "failures": [_failure(found) for found in row.failures],
        "error": None
        if row.error is None
        else {
            "kind": type(row.error).__name__,
            "message": row.error.message,
            "hint": row.error.hint,
            "exit_code": row.error.exit_code,
        },
    }


def _failure(found: Failing) -> dict[str, Any]:
    return {
        "digest": found.image.digest,
        "verdict": found.failure.verdict,
        "cause": found.failure.report.cause,
        **_report(found.entry),
        "tags": list(found.tags),
        "action": "there" if found.there else "attach",
        "evidence": vars(found.attached) if found.attached is not None else None,
    }


def _report(entry: SealedReport) -> dict[str, Any]:
    return {
        "where": entry.where,
        "gpus": [list(gpu) for gpu in entry.key.gpus],
        "driver": entry.key.driver,
        "probe": entry.key.probe,
        "verified": entry.verified.isoformat(timespec="seconds"),
    }
