"""From matrices to submitted tasks, and from the scheduler's logs back to the registry."""

from __future__ import annotations

import hashlib
import json
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic

from builder import __version__
from builder.dispatch import kubernetes, slurm
from builder.dispatch.node import report_on, reports_beside, wrong_card
from builder.dispatch.plan import CONCLUSIVE, AnyTask, StagedCell, tasks_of, verdicts
from builder.errors import CellError, ImageMissingError, UsageError
from builder.evidence.cosign import Signer
from builder.evidence.travel import share
from builder.matrix.selection import matches
from builder.oci.staging import find_staged, repository_of
from builder.pipeline.locks import LockKeeper, refuse_stale
from builder.recipe import render
from builder.verify.document import EXIT_CODES, parse

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterator, Mapping, Sequence

    from builder.dispatch.client import Scheduled
    from builder.dispatch.fleet import Fleet
    from builder.dispatch.plan import TaskVerdict, VerifyTask
    from builder.evidence.signatures import People
    from builder.model import Cell, Matrix, Pinned
    from builder.oci.registry import Registry
    from builder.oci.staging import Staged
    from builder.recipe.values import Recipe

_MOST_STARTS = 1000
"""Lines of a pod's log that may begin a document."""
_AT_ONCE = 8
"""Questions to the registry at a time."""


@dataclass(frozen=True, kw_only=True)
class Work(Generic[AnyTask]):
    """Tasks of one kind, and what is done with them."""

    tasks: Sequence[AnyTask]
    known: Callable[[Sequence[AnyTask]], Mapping[str, TaskVerdict]]
    """What the registry has of these tasks, by key."""
    submit: Callable[[Sequence[AnyTask], Callable[[str], None]], Mapping[str, str]]
    """Why the scheduler did not take some of these, by key."""
    rendered: Callable[[Sequence[AnyTask]], Mapping[str, str]]
    """What would be submitted, by a name for each text."""
    under_way: Callable[[], Mapping[str, Scheduled]]


@dataclass(frozen=True, kw_only=True)
class RenderedCell:
    """A cell with its lock, and where its image is staged."""

    cell: Cell
    matrix: Matrix
    pinned: Pinned
    recipe: Recipe
    repository: str


def rendered_cells(
    matrices: Sequence[Matrix], cells: Sequence[Cell], *, fleet: Fleet, staging: str | None, probe: bytes
) -> Iterator[RenderedCell]:
    """Every cell with its lock and recipe.

    Raises:
        UsageError: no repository is named.
        StaleLockError: a lock does not belong to its matrix.
    """
    keepers = {matrix.name: LockKeeper(matrix) for matrix in matrices}
    of = {matrix.name: matrix for matrix in matrices}
    refuse_stale(keepers, cells)
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
        yield RenderedCell(
            cell=cell,
            matrix=of[cell.matrix],
            pinned=pinned,
            recipe=render(pinned, probe=probe, version=__version__),
            repository=repository_of(source),
        )


