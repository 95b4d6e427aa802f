"""Which (cell, class of GPU) pairs still lack a verdict. A pure function: the same in, the same out."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar

from builder.evidence.verification import no_proof
from builder.facts.gpus import class_of
from builder.verify.document import parse

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from builder.verify import SealedReport

AnyTask = TypeVar("AnyTask", bound="Task")
CONCLUSIVE = frozenset({"works", "broken", "unsupported-gpu"})
"""Verdicts about the image; ``host``, ``busy`` and ``unverified`` say nothing about it."""


def key_of_task(*parts: str) -> str:
    """A task's name: 20 hex digits over what it is about."""
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:20]


class Task(Protocol):
    """What a scheduler runs once: a verification or a build."""

    @property
    def key(self) -> str:
        """Its name for ever, 20 hex digits."""

    @property
    def matrix(self) -> str: ...
    @property
    def cell(self) -> str: ...
    @property
    def image(self) -> str:
        """The reference that it is about."""

    @property
    def column(self) -> str:
        """What it does with the cell, as the heading of a column."""


@dataclass(frozen=True, kw_only=True)
class StagedCell:
    """A cell whose image is in the staging repository."""

    cell: str
    matrix: str
    repository: str
    digest: str
    probe: str
    """sha256 of the probe in the image, 64 hex digits."""
    inputs: str
    """Digest of the lock's inputs: :attr:`builder.recipe.values.Recipe.inputs`."""
    classes: tuple[str, ...]
    """GPU classes that the matrix claims."""


@dataclass(frozen=True, kw_only=True, order=True)
class VerifyTask:
    """One image to be verified on one class of GPU."""

    gpu_class: str
    matrix: str
    cell: str
    repository: str
    digest: str
    probe: str
    inputs: str

    @property
    def image(self) -> str:
        return f"{self.repository}@{self.digest}"

    @property
    def column(self) -> str:
        return self.gpu_class

    @property
    def key(self) -> str:
        """Over digest, class, probe and lock."""
        return key_of_task(self.digest, self.gpu_class, self.probe, self.inputs)


@dataclass(frozen=True, kw_only=True)
class TaskVerdict:
    """What a report says of a task; of a build that its image is there: ``built``."""

    verdict: str
    cause: str | None = None
    gpu: str | None = None
    driver: str | None = None


def tasks_of(cells: Iterable[StagedCell]) -> tuple[VerifyTask, ...]:
    """Every pair of a cell and a class that it claims, in a fixed order."""
    return tuple(
        sorted(
            VerifyTask(
                gpu_class=name,
                matrix=cell.matrix,
                cell=cell.cell,
                repository=cell.repository,
                digest=cell.digest,
                probe=cell.probe,
                inputs=cell.inputs,
            )
            for cell in cells
            for name in cell.classes
        )
    )


def verdicts(tasks: Sequence[VerifyTask], reports: Iterable[SealedReport]) -> dict[str, TaskVerdict]:
    """The newest conclusive report for each task, by the task's key.

    A test double's counts for nothing, and neither does one that says ``works`` and does not show it.
    """
    wanted = {(task.digest, task.gpu_class, task.probe): task.key for task in tasks}
    found: dict[str, TaskVerdict] = {}
    for report in sorted(reports, key=lambda report: report.verified):
        if report.test_double or report.verdict not in CONCLUSIVE or not report.key.gpus:
            continue
        if report.verdict == "works" and any(no_proof(parse(json.dumps(report.document)))):
            continue
        name, capability = report.key.gpus[0]
        key = wanted.get((report.key.digest, class_of(name, capability) or "", report.key.probe))
        if key is not None:
            cause = report.document.get("cause")
            found[key] = TaskVerdict(
                verdict=report.verdict,
                cause=None if cause is None else str(cause),
                gpu=name,
                driver=report.key.driver,
            )
    return found


def missing(tasks: Sequence[AnyTask], known: Iterable[str]) -> tuple[AnyTask, ...]:
    """The tasks without a verdict."""
    there = set(known)
    return tuple(task for task in tasks if task.key not in there)
