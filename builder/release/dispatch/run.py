"""From matrices to submitted tasks, and from the scheduler's logs back to the registry."""

import contextlib
import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar
from urllib.parse import urljoin

from builder import __version__
from builder.core.errors import (
    CellError,
    ImageMissingError,
    MissingToolError,
    RegistryError,
    SchedulerError,
    UsageError,
)
from builder.core.items import item
from builder.core.model import Cell, Matrix
from builder.core.resources import cache
from builder.core.temporary import disk_errors, locked, try_lock
from builder.image.recipe import Recipe, render
from builder.pipeline import Locks
from builder.plan.facts.tables import load
from builder.plan.matrix import matches
from builder.release.dispatch import dstack, kubernetes, slurm
from builder.release.dispatch.client import Scheduled, full, why
from builder.release.dispatch.fleet import Fleet
from builder.release.dispatch.left import notes_beside
from builder.release.dispatch.node import other_card, report_on, reports_beside
from builder.release.dispatch.tasks import BUILD, CONCLUSIVE, Task, TaskVerdict, Work, verdicts
from builder.sources.oci import Registry, Staged, find_staged, repository_of
from builder.verify.evidence import People, Signer, share
from builder.verify.runner import SealedReport

Say = Callable[[str], None]

_AT_ONCE = 8
"""Questions to the registry at a time."""
_LOGS = 40
"""Logs that one kubectl reads."""


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
    kind = _OnKubernetes if fleet.scheduler == "kubernetes" else _OnDstack
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
class _Dispatched:
    """Tasks of one kind that go to the fleet's scheduler."""

    registry: Registry
    fleet: Fleet
    tasks: Sequence[Task]
    reported: Callable[[Sequence[Task]], dict[str, TaskVerdict]]
    """The verdicts on these tasks that lie in the registry now, by key. Raises RegistryError."""
    say: Say
    warn: Say
    notes: Callable[[Sequence[Task]], Mapping[str, str]] = lambda _tasks: {}
    """What nodes said beside the images of these tasks, by key."""

    @property
    def attempts(self) -> int:
        return self.fleet.attempts

    def known(self, tasks: Sequence[Task], /) -> Mapping[str, TaskVerdict]:
        return self.reported(tasks)

    def not_under_way(self, tasks: Sequence[Task], there: Mapping[str, Scheduled]) -> list[Task]:
        """The tasks that the scheduler does not have, or whose job ended without a verdict.

        The number of those under way is said. Raises RegistryError.
        """
        fresh = [task for task in tasks if task.key not in there or there[task.key].ended]
        if len(fresh) < len(tasks):
            self.say(f"{len(tasks) - len(fresh)} are under way already")
        # another dispatcher may have submitted a task, and it may have ended, since this one looked
        found = self.known([task for task in fresh if task.key in there])
        return [task for task in fresh if task.key not in found]

    @contextlib.contextmanager
    def lease(self, tasks: Sequence[Task]) -> Iterator[None]:
        """Be the only one of this user who submits for the tasks' repositories, where the cache is shared.

        Between a look at the queue and a submission another dispatcher would find the tasks missing, too.
        Raises MissingToolError.
        """
        folder = cache() / "dispatch"
        with disk_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
        with contextlib.ExitStack() as held:
            for repository in sorted({task.repository for task in tasks}):
                path = folder / hashlib.sha256(repository.encode()).hexdigest()[:20]
                if not try_lock(path):
                    self.say(f"{repository}: another dispatcher submits tasks; it is waited for")
                held.enter_context(locked(path))
            yield


@dataclass(kw_only=True)
class OnSlurm(_Dispatched):
    """In arrays; nodes push what comes of them."""

    script: Callable[[Sequence[Task]], str]
    """The batch script of an array."""
    queue: slurm.Queue = field(default_factory=slurm.Queue)

    def scheduled(self) -> Mapping[str, Scheduled]:
        return self.queue.tasks()

    def rendered(self, tasks: Sequence[Task], /) -> Mapping[str, str]:
        return {name: self.script(part) for name, part in slurm.arrays(tasks).items()}

    def submit(self, tasks: Sequence[Task], attempt: int, /) -> Mapping[str, str]:
        """Submit tasks that are not under way already.

        Why the scheduler took some not, by key. Raises MissingToolError; what was submitted before stays.
        """
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


@dataclass(kw_only=True)
class _ByLogs(_Dispatched):
    """Verifications whose reports are read from logs, and attached here."""

    images: Mapping[str, Staged]
    """By :attr:`Task.image`."""

    def collect(self, task: Task, report: bytes, *, exit_code: int | None = None) -> bool:
        """Put a report out of a log beside its image; whether it is new there.

        Raises CellError if it is no verdict on the task, and CommandError if the fleet's key does not sign.
        """
        image, key = self.images[task.image], self.fleet.key
        signer = None if key is None else Signer(key=key)
        found = report_on(image, report, signer, exit_code=exit_code)
        new = bool(share(self.registry, image, found.reports))
        if wrong := other_card(task.column, found.seen):
            raise CellError(wrong)
        if found.verdict not in CONCLUSIVE:
            raise CellError(f"the report says {found.verdict}, which is no verdict on the image")
        return new


