"""Fetches the files of a build: wheels, the base, a standalone Python."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from builder.core.model import RegistryBase, RootfsBase, StandalonePython, Wheel
from builder.image.compose import cached_rootfs
from builder.image.recipe import Recipe
from builder.pipeline.events import Stage
from builder.pipeline.schedule import Walk
from builder.pipeline.site import Site
from builder.plan.facts.reading.base import pinned_system


def fetch_blobs(walk: Walk, site: Site, recipe: Recipe) -> dict[str, Path]:
    """Bring the recipe's large files into the cache; their paths by their names in it."""
    found = {}
    with walk.stage(Stage.FETCH):
        for name, blob in recipe.blobs.items():
            if isinstance(blob, RootfsBase):
                found[name] = rootfs_tar(walk, site, blob)
            elif isinstance(blob, StandalonePython):
                found[name] = python_tar(walk, site, blob, recipe.pinned.base)
            else:
                found[name] = fetch_wheels(walk, site, (blob,))[blob.sha256]
    return found


def fetch_wheels(
    walk: Walk,
    site: Site,
    wheels: tuple[Wheel, ...],
    arrived: Callable[[Wheel, Path], None] = lambda _wheel, _path: None,
) -> dict[str, Path]:
    """Bring wheels into the cache; paths by sha256. ``arrived`` is told of each, from several threads."""
    total, cache = sum(wheel.size for wheel in wheels), site.sources.cache
    advance = walk.counter("of wheels", total)
    index = site.sources.index.with_extra(walk.cell.index)
    offered = [wheel for wheel in wheels if wheel.source is None]
    found = index.fetch_all(offered, cache=cache, progress=advance, stop=walk.cancel, arrived=arrived)
    for wheel in wheels:
        if wheel.source is not None:
            found[wheel.sha256] = site.sources.workshop(walk).make(wheel, index)
            arrived(wheel, found[wheel.sha256])
            advance(wheel.size)
    walk.done(f"{len(wheels)} wheels, {total / 1e9:.2f} GB")
    return found


def python_tar(walk: Walk, site: Site, python: StandalonePython, base: RegistryBase | RootfsBase) -> Path:
    """The tar of a standalone Python, held against the base's glibc."""
    walk.progress(f"CPython {python.version}", quiet=False)
    system = pinned_system(base)
    return site.sources.pythons.tar(
        python,
        glibc=system.glibc if system is not None else None,
        progress=walk.counter("of Python", python.size),
        stop=walk.cancel.is_set,
    )


def rootfs_tar(walk: Walk, site: Site, base: RootfsBase) -> Path:
    """The tar of a rootfs, made at the first call."""
    walk.progress(f"Debian {base.suite} out of {len(base.debs)} packages", quiet=False)
    fetch = partial(site.sources.debian.fetch, stop=walk.cancel)
    return cached_rootfs(base, cache=site.sources.cache, fetch=fetch)
