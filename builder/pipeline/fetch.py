"""Fetches the files of a build: wheels, the base, a standalone Python."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from builder.core.model import RegistryBase, RootfsBase, StandalonePython, Wheel
from builder.image.compose import cached_rootfs
from builder.image.recipe import Recipe
from builder.pipeline.events import Stage
from builder.pipeline.run_context import RunContext
from builder.pipeline.schedule import CellRun
from builder.plan.facts.reading import system_of


def fetch_blobs(cell_run: CellRun, context: RunContext, recipe: Recipe) -> dict[str, Path]:
    """Bring the recipe's large files into the cache; their paths by their names in it."""
    found = {}
    with cell_run.stage(Stage.FETCH):
        for name, blob in recipe.blobs.items():
            if isinstance(blob, RootfsBase):
                found[name] = rootfs_tar(cell_run, context, blob)
            elif isinstance(blob, StandalonePython):
                found[name] = python_tar(cell_run, context, blob, recipe.pinned.base)
            else:
                found[name] = fetch_wheels(cell_run, context, (blob,))[blob.sha256]
    return found


def fetch_wheels(
    cell_run: CellRun,
    context: RunContext,
    wheels: tuple[Wheel, ...],
    arrived: Callable[[Wheel, Path], None] = lambda _wheel, _path: None,
) -> dict[str, Path]:
    """Bring wheels into the cache; paths by sha256. ``arrived`` is told of each, from several threads."""
    total, cache = sum(wheel.size for wheel in wheels), context.sources.cache
    advance = cell_run.counter("of wheels", total)
    index = context.sources.index.with_extra(cell_run.cell.index)
    offered = [wheel for wheel in wheels if wheel.source is None]
    found = index.fetch_all(
        offered, cache=cache, progress=advance, stop=cell_run.cancel, arrived=arrived, span=cell_run.span
    )
    for wheel in wheels:
        if wheel.source is not None:
            with cell_run.span(f"build {wheel.name} {wheel.version} from source"):
                found[wheel.sha256] = context.sources.workshop(cell_run).make(wheel, index)
            arrived(wheel, found[wheel.sha256])
            advance(wheel.size)
    cell_run.done(f"{len(wheels)} wheels, {total / 1e9:.2f} GB")
    return found


def python_tar(
    cell_run: CellRun, context: RunContext, python: StandalonePython, base: RegistryBase | RootfsBase
) -> Path:
    """The tar of a standalone Python, held against the base's glibc."""
    cell_run.progress(f"CPython {python.version}", quiet=False)
    system = system_of(base)
    return context.sources.pythons.tar(
        python,
        glibc=system.glibc if system is not None else None,
        progress=cell_run.counter("of Python", python.size),
        stop=cell_run.cancel.is_set,
    )


def rootfs_tar(cell_run: CellRun, context: RunContext, base: RootfsBase) -> Path:
    """The tar of a rootfs, made at the first call."""
    cell_run.progress(f"Debian {base.suite} out of {len(base.debs)} packages", quiet=False)
    fetch = partial(context.sources.debian.fetch, stop=cell_run.cancel)
    return cached_rootfs(base, cache=context.sources.cache, fetch=fetch)
