"""From matrices to tasks that a scheduler has, verifications and builds, and what nodes said of them.

Builds are CPU tasks of Slurm in waves of cells, so that one node makes each layer, and the others find it. A
node gets matrix and lock in its batch script; ``rtbuild build --engine none --push`` builds one cell there.
"""

import hashlib
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

from builder import __version__
from builder.core.errors import CellError, ImageMissingError, UsageError
from builder.core.items import item
from builder.core.model import Cell, Matrix, Pinned, RootfsBase
from builder.image.compose import layer_keys_of, python_key, rootfs_key
from builder.image.recipe import Recipe, render
from builder.pipeline import Locks
from builder.plan.facts.tables import load
from builder.plan.lock import groups_of, lock_path
from builder.plan.matrix import matches
from builder.release.dispatch import kubernetes, slurm
from builder.release.dispatch.by_logs import OnDstack, OnKubernetes
from builder.release.dispatch.fleet import BUILD, BuildLane, Fleet
from builder.release.dispatch.node import notes_beside, reports_beside
from builder.release.dispatch.tasks import Say, Scheduled, Task, TaskVerdict, Work, try_push, verdicts
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
    """The result of the work on an item, or its failure."""
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


Files = Mapping[str, tuple[str, str]]
"""The texts of matrix and lock by the matrix's name."""


def in_waves(layers: Mapping[Task, frozenset[str]]) -> tuple[Task, ...]:
    """The tasks in waves: of two cells of one wave none needs a layer that the other makes.

    The first cell with a layer makes it, and others that have the layer come in a later wave. Cells with the
    most layers come first, since they make most for the others.
    """
    maker: dict[str, int] = {}
    found = []
    for task in sorted(layers, key=lambda task: (-len(layers[task]), task)):
        wave = 1 + max((maker[layer] for layer in layers[task] if layer in maker), default=-1)
        maker |= {layer: wave for layer in layers[task] if layer not in maker}
        found.append(replace(task, wave=wave))
    return tuple(sorted(found))


def build_script(tasks: Sequence[Task], fleet: Fleet, lane: BuildLane, files: Files) -> str:
    """The batch script of some builds. Raises UsageError if matrices and locks are too large for one."""
    run = ["folder=$(mktemp -d) || exit 5", "trap 'rm -rf \"$folder\"' EXIT"]
    for matrix in sorted({task.matrix for task in tasks}):
        for name, text in zip((f"{matrix}.yaml", f"{matrix}.lock.json"), files[matrix], strict=True):
            end = f"END-{hashlib.sha256(text.encode()).hexdigest()[:16]}"
            whole = text if text.endswith("\n") else text + "\n"
            run.append(f"cat >\"$folder\"/{shlex.quote(name)} <<'{end}' || exit 5\n{whole}{end}")
    command = [fleet.command, "build", "--locked", "--engine", "none", "--progress", "plain"]
    keys = ["--layers-key", lane.layers_key, "--key", lane.key]
    run.append("repository=${subject#*=} matrix=${subject%%=*}")
    run.append(
        f'cd "$folder" && {shlex.join(command)} "$matrix.yaml" --select "$cell" --push "$repository"'
        f' --layers-from "$repository" {shlex.join(keys)} || code=$?'
    )
    text = slurm.batch_script(
        BUILD,
        [f"{task.key} {task.matrix}={task.repository} {task.cell}" for task in tasks],
        fleet,
        lane,
        setup=fleet.setup,
        run="\n".join(run),
        # it is there, or this cell cannot be built anywhere; a code of its own would tell a network's fault
        final="2 | 4",
    )
    if len(text) > 4_000_000:  # Slurm's ``max_script_size`` is 4 MiB by default
        said = f"matrices and locks of {len(text):,} bytes do not fit into a batch script"
        raise UsageError(said, hint="dispatch the matrices one after the other, or fewer cells by --select")
    return text


def building(
    registry: Registry, rendered: Sequence[RenderedCell], fleet: Fleet, *, say: Say, warn: Say, lost: Lost
) -> Work:
    """The builds of all cells. Raises UsageError, RegistryError."""
    if fleet.scheduler != "slurm":
        raise UsageError("builds are dispatched by Slurm alone", hint="rtbuild build --engine none, anywhere")
    if fleet.build is None:
        hint = "build: {partition: …, layers_key: cosign.pub, key: cosign.key}"
        raise UsageError("the fleet file does not say how to build", hint=hint)
    engine = [o.recipe.cell.id for o in rendered if not isinstance(o.recipe.pinned.base, RootfsBase)]
    if engine:
        said = "these cells stand on a registry's base, for which a build needs an engine:"
        hint = "leave them out by --skip, and build them by rtbuild build"
        raise UsageError("\n  ".join([said, *engine[:20]]), hint=hint)
    there = with_images(registry, rendered, lost)
    absent = {one.task(BUILD): frozenset(_layers(one.recipe.pinned)) for one, image in there if image is None}
    staged = [one.task(BUILD, wave=-1) for one, image in there if image is not None]
    of = {one.task(BUILD).key: one for one in rendered}
    files = {
        one.matrix.name: (one.matrix.path.read_text("utf-8"), lock_path(one.matrix.path).read_text("utf-8"))
        for one in {one.matrix.name: one for one in rendered}.values()
    }

    def reported(tasks: Sequence[Task]) -> dict[str, TaskVerdict]:
        found = with_images(registry, [of[task.key] for task in tasks], lost)
        return {one.task(BUILD).key: TaskVerdict(verdict="built") for one, image in found if image}

    return OnSlurm(
        registry=registry,
        fleet=fleet,
        tasks=(*staged, *in_waves(absent)),
        reported=reported,
        script=partial(build_script, fleet=fleet, lane=fleet.build, files=files),
        say=say,
        warn=warn,
    )


def _layers(pinned: Pinned) -> Iterable[str]:
    """The keys of a cell's rootfs and of its layers of wheels."""
    if isinstance(pinned.base, RootfsBase):
        yield rootfs_key(pinned.base, pinned.cell)
    if pinned.python is not None:
        yield python_key(pinned.python, pinned.cell)
    for group in groups_of(pinned):
        yield layer_keys_of(group, pinned)[0]
