"""The options of a publication, the state of each cell in it, and the versioned JSON document of them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Literal

from builder.core import resources
from builder.core.errors import CellError
from builder.core.model import Cell
from builder.image.recipe import Recipe
from builder.pipeline import error_document, heading
from builder.release.publish.gate import Decision, TagStep
from builder.sources.oci import Staged, Tally
from builder.verify.evidence import Attached, ImageOrigin, JudgedReport, People, Refusal, Signer
from builder.verify.runner import SealedReport

State = Literal["published", "unchanged", "planned", "refused", "failed", "cancelled"]


@dataclass(frozen=True, kw_only=True)
class PublishOptions:
    """The options of a publication. None: the matrix decides."""

    results: Path
    source: str | None = None
    target: str | None = None
    max_age: timedelta | None = None
    dry_run: bool = False
    overwrite: bool = False
    """Move also tags that another matrix, or another program, has put."""
    signer: Signer | None = None
    """None: the evidence is not signed."""
    builders: People | None = None
    """People one of whom must have signed an image of another machine. None: signatures are not checked."""
    reporters: People | None = None
    """People one of whom must have signed a report. None: a report needs no signature."""
    cache: Path = field(default_factory=resources.cache)
    jobs: int = 2
    """Images at a time."""


@dataclass(frozen=True, kw_only=True)
class Found:
    """An image in staging, before any report about it is read."""

    staged: Staged
    recipe: Recipe
    origin: ImageOrigin


@dataclass(frozen=True, kw_only=True)
class Failing:
    """A report against a public image, and the statement that says so there."""

    image: Staged
    """In the public repository."""
    entry: SealedReport
    failure: JudgedReport
    tags: tuple[str, ...]
    """Tags that move with the cell and point to this image."""
    there: bool
    """Whether the statement was there when it was looked for."""
    attached: Attached | None = None

    @property
    def new(self) -> bool:
        return self.attached is not None and self.attached.new


@dataclass(kw_only=True)
class Publication:
    """One cell during its publication: the image found, the decision, and the steps done so far."""

    cell: Cell
    source: str
    target: str
    moving: tuple[str, ...]
    """The tags that move with the cell: its id, and its aliases."""
    state: State = "cancelled"
    found: Found | None = None
    decision: Decision | None = None
    refusals: list[Refusal] = field(default_factory=list)
    steps: tuple[TagStep, ...] = ()
    copied: Tally | None = None
    evidence: tuple[Attached, ...] = ()
    failures: tuple[Failing, ...] = ()
    """Reports against images of the cell that are public already."""
    error: CellError | None = None
    seconds: float = 0.0


def refuse_clashes(rows: Sequence[Publication]) -> None:
    """Refuse every cell whose tag another one wants in the same repository: none of them gets it."""
    owners: dict[tuple[str, str], list[Publication]] = {}
    for row in rows:
        for step in row.steps:
            owners.setdefault((row.target, step.name), []).append(row)
    for row in rows:
        for name in (step.name for step in reversed(row.steps)):
            others = [one.cell for one in owners[row.target, name] if one is not row]
            if others:
                wanted = ", ".join(f"{cell.id} of {cell.matrix}" for cell in others)
                text = f"{row.target}:{name} is also wanted for {wanted}"
                hint = "give one of them a 'variant', or another repository"
                row.refusals.append(Refusal("tag", text, hint))
                break


def publication_document(
    rows: Sequence[Publication], *, command: str, started: datetime, dry_run: bool
) -> dict[str, Any]:
    """The document; its schema is ``docs/publication.schema.json``."""
    head = heading("publication", command, started)
    return {**head, "dry_run": dry_run, "cells": [_cell(row) for row in rows]}


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
        "drivers": dict(decision.drivers) if decision else {},
        "exempt": list(decision.exempt) if decision else [],
        "reports": [_report(entry) for entry in decision.counted] if decision else [],
        "refusals": [vars(refusal) for refusal in row.refusals],
        "tags": [
            {"name": step.name, "kind": step.kind, "action": step.action, "was": step.was}
            for step in row.steps
        ],
        "copied": row.copied
        and {name: getattr(row.copied, name) for name in ("there", "mounted", "sent", "bytes_sent")},
        "evidence": [vars(piece) for piece in row.evidence],
        "failures": [_failure(found) for found in row.failures],
        "error": error_document(row.error) if row.error is not None else None,
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
