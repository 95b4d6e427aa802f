"""Cells made from the rows: half of them sound, half with one thing wrong, by each rule in turn.

What is sound is reckoned here from the rows' values alone, without the rules: a Python that the release has
wheels for, a system whose glibc is new enough, a card that it has kernels for, a driver at the floor.
"""

from __future__ import annotations

import functools
import itertools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pytest
from packaging.requirements import Requirement

from builder.cli.commands.check import verdict_text
from builder.core.model import Base, Cell, Cuda
from builder.plan.facts.rules.checking import check
from builder.plan.facts.rules.finding import Outcome
from builder.plan.facts.tables import loader as tables

if TYPE_CHECKING:
    from collections.abc import Iterator

    from builder.plan.facts.tables.frameworks import FrameworkRow
    from builder.plan.facts.tables.rows import TagRow

KNOWN = tables.load()
CARDS = ("T4", "A100", "H100", "V100", "P100", "RTX3090", "RTX4090", "B200", "RTX5090", "K80")
FLOORS = {"9": "410.48", "10": "440.33", "11": "450.80.02", "12": "525.60.13", "13": "580.65.06"}
EACH = 150


@dataclass(frozen=True)
class Made:
    """A cell, the driver asked about, and what was done to it."""

    cell: Cell
    driver: str
    row: FrameworkRow
    why: str = "sound"


@functools.cache
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


NAMED_BAD = {"tensorflow": {"2.15.0"}, "torch": {"1.8.0", "1.8.1"}, "jax": {"0.4.22", "0.4.32"}}
"""Releases of which known-bad.toml says that an extra lacks a package, or a card its code, or a yank."""


def index_of(wanted: str) -> tuple[str, ...]:
    """The index beside the default one that has a build with a local version."""
    local = wanted.partition("+")[2]
    return (f"https://index.example/{local}",) if local else ()


def sound() -> Iterator[Made]:
    """One cell for each row that brings CUDA and cuDNN, and of which everything that decides is known."""
    for table in KNOWN.frameworks.values():
        for row in table.rows:
            brings = row.brings in {"pins", "inside"} or row.extra in {"and-cuda", "cuda12", "cuda13"}
            if not brings or not row.cuda or not row.cudnn or row.version in NAMED_BAD.get(table.name, ()):
                continue
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
                            index=index_of(requirement(row)),
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
    none = "linux/arm64" not in row.platforms and "platforms" not in row.unread
    if none or "linux/arm64" in row.cpu_only:
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


@functools.cache
def line_serves(version: str, card: str) -> bool:
    """Whether every line on record of a cuDNN or of a CUDA serves the card."""
    have = numbers(KNOWN.gpus[card.lower()].capability)
    lines = [line for line in KNOWN.cudnn if line.versions.contains(version)]
    return bool(lines) and all(
        numbers(line.capability_min) <= have <= numbers(line.capability_max) for line in lines
    )


def family_serves(cuda: str, card: str) -> bool:
    have = numbers(KNOWN.gpus[card.lower()].capability)
    family = KNOWN.families[cuda.partition(".")[0]]
    low, high = family.capability_min, family.capability_max
    return (low is None or numbers(low) <= have) and (high is None or have <= numbers(high))


def tags_for(row: FrameworkRow) -> Iterator[tuple[TagRow, str]]:
    """NVIDIA's images whose CUDA and cuDNN are new enough for a row, with an Ubuntu of theirs."""
    for tag in KNOWN.tags:
        fits = numbers(tag.cuda)[0] == numbers(row.cuda or "0")[0] and numbers(tag.cuda) >= numbers(
            row.cuda or "0"
        )
        if row.cudnn:
            have, want = numbers(tag.cudnn or "0"), numbers(row.cudnn)
            fits = fits and have[0] == want[0] and have[:2] >= want[:2]
        for ubuntu in ubuntus(tag) if fits and tag.cudnn else ():
            yield tag, ubuntu


def ubuntus(tag: TagRow) -> list[str]:
    """The systems with a Python of their own."""
    return [s.removeprefix("ubuntu") for s in tag.systems if s.startswith("ubuntu") and s in KNOWN.systems]


def image(tag: TagRow, ubuntu: str) -> Base:
    """The image; one that NVIDIA has deleted lies on a mirror."""
    mirror = "registry.invalid/" if tag.state != "listed" else ""
    return Base(kind="registry", name=f"{mirror}nvidia/cuda:{tag.cuda}-{tag.infix}-runtime-ubuntu{ubuntu}")


def outside() -> Iterator[Made]:
    """One cell for each row that finds CUDA and cuDNN in the image, if all that decides is known of it."""
    for table in KNOWN.frameworks.values():
        for row in table.rows:
            whole = row.cuda and row.architectures and not row.yanked and row.brings in {"outside", "extra"}
            if not whole or not row.default or row.distribution == "jax" or "linux/amd64" in row.cpu_only:
                continue
            if not row.cudnn and "cudnn" in row.needs:
                continue
            made = next(in_images(row), None)
            if made is not None:
                yield made


def in_images(row: FrameworkRow) -> Iterator[Made]:
    for tag, ubuntu in tags_for(row):
        system = KNOWN.systems[f"ubuntu{ubuntu}"]
        pythons = [python for python in system.python if python in row.python]
        cards = [
            card
            for card in CARDS
            if runs_on(row, card)
            and family_serves(tag.cuda, card)
            and (not row.cudnn or line_serves(tag.cudnn or "", card))
        ]
        if pythons and cards and numbers(system.glibc) >= numbers(row.glibc or "0"):
            old = numbers(KNOWN.gpus[cards[0].lower()].capability) < (7, 5)
            yield Made(
                Cell(
                    id="cell",
                    matrix="made",
                    frameworks=(f"{row.distribution}=={row.version}",),
                    python=pythons[-1],
                    base=image(tag, ubuntu),
                    cuda=Cuda(provider="base"),
                    pip=tuple(dict.fromkeys((*row.pip, *(["numpy<2"] if row.numpy_abi == "1" else [])))),
                    gpus=(cards[0],),
                ),
                "470.256.02" if cards[0] == "K80" else "575.57.08" if old else "610.43.02",
                row,
            )


