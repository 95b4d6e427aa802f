"""Builds as CPU tasks of Slurm: waves of cells, so that one node makes each layer, and the others find it.

A node gets matrix and lock in its batch script; ``rtbuild build --engine none --push`` builds one cell there.
"""

import hashlib
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from builder.core.errors import UsageError
from builder.core.model import Pinned, RootfsBase
from builder.image.compose import layer_keys_of, python_key, rootfs_key
from builder.plan.lock import groups_of, lock_path
from builder.release.dispatch import slurm
from builder.release.dispatch.fleet import BUILD, BuildLane, Fleet
from builder.release.dispatch.run import Lost, OnSlurm, RenderedCell, with_images
from builder.release.dispatch.tasks import Say, Task, TaskVerdict, Work
from builder.sources.oci import Registry

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


def script(tasks: Sequence[Task], fleet: Fleet, lane: BuildLane, files: Files) -> str:
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
        one.matrix.name: (one.matrix.path.read_text(), lock_path(one.matrix.path).read_text())
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
        script=partial(script, fleet=fleet, lane=fleet.build, files=files),
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
