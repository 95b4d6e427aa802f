"""Tasks, and the reports that are verdicts on them. Pure functions: the same in, the same out."""

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from builder.plan.facts.tables import class_of
from builder.sources.oci import staged_reference
from builder.verify.evidence import no_proof
from builder.verify.runner import SealedReport, parse

BUILD = "build"
"""The column of tasks that build an image."""
CONCLUSIVE = frozenset({"works", "broken", "unsupported-gpu"})
"""Verdicts about the image; ``host``, ``busy`` and ``unverified`` say nothing about it."""


@dataclass(frozen=True, kw_only=True, order=True)
class Task:
    """A job of a scheduler: one image verified on one class of GPU, or one image built."""

    wave: int = 0
    """It runs when the waves before have ended."""
    column: str
    """The class of GPU, or :data:`BUILD`."""
    matrix: str
    cell: str
    repository: str
    inputs: str
    """Digest of the lock's inputs: :attr:`builder.image.recipe.values.Recipe.inputs`."""
    digest: str = ""
    """The image to verify."""
    probe: str = ""
    """sha256 of the probe in that image, 64 hex digits."""
    suites: tuple[str, ...] = ()
    """What the probe is to run besides ``conv``."""
    suggested: tuple[str, ...] = ()
    """What it runs without effect on the verdict; a report is one on this task without them, too."""

    @property
    def image(self) -> str:
        if self.column == BUILD:
            return staged_reference(self.repository, self.inputs)
        return f"{self.repository}@{self.digest}"

    @property
    def key(self) -> str:
        """20 hex digits over image, class, probe, lock and suites; of a build over repository and lock.

        The repository counts: a report in one registry is none in its mirror.
        """
        parts = [self.image, self.column, self.probe, self.inputs, *self.suites]
        if self.column == BUILD:
            parts = [BUILD, self.repository, self.inputs]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:20]


@dataclass(frozen=True, kw_only=True)
class TaskVerdict:
    """What a report says of a task; ``built`` for a build whose image is there."""

    verdict: str
    cause: str | None = None
    gpu: str | None = None
    driver: str | None = None


def conclusive(reports: Iterable[SealedReport]) -> Iterator[tuple[SealedReport, str, TaskVerdict]]:
    """The reports that are a verdict on an image, oldest first, each with the class of its GPU.

    Left out: a test double's report, and one that says ``works`` and does not show it.
    """
    for report in sorted(reports, key=lambda report: report.verified):
        if report.test_double or report.verdict not in CONCLUSIVE or not report.key.gpus:
            continue
        if report.verdict == "works" and any(no_proof(parse(json.dumps(report.document)))):
            continue
        name, capability = report.key.gpus[0]
        cause, driver = report.document.get("cause"), report.key.driver
        said = TaskVerdict(verdict=report.verdict, cause=cause and str(cause), gpu=name, driver=driver)
        yield report, class_of(name, capability) or "", said


def answers(report: SealedReport, suites: Iterable[str]) -> bool:
    """Whether a report is one on these suites: one that says ``works`` was asked for each, run or not."""
    if report.document.get("verdict") != "works":
        return True
    return parse(json.dumps(report.document)).suites_asked() >= set(suites)


def verdicts(tasks: Sequence[Task], reports: Iterable[SealedReport]) -> dict[str, TaskVerdict]:
    """The newest conclusive report on each task, by the task's key."""
    wanted = {(task.digest, task.column, task.probe): task for task in tasks}
    found = {}
    for report, gpu_class, verdict in conclusive(reports):
        task = wanted.get((report.key.digest, gpu_class, report.key.probe))
        if task is not None and answers(report, task.suites):
            found[task.key] = verdict
    return found


def missing(tasks: Sequence[Task], known: Iterable[str]) -> tuple[Task, ...]:
    there = set(known)
    return tuple(task for task in tasks if task.key not in there)