def with_an_older_cudnn(made: Made) -> Iterator[Made]:
    cell, row = made.cell, made.row
    if not row.cudnn or "cudnn" not in row.needs:
        return
    ubuntu = cell.base.name.rpartition("ubuntu")[2]
    for tag in KNOWN.tags:
        same = (
            tag.cuda.partition(".")[0] == (row.cuda or "").partition(".")[0]
            and f"ubuntu{ubuntu}" in tag.systems
        )
        older = tag.cudnn and numbers(tag.cudnn)[:2] < numbers(row.cudnn)[:2]
        if same and older:
            yield replace(made, cell=replace(cell, base=image(tag, ubuntu)), why="an older cuDNN")
            return


def wrong_in_images(made: Made) -> Iterator[Made]:
    """The same cell with one thing wrong, for what finds CUDA in its image."""
    cell, row = made.cell, made.row
    for tag in KNOWN.tags:
        ubuntu = next(iter(ubuntus(tag)), None)
        if (
            ubuntu is not None
            and tag.cudnn
            and tag.cuda.partition(".")[0] != (row.cuda or "").partition(".")[0]
        ):
            pythons = [p for p in KNOWN.systems[f"ubuntu{ubuntu}"].python if p in row.python]
            if pythons:
                other = replace(cell, base=image(tag, ubuntu), python=pythons[0], gpus=())
                yield replace(made, cell=other, why="CUDA of another major")
                break
    yield from with_an_older_cudnn(made)
    if row.needs:
        yield replace(
            made,
            cell=replace(
                cell,
                base=replace(
                    cell.base,
                    name=cell.base.name.replace("runtime", "base")
                    .replace("-cudnn8", "")
                    .replace("-cudnn9", "")
                    .replace("-cudnn7", "")
                    .replace("-cudnn", ""),
                ),
            ),
            why="no libraries",
        )
    lacking = next((p for p in ("3.5", "3.14", "3.6", "3.13") if p not in row.python), None)
    if lacking is not None:
        yield replace(made, cell=replace(cell, python=lacking), why="python")
    card = next((c for c in CARDS if not runs_on(row, c) and not compiles_for(row, c)), None)
    if card is not None:
        yield replace(made, cell=replace(cell, gpus=(card,)), why="gpu")
    yield replace(made, driver="384.81", why="driver")
    if row.numpy_abi == "1" and cell.python not in {"3.6", "3.7", "3.8"}:
        yield replace(made, cell=replace(cell, pip=("numpy==2.0.2",)), why="numpy")
    none = "linux/arm64" not in row.platforms and "platforms" not in row.unread
    if none or "linux/arm64" in row.cpu_only:
        yield replace(made, cell=replace(cell, platform="linux/arm64"), why="platform")
    name, _, version = cell.frameworks[0].partition("==")
    if "post" not in version:
        yield replace(made, cell=replace(cell, frameworks=(f"{name}=={version}.77",)), why="release")


def sample(every: list[Made], count: int) -> list[Made]:
    """``count`` of them, evenly, and of each kind of wrong as many as of another, as far as there are."""
    groups = itertools.groupby(sorted(every, key=lambda one: one.why), lambda one: one.why)
    by_why = {why: list(group) for why, group in groups}
    share = count // len(by_why) + 1
    picked = [m for group in by_why.values() for m in group[:: max(1, len(group) // share)][:share]]
    return picked[:count] if len(by_why) == 1 else picked


GOOD = list(sound())
BAD = [one for made in GOOD for one in wrong(made)]
KNOWN_TABLE = {row.distribution: table.name for table in KNOWN.frameworks.values() for row in table.rows}
FOUND = list(outside())
NOT_FOUND = [one for made in FOUND for one in wrong_in_images(made)]


def test_there_is_something_to_ask_about() -> None:
    assert len(sample(GOOD, EACH)) >= 100
    assert len(sample(BAD, EACH)) >= EACH
    assert len({made.why for made in BAD}) >= 10
    assert {made.row.distribution for made in GOOD} == {"torch", "tensorflow", "jax"}


def test_every_framework_that_brings_no_cuda_is_asked_about() -> None:
    tables_of = {KNOWN_TABLE[made.row.distribution] for made in FOUND}
    assert tables_of == {"tensorflow", "cupy", "onnxruntime-gpu", "paddlepaddle-gpu", "ctranslate2"}
    assert min(len(sample(FOUND, EACH)), len(sample(NOT_FOUND, EACH))) >= EACH
    assert len({made.why for made in NOT_FOUND}) >= 8


@pytest.mark.parametrize(
    ("made", "expected"),
    [(GOOD, "possible"), (BAD, "impossible"), (FOUND, "possible"), (NOT_FOUND, "impossible")],
    ids=["good", "bad", "found in the image", "not found in the image"],
)
def test_no_false_refusal_and_no_false_accept(made: list[Made], expected: str) -> None:
    failed = [
        f"{one.why}, driver {one.driver}: {verdict_text(one.cell, findings)}"
        for one in sample(made, EACH)
        if Outcome.of(findings := check(one.cell, driver=one.driver, suggest=False)).answer != expected
    ]
    assert not failed, f"{len(failed)} of {len(sample(made, EACH))}:\n" + "\n".join(failed[:6])
