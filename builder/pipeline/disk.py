"""Checks the room on the disk for images to be built, by their lock, before the first byte is fetched."""

import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from builder.core.errors import MissingToolError
from builder.core.model import Pinned, RegistryBase
from builder.image.compose import BASE_UNPACKED, DEB_UNPACKED, UNPACKED, ready_wheels
from builder.pipeline.run_context import RunContext
from builder.sources.index import cache_path

RECOMPRESSED = 1.1
"""Bytes of a zstd layer for each byte of its wheel, measured on the same."""
MARGIN = 500_000_000
"""Bytes left free for logs, the build's own files and whatever else uses the disk."""


@dataclass(frozen=True, kw_only=True)
class Need:
    """Bytes that a run will add, at most: in the engine's store, and in rtbuild's cache."""

    engine: int
    cache: int


def estimate(
    cells: Iterable[Pinned], *, cached: frozenset[str] = frozenset(), ready: frozenset[str] = frozenset()
) -> Need:
    """The bytes that building these cells takes. Wheels and bases that cells share count once.

    By their sha256, ``cached`` are wheels that were fetched before, and ``ready`` those whose layers are
    made: of these the cache needs nothing more.
    """
    wheels = {wheel.sha256: wheel.size for cell in cells for wheel in cell.wheels}
    blobs = sum(wheels.values())
    bases: dict[str, tuple[float, int]] = {}
    for cell in cells:
        if isinstance(cell.base, RegistryBase):
            bases[cell.base.digest] = (cell.base.size * (1 + BASE_UNPACKED), cell.base.size)
        else:
            size = sum(deb.size for deb in cell.base.debs)
            bases[cell.base.suite] = (size * (1 + DEB_UNPACKED), round(size * (1 + DEB_UNPACKED)))
    engine = blobs * (UNPACKED + RECOMPRESSED) + sum(in_engine for in_engine, _ in bases.values())
    new = {sha256: size for sha256, size in wheels.items() if sha256 not in ready}
    fetch = sum(size for sha256, size in new.items() if sha256 not in cached)
    cache = sum(in_cache for _, in_cache in bases.values()) + fetch + sum(new.values()) * RECOMPRESSED
    return Need(engine=round(engine), cache=round(cache))


def check_room(context: RunContext, missing: Sequence[Pinned]) -> None:
    """Raise MissingToolError if the disk has no room for the images of these cells."""
    if not missing:
        return
    cache, engine = context.stores.cache, context.engine
    wheels = {wheel for cell in missing for wheel in cell.wheels}
    need = estimate(
        missing,
        cached=frozenset(wheel.sha256 for wheel in wheels if cache_path(wheel, cache).is_file()),
        ready=frozenset(sha256 for cell in missing for sha256 in ready_wheels(cell, context.stores.layers)),
    )
    free, root = (None, "") if engine is None else (engine.disk_free(), engine.facts().root)
    refuse_full(need, engine_free=free, engine_root=root, cache=cache)


def refuse_full(need: Need, *, engine_free: int | None, engine_root: str, cache: Path) -> None:
    """Raise MissingToolError if the estimate does not fit; unknown free space (a remote engine) passes."""
    cache.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(cache).free
    disks = [(str(cache), need.cache, free)]
    if engine_free is not None and abs(engine_free - free) < MARGIN:
        disks = [(f"{cache} and {engine_root}", need.cache + need.engine, free)]
    elif engine_free is not None:
        disks.append((engine_root, need.engine, engine_free))
    for where, bytes_, there in disks:
        wanted = bytes_ + MARGIN
        if wanted > there:
            raise MissingToolError(
                f"this takes about {wanted / 1e9:.1f} GB on the disk of {where}, "
                f"and {there / 1e9:.1f} GB are free",
                hint="free some (`docker system prune`, `rtbuild cache --prune 20GB`), select fewer cells, "
                "or set RTBUILD_CACHE to a larger disk",
            )