def staged_images(registry: Registry, cells: Sequence[RenderedCell]) -> list[Staged | None]:
    """The image of each cell; None if its repository lacks it. Raises RegistryError."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return list(pool.map(lambda one: find_staged(registry, one.repository, one.recipe.inputs), cells))


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
    locked = list(rendered_cells(matrices, cells, fleet=fleet, staging=staging, probe=probe))
    claimed = {name for one in locked for name in _claims(one)}
    lacking = sorted(name for name in claimed if fleet.lane(name) is None)
    if lacking:
        raise UsageError(
            f"the fleet has no class {', '.join(lacking)}, which the matrix claims",
            hint=f"it has {', '.join(sorted(fleet.classes))}; leave cells out by --skip, or add the class",
        )
    if not claimed:
        raise UsageError("no cell claims a GPU", hint="`gpus: [T4]` in the matrix")
    found = staged_images(registry, locked)
    pairs = [(one, image) for one, image in zip(locked, found, strict=True) if image is not None]
    absent = [one for one, image in zip(locked, found, strict=True) if image is None]
    if absent:
        names = "\n  ".join(f"{one.cell.id} in {one.repository}" for one in absent[:20])
        raise ImageMissingError(
            f"{len(absent)} of {len(cells)} images are not in staging:\n  {names}",
            hint="rtbuild build --push REPOSITORY, with the same rtbuild, matrix and lock",
        )
    staged = [
        StagedCell(
            cell=one.cell.id,
            matrix=one.cell.matrix,
            repository=image.repository,
            digest=image.digest,
            probe=hashlib.sha256(probe).hexdigest(),
            inputs=one.recipe.inputs,
            classes=_claims(one),
        )
        for one, image in pairs
    ]
    return DispatchPlan(tasks=tasks_of(staged), images={image.digest: image for _, image in pairs})


def _claims(one: RenderedCell) -> tuple[str, ...]:
    """The classes of GPU that a cell is to be verified on."""
    rules = one.matrix.publish.exempt
    exempt = {rule.gpu for rule in rules if matches(one.cell.id, rule.cells)}
    return tuple(name for name in one.cell.gpus if name not in exempt)


def known(
    registry: Registry, planned: DispatchPlan, tasks: Sequence[VerifyTask], reporters: People | None
) -> dict[str, TaskVerdict]:
    """The verdicts on these tasks that lie in the registry now, by key; signed ones if there are reporters.

    Raises RegistryError.
    """
    images = [planned.images[digest] for digest in dict.fromkeys(task.digest for task in tasks)]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        lists = list(pool.map(lambda image: reports_beside(registry, image, reporters), images))
    return verdicts(tasks, [entry for entries in lists for entry in entries])


def gather(
    registry: Registry,
    planned: DispatchPlan,
    fleet: Fleet,
    tasks: Sequence[VerifyTask],
    *,
    reporters: People | None,
    warn: Callable[[str], None],
) -> dict[str, TaskVerdict]:
    """As :func:`known`, after the reports in Kubernetes' logs were put beside their images.

    What could not be is told to ``warn``. Raises RegistryError, SchedulerError, and CommandError if the
    fleet's key does not sign here.
    """
    found = known(registry, planned, tasks, reporters)
    if fleet.scheduler != "kubernetes" or len(found) == len(tasks):
        return found
    jobs = kubernetes.jobs(fleet)
    new = False
    for task in tasks:
        job = jobs.get(task.key)
        if task.key in found or job is None or not job.ended:
            continue
        try:
            new |= _collect(registry, planned.images[task.digest], task, job, fleet)
        except CellError as error:
            warn(f"{task.cell} on {task.gpu_class}: {job.scheduled.word}: {error.message}")
    return known(registry, planned, tasks, reporters) if new else found


def _collect(
    registry: Registry, image: Staged, task: VerifyTask, job: kubernetes.JobState, fleet: Fleet
) -> bool:
    """Whether a new report lies beside the image. Raises CellError if it is no verdict on the task."""
    if job.pod is None:
        raise CellError("its pod is gone, and its log with it")
    text = _json_in(kubernetes.log_of(job.pod, fleet))
    said = parse(text).verdict
    if job.exit_code is not None and job.exit_code != EXIT_CODES[said]:
        raise CellError(f"the report says {said}, and its pod ended with {job.exit_code}")
    signer = None if fleet.key is None else Signer(key=fleet.key)
    verdict, seen, reports = report_on(image, text, signer)
    new = bool(share(registry, image, reports))
    if wrong_card(task.gpu_class, seen):
        raise CellError(f"the fleet says {task.gpu_class}, and its node has {seen}: mend the fleet file")
    if verdict not in CONCLUSIVE:
        raise CellError(f"the report says {verdict}, which is no verdict on the image")
    return new


def _json_in(log: str) -> bytes:
    """The probe's document in a pod's log, in which stderr's lines stand, too. Raises CellError."""
    found, read = [], 0
    for number, start in enumerate(re.finditer(r"^\{", log, re.MULTILINE)):
        if number == _MOST_STARTS:
            raise CellError("the pod's log begins too many documents to be read")
        if start.start() < read:
            continue  # within the last one
        try:
            document, read = json.JSONDecoder().raw_decode(log, start.start())
        except (ValueError, RecursionError):
            continue
        found += [document] if "verdict" in document else []
    if len(found) != 1:
        raise CellError(f"the pod's log holds {'several reports' if found else 'no report'}")
    return json.dumps(found[0]).encode()


