"""rtbuild as its user runs it: a family, a matrix, and runs with nothing to do."""

from __future__ import annotations

import json
import resource
import shutil
import sys
from typing import TYPE_CHECKING

from benchmarks.rig import PROGRAM, BenchError, installed_env, run
from benchmarks.sessions import CHANGED, HERE, REPOSITORY, Figures, Site

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.rig import Engine, Registry, Store


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
        self.env = installed_env(site.work, engine.env if engine else None)
        self.env |= {"RTBUILD_CACHE": str(site.fresh_cache())}
        self.package = HERE.parent
        self._compile()

    def change_environment(self) -> None:
        """Give every cell one more variable: nothing in the lock depends on it."""
        path = self.folder / self.matrix
        path.write_text(path.read_text().replace("defaults:\n", f"defaults:\n  env: {{{CHANGED}: '1'}}\n", 1))

    def change_probe(self) -> None:
        """Run a copy of rtbuild from now on whose probe says one word more."""
        copy = self.folder / "changed"
        for name in ("builder", "templates"):
            shutil.copytree(HERE.parent / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
        module = copy / "builder" / "verify" / "cudnn_verify" / "__main__.py"
        module.write_text(module.read_text() + f"\nPROBECHANGED = {CHANGED!r}\n")
        self.package = copy
        self._compile()

    def _compile(self) -> None:
        """Have bytecode of rtbuild, as whoever installed it has."""
        run([sys.executable, "-m", "compileall", "-q", str(self.package / "builder")], env=self.env)

    @property
    def program_env(self) -> dict[str, str]:
        """The environment in which ``PROGRAM`` is the rtbuild that is measured."""
        return self.env | {"PYTHONPATH": str(self.package), "PYTHONSAFEPATH": "1"}

    def build(self, *cells: str, push: bool = True) -> Figures:
        """Build and push; the seconds of the whole command, and of its stages by cell."""
        command = [*PROGRAM, "build", self.matrix]
        command += ["--locked", "--no-check", "--no-verify", "--json", "--progress", "none"]
        command += [word for cell in cells for word in ("--select", cell)]
        command += [] if self.engine else ["--engine", "none"]
        command += ["--push", f"{REPOSITORY}/ours"] if push else []
        before = _used()
        seconds, out = run(command, env=self.program_env, cwd=self.folder)
        document = json.loads(out)
        return {
            "seconds": seconds,
            **{name: round(value - before[name], 3) for name, value in _used().items()},
            "stages": {cell["id"]: cell["seconds"] for cell in document["cells"]},
            "digests": {cell["id"]: cell["image"]["digest"] for cell in document["cells"]},
            "sizes": {cell["id"]: cell["image"]["size"] for cell in document["cells"]},
            "reused": all(cell["image"]["reused"] for cell in document["cells"]),
        }


def family(site: Site, store: Store | None) -> Figures:
    """One cell, the next release, another base, another environment, another probe."""
    first, following, other = (pinned.cell.id for pinned in site.cells(site.plan.family)[:3])
    figures: Figures = {}
    with site.rig(store) as (registry, engine):
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
    return figures


def stored(site: Site) -> Figures:
    """One cell in an engine's store, nothing pushed."""
    with site.rig("containerd") as (_, engine):
        ours = Ours(site, engine, site.plan.family)
        figures = ours.build(site.cells(site.plan.family)[0].cell.id, push=False)
        site.say(f"stored: {figures['seconds']:.1f} s")
        return {"stored": figures}


def cold(site: Site) -> Figures:
    """One cell in an engine's store, on caches without wheels and without a base, over a line of its own."""
    pinned = site.cells(site.plan.family)[0]
    with site.rig("containerd") as (_, engine), site.index([pinned]) as (url, downloads):
        ours = Ours(site, engine, site.plan.family)
        for name in ("wheels", "rootfs"):
            (site.work / "cache" / name).unlink()
        ours.env |= {"UV_DEFAULT_INDEX": url, "NO_PROXY": "127.0.0.1"}
        alone = downloads()
        figures = ours.build(pinned.cell.id, push=False)
        site.say(f"cold: {figures['seconds']:.1f} s, the downloads alone {alone:.1f} s")
        return {"cold": figures | {"alone": alone}}


def matrix(site: Site, store: Store | None) -> Figures:
    """Four cells from nothing, what the registry keeps of them, and the same command again."""
    figures: Figures = {}
    with site.rig(store) as (registry, engine):
        ours = Ours(site, engine, site.plan.matrix)
        figures["matrix"] = ours.build()
        site.say(f"matrix: {figures['matrix']['seconds']:.1f} s")
        figures["registry"] = _registry_bytes(registry)
        figures["nothing"] = _nothing(ours)
        site.say(f"nothing: {figures['nothing']['seconds']:.2f} s")
    return figures


def _registry_bytes(registry: Registry) -> Figures:
    """All that the registry keeps, beside the different layers that the manifests name."""
    tags = registry.root / "data/docker/registry/v2/repositories/bench/ours/_manifests/tags"
    manifests = [registry.manifest("bench/ours", tag.name) for tag in tags.iterdir()]
    layers = {layer["digest"]: layer["size"] for document in manifests for layer in document["layers"]}
    alone = sum(layer["size"] for document in manifests for layer in document["layers"])
    return {"kept": registry.blob_bytes(), "layers": sum(layers.values()), "each_alone": alone}


def _nothing(ours: Ours, *, push: bool = True) -> Figures:
    """The median of five runs that find everything there, with every run's seconds beside it."""
    runs = [ours.build(push=push) for _ in range(5)]
    if not all(figures["reused"] for figures in runs):
        raise BenchError("a cell was built again where there was nothing to do")
    ordered = sorted(runs, key=lambda figures: figures["seconds"])
    return ordered[len(ordered) // 2] | {"runs": [round(figures["seconds"], 3) for figures in runs]}


def hundred(site: Site, store: Store | None) -> Figures:
    """A hundred locked cells whose images an engine, or a registry, is known to have: nothing to do."""
    with site.rig(store) as (_, engine):
        ours = Ours(site, engine, "small")
        many_cells(ours.folder, 100)
        built = ours.build(push=engine is None)
        site.say(f"hundred cells built: {built['seconds']:.1f} s")
        figures = _nothing(ours, push=engine is None)
        site.say(f"hundred: {figures['seconds']:.2f} s, {figures['processor']:.2f} s of processor")
        return {"hundred": figures | {"built": built["seconds"]}}


def many_cells(folder: Path, count: int) -> None:
    """Make the matrix of small wheels, and its lock, one of ``count`` cells that differ in a variable."""
    path, lockfile = folder / "small.yaml", folder / "small.lock.json"
    text = path.read_text().partition("include:")[0]
    rows = "".join(
        f"  - {{framework: six==1.16.0, variant: v{number}, env: {{NUMBER: '{number}'}}}}\n"
        for number in range(count)
    )
    path.write_text(f"{text}include:\n{rows}")
    lock = json.loads(lockfile.read_text())
    entry = next(value for key, value in lock["cells"].items() if key.startswith("six1.16.0"))
    lock["cells"] = {f"six1.16.0-py3.9-bullseye-cpu-v{number}": entry for number in range(count)}
    lockfile.write_text(json.dumps(lock))


def _used() -> dict[str, float]:
    """Seconds of processor, and bytes written to files, of this program's ended children (man getrusage)."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {"processor": used.ru_utime + used.ru_stime, "written": used.ru_oublock * 512.0}
