"""Where and with what sessions measure: each starts from nothing, leaves figures behind and nothing else."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.rig import BenchError, Engine, Registry
from benchmarks.slow_index import download
from builder.core import resources
from builder.core.model import RootfsBase
from builder.image.compose.systems import cached_rootfs
from builder.pipeline import Locks
from builder.plan.matrix import load

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from benchmarks.rig import Store
    from builder.core.model import Pinned, Wheel

HERE = Path(__file__).resolve().parent
REPOSITORY = f"{Registry.host}/bench"
CHANGED = "RTBUILD_BENCH_CHANGED"
"""An environment variable that a cell gets to be changed; no image reads it."""
_MARGIN = 3_000_000_000
LINE = 36.0
"""Megabytes a second in the row of empty caches: 2.24 GB of wheels in 62 s, as on a new machine."""


MODULES = {"tf": "tensorflow", "sklearn": "sklearn", "small": "numpy"}
"""The module whose first import counts, by family."""


@dataclass(frozen=True, kw_only=True)
class Pulls:
    """Images that are pulled: a family's first cell, its next release and the first on another base."""

    family: str
    title: str
    """What the rows of these images begin with."""
    disk: int
    """Bytes that they take: eight images in a registry, and two in an engine, packed and unpacked."""
    limits: tuple[float, float, float]
    """Of a first pull by the plain one and by that of uv; of each later one by the plain one."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What the sessions measure with: real families, or small wheels to try the benchmark itself."""

    family: str
    """A matrix of a cell, the next release of its framework, and the first cell on another base."""
    matrix: str
    """A matrix of four cells."""
    matrix_stores: tuple[Store, ...]
    disk: int
    """Bytes that the hungriest session takes, but for the pulls."""
    pulls: Mapping[str, Pulls]
    """By their sessions."""
    describe: str


FULL = Plan(
    family="tf",
    matrix="cupy4",
    matrix_stores=("overlay2",),
    disk=20_000_000_000,
    pulls={
        "pulls": Pulls(family="tf", title="pull", disk=28_000_000_000, limits=(0.35, 0.8, 0.08)),
        "pulls-small": Pulls(
            family="sklearn", title="pull of a small image", disk=4_000_000_000, limits=(0.55, 0.8, 0.55)
        ),
    },
    describe="TensorFlow 2.8.4, and 2.11.1 after it, on Debian 11 with NVIDIA's wheels for CUDA 11.8 and "
    "cuDNN 8.6 (4.5 GB unpacked); four releases of CuPy on the same CUDA wheels, baked on overlay2 alone: "
    "four plain images do not fit on the disk with the containerd store, which keeps them packed as well",
)
SMALL = Plan(
    family="small",
    matrix="small",
    matrix_stores=("overlay2", "containerd"),
    disk=3_000_000_000,
    pulls={"pulls": Pulls(family="small", title="pull", disk=2_000_000_000, limits=(0.55, 0.8, 0.55))},
    describe="small wheels, whose figures say nothing",
)

Figures = dict[str, Any]
"""Row → what was measured: ``seconds`` of each part, and what belongs to it."""


@dataclass(frozen=True, kw_only=True)
class Site:
    """Where a session works."""

    work: Path
    plan: Plan
    say: Callable[[str], None]

    def cells(self, name: str) -> list[Pinned]:
        matrix = load(HERE / "matrices" / f"{name}.yaml")
        locks = Locks([matrix])
        found = [locks.pinned(cell) for cell in matrix.cells]
        missing = [cell.id for cell, pinned in zip(matrix.cells, found, strict=True) if pinned is None]
        if missing:
            raise BenchError(f"the lock of {name} is stale: rtbuild lock benchmarks/matrices/{name}.yaml")
        return [pinned for pinned in found if pinned is not None]

    def fresh_cache(self) -> Path:
        """A cache with everything downloaded and nothing converted."""
        cache = self.work / "cache"
        shutil.rmtree(cache, ignore_errors=True)
        cache.mkdir(parents=True)
        for name in ("wheels", "rootfs", "debs", "apt"):
            (cache / name).symlink_to(resources.cache() / name)
        return cache

    @contextmanager
    def rig(self, store: Store | None) -> Iterator[tuple[Registry, Engine | None]]:
        """A registry and, where ``store`` names one, an engine. Both end with what they kept."""
        registry = Registry(self.work / "registry")
        engine = Engine(self.work / "engine", store) if store else None
        with ExitStack() as stack:
            stack.callback(self.fresh_cache)
            stack.callback(registry.destroy)
            registry.start()
            if engine:
                stack.callback(engine.destroy)
                engine.start()
            yield registry, engine

    def wheels(self, cells: Iterable[Pinned]) -> Path:
        """All wheels in one flat folder, as `pip download` would leave them."""
        folder = self.work / "wheels"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for wheel in {wheel for cell in cells for wheel in cell.wheels}:
            os.link(self.wheel(wheel), folder / wheel.file)
        return folder

    @contextmanager
    def index(self, cells: Iterable[Pinned]) -> Iterator[tuple[str, Callable[[], float]]]:
        """An index with these cells' wheels, and what measures how long its downloads take alone."""
        folder, port = self.wheels(cells), 5001
        command = [sys.executable, "-m", "benchmarks.slow_index", str(folder), str(port), f"{LINE:g}"]
        with subprocess.Popen(command) as server:
            try:
                time.sleep(1)
                yield f"http://127.0.0.1:{port}/simple", partial(download, folder, port)
            finally:
                server.terminate()

    def rootfs(self, pinned: Pinned) -> Path:
        if not isinstance(pinned.base, RootfsBase):
            raise BenchError(f"{pinned.cell.id}: the benchmark knows rootfs bases only")

        def absent(_: object) -> list[Path]:
            raise BenchError("the root file system is not in the cache: run the benchmark with --prepare")

        return cached_rootfs(pinned.base, cache=resources.cache(), fetch=absent)

    def wheel(self, wheel: Wheel) -> Path:
        path = resources.cache() / "wheels" / wheel.sha256[:2] / wheel.sha256 / wheel.file
        if not path.is_file():
            raise BenchError(f"{wheel.file} is not in the cache: run the benchmark with --prepare")
        return path


def room(site: Site, name: str) -> str | None:
    """Why the session of this name does not fit on the disk; None where it does."""
    free = shutil.disk_usage(site.work).free
    pulled = site.plan.pulls.get(name)
    need = pulled.disk if pulled else site.plan.disk
    if free >= need + _MARGIN:
        return None
    return f"it takes up to {need / 1e9:.0f} GB at {site.work}, and {free / 1e9:.0f} GB are free"
