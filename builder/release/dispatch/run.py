"""From matrices to tasks that a scheduler has, and what nodes said of them."""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from builder import __version__
from builder.core.errors import (
    CellError,
    ImageMissingError,
    UsageError,
)
from builder.core.items import item
from builder.core.model import Cell, Matrix
from builder.image.recipe import Recipe, render
from builder.pipeline import Locks
from builder.plan.facts.tables import load
from builder.plan.matrix import matches
from builder.release.dispatch import kubernetes, slurm
from builder.release.dispatch.by_logs import OnDstack, OnKubernetes
from builder.release.dispatch.client import Scheduled
from builder.release.dispatch.fleet import BUILD, Fleet
from builder.release.dispatch.left import notes_beside
from builder.release.dispatch.node import reports_beside
from builder.release.dispatch.tasks import Say, Task, TaskVerdict, Work, try_push, verdicts
from builder.sources.oci import Registry, Staged, find_staged, repository_of
from builder.verify.evidence import People
from builder.verify.runner import SealedReport

_AT_ONCE = 8
"""Questions to the registry at a time."""


@dataclass(frozen=True, kw_only=True)
class RenderedCell:
    """A cell's recipe, and where its image is staged."""

    matrix: Matrix
    recipe: Recipe
    repository: str

    def task(self, column: str, **more: Any) -> Task:
        """A task about this cell; ``more`` are other fields of it."""
        cell, inputs = self.recipe.cell, self.recipe.inputs
        return Task(
            column=column, matrix=cell.matrix, cell=cell.id, repository=self.repository, inputs=inputs, **more
        )

    def claims(self) -> tuple[str, ...]:
        """The classes of GPU on which the cell has to be verified."""
        cell, rules = self.recipe.cell, self.matrix.publish.exempt
        exempt = {rule.gpu for rule in rules if matches(cell.id, rule.cells)}
        return tuple(name for name in cell.gpus if name not in exempt)


Lost = dict[str, str]
"""Why cells are left out, by their ids: what is staged for them is no image of theirs."""
_Made = TypeVar("_Made")


def rendered_cells(
    matrices: Sequence[Matrix], cells: Sequence[Cell], *, fleet: Fleet, staging: str | None, probe: bytes
) -> Iterator[RenderedCell]:
    """Every cell with its lock and recipe.

    Raises:
        UsageError: No repository is named.
        StaleLockError: A lock does not belong to its matrix.
    """
    of = {matrix.name: matrix for matrix in matrices}
    for cell, pinned in zip(cells, Locks(matrices).fresh(cells), strict=True):
        source = staging or fleet.staging or of[cell.matrix].publish.staging
        if source is None:
            hint = "--from REPOSITORY, `staging` in the fleet file, or `publish: staging` in the matrix"
            raise UsageError(f"{cell.matrix}: in which repository are the images?", hint=hint)
        recipe = render(pinned, probe=probe, version=__version__)
        yield RenderedCell(matrix=of[cell.matrix], recipe=recipe, repository=repository_of(source))


def with_images(
    registry: Registry, cells: Sequence[RenderedCell], lost: Lost
) -> list[tuple[RenderedCell, Staged | None]]:
    """Each cell with its image, or None if its repository lacks it; ``lost`` takes why others are left out.

    Raises CellError, mostly a RegistryError, if no cell is left.
    """

    def look(one: RenderedCell) -> Staged | CellError | None:
        return _or_error(one.recipe.cell.id, lambda: find_staged(registry, one.repository, one.recipe.inputs))

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        looked = list(zip(cells, pool.map(look, cells), strict=True))
    failed = [(one, found) for one, found in looked if isinstance(found, CellError)]
    if looked and len(failed) == len(looked):
        raise failed[0][1]
    lost |= {one.recipe.cell.id: error.message for one, error in failed}
    return [(one, found) for one, found in looked if not isinstance(found, CellError)]


def _or_error(name: str, work: Callable[[], _Made]) -> _Made | CellError:
    """What the work on an item gives, or its failure."""
    try:
        with item(name):
            return work()
    except CellError as error:
        return error


