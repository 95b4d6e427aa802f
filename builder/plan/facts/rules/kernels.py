"""Kernels that are compiled as programs run: whether the image has what that takes."""

import re
from collections.abc import Iterator

from builder.core.model import Cell
from builder.core.versions import canonical, requirement
from builder.plan.facts.rules.finding import CELL, Finding, Value, impossible, possible
from builder.plan.facts.rules.image_contents import Stack
from builder.plan.facts.tables import KernelRow, load

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


def kernels(stack: Stack) -> Iterator[Finding]:
    """``kernels``: what packages compile as programs run can be compiled in the image."""
    there = _there(stack)
    if there is None:
        return
    names, asked = _names(stack), _asked(stack.cell)
    wanted = {one.name for one in stack.beside if any(who != "the cell" for who, _ in one.wanted)}
    for row in load().kernels.values():
        missing = any(one not in (*row.brings, *there) for one in row.needs)
        if row.name in names and row.unless not in names and missing:
            yield _said(row, alone=row.name in asked - wanted)


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


def _names(stack: Stack) -> set[str]:
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
    if "nvidia-cuda-nvcc" in _names(stack) and {"CUDA_HOME", "CUDA_PATH"} & {name for name, _ in cell.env}:
        found |= {"nvcc", "ptxas"}  # nothing looks for it in the wheel, which is CUDA 13's, by itself
    return found