@dataclass(kw_only=True)
class _OnDstack(_ByLogs):
    """On rented cards: somebody applies what is rendered."""

    def scheduled(self) -> Mapping[str, Scheduled]:
        return {}

    def rendered(self, tasks: Sequence[Task], /) -> Mapping[str, str]:
        return dstack.render(tasks, self.fleet)

    def known(self, tasks: Sequence[Task], /) -> Mapping[str, TaskVerdict]:
        """As in the registry, after the reports in logs were put beside their images.

        Raises RegistryError, SchedulerError, MissingToolError, CommandError.
        """
        found = self.reported(tasks)
        new = False
        for task in tasks:
            if task.key in found:
                continue
            log = dstack.log_of(task)
            try:
                with item(task.cell):
                    new |= self.collect(task, _json_in(log))
            except CellError as error:
                self.warn(f"{task.cell} on {task.column}: {error.message}")
        return self.reported(tasks) if new else found

    def submit(self, tasks: Sequence[Task], _attempt: int, /) -> Mapping[str, str]:
        """Raises UsageError: a card costs money."""
        hint = "--dry-run prints scripts that do, and --collect reads what came of it"
        raise UsageError(f"dispatch rents no cards for {len(tasks)} tasks", hint=hint)


@dataclass(kw_only=True)
class _OnKubernetes(_ByLogs):
    """As Jobs."""

    jobs: Mapping[str, kubernetes.JobState] | None = None
    """Of the last look."""

    def scheduled(self) -> Mapping[str, Scheduled]:
        """The Jobs; one whose image cannot be pulled is deleted, since it would hold its GPU."""
        self.jobs = kubernetes.jobs(self.fleet)
        mine = {task.key for task in self.tasks}
        kubernetes.remove(
            {key: job for key, job in self.jobs.items() if job.stuck and key in mine}, self.fleet
        )
        return self.jobs

    def rendered(self, tasks: Sequence[Task], /) -> Mapping[str, str]:
        return kubernetes.render(tasks, self.fleet) if tasks else {}

    def known(self, tasks: Sequence[Task], /) -> Mapping[str, TaskVerdict]:
        """As in the registry, after the reports in logs were put beside their images.

        Raises RegistryError, SchedulerError, and CommandError if the fleet's key does not sign here.
        """
        found = self.reported(tasks)
        left = [task for task in tasks if task.key not in found]
        if left and self.jobs is None:
            self.jobs = kubernetes.jobs(self.fleet)
        jobs = self.jobs or {}
        ended = [task for task in left if task.key in jobs and jobs[task.key].ended]
        ended = [task for task in ended if not jobs[task.key].stuck]
        new = False
        for first in range(0, len(ended), _LOGS):
            part = ended[first : first + _LOGS]
            keys = [task.key for task in part if jobs[task.key].pod]
            logs = kubernetes.logs_of(keys, self.fleet) if len(keys) > 1 else {}
            for task in part:
                job = jobs[task.key]
                try:
                    with item(task.cell):
                        new |= self.collect(task, self._printed(job, logs), exit_code=job.exit_code)
                except CellError as error:
                    self.warn(f"{task.cell} on {task.column}: {job.word}: {error.message}")
        return self.reported(tasks) if new else found

    def _printed(self, job: kubernetes.JobState, logs: Mapping[str, str]) -> bytes:
        """The report in a pod's log; that is read alone if none is in it as it came with others.

        A log that ends without a new line takes in the first line of the next one.
        """
        with contextlib.suppress(CellError):
            return _json_in(logs.get(job.pod or "", ""))
        return _json_in(kubernetes.log_of(job, self.fleet))

    def submit(self, tasks: Sequence[Task], _attempt: int, /) -> Mapping[str, str]:
        """As on Slurm. A task that failed somewhere goes elsewhere, if there is an elsewhere."""
        with self.lease(tasks):
            return self._submit(tasks)

    def _submit(self, tasks: Sequence[Task]) -> Mapping[str, str]:
        if not tasks:
            return {}
        self.scheduled()
        there = self.jobs or {}
        fresh = self.not_under_way(tasks, there)
        refused = try_fleet(self.fleet, sorted({task.column for task in fresh})) if fresh else {}
        # whether a quota has room shows when ended Jobs have made it
        closed = {name: words for name, words in refused.items() if words is not None and not full(words)}
        taken = [task for task in fresh if task.column not in closed]
        lost = {task.key: closed[task.column] for task in fresh if task.column in closed}
        if taken:
            try_push(self.registry, taken)
            self._create(taken, there, lost)
        return lost

    def _create(
        self, tasks: Sequence[Task], there: Mapping[str, kubernetes.JobState], refused: dict[str, str]
    ) -> None:
        """Make Jobs of tasks, in the place of those that ended; ``refused`` takes why some were not made.

        A namespace may have no room for more Jobs, of which ended ones stay a day for the sake of their logs:
        those whose reports are in the registry make room.
        """
        old = {task.key: there[task.key] for task in tasks if task.key in there}
        kubernetes.remove(old, self.fleet)
        without_room = self._created(tasks, old, refused)
        ended = {key: job for key, job in there.items() if job.ended and key not in old}
        mine = [task for task in self.tasks if task.key in ended]
        if without_room and mine and (spent := self.reported(mine)):
            kubernetes.remove({key: ended[key] for key in spent}, self.fleet)
            left = [task for task in tasks if task.key in without_room]
            without_room = self._created(left, old, refused)
        refused |= without_room

    def _created(
        self, tasks: Sequence[Task], old: Mapping[str, kubernetes.JobState], refused: dict[str, str]
    ) -> dict[str, str]:
        """The tasks for which a quota has no room, with its words."""
        avoided = {key: job.failed_on for key, job in old.items()}
        taken: list[str] = []
        without_room: dict[str, str] = {}
        for name, text in kubernetes.render(tasks, self.fleet, avoided).items():
            try:
                made = kubernetes.submit(text)
            except SchedulerError as error:
                if name != kubernetes.NETWORK or kubernetes.FORBIDDEN not in why(error):
                    raise
                said = "this login may not make network policies, so the pods can reach the network"
                self.warn(f"{said}: an administrator applies the first manifest of --dry-run")
                continue
            self.say(f"{name}: {made.new} of {made.count} are new")
            if name != kubernetes.NETWORK:
                taken += made.there
                cut = len(kubernetes.PREFIX)
                without_room |= {job[cut:]: words for job, words in made.full.items()}
        for job in kubernetes.strangers(taken, self.fleet):
            said = f"{job} is a Job that rtbuild did not make: kubectl describe job {job}"
            refused[job.removeprefix(kubernetes.PREFIX)] = said
        return without_room