def verifying(
    registry: Registry,
    rendered: Sequence[RenderedCell],
    fleet: Fleet,
    probe: bytes,
    reporters: People | None,
    *,
    say: Say,
    warn: Say,
    lost: Lost,
) -> Work:
    """The verification of every cell on every class that it claims, by the fleet's scheduler.

    If there are ``reporters``, only what one of them signed is a verdict.

    Raises:
        UsageError: A cell claims no GPU, the fleet lacks a class, or reports of logs cannot be signed.
        ImageMissingError: Staging lacks an image; all that it lacks are named.
        RegistryError: The registry did not answer.
    """
    if reporters is not None and fleet.scheduler != "slurm" and fleet.key is None:
        said = "--reported-by counts signed reports alone, and the fleet file names no key for those in logs"
        raise UsageError(said, hint="`key:` in the fleet file")
    claimed = {name for one in rendered for name in one.claims()}
    there = {name.casefold() for name in fleet.classes}
    if lacking := sorted(name for name in claimed if name.casefold() not in there):
        hint = f"it has {', '.join(sorted(fleet.classes))}; leave cells out by --skip, or add the class"
        raise UsageError(f"the fleet has no class {', '.join(lacking)}, which the matrix claims", hint=hint)
    if not claimed:
        raise UsageError("no cell claims a GPU", hint="`gpus: [T4]` in the matrix")
    found = with_images(registry, rendered, lost)
    if absent := [f"{one.recipe.cell.id} in {one.repository}" for one, image in found if image is None]:
        said = "\n  ".join([f"{len(absent)} of {len(rendered)} images are not in staging:", *absent[:20]])
        hint = "rtbuild build --push REPOSITORY, with the same rtbuild, matrix and lock"
        raise ImageMissingError(said, hint=hint)
    sha256 = hashlib.sha256(probe).hexdigest()
    tasks = sorted(
        one.task(
            name,
            digest=image.digest,
            probe=sha256,
            suites=tuple(suite for suite in one.recipe.cell.suites() if suite != "conv"),
            suggested=load().suggested_suites(one.recipe.cell),
        )
        for one, image in found
        if image is not None
        for name in one.claims()
    )
    images = {image.reference: image for _, image in found if image is not None}

    def beside(image: Staged) -> list[SealedReport] | CellError:
        return _or_error(image.reference, lambda: reports_beside(registry, image, reporters))

    def reported(tasks: Sequence[Task]) -> dict[str, TaskVerdict]:
        of: dict[str, list[Task]] = {}
        for task in tasks:
            of.setdefault(task.image, []).append(task)
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            lists = list(pool.map(beside, [images[reference] for reference in of]))
        failed = [found for found in lists if isinstance(found, CellError)]
        if failed and len(failed) == len(lists):
            raise failed[0]
        for error in failed:
            warn(error.message)
        known: dict[str, TaskVerdict] = {}
        for mine, found in zip(of.values(), lists, strict=True):
            known |= {} if isinstance(found, CellError) else verdicts(mine, found)
        return known

    given: dict[str, Any] = {
        "notes": partial(_notes, registry, images),
        "tasks": tasks,
        "fleet": fleet,
        "registry": registry,
        "say": say,
        "warn": warn,
    }
    if fleet.scheduler == "slurm":
        return OnSlurm(**given, reported=reported, script=partial(slurm.verification, fleet=fleet))
    kind = OnKubernetes if fleet.scheduler == "kubernetes" else OnDstack
    return kind(**given, reported=reported, images=images)


def _notes(registry: Registry, images: Mapping[str, Staged], tasks: Sequence[Task]) -> dict[str, str]:
    """The newest note on each of these tasks, by key."""
    beside: dict[str, Mapping[str, str]] = {}
    for name in dict.fromkeys(task.image for task in tasks):
        found = _or_error(name, partial(notes_beside, registry, images[name]))
        beside[name] = {} if isinstance(found, CellError) else found  # it only says more of what is lost
    words = {task.key: beside[task.image].get(task.column) for task in tasks}
    return {key: said for key, said in words.items() if said}


@dataclass(kw_only=True)
class OnSlurm(Work):
    """In arrays; nodes push what comes of them."""

    script: Callable[[Sequence[Task]], str]
    """The batch script of an array."""
    queue: slurm.Queue = field(default_factory=slurm.Queue)

    def scheduled(self) -> Mapping[str, Scheduled]:
        return self.queue.tasks()

    def rendered(self, tasks: Sequence[Task], /) -> Mapping[str, str]:
        return {name: self.script(part) for name, part in slurm.arrays(tasks).items()}

    def submit(self, tasks: Sequence[Task], attempt: int, /) -> Mapping[str, str]:
        with self.lease(tasks):
            return self._submit(tasks, attempt)

    def _submit(self, tasks: Sequence[Task], attempt: int) -> Mapping[str, str]:
        fresh = self.not_under_way(tasks, self.queue.tasks() if tasks else {})
        if not fresh:
            return {}
        try_push(self.registry, fresh, self.warn)
        new = slurm.Submission(script=self.script, attempt=attempt)
        earlier = slurm.jobs_named(BUILD) if fresh[0].column == BUILD else ()
        made: dict[tuple[int, str], list[str]] = {}
        parts = slurm.arrays(fresh, slurm.array_limit())
        if fresh[0].column != BUILD:  # builds of later waves wait for jobs of their own
            named = [(part[0].column, [task.key for task in part]) for part in parts.values()]
            if others := self.queue.of_others(named):
                self.say(f"{len(others)} are under way already, submitted by another user")
                fresh = [task for task in fresh if task.key not in others]
                parts = slurm.arrays(fresh, slurm.array_limit())
        for name, part in parts.items():
            wave, column = part[0].wave, part[0].column
            after = [*earlier, *(job for (number, _), jobs in made.items() if number < wave for job in jobs)]
            # of a class with a limit one array after the other, or the limit would hold for each
            limited = self.fleet.asked(column).at_once is not None
            mine = made.setdefault((wave, column), [])
            jobs = new.submit(part, [*after, *(mine[-1:] if limited else [])], chain=limited)
            mine += jobs
            if jobs:
                taken = sum(task.key not in new.refused for task in part)
                self.say(f"{name}: submitted as job {', '.join(jobs)}, tasks: {taken}")
        own = {job for jobs in made.values() for job in jobs}
        self.queue.own |= own
        self.queue.supersede(task.key for task in fresh if task.key not in new.refused)
        if own and fresh[0].column != BUILD and (twice := self.queue.withdraw(own)):
            self.say(f"{twice} tasks are withdrawn: another dispatcher submitted them a moment before")
        return new.refused


def try_fleet(fleet: Fleet) -> dict[str, str | None]:
    """For each class why the scheduler would not take a job of it; None if it would. Nothing is submitted.

    Raises UsageError for dstack, and MissingToolError.
    """
    if fleet.scheduler == "dstack":
        raise UsageError("dstack tries no tasks", hint=f"dstack offer --gpu {next(iter(fleet.classes))}")
    trial = slurm.try_lane if fleet.scheduler == "slurm" else kubernetes.try_lane
    return {name: trial(name, fleet) for name in fleet.classes}
