"""What is measured, in sessions: each starts from nothing, leaves its figures behind and nothing else."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import peers
from benchmarks.rig import BenchError, Engine, Registry, run
from builder import resources
from builder.layers.rootfs import cached_rootfs
from builder.matrix import load
from builder.model import RootfsBase
from builder.pipeline.locks import LockKeeper

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from benchmarks.rig import Store
    from builder.model import Pinned, Wheel

HERE = Path(__file__).resolve().parent
REPOSITORY = f"{Registry.host}/bench"
_CHANGED = "RTBUILD_BENCH_CHANGED"
"""An environment variable that a cell gets to be changed; no image reads it."""
_MARGIN = 3_000_000_000


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What the sessions measure with: real families, or small wheels to try the benchmark itself."""

    family: str
    """A matrix of a cell, the next release of its framework, and the first cell on another base."""
    matrix: str
    """A matrix of four cells."""
    matrix_stores: tuple[Store, ...]
    disk: int
    """Bytes that the hungriest session takes."""
    describe: str


FULL = Plan(
    family="tf",
    matrix="cupy4",
    matrix_stores=("overlay2",),
    disk=20_000_000_000,
    describe="TensorFlow 2.8.4, and 2.11.1 after it, on Debian 11 with NVIDIA's wheels for CUDA 11.8 and "
    "cuDNN 8.6 (4.5 GB unpacked); four releases of CuPy on the same CUDA wheels, baked on overlay2 alone: "
    "four plain images do not fit on the disk with the containerd store, which keeps them packed as well",
)
SMALL = Plan(
    family="small",
    matrix="small",
    matrix_stores=("overlay2", "containerd"),
    disk=3_000_000_000,
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
        keeper = LockKeeper(matrix)
        found = [keeper.pinned(cell) for cell in matrix.cells]
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


class Ours:
    """rtbuild as its user runs it, with a cache of its own; without ``engine`` by ``--engine none``."""

    def __init__(self, site: Site, engine: Engine | None, name: str) -> None:
        self.site, self.engine = site, engine
        self.folder = site.work / "project"
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        for suffix in ("yaml", "lock.json"):
            shutil.copy(HERE / "matrices" / f"{name}.{suffix}", self.folder)
        self.matrix = f"{name}.yaml"
        self.env = (engine.env if engine else os.environ) | {"RTBUILD_CACHE": str(site.fresh_cache())}
        self.package = HERE.parent

    def change_environment(self) -> None:
        """Give every cell one more variable: nothing in the lock depends on it."""
        path = self.folder / self.matrix
        path.write_text(
            path.read_text().replace("defaults:\n", f"defaults:\n  env: {{{_CHANGED}: '1'}}\n", 1)
        )

    def change_probe(self) -> None:
        """Run a copy of rtbuild from now on whose probe says one word more."""
        copy = self.folder / "changed"
        for name in ("builder", "templates"):
            shutil.copytree(HERE.parent / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
        module = copy / "builder" / "probe" / "main.py"
        module.write_text(module.read_text() + f"\nPROBE_CHANGED = {_CHANGED!r}\n")
        self.package = copy

    def build(self, *cells: str, push: bool = True) -> Figures:
        """Build and push; the seconds of the whole command, and of its stages by cell."""
        command = [sys.executable, "-c", "from builder.cli import main; main()", "build", self.matrix]
        command += ["--locked", "--no-check", "--no-verify", "--json", "--progress", "none"]
        command += [word for cell in cells for word in ("--select", cell)]
        command += [] if self.engine else ["--engine", "none"]
        command += ["--push", f"{REPOSITORY}/ours"] if push else []
        env = self.env | {"PYTHONPATH": str(self.package), "PYTHONSAFEPATH": "1"}
        seconds, out = run(command, env=env, cwd=self.folder)
        document = json.loads(out)
        return {
            "seconds": seconds,
            "stages": {cell["id"]: cell["seconds"] for cell in document["cells"]},
            "digests": {cell["id"]: cell["image"]["digest"] for cell in document["cells"]},
            "sizes": {cell["id"]: cell["image"]["size"] for cell in document["cells"]},
            "reused": all(cell["image"]["reused"] for cell in document["cells"]),
        }


def ours_family(site: Site, store: Store | None) -> Figures:
    """One cell, the next release, another base, another environment, another probe."""
    first, following, other = (pinned.cell.id for pinned in site.cells(site.plan.family)[:3])
    figures: Figures = {}
    registry = Registry(site.work / "registry").start()
    engine = Engine(site.work / "engine", store).start() if store else None
    try:
        ours = Ours(site, engine, site.plan.family)
        figures["first"] = ours.build(first)
        site.say(f"first: {figures['first']['seconds']:.1f} s")
        figures["first"]["registry"] = registry.blob_bytes()
        figures["next"] = ours.build(following)
        site.say(f"next: {figures['next']['seconds']:.1f} s")
        figures["base"] = ours.build(other)
        site.say(f"base: {figures['base']['seconds']:.1f} s")
        ours.change_environment()
        figures["environment"] = ours.build(first)
        site.say(f"environment: {figures['environment']['seconds']:.2f} s")
        ours.change_probe()
        figures["probe"] = ours.build(first)
        site.say(f"probe: {figures['probe']['seconds']:.2f} s")
    finally:
        if engine:
            engine.destroy()
        registry.destroy()
        site.fresh_cache()
    return figures


def ours_matrix(site: Site, store: Store | None) -> Figures:
    """Four cells from nothing, what the registry keeps of them, and the same command again."""
    figures: Figures = {}
    registry = Registry(site.work / "registry").start()
    engine = Engine(site.work / "engine", store).start() if store else None
    try:
        ours = Ours(site, engine, site.plan.matrix)
        figures["matrix"] = ours.build()
        site.say(f"matrix: {figures['matrix']['seconds']:.1f} s")
        figures["registry"] = _registry_bytes(registry)
        figures["nothing"] = _best([ours.build() for _ in range(5)])
        if not figures["nothing"]["reused"]:
            raise BenchError("a cell was built again where there was nothing to do")
        site.say(f"nothing: {figures['nothing']['seconds']:.2f} s")
    finally:
        if engine:
            engine.destroy()
        registry.destroy()
        site.fresh_cache()
    return figures


def _registry_bytes(registry: Registry) -> Figures:
    """All that the registry keeps, beside the different layers that the manifests name."""
    tags = registry.root / "data/docker/registry/v2/repositories/bench/ours/_manifests/tags"
    manifests = [registry.manifest("bench/ours", tag.name) for tag in tags.iterdir()]
    layers = {layer["digest"]: layer["size"] for document in manifests for layer in document["layers"]}
    alone = sum(layer["size"] for document in manifests for layer in document["layers"])
    return {"kept": registry.blob_bytes(), "layers": sum(layers.values()), "each_alone": alone}


def _best(runs: list[Figures]) -> Figures:
    """The median run, with every run's seconds beside it."""
    ordered = sorted(runs, key=lambda figures: figures["seconds"])
    return ordered[len(ordered) // 2] | {"runs": [round(figures["seconds"], 3) for figures in runs]}


def hundred(site: Site) -> Figures:
    """A hundred locked cells whose images are known, and nothing to do."""
    engine = Engine(site.work / "engine", "containerd").start()
    try:
        ours = Ours(site, engine, "small")
        text = (HERE / "matrices" / "small.yaml").read_text().partition("include:")[0]
        rows = "".join(
            f"  - {{framework: six==1.16.0, variant: v{number}, env: {{NUMBER: '{number}'}}}}\n"
            for number in range(100)
        )
        (ours.folder / "small.yaml").write_text(f"{text}include:\n{rows}")
        lock = json.loads((ours.folder / "small.lock.json").read_text())
        entry = next(value for key, value in lock["cells"].items() if key.startswith("six1.16.0"))
        lock["cells"] = {
            f"six1.16.0-py3.9-bullseye-cpu-v{number}": entry | _renamed(entry, number)
            for number in range(100)
        }
        (ours.folder / "small.lock.json").write_text(json.dumps(lock))
        built = ours.build(push=False)
        site.say(f"hundred cells built: {built['seconds']:.1f} s")
        figures = _best([ours.build(push=False) for _ in range(5)])
        if not figures["reused"]:
            raise BenchError("a cell was built again where there was nothing to do")
        site.say(f"hundred: {figures['seconds']:.2f} s")
        return {"hundred": figures | {"built": built["seconds"]}}
    finally:
        engine.destroy()


def _renamed(entry: Mapping[str, Any], number: int) -> dict[str, Any]:
    return {key: f"{entry[key]}-v{number}" for key in ("id",) if key in entry}


def peer_family(site: Site, store: Store) -> Figures:
    """Plain `docker build` and `docker push` of the first cell from nothing, and with a changed variable."""
    pinned = site.cells(site.plan.family)[0]
    with tempfile.TemporaryDirectory(dir=site.work) as folder:
        registry = Registry(site.work / "registry").start()
        engine = Engine(site.work / "engine", store).start()
        try:
            wheels = _wheels(site, [pinned])
            base = _base(site, engine, pinned)
            context = peers.plain(pinned, Path(folder) / "first", wheels=wheels, base=base, env={})
            _warm(engine, context, base)
            first = _plain(engine, context)
            site.say(f"{store} first: {first['seconds']:.1f} s")
            changed = _changed(engine, context, pinned, wheels, base)
            return {"first": first | {"registry": registry.blob_bytes()}, "environment": changed}
        finally:
            engine.destroy()
            registry.destroy()


def _plain(engine: Engine, context: peers.Plain) -> Figures:
    tag = f"{REPOSITORY}/plain:{context.name}"
    build, _ = engine.docker(*context.build[:1], "--tag", tag, *context.build[1:])
    push, _ = engine.docker("push", "--quiet", tag)
    _, size = engine.docker("image", "inspect", "--format", "{{.Size}}", tag)
    return {"seconds": build + push, "build": build, "push": push, "size": int(size)}


def _changed(engine: Engine, context: peers.Plain, pinned: Pinned, wheels: Path, base: str) -> Figures:
    """The peer's own best case: a variable changed after the RUN that pip is in."""
    again = peers.plain(pinned, context.folder, wheels=wheels, base=base, env={_CHANGED: "1"})
    return _plain(engine, again)


def _wheels(site: Site, cells: list[Pinned]) -> Path:
    """All wheels in one flat folder, as `pip download` would leave them."""
    folder = site.work / "wheels"
    folder.mkdir(parents=True, exist_ok=True)
    for wheel in {wheel for cell in cells for wheel in cell.wheels}:
        if not (folder / wheel.file).exists():
            os.link(site.wheel(wheel), folder / wheel.file)
    return folder


def _base(site: Site, engine: Engine, pinned: Pinned) -> str:
    """The operating system as an image in the engine and in the registry, before the clock runs."""
    tag = f"{REPOSITORY}/plain:base-{'apt' if pinned.cell.apt else 'plain'}"
    with tempfile.TemporaryDirectory(dir=site.work) as folder:
        os.link(site.rootfs(pinned), Path(folder) / "rootfs.tar")
        (Path(folder) / "Dockerfile").write_text("FROM scratch\nADD rootfs.tar /\n")
        engine.docker("build", "--tag", tag, folder)
    engine.docker("push", "--quiet", tag)
    return tag


def _warm(engine: Engine, context: peers.Plain, base: str) -> None:
    """Have BuildKit receive the wheels, and unpack the base, before the clock runs."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "Dockerfile").write_text(
            f"FROM {base}\nRUN --network=none --mount=type=bind,from=wheels,target=/wheels ls /wheels\n"
        )
        engine.docker("build", "--network=none", "--build-context", f"wheels={context.wheels}", folder)


def peer_matrix(site: Site, store: Store) -> Figures:
    """`docker buildx bake` of four plain Dockerfiles, and four pushes."""
    cells = site.cells(site.plan.matrix)
    with tempfile.TemporaryDirectory(dir=site.work) as folder:
        registry = Registry(site.work / "registry").start()
        engine = Engine(site.work / "engine", store).start()
        try:
            wheels = _wheels(site, cells)
            base = _base(site, engine, cells[0])
            contexts = [
                peers.plain(
                    pinned,
                    Path(folder) / str(number),
                    wheels=wheels,
                    base=_base(site, engine, pinned),
                    env={},
                )
                for number, pinned in enumerate(cells)
            ]
            _warm(engine, contexts[0], base)
            bake = Path(folder) / "docker-bake.json"
            tags = peers.bake_file(contexts, bake, f"{REPOSITORY}/plain")
            build, _ = engine.docker("buildx", "bake", "--file", str(bake))
            push = sum(engine.docker("push", "--quiet", tag)[0] for tag in tags)
            site.say(f"{store} matrix: {build + push:.1f} s")
            return {
                "matrix": {
                    "seconds": build + push,
                    "build": build,
                    "push": push,
                    "registry": registry.blob_bytes(),
                }
            }
        finally:
            engine.destroy()
            registry.destroy()


def check_disk(site: Site) -> None:
    free = shutil.disk_usage(site.work).free
    if free < site.plan.disk + _MARGIN:
        raise BenchError(
            f"this takes {site.plan.disk / 1e9:.0f} GB at {site.work}, and {free / 1e9:.0f} GB are free"
        )