def try_push(registry: Registry, tasks: Sequence[Task], warn: Say | None = None) -> None:
    """Begin an upload in each repository of the tasks, and cancel it.

    ``warn`` if the tasks' nodes push: they may have another login. Raises RegistryError if a registry can
    neither begin one nor refuse it now, and without ``warn`` MissingToolError if it refuses.
    https://github.com/opencontainers/distribution-spec/blob/main/spec.md#post-then-put
    """
    for repository in sorted({task.repository for task in tasks}):
        host = repository.partition("/")[0]
        options: dict[str, Any] = {"good": range(1000), "actions": "pull,push"}
        with registry.request("POST", repository, "blobs/uploads/", **options) as answer:
            place = urljoin(answer.url, answer.headers.get("Location", ""))
        if answer.status_code == 202:
            registry.request("DELETE", repository, place, **options).close()
            continue
        if answer.status_code >= 500 or answer.status_code == 429:
            said = f"{repository} begins no upload (HTTP {answer.status_code})"
            raise RegistryError(said, hint="try again later")
        said = f"this machine's login may not push to {repository} (HTTP {answer.status_code})"
        if warn is None:
            hint = f"reports go there: docker login {host}, as somebody who may push"
            raise MissingToolError(said, hint=hint)
        warn(f"{said}: the nodes need one that may")


def _json_in(log: str) -> bytes:
    """The probe's document in a container's log, in which stderr's lines stand, too. Raises CellError."""
    found, read = [], 0
    for number, start in enumerate(re.finditer(r"^\{", log, re.MULTILINE)):
        if number == 1000:  # or decoding takes minutes
            raise CellError("the log begins too many documents to be read")
        if start.start() < read:
            continue  # within the last one
        try:
            document, read = json.JSONDecoder().raw_decode(log, start.start())
        except (ValueError, RecursionError):
            continue
        found += [document] if "verdict" in document else []
    if len(found) != 1:
        raise CellError(f"the log holds {'several reports' if found else 'no report'}")
    return json.dumps(found[0]).encode()


def try_fleet(fleet: Fleet, classes: Sequence[str] | None = None) -> dict[str, str | None]:
    """For each class why the scheduler would not take a job of it; None if it would. Nothing is submitted.

    Raises UsageError for dstack, and MissingToolError.
    """
    if fleet.scheduler == "dstack":
        raise UsageError("dstack tries no tasks", hint=f"dstack offer --gpu {next(iter(fleet.classes))}")
    trial = slurm.try_lane if fleet.scheduler == "slurm" else kubernetes.try_lane
    return {name: trial(name, fleet) for name in classes or fleet.classes}
