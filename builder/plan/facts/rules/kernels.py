"""Kernels that are compiled as programs run: whether the image has what that takes."""

import re
from collections.abc import Iterator

from builder.core.model import Cell
from builder.core.versions import at_least, canonical, pinned, requirement
from builder.plan.facts.rules.finding import CELL, Finding, Value, impossible, possible, warns
from builder.plan.facts.rules.image_contents import Stack
from builder.plan.facts.tables import KernelRow, card_of, load

_WORDS = {
    "cc": "a C compiler",
    "cxx": "a C++ compiler",
    "python-headers": "the headers of Python",
    "nvcc": "nvcc",
    "ptxas": "ptxas",
}
_APT = {
    "cc": r"gcc(-\d+)?|clang(-\d+)?|g\+\+(-\d+)?|build-essential",
    "cxx": r"g\+\+(-\d+)?|clang(-\d+)?|build-essential",
    "nvcc": r"cuda-nvcc-.*|cuda-toolkit-.*|nvidia-cuda-toolkit",
}
"""Debian packages that have it."""
_ALL_LISTED = 90
"""Targets above it are all in the row of a release that knows them; of older ones some are left out."""


def kernels(stack: Stack) -> Iterator[Finding]:
    """``kernels``: what packages compile as programs run can be compiled in the image."""
    there = _there(stack)
    if there is None:
        return
    names, asked = package_names(stack), _asked(stack.cell)
    wanted = {one.name for one in stack.beside if any(who != "the cell" for who, _ in one.wanted)}
    for row in load().kernels.values():
        missing = any(one not in (*row.brings, *there) for one in row.needs)
        if row.name in names and row.unless not in names and missing:
            yield _said(row, alone=row.name in asked - wanted)
        if "ptxas" in row.brings and row.name in names:
            yield from _assembled(stack, row)


def _assembled(stack: Stack, row: KernelRow) -> Iterator[Finding]:
    """The package's own ptxas knows the cards; ``TRITON_PTXAS_PATH`` and the like name another one."""
    table, version = load().packages[row.name], _release_of(stack, row.name)
    one = table.row(version) if version is not None else None
    if one is None or not one.architectures or any(name.endswith("PTXAS_PATH") for name, _ in stack.cell.env):
        return
    if row.second is not None and at_least(one.version, row.second):
        return  # with a second ptxas for newer cards, whose list is not in the row
    for card in filter(None, map(card_of, stack.cell.gpus)):
        target = f"sm_{card.capability.replace('.', '')}"
        if target not in one.architectures and int(target.removeprefix("sm_")) > _ALL_LISTED:
            text = f"the ptxas in {one.label} does not know {card.name} ({target}): {row.uses} fail there"
            ways = f"{row.name}>={row.second} has one that does; TRITON_PTXAS_PATH names one of a newer CUDA"
            yield warns(f"{text}; {ways}", Value("cards it knows", " ".join(one.architectures), row.source))


def _release_of(stack: Stack, name: str) -> str | None:
    """The release of a package in the image: by the lock, the cell, or a framework's pin."""
    if (wheel := stack.truth.wheel(name)) is not None:
        return wheel.version
    lines = [line for one in stack.frameworks if one.row is not None for line in one.row.requires]
    parsed = filter(None, map(requirement, (*stack.cell.pip, *lines)))
    return next(filter(None, (pinned(one) for one in parsed if canonical(one.name) == name)), None)


def _said(row: KernelRow, *, alone: bool) -> Finding:
    """``alone``: the cell itself names the package, and no other one wants it. For one that does, as vLLM
    wants FlashInfer, it is one way of several, chosen by card and model.
    """
    takes = [one for one in row.needs if one not in row.brings]
    ways = ["`compilers: true` brings compilers and headers"]
    if "nvcc" in takes:
        ways.append("nvcc is in the devel flavour of an nvidia/cuda tag")
    if row.unless is not None:
        ways.append(f"{row.unless} has kernels that are compiled already")
    values = (
        Value(f"what {row.uses} takes", ", ".join(row.needs), row.source),
        Value("packages", row.name, CELL),
    )
    judge = impossible if row.when == "always" and alone else possible
    words = " and ".join(_WORDS[one] for one in takes)
    return judge(f"{row.uses} cannot compile here, which takes {words}: {'; '.join(ways)}", *values)


def package_names(stack: Stack) -> set[str]:
    """The packages of the image, as far as they are known: those of the lock, else what is asked for."""
    if stack.truth.locked:
        return {wheel.name for wheel in stack.truth.wheels}
    lines = [line for one in stack.frameworks if one.row is not None for line in one.row.requires]
    wanted = {canonical(parsed.name) for text in lines if (parsed := requirement(text)) is not None}
    return wanted | _asked(stack.cell) | {one.name for one in stack.beside}


def _asked(cell: Cell) -> set[str]:
    texts = (*cell.frameworks, *cell.pip)
    return {canonical(parsed.name) for text in texts if (parsed := requirement(text)) is not None}


def _there(stack: Stack) -> set[str] | None:
    """What the image has; None if nobody knows what the base holds."""
    cell, tag = stack.cell, stack.tag
    if cell.base.kind == "registry" and tag is None:
        return None
    apt = [text.partition("=")[0] for text in cell.apt]
    found = {one for one, names in _APT.items() if any(re.fullmatch(names, name) for name in apt)}
    headers = rf"(lib)?python({re.escape(cell.python)}|3)-dev"
    own = cell.has_own_python(stack.system)
    if cell.compilers or not own or any(re.fullmatch(headers, name) for name in apt):
        found.add("python-headers")
    if cell.compilers:
        found |= {"cc", "cxx"}
    if tag is not None and tag.flavour == "devel":
        # https://gitlab.com/nvidia/container-images/cuda, dist/*/devel: build-essential and the toolkit
        found |= {"cc", "cxx", "nvcc", "ptxas"}
    if "nvidia-cuda-nvcc" in package_names(stack) and {"CUDA_HOME", "CUDA_PATH"} & {
        name for name, _ in cell.env
    }:
        found |= {"nvcc", "ptxas"}  # nothing looks for it in the wheel, which is CUDA 13's, by itself
    return found
