"""Builds as CPU tasks of Slurm: waves of cells, so that one node makes each layer, and the others find it.

A node gets matrix and lock in its batch script; ``rtbuild build --engine none --push`` builds one cell there.
"""

from __future__ import annotations

import hashlib
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

from builder.dispatch import slurm
from builder.dispatch.plan import TaskVerdict, key_of_task
from builder.dispatch.run import Work, not_under_way, rendered_cells, staged_images
from builder.errors import UsageError
from builder.image.base import rootfs_key
from builder.image.stack import groups_of, layer_keys_of, python_key
from builder.lock import lock_path
from builder.model import RootfsBase
from builder.oci.staging import staged_reference

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from builder.dispatch.fleet import BuildLane, Fleet
    from builder.dispatch.run import RenderedCell
    from builder.model import Cell, Matrix, Pinned
    from builder.oci.registry import Registry

NAME = "build"
_LARGEST = 4_000_000
"""Bytes of a batch script: Slurm's ``max_script_size`` is 4 MiB by default."""


@dataclass(frozen=True, kw_only=True)
class BuildCell:
    """A cell whose image is not there yet."""

    matrix: str
    cell: str
    repository: str
    inputs: str
    layers: frozenset[str]
    """What its layers of wheels and its rootfs are made of."""


@dataclass(frozen=True, kw_only=True, order=True)
class BuildTask:
    """One cell to be built, when the waves before have ended."""

    wave: int
    matrix: str
    cell: str
    repository: str
    inputs: str

    @property
    def image(self) -> str:
        return staged_reference(self.repository, self.inputs)

    @property
    def column(self) -> str:
        return NAME

    @property
    def key(self) -> str:
        """Over repository and inputs."""
        return key_of_task(NAME, self.repository, self.inputs)


def build_tasks(cells: Iterable[BuildCell]) -> tuple[BuildTask, ...]:
    """In which wave each cell is built. Of two cells of one wave none needs a layer that the other makes.

    The first cell with a layer makes it, and others that have the layer come in a later wave. Cells with the
    most layers come first, since they make most for the others.
    """
    maker: dict[str, int] = {}
    found = []
    for cell in sorted(cells, key=lambda one: (-len(one.layers), one.matrix, one.cell)):
        wave = 1 + max((maker[layer] for layer in cell.layers if layer in maker), default=-1)
        maker |= {layer: wave for layer in cell.layers if layer not in maker}
        found.append(
            BuildTask(
                wave=wave,
                matrix=cell.matrix,
                cell=cell.cell,
                repository=cell.repository,
                inputs=cell.inputs,
            )
        )
    return tuple(sorted(found))


def render(
    tasks: Sequence[BuildTask], fleet: Fleet, files: Mapping[str, tuple[str, str]], array: int = 1000
) -> dict[str, str]:
    """The batch scripts, ``wave.part``: each wave is to wait for the one before.

    ``files``: the texts of matrix and lock by the matrix's name. Raises UsageError.
    """
    lane = _lane(fleet)
    found = {}
    for wave in sorted({task.wave for task in tasks}):
        mine = [task for task in tasks if task.wave == wave]
        for first in range(0, len(mine), array):
            name = f"{wave}.{first // array}"
            found[name] = _script(mine[first : first + array], fleet, lane, files)
            if len(found[name]) > _LARGEST:
                raise UsageError(
                    f"matrices and locks of {len(found[name]):,} bytes do not fit into a batch script",
                    hint="dispatch the matrices one after the other, or fewer cells by --select",
                )
    return found


def _lane(fleet: Fleet) -> BuildLane:
    if fleet.scheduler != "slurm":
        raise UsageError("builds are dispatched by Slurm alone", hint="rtbuild build --engine none, anywhere")
    if fleet.build is None:
        raise UsageError(
            "the fleet file does not say how to build",
            hint="build: {partition: …, layers_key: cosign.pub, key: cosign.key}",
        )
    return fleet.build


