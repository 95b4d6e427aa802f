"""Cells made from the rows: half of them sound, half with one thing wrong, by each rule in turn.

What is sound is reckoned here from the rows' values alone, without the rules: a Python that the release has
wheels for, a system whose glibc is new enough, a card that it has kernels for, a driver at the floor.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pytest
from packaging.requirements import Requirement

from builder.facts import check, explain, summary, tables
from builder.model import Base, Cell, Cuda

if TYPE_CHECKING:
    from collections.abc import Iterator

    from builder.facts.frameworks import FrameworkRow

KNOWN = tables.load()
CARDS = ("T4", "A100", "H100", "V100", "P100", "RTX3090", "RTX4090", "B200", "RTX5090", "K80")
FLOORS = {"10": "440.33", "11": "450.80.02", "12": "525.60.13", "13": "580.65.06"}
EACH = 150


@dataclass(frozen=True)
class Made:
    """A cell, the driver asked about, and what was done to it."""

    cell: Cell
    driver: str
    row: FrameworkRow
    why: str = "sound"


def numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".") if part.isdigit())


def runs_on(row: FrameworkRow, card: str) -> bool:
    """Whether a kernel of the card's own major, and not of a newer minor, is among the row's."""
    major, minor = numbers(KNOWN.gpus[card.lower()].capability)
    kernels = [a.removeprefix("sm_").rstrip("a") for a in row.architectures if a.startswith("sm_")]
    return any(int(k[:-1]) == major and int(k[-1]) <= minor for k in kernels)


def compiles_for(row: FrameworkRow, card: str) -> bool:
    have = numbers(KNOWN.gpus[card.lower()].capability)
    ptx = [a.removeprefix("compute_") for a in row.architectures if a.startswith("compute_")]
    return any((int(p[:-1]), int(p[-1])) <= have for p in ptx)


def served(row: FrameworkRow, card: str) -> bool:
    """Whether the row's CUDA serves the card, and a cuDNN that every line on record of it serves too."""
    capability = numbers(KNOWN.gpus[card.lower()].capability)
    family = KNOWN.families[(row.cuda or "0").partition(".")[0]]
    newest = "9.28.0" if any("cudnn" in pin and "==" not in pin for pin in row.pins) else row.cudnn or "0"
    lines = [line for line in KNOWN.cudnn if line.versions.contains(newest)]
    spans = [(line.capability_min, line.capability_max) for line in lines]
    if family.capability_min is not None and family.capability_max is not None:
        spans.append((family.capability_min, family.capability_max))
    return bool(lines) and all(numbers(low) <= capability <= numbers(high) for low, high in spans)


def cudnn_of_its_major(row: FrameworkRow) -> list[str]:
    """JAX 0.4.22 asks for cuDNN 8.9 or newer, was compiled with 8.9, and does not run with 9."""
    major = int((row.cudnn or "0").partition(".")[0])
    return [
        f"{parsed.name}<{major + 1}"
        for parsed in map(Requirement, row.pins)
        if "cudnn" in parsed.name and parsed.specifier.contains(f"{major + 1}.1.0")
    ]


def base_for(row: FrameworkRow, python: str) -> Base | None:
    for name, system in reversed(KNOWN.systems.items()):
        if python in system.python and numbers(system.glibc) >= numbers(row.glibc or "0"):
            debian = name.startswith("debian/")
            return Base(
                kind="rootfs" if debian else "registry", name=name if debian else f"ubuntu:{name[6:]}"
            )
    return None


def requirement(row: FrameworkRow) -> str:
    extra = f"[{row.extra}]" if row.extra and row.distribution != "onnxruntime-gpu" else ""
    local = "" if row.default or not row.variant else f"+{row.variant}"
    return f"{row.distribution}{extra}=={row.version}{local}"


def sound() -> Iterator[Made]:
    """One cell for each row that brings CUDA and cuDNN, and of which everything that decides is known."""
    for table in KNOWN.frameworks.values():
        for row in table.rows:
            brings = row.brings in {"pins", "inside"} or row.extra in {"and-cuda", "cuda12", "cuda13"}
            if not brings or not row.cuda or not row.cudnn or row.version == "2.15.0":
                continue  # of 2.15.0's extra one package has sources only
            for python in reversed(row.python):
                base = base_for(row, python)
                cards = [card for card in CARDS if runs_on(row, card) and served(row, card)]
                if base is not None and cards:
                    old = [*(["numpy<2"] if row.numpy_abi == "1" else []), *cudnn_of_its_major(row)]
                    yield Made(
                        Cell(
                            id="cell",
                            matrix="made",
                            frameworks=(requirement(row),),
                            python=python,
                            base=base,
                            cuda=Cuda(provider="wheels"),
                            pip=tuple(dict.fromkeys((*row.pip, *old))),
                            gpus=tuple(cards[:2]),
                        ),
                        FLOORS[row.cuda.partition(".")[0]],
                        row,
                    )
                    break


