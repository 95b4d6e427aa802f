"""From matrices to submitted tasks, and from the scheduler's logs back to the registry."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from builder import __version__
from builder.dispatch import kubernetes, slurm
from builder.dispatch.node import attach_report
from builder.dispatch.plan import StagedCell, tasks_of, verdicts
from builder.errors import CellError, CommandError, ImageMissingError, UsageError
from builder.evidence.travel import shared
from builder.matrix.globs import matches
from builder.oci.staging import find_staged, repository_of
from builder.pipeline.locks import LockKeeper, refuse_stale
from builder.recipe import render
from builder.verify import SealedReport

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from builder.dispatch.fleet import Fleet
    from builder.dispatch.plan import TaskVerdict, VerifyTask
    from builder.model import Cell, Matrix
    from builder.oci.registry import Registry
    from builder.oci.staging import Staged


@dataclass(frozen=True, kw_only=True)
class DispatchPlan:
    """All tasks, and the images that they are about by digest."""

    tasks: tuple[VerifyTask, ...]
    images: Mapping[str, Staged]


def plan(
    registry: Registry,
    matrices: Sequence[Matrix],
    cells: Sequence[Cell],
    *,
    fleet: Fleet,
    staging: str | None,
    probe: bytes,
) -> DispatchPlan:
    """Every (cell, claimed class) whose image is in staging.

    Raises:
        UsageError: no repository is named, a cell claims no GPU, or the fleet lacks a class.
        ImageMissingError: staging lacks an image; all that it lacks are named.
        StaleLockError: a lock does not belong to its matrix.
    """
    keepers = {matrix.name: LockKeeper(matrix) for matrix in matrices}
    of = {matrix.name: matrix for matrix in matrices}
    refuse_stale(keepers, cells)
    found: list[StagedCell] = []
    images: dict[str, Staged] = {}
    absent: list[str] = []
    for cell in cells:
        source = staging or fleet.staging or of[cell.matrix].publish.staging
        if source is None:
            raise UsageError(
                f"{cell.matrix}: in which repository are the images?",
                hint="--from REPOSITORY, `staging` in the fleet file, or `publish: staging` in the matrix",
            )
        pinned = keepers[cell.matrix].pinned(cell)
        if pinned is None:  # refuse_stale has looked
            raise UsageError(f"{cell.id} is not locked", hint="rtbuild lock")
        recipe = render(pinned, probe=probe, version=__version__)
        image = find_staged(registry, repository_of(source), recipe.inputs)
        if image is None:
            absent.append(f"{cell.id} in {source}")
            continue
        images[image.digest] = image
        exempt = {rule.gpu for rule in of[cell.matrix].publish.exempt if matches(cell.id, rule.cells)}
        found.append(
            StagedCell(
                cell=cell.id,
                matrix=cell.matrix,
                repository=image.repository,
                digest=image.digest,
                probe=hashlib.sha256(probe).hexdigest(),
                inputs=recipe.inputs,
                classes=tuple(name for name in cell.gpus if name not in exempt),
            )
        )
    if absent:
        raise ImageMissingError(
            f"{len(absent)} of {len(cells)} images are not in staging:\n  " + "\n  ".join(absent[:20]),
            hint="rtbuild build --push REPOSITORY, with the same rtbuild, matrix and lock",
        )
    tasks = tasks_of(found)
    lacking = sorted({task.gpu_class for task in tasks if fleet.lane(task.gpu_class) is None})
    if lacking:
        raise UsageError(
            f"the fleet has no class {', '.join(lacking)}, which the matrix claims",
            hint=f"it has {', '.join(sorted(fleet.classes))}; leave cells out by --skip, or add the class",
        )
    if not tasks:
        raise UsageError("no cell claims a GPU", hint="`gpus: [T4]` in the matrix")
    return DispatchPlan(tasks=tasks, images=images)


def known(registry: Registry, planned: DispatchPlan) -> dict[str, TaskVerdict]:
    """The verdicts that lie in the registry now, by the tasks' keys."""
    reports = [
        entry
        for image in planned.images.values()
        for entry in shared(registry, image)
        if isinstance(entry, SealedReport)
    ]
    return verdicts(planned.tasks, reports)


def rendered(tasks: Sequence[VerifyTask], fleet: Fleet) -> dict[str, str]:
    """What would be submitted, by a name for each text."""
    if not tasks:
        return {}
    return slurm.render(tasks, fleet) if fleet.scheduler == "slurm" else kubernetes.render(tasks, fleet)


def submit(tasks: Sequence[VerifyTask], fleet: Fleet) -> dict[str, str]:
    """Submit tasks that are not under way already; the scheduler's answer for each text that was
    submitted.
    """
    there = under_way(fleet)
    fresh = [task for task in tasks if task.key not in there]
    call = slurm.submit if fleet.scheduler == "slurm" else kubernetes.submit
    return {name: call(text) for name, text in rendered(fresh, fleet).items()}


def under_way(fleet: Fleet) -> Mapping[str, str]:
    """The scheduler's word for each task that it has and that may still bring a report, by key."""
    if fleet.scheduler == "slurm":
        return slurm.under_way()
    return {key: state for key, state in kubernetes.jobs(fleet).items() if state == "active"}


def collect(
    registry: Registry, planned: DispatchPlan, fleet: Fleet, verdict_of: Mapping[str, TaskVerdict]
) -> list[str]:
    """Kubernetes: put the reports in the logs of ended jobs beside their images. What could not be is
    named.
    """
    if fleet.scheduler != "kubernetes":
        return []
    problems = []
    ended = {key for key, state in kubernetes.jobs(fleet).items() if state != "active"}
    for task in planned.tasks:
        if task.key not in ended or task.key in verdict_of:
            continue
        try:
            attach_report(registry, planned.images[task.digest], _json_in(kubernetes.log_of(task.key, fleet)))
        except (CellError, CommandError) as error:
            problems.append(f"{task.cell} on {task.gpu_class}: {error.message}")
    return problems


def _json_in(log: str) -> bytes:
    """The probe's document in a pod's log, in which stderr's lines stand, too. Raises CellError."""
    start = log.find("{")
    try:
        document, _ = json.JSONDecoder().raw_decode(log[max(start, 0) :])
    except (ValueError, RecursionError) as error:
        raise CellError(f"the pod's log holds no report ({error})") from error
    return json.dumps(document).encode()


def try_fleet(fleet: Fleet) -> dict[str, str | None]:
    """For each class why the scheduler would not take a job of it; None if it would. Nothing is submitted."""
    trial = slurm.try_lane if fleet.scheduler == "slurm" else kubernetes.try_lane
    return {name: trial(name, fleet) for name in fleet.classes}
