"""One cell beside the strongest peer, in pairs: both scatter with the disk, and a median of pairs does not.

In each round every kind starts from nothing, with an engine, a registry and a cache of its own. Rounds begin
with another kind each time, so that a disk or a neighbour that is slow for a while is slow for all.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.ours import Ours
from benchmarks.peers import UV_DOCKERFILE, base_image, plain, push_buildkit, warm
from benchmarks.rig import disk_speed
from benchmarks.sessions import REPOSITORY, Figures, Site

if TYPE_CHECKING:
    from benchmarks.rig import Store

ROUNDS = 5
KINDS: dict[str, tuple[tuple[str, Store | None], ...]] = {
    "pushed": (("registry", None), ("engine", "containerd")),
    "stored": (("stored", "containerd"),),
}
"""How rtbuild builds beside each of uv's two outputs: the kind's name, and the store of its engine."""
_OUTPUTS = {"pushed": "push=true,unpack=false", "stored": "push=false"}
"""uv's: straight into the registry; and into the engine's store, where a container can start from it."""


def pairs(site: Site, output: str) -> Figures:
    """Every round's figures by kind: rtbuild's, and ``uv``."""
    kinds = [*KINDS[output], ("uv", None)]
    rounds = []
    for number in range(ROUNDS):
        turn = number % len(kinds)
        figures: Figures = {"load": round(os.getloadavg()[0], 1), "disk": round(disk_speed(site.work))}
        for kind, store in kinds[turn:] + kinds[:turn]:
            if kind == "uv":
                figures[kind] = {"seconds": _uv(site, output)}
            else:
                figures[kind] = _ours(site, store, push=output == "pushed")
        said = ", ".join(f"{kind} {figures[kind]['seconds']:.1f} s" for kind, _ in kinds)
        site.say(f"{output}, round {number + 1}: {said}")
        rounds.append(figures)
    return {"pairs": {"rounds": rounds}}


def _ours(site: Site, store: Store | None, *, push: bool) -> Figures:
    with site.rig(store) as (registry, engine):
        ours = Ours(site, engine, site.plan.family)
        others = [one for one in (registry, engine) if one is not None]
        before = [one.totals() for one in others]
        figures = ours.build(site.cells(site.plan.family)[0].cell.id, push=push)
        for one, earlier in zip(others, before, strict=True):
            for name, value in one.totals().items():
                figures[name] += value - earlier[name]
        return {name: figures[name] for name in ("seconds", "processor", "written")}


def _uv(site: Site, output: str) -> float:
    pinned = site.cells(site.plan.family)[0]
    with tempfile.TemporaryDirectory(dir=site.work) as folder, site.rig("containerd") as (_, engine):
        assert engine is not None  # a store was named
        wheels, base = site.wheels([pinned]), base_image(site, engine, pinned)
        place = Path(folder) / "first"
        context = plain(pinned, place, wheels=wheels, base=base, env={}, dockerfile=UV_DOCKERFILE)
        warm(engine, context, base)
        return push_buildkit(engine, context, f"{REPOSITORY}/uv:{output}", _OUTPUTS[output])