def verification(
    registry: Registry,
    planned: DispatchPlan,
    fleet: Fleet,
    reporters: People | None,
    warn: Callable[[str], None],
) -> Work[VerifyTask]:
    """The verifications of a plan, by the fleet's scheduler; only what ``reporters`` signed is a verdict."""
    render_all = slurm.render if fleet.scheduler == "slurm" else kubernetes.render
    return Work(
        tasks=planned.tasks,
        known=lambda tasks: gather(registry, planned, fleet, tasks, reporters=reporters, warn=warn),
        submit=lambda tasks, say: submit(tasks, fleet, say),
        rendered=lambda tasks: render_all(tasks, fleet) if tasks else {},
        under_way=lambda: under_way(fleet),
    )


def not_under_way(
    tasks: Sequence[AnyTask], there: Container[str], say: Callable[[str], None]
) -> list[AnyTask]:
    """The tasks whose key is not ``there``; the number of the others is said."""
    fresh = [task for task in tasks if task.key not in there]
    if len(fresh) < len(tasks):
        say(f"{len(tasks) - len(fresh)} are under way already")
    return fresh


def submit(tasks: Sequence[VerifyTask], fleet: Fleet, say: Callable[[str], None]) -> dict[str, str]:
    """Submit tasks that are not under way already, and say each answer of the scheduler.

    Why it took some not, by key. Raises SchedulerError, MissingToolError; what was submitted before stays.
    """
    if not tasks:
        return {}
    jobs = kubernetes.jobs(fleet) if fleet.scheduler == "kubernetes" else {}
    there = _alive(jobs) if fleet.scheduler == "kubernetes" else slurm.under_way()
    fresh = not_under_way(tasks, there, say)
    if fleet.scheduler == "slurm":
        return _submit_arrays(fresh, fleet, say) if fresh else {}
    refused = try_fleet(fleet, sorted({task.gpu_class for task in fresh})) if fresh else {}
    taken = [task for task in fresh if refused[task.gpu_class] is None]
    kubernetes.remove([task.key for task in taken if task.key in jobs], fleet)
    for name, text in kubernetes.render(taken, fleet).items() if taken else ():
        say(f"{name}: {kubernetes.submit(text)}")
    return {task.key: refused[task.gpu_class] or "" for task in fresh if task not in taken}


def _submit_arrays(tasks: Sequence[VerifyTask], fleet: Fleet, say: Callable[[str], None]) -> dict[str, str]:
    refused: dict[str, str] = {}
    before: dict[str, str] = {}
    for name, text in slurm.render(tasks, fleet, slurm.array_limit()).items():
        part = name.partition(".")[0]
        lane = fleet.lane(part)
        # of a class with a limit one array after the other, or the limit would hold for each
        limited = lane is not None and lane.at_once is not None and part in before
        job = slurm.submit_or_note(text, [before[part]] if limited else [], refused)
        if job is not None:
            before[part] = job
            say(f"{name}: submitted as job {job}")
    return refused


def under_way(fleet: Fleet) -> Mapping[str, Scheduled]:
    """The tasks that the scheduler has and that may still bring a report, by key."""
    return slurm.under_way() if fleet.scheduler == "slurm" else _alive(kubernetes.jobs(fleet))


def _alive(jobs: Mapping[str, kubernetes.JobState]) -> dict[str, Scheduled]:
    return {key: job.scheduled for key, job in jobs.items() if not job.ended}


def try_fleet(fleet: Fleet, classes: Sequence[str] | None = None) -> dict[str, str | None]:
    """For each class why the scheduler would not take a job of it; None if it would. Nothing is submitted."""
    trial = slurm.try_lane if fleet.scheduler == "slurm" else kubernetes.try_lane
    return {name: trial(name, fleet) for name in classes or fleet.classes}
