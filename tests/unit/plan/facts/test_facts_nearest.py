"""The way out of a refused cell: that it works, that it stays close, and how much is tried to find it."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from builder.core.model import Base, Cell, Cuda
from builder.plan.facts.reading import Truth
from builder.plan.facts.rules import checking as module
from builder.plan.facts.rules.checking import check
from builder.plan.facts.rules.finding import Outcome
from builder.plan.facts.tables import loader as facts

PYTHONS = ("3.8", "3.10", "3.12", "3.13")


def different_cells(count: int) -> list[Cell]:
    """Cells that differ in framework, base or Python, most of which cannot work; the same each time."""
    known = facts.load()
    frameworks = [
        f"{table.name if table.name != 'cupy' else f'cupy-{row.variant}'}=={row.version}"
        for table in known.frameworks.values()
        for row in table.rows
    ]
    bases = [
        f"nvidia/cuda:{row.cuda}-{row.infix}-runtime-{system}"
        for row in known.tags
        for system in row.systems
        if row.infix and system in known.systems
    ]
    every = list(itertools.product(dict.fromkeys(frameworks), bases, PYTHONS))
    return [
        Cell(
            id=f"cell{n}",
            matrix="test",
            frameworks=(framework,),
            python=python,
            base=Base(kind="registry", name=base),
            cuda=Cuda(provider="base"),
        )
        for n, (framework, base, python) in enumerate(every[:: len(every) // count][:count])
    ]


@pytest.mark.slow
def test_a_thousand_different_cells_take_few_looks_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted, because a clock says more about the machine: cells resolved against the tables."""
    cells = different_cells(1000)
    looks = 0
    real = module.stack_of

    def counted(*args, **options):
        nonlocal looks
        looks += 1
        return real(*args, **options)

    monkeypatch.setattr(module, "stack_of", counted)
    for cache in (module._way_out, module._judge):
        cache.cache_clear()
    refused = sum(Outcome.of(check(cell)) is Outcome.IMPOSSIBLE for cell in cells)
    assert refused > 900
    assert looks < 8 * len(cells)
    looks = 0
    for cell in cells:
        check(cell)
    assert looks == len(cells)  # a way out that was found is found no second time


def test_every_way_out_is_one() -> None:
    for cell in different_cells(120):
        ways = {f.nearest for f in check(cell) if f.nearest is not None}
        for way in ways:
            assert Outcome.of(check(way.cell, suggest=False)) in {Outcome.POSSIBLE, Outcome.WARNS}, cell


def test_the_python_stays_where_another_base_is_enough(make) -> None:
    base = "nvidia/cuda:11.2.2-cudnn8-runtime-ubuntu20.04"
    cell = replace(make("tensorflow==2.11.1", python="3.10", base=base, pip=("numpy<2",)), python_from="base")
    (way,) = {f.nearest for f in check(cell) if f.nearest is not None}
    assert dict(way.changes) == {"base": "nvidia/cuda:11.7.1-cudnn8-runtime-ubuntu22.04"}


def test_the_way_out_keeps_the_platform_or_says_that_it_changes(make) -> None:
    both = {"python": "3.12", "base": "nvidia/cuda:13.0.0-cudnn-runtime-ubuntu24.04", "cuda": "wheels"}
    arm = make("torch==2.11.0", **both, gpus=("H100",), platform="linux/arm64")
    (way,) = {f.nearest for f in check(arm) if f.nearest is not None}
    assert way.cell.platform == "linux/arm64"
    hopper = make("torch==2.11.0", python="3.13", base="rootfs:debian/trixie", cuda="wheels", gpus=("GH200",))
    (way,) = {f.nearest for f in check(hopper) if f.nearest is not None}
    assert dict(way.changes) == {"platform": "linux/arm64"}


def test_what_an_index_does_not_have_is_in_no_way_out_however_it_is_spelled() -> None:
    """Nothing but an index that the refused cell does not name could have it."""
    for cell in different_cells(60):
        (text,) = cell.frameworks
        spelled = replace(cell, frameworks=(text.replace("-", "_", 1).replace("==", " == ").upper(),))
        for asked in (cell, spelled):
            truth = Truth(absent=asked.frameworks)
            assert all(f.nearest is None or f.nearest.cell.index for f in check(asked, truth)), asked
    short = replace(cell, frameworks=("torch==2.0",), python="3.11", cuda=Cuda(provider="wheels"))
    found = check(short, Truth(absent=short.frameworks))
    assert Outcome.of(found) is Outcome.IMPOSSIBLE
    assert all(f.nearest is None or f.nearest.cell.index for f in found), found
    jax = Cell(
        id="cell",
        matrix="test",
        frameworks=("jax[cuda13]==0.7.0",),
        python="3.12",
        base=Base(kind="rootfs", name="debian/trixie"),
        cuda=Cuda(provider="wheels"),
    )
    (refused,) = (f for f in check(jax, Truth(absent=("jax-cuda13-plugin==0.7.0",))) if f.rule == "index")
    assert refused.nearest is not None
    assert refused.nearest.cell.frameworks == ("jax[cuda12]==0.7.0",)
