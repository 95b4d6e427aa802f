"""What whoever starts an image waits for: its pull into an empty engine, and the first import in it.

One registry on loopback has rtbuild's images, the plain ones and those by uv as zstd. In each round every
kind is pulled into an engine of its own with nothing in it: the first image, then the next release of its
family, and of rtbuild's also the same wheels on another base and the first with another probe. Rounds begin
with another kind each time, so that a disk or a neighbour that is slow for a while is slow for all.
"""

from __future__ import annotations

import os
import statistics
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.ours import Ours
from benchmarks.peers import DOCKERFILE, UV_DOCKERFILE, base_image, plain, push_buildkit, warm
from benchmarks.rig import BenchError, Engine, disk_speed
from benchmarks.sessions import MODULES, REPOSITORY, Figures, Site

if TYPE_CHECKING:
    from benchmarks.rig import Registry, Store

ROUNDS = 3
STORES: tuple[Store, ...] = ("containerd", "overlay2")
KINDS = ("ours", "plain", "uv")


def pulls(site: Site, family: str) -> Figures:
    """Every round's figures by store, kind and image. BenchError if an image is not pulled."""
    with site.rig("containerd") as (registry, engine):
        if engine is None:
            raise BenchError("no engine was started to build the peers' images")
        images = {"ours": _ours(site, family), **_peers(site, engine, family)}
        engine.destroy()  # the peers are in the registry alone from here on
        sizes = _sizes(registry, images)
        rounds: dict[Store, list[Figures]] = {store: [] for store in STORES}
        for number in range(ROUNDS):
            for store, found in rounds.items():
                found.append(_round(site, store, family, images, number))
        return {store: {"rounds": found, "sizes": sizes} for store, found in rounds.items()}


def _ours(site: Site, family: str) -> dict[str, str]:
    """rtbuild's images in the registry, by what they are."""
    first, following, other = (pinned.cell.id for pinned in site.cells(family)[:3])
    ours, found = Ours(site, None, family), {}
    for name, cell in (("first", first), ("next", following), ("base", other)):
        found[name] = ours.build(cell)["digests"][cell]
    ours.change_probe()
    found["probe"] = ours.build(first)["digests"][first]
    return {name: f"{REPOSITORY}/ours@{digest}" for name, digest in found.items()}


def _peers(site: Site, engine: Engine, family: str) -> dict[str, dict[str, str]]:
    """The plain images and those of uv in the registry: the first and the next release."""
    cells = dict(zip(("first", "next"), site.cells(family)[:2], strict=True))
    found: dict[str, dict[str, str]] = {"plain": {}, "uv": {}}
    with tempfile.TemporaryDirectory(dir=site.work) as folder:
        wheels = site.wheels(cells.values())
        for name, pinned in cells.items():
            base = base_image(site, engine, pinned)
            for kind, text in (("plain", DOCKERFILE), ("uv", UV_DOCKERFILE)):
                place = Path(folder) / f"{kind}-{name}"
                context = plain(pinned, place, wheels=wheels, base=base, env={}, dockerfile=text)
                warm(engine, context, base)
                found[kind][name] = f"{REPOSITORY}/{kind}:{name}"
                compression = "gzip" if kind == "plain" else "zstd"  # gzip is what `docker push` sends
                push_buildkit(engine, context, found[kind][name], "push=true,unpack=false", compression)
                engine.docker("image", "rm", found[kind][name])
                engine.docker("builder", "prune", "--all", "--force")  # one peer on the disk at a time
                site.say(f"{found[kind][name]} is in the registry")
    return found


def _round(site: Site, store: Store, family: str, images: dict[str, dict[str, str]], number: int) -> Figures:
    figures: Figures = {"load": round(os.getloadavg()[0], 1), "disk": round(disk_speed(site.work))}
    module = MODULES[family]
    for kind in KINDS[number % len(KINDS) :] + KINDS[: number % len(KINDS)]:
        engine = Engine(site.work / "engine", store)
        try:
            engine.start()
            figures[kind] = {name: _pulled(engine, image, module) for name, image in images[kind].items()}
        finally:
            engine.destroy()
        said = (f"{name} {one['pull']:.1f} + {one['import']:.1f} s" for name, one in figures[kind].items())
        site.say(f"{store}, round {number + 1}: {kind}: {', '.join(said)}")
    return figures


def _pulled(engine: Engine, image: str, module: str) -> dict[str, float]:
    """Seconds of the pull and of the first import, and what the engine used for the pull."""
    before = engine.totals()
    pull, _ = engine.docker("pull", "--quiet", image)
    used = {name: value - before[name] for name, value in engine.totals().items()}
    command = ["run", "--rm", "--network=none", image, "python3", "-c", f"import {module}"]
    first, _ = engine.docker(*command)
    return {"pull": pull, "import": first, **used}


def _sizes(registry: Registry, images: dict[str, dict[str, str]]) -> dict[str, Any]:
    """What a first pull brings: bytes and layers of each kind's first image."""
    found = {}
    for kind, named in images.items():
        name = named["first"].removeprefix(f"{registry.host}/")
        _, at, reference = name.partition("@")
        document = registry.by_digest(reference) if at else registry.manifest(*name.rsplit(":", 1))
        if "manifests" in document:  # an index: BuildKit puts a provenance beside the image
            document = registry.by_digest(document["manifests"][0]["digest"])
        layers = document["layers"]
        found[kind] = {"layers": len(layers), "bytes": sum(layer["size"] for layer in layers)}
    return found


def spread(values: list[float]) -> str:
    return f"{statistics.median(values):.1f} s ({min(values):.1f} to {max(values):.1f})"