def _script(
    tasks: Sequence[BuildTask], fleet: Fleet, lane: BuildLane, files: Mapping[str, tuple[str, str]]
) -> str:
    run = ["folder=$(mktemp -d) || exit 5", "trap 'rm -rf \"$folder\"' EXIT"]
    for matrix in sorted({task.matrix for task in tasks}):
        for name, text in zip((f"{matrix}.yaml", f"{matrix}.lock.json"), files[matrix], strict=True):
            end = f"END-{hashlib.sha256(text.encode()).hexdigest()[:16]}"
            whole = text if text.endswith("\n") else text + "\n"
            run.append(f"cat >\"$folder\"/{shlex.quote(name)} <<'{end}'\n{whole}{end}")
    command = [fleet.command, "build", "--locked", "--engine", "none", "--progress", "plain"]
    keys = ["--layers-key", lane.layers_key, "--key", lane.key]
    run.append("repository=${subject#*=} matrix=${subject%%=*}")
    run.append(
        f'cd "$folder" && {shlex.join(command)} "$matrix.yaml" --select "$cell" --push "$repository"'
        f' --layers-from "$repository" {shlex.join(keys)} || code=$?'
    )
    return slurm.batch_script(
        NAME,
        [f"{task.key} {task.matrix}={task.repository} {task.cell}" for task in tasks],
        fleet,
        lane,
        extra={"cpus-per-task": str(lane.cpus), "mem": lane.memory},
        run="\n".join(run),
        # it is there, or this cell cannot be built anywhere; a code of its own would tell a network's fault
        final="0 | 2 | 4",
    )


def building(
    registry: Registry,
    matrices: Sequence[Matrix],
    cells: Sequence[Cell],
    *,
    fleet: Fleet,
    staging: str | None,
    probe: bytes,
) -> Work[BuildTask]:
    """The builds of all cells. Raises UsageError, StaleLockError, RegistryError."""
    _lane(fleet)
    rendered = list(rendered_cells(matrices, cells, fleet=fleet, staging=staging, probe=probe))
    engine = [one.cell.id for one in rendered if not isinstance(one.pinned.base, RootfsBase)]
    if engine:
        raise UsageError(
            "these cells stand on a registry's base, for which a build needs an engine:\n  "
            + "\n  ".join(engine[:20]),
            hint="leave them out by --skip, and build them by rtbuild build",
        )
    there = staged_images(registry, rendered)
    absent = [_build_cell(one) for one, image in zip(rendered, there, strict=True) if image is None]
    staged = [
        BuildTask(
            wave=-1,
            matrix=one.cell.matrix,
            cell=one.cell.id,
            repository=one.repository,
            inputs=one.recipe.inputs,
        )
        for one, image in zip(rendered, there, strict=True)
        if image is not None
    ]
    tasks = (*staged, *build_tasks(absent))
    of = {(one.repository, one.recipe.inputs): one for one in rendered}
    used = {one.cell.matrix for one in rendered}
    files = {
        matrix.name: (matrix.path.read_text(), lock_path(matrix.path).read_text())
        for matrix in matrices
        if matrix.name in used
    }

    def known(asked: Sequence[BuildTask]) -> dict[str, TaskVerdict]:
        found = staged_images(registry, [of[task.repository, task.inputs] for task in asked])
        pairs = zip(asked, found, strict=True)
        return {task.key: TaskVerdict(verdict="built") for task, image in pairs if image is not None}

    return Work(
        tasks=tasks,
        known=known,
        submit=lambda left, say: _submit(left, fleet, files, say),
        rendered=lambda left: render(left, fleet, files),
        under_way=slurm.under_way,
    )


def _build_cell(one: RenderedCell) -> BuildCell:
    return BuildCell(
        matrix=one.cell.matrix,
        cell=one.cell.id,
        repository=one.repository,
        inputs=one.recipe.inputs,
        layers=frozenset(_layers(one.pinned)),
    )


def _layers(pinned: Pinned) -> Iterable[str]:
    if isinstance(pinned.base, RootfsBase):
        yield rootfs_key(pinned.base, pinned.cell)
    if pinned.python is not None:
        yield python_key(pinned)
    for group in groups_of(pinned):
        yield layer_keys_of(group, pinned)[0]


def _submit(
    tasks: Sequence[BuildTask],
    fleet: Fleet,
    files: Mapping[str, tuple[str, str]],
    say: Callable[[str], None],
) -> dict[str, str]:
    there = slurm.under_way() if tasks else {}
    fresh = not_under_way(tasks, there, say)
    if not fresh:
        return {}
    scripts = render(fresh, fleet, files, slurm.array_limit())
    before = list(slurm.jobs_named(NAME))
    refused: dict[str, str] = {}
    for wave in sorted({task.wave for task in fresh}):
        made = []
        for name, text in scripts.items():
            if name.partition(".")[0] != str(wave):
                continue
            job = slurm.submit_or_note(text, before, refused)
            if job is not None:
                made.append(job)
                say(f"wave {wave + 1}: {len(slurm.keys_in(text))} builds submitted as job {job}")
        before += made
    return refused
