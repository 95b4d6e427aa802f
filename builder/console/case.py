"""A cell's result as a test case, for a CI job's page and for readers of JUnit XML."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any

from builder.console.summary import failure_text
from builder.pipeline.events import CellOutcome, CellResult


class CaseStatus(enum.StrEnum):
    """How a case ended, in JUnit's words."""

    PASSED = "passed"
    FAILED = "failed"
    """The image is at fault."""
    ERROR = "error"
    """The check itself could not run."""
    SKIPPED = "skipped"
    """Nothing is known for or against the image."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """One cell in one run."""

    suite: str
    """The matrix."""
    name: str
    status: CaseStatus
    word: str
    """The result as shown in the table: ``works``, ``not verified: the machine``."""
    seconds: float = 0.0
    kind: str = ""
    """The cause of a verdict, or the class of an error."""
    message: str = ""
    """One line."""
    text: str = ""
    facts: tuple[tuple[str, str], ...] = ()
    """Further columns of the table: name and value."""


_STATUS = {
    CellOutcome.DONE: (CaseStatus.PASSED, "done"),
    CellOutcome.WORKS: (CaseStatus.PASSED, "works"),
    CellOutcome.UNVERIFIED: (CaseStatus.SKIPPED, "UNVERIFIED: no GPU"),
    CellOutcome.FAILED: (CaseStatus.FAILED, "FAILED"),
    CellOutcome.HOST: (CaseStatus.SKIPPED, "not verified: the machine"),
    CellOutcome.CANCELLED: (CaseStatus.SKIPPED, "cancelled"),
}


def case_of(result: CellResult) -> Case:
    """The case of a cell in a run."""
    status, word = _STATUS[result.outcome]
    if result.outcome is CellOutcome.FAILED and result.report is None:
        status, word = CaseStatus.ERROR, f"FAILED at {result.stage}"
    kind = message = ""
    if result.error is not None:
        kind, message = type(result.error).__name__, result.error.message
    elif result.report is not None:
        verdict = result.report.verdict.value
        kind = result.report.cause or verdict
        message = f"{verdict}: {result.report.summary}" if result.report.summary else verdict
    return Case(
        suite=result.cell.matrix,
        name=result.cell.id,
        status=status,
        word=word,
        seconds=sum(result.seconds.values()),
        kind=kind,
        message=message.partition("\n")[0],
        text=failure_text(result),
        facts=_facts(result),
    )


def _facts(result: CellResult) -> tuple[tuple[str, str], ...]:
    found: dict[str, str] = {}
    if result.report is not None:
        document = result.report.document
        found["GPU"] = ", ".join(str(gpu.get("name")) for gpu in document.get("gpus") or ()) or "none"
        found["driver"] = str((document.get("driver") or {}).get("version") or "none")
        found["cuDNN"] = _cudnn(document) or "none"
    if result.image is not None:
        found["digest"] = result.image.manifest
    return tuple(found.items())


def _cudnn(document: Any) -> str:
    """The versions that frameworks loaded, each once."""
    loaded = [(row.get("loaded") or {}).get("cudnn") for row in document.get("frameworks") or ()]
    return ", ".join(sorted({str(version) for version in loaded if version}))