def wrong(made: Made) -> Iterator[Made]:
    """The same cell with one thing wrong, once for each rule that can be broken with it."""
    cell, row = made.cell, made.row
    lacking = next(
        (p for s in KNOWN.systems.values() for p in s.python if p not in row.python and base_for(row, p)),
        None,
    )
    if lacking is not None:
        yield replace(made, cell=replace(cell, python=lacking, base=base_for(row, lacking)), why="python")
    card = next((c for c in CARDS if not runs_on(row, c) and not compiles_for(row, c)), None)
    if card is not None:
        yield replace(made, cell=replace(cell, gpus=(card,)), why="gpu")
    yield replace(made, driver="384.81", why="driver")
    if row.numpy_abi == "1" and row.python[-1] != "3.8":
        yield replace(made, cell=replace(cell, pip=("numpy==2.0.2",)), why="numpy")
    if "linux/arm64" not in row.platforms or "linux/arm64" in row.cpu_only:
        yield replace(made, cell=replace(cell, platform="linux/arm64"), why="platform")
    bounded = (Requirement(text) for text in row.requires if ";" not in text)
    upper = next(((r.name, c.version) for r in bounded for c in r.specifier if c.operator == "<"), None)
    if upper is not None:
        yield replace(made, cell=replace(cell, pip=(*cell.pip, f"{upper[0]}=={upper[1]}")), why="metadata")
    pin = next((Requirement(text) for text in row.pins if "cudnn" in text and "==" in text), None)
    if pin is not None:
        other = Cuda(provider="wheels", packages=(f"{pin.name}==8.0.0.1",))
        yield replace(made, cell=replace(cell, cuda=other), why="pins")
    name, _, version = cell.frameworks[0].partition("==")
    public, plus, local = version.partition("+")
    if "post" not in public:
        strange = f"{name}=={public}.77{plus}{local}"
        yield replace(made, cell=replace(cell, frameworks=(strange,)), why="release")
    if row.distribution == "torch":
        yield replace(made, cell=replace(cell, frameworks=(f"torch=={public}+cpu",)), why="cpu")
    major = (row.cuda or "").partition(".")[0]
    cupy = {"13": "cupy-cuda12x==13.6.0", "12": "cupy-cuda11x==13.6.0"}.get(major)
    if cupy is not None and "3.11" in row.python:
        both = replace(cell, frameworks=(*cell.frameworks, cupy), python="3.11", gpus=())
        yield replace(made, cell=replace(both, base=base_for(row, "3.11") or cell.base), why="two CUDAs")
    old = next(
        (
            (name, p)
            for name, s in KNOWN.systems.items()
            for p in s.python
            if p in row.python and numbers(s.glibc) < numbers(row.glibc or "0") and name.startswith("ubuntu")
        ),
        None,
    )
    if old is not None:
        base = Base(kind="registry", name=f"ubuntu:{old[0][6:]}")
        yield replace(made, cell=replace(cell, base=base, python=old[1]), why="glibc")


def sample(every: list[Made], count: int) -> list[Made]:
    """``count`` of them, evenly, and of each kind of wrong as many as of another, as far as there are."""
    groups = itertools.groupby(sorted(every, key=lambda one: one.why), lambda one: one.why)
    by_why = {why: list(group) for why, group in groups}
    share = count // len(by_why) + 1
    picked = [m for group in by_why.values() for m in group[:: max(1, len(group) // share)][:share]]
    return picked[:count] if len(by_why) == 1 else picked


GOOD = list(sound())
BAD = [one for made in GOOD for one in wrong(made)]


def test_there_is_something_to_ask_about() -> None:
    assert len(sample(GOOD, EACH)) >= 100
    assert len(sample(BAD, EACH)) >= EACH
    assert len({made.why for made in BAD}) >= 10
    assert {made.row.distribution for made in GOOD} == {"torch", "tensorflow", "jax"}


@pytest.mark.parametrize(("made", "expected"), [(GOOD, "possible"), (BAD, "impossible")], ids=["good", "bad"])
def test_no_false_refusal_and_no_false_accept(made: list[Made], expected: str) -> None:
    failed = [
        f"{one.why}, driver {one.driver}: {explain(one.cell, findings)}"
        for one in sample(made, EACH)
        if summary(findings := check(one.cell, driver=one.driver, suggest=False)).answer != expected
    ]
    assert not failed, f"{len(failed)} of {len(sample(made, EACH))}:\n" + "\n".join(failed[:6])
