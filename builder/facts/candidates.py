"""Every way on record to put given frameworks into one image: releases, CUDA variants, Pythons, bases.

Nothing is judged here; :mod:`.propose` and :mod:`.nearest` ask the rules.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

from packaging.utils import canonicalize_name

from builder.errors import UsageError
from builder.facts.framework import ALIASES
from builder.facts.versions import at_least, contains, key, major, requirement, short
from builder.model import Base, Cell, Cuda

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from packaging.requirements import Requirement

    from builder.facts.tables import Facts, FrameworkRow, FrameworkTable, TagRow

LINES = 4
"""Release lines of one framework that are looked at, from the newest that fits."""


@dataclass(frozen=True, kw_only=True)
class Choice:
    """One way to install one framework."""

    text: str
    row: FrameworkRow
    brings: bool
    """True where its wheels bring CUDA and cuDNN."""
    index: tuple[str, ...] = ()


def choices(text: str, known: Facts, available: Mapping[str, Sequence[str]]) -> Iterator[Choice]:
    parsed = requirement(text)
    if parsed is None:
        raise UsageError(f"{text!r} is not a requirement", hint="as in 'tensorflow==2.15.*'")
    distribution = canonicalize_name(parsed.name)
    name = "cupy" if distribution.startswith("cupy-cuda") else ALIASES.get(distribution, distribution)
    table = known.frameworks.get(name)
    if table is None:
        raise UsageError(
            f"there are no facts about {parsed.name}",
            hint=f"there are about {', '.join(sorted(known.frameworks))}",
        )
    offered = available.get(distribution, ())
    if "+" in str(parsed.specifier) and not any("+" in version for version in offered):
        offered = ()  # asked for by its variant: what the default index has is no answer
    lines: list[str] = []
    for row in reversed(table.rows):
        if distribution.startswith("cupy-") and row.variant not in distribution:
            continue
        version = _version(row, parsed, offered)
        if version is None:
            continue
        if str(row.versions) not in lines:
            lines.append(str(row.versions))
        if len(lines) > LINES:
            return
        listed = f"{version}+{row.variant}" in offered
        yield from _ways(table, row, parsed, version, listed=listed)


def _version(row: FrameworkRow, parsed: Requirement, available: Sequence[str]) -> str | None:
    """The newest version of a row that the requirement admits, without its ``+cu118``."""
    fitting = [
        v
        for v in (_of_variant(row, available) or (() if available else (row.latest,)))
        if contains(row.versions, v)
        and (contains(parsed.specifier, v) or contains(parsed.specifier, f"{v}+{row.variant}".rstrip("+")))
    ]
    if fitting:
        return max(fitting, key=key)
    # a pinned version inside the line that is not its newest
    exact = [clause.version for clause in parsed.specifier if clause.operator == "=="]
    if (
        not available
        and len(exact) == 1
        and not exact[0].endswith("*")
        and contains(row.versions, exact[0].split("+")[0])
    ):
        return exact[0].split("+")[0]
    return None


def _of_variant(row: FrameworkRow, available: Sequence[str]) -> list[str]:
    """Of what the user's indexes have, the versions that can be of the row's CUDA variant.

    Where none of them carries it, the default index's stand for it: a release has all of its variants, and
    before it is proposed the variant's own index is asked.
    """
    own = [v for v in available if v.partition("+")[2] == row.variant]
    plain = [v for v in available if "+" not in v]
    return [v.partition("+")[0] for v in (own or plain if not row.default else (*own, *plain))]


def _ways(
    table: FrameworkTable, row: FrameworkRow, parsed: Requirement, version: str, *, listed: bool
) -> Iterator[Choice]:
    """``listed``: the user's own indexes have the variant, so the cell has to name none."""
    name = parsed.name
    local = next((c.version.split("+")[1] for c in parsed.specifier if "+" in c.version), None)
    if table.name == "torch":
        if local is not None and local != row.variant:
            return
        if row.default and local is None:
            yield Choice(text=f"{name}=={version}", row=row, brings=row.brings in {"pins", "inside"})
        else:
            index = () if listed else (f"https://download.pytorch.org/whl/{row.variant}",)
            yield Choice(text=f"{name}=={version}+{row.variant}", row=row, brings=True, index=index)
    elif table.name == "jax":
        if row.default and (not parsed.extras or row.extra in parsed.extras):
            yield Choice(text=f"{name}[{row.extra}]=={version}", row=row, brings=True)
    elif table.name == "cupy":
        yield Choice(text=f"cupy-{row.variant}=={version}", row=row, brings=False)
    else:
        if row.brings == "extra" and row.extra == "and-cuda":
            yield Choice(text=f"{name}[{row.extra}]=={version}", row=row, brings=True)
        if not parsed.extras:
            yield Choice(text=f"{name}=={version}", row=row, brings=False)


def cells(
    ways: list[list[Choice]], python: str | None, gpu: str | None, known: Facts
) -> Iterator[tuple[tuple[Choice, ...], Cell]]:
    for combination in itertools.product(*ways):
        common = set.intersection(*(set(choice.row.python) for choice in combination))
        for version in sorted(common, key=key, reverse=True):
            if python is None or version == python:
                for base, cuda in _bases(combination, version, known):
                    yield combination, _cell(combination, version, base, cuda, gpu)


def _cell(combination: tuple[Choice, ...], python: str, base: Base, cuda: Cuda, gpu: str | None) -> Cell:
    pip = dict.fromkeys(text for choice in combination for text in choice.row.pip)
    index = dict.fromkeys(url for choice in combination for url in choice.index)
    return Cell(
        id="proposal",
        matrix="resolved",
        frameworks=tuple(choice.text for choice in combination),
        python=python,
        base=base,
        cuda=cuda,
        pip=tuple(pip),
        index=tuple(index),
        gpus=(gpu,) if gpu else (),
    )


def _bases(combination: tuple[Choice, ...], python: str, known: Facts) -> Iterator[tuple[Base, Cuda]]:
    """Systems that have the Python, the newest first, with CUDA from wheels and from the base."""
    systems = [system for system in reversed(list(known.systems.values())) if python in system.python]
    cuda = next((choice.row.cuda for choice in combination if choice.row.cuda), None)
    if cuda is None:
        return
    tags = [row for row in known.tags if row.state == "listed" and major(row.cuda) == major(cuda)]
    tags.sort(key=lambda row: (not at_least(row.cuda, cuda), key(row.cuda)))
    wheels = _wheels(combination, known)
    for system in systems:
        ubuntu = system.name.removeprefix("ubuntu")
        if system.name.startswith("debian/"):
            if wheels is not None:
                yield Base(kind="rootfs", name=system.name), wheels
            continue
        fitting = [row for row in tags if ubuntu in row.ubuntu]
        if wheels is not None and fitting:
            name = f"nvidia/cuda:{_near(fitting, cuda).cuda}-base-{system.name}"
            yield Base(kind="registry", name=name), wheels
        if not any(choice.brings for choice in combination):
            for row in fitting:
                name = f"nvidia/cuda:{row.cuda}-{row.infix}-runtime-{system.name}"
                yield Base(kind="registry", name=name), Cuda(provider="base")


def _near(rows: list[TagRow], cuda: str) -> TagRow:
    """The oldest release that is not older than the framework's CUDA; else the newest there is."""
    fitting = [row for row in rows if at_least(row.cuda, cuda)]
    return (
        min(fitting, key=lambda row: key(row.cuda)) if fitting else max(rows, key=lambda row: key(row.cuda))
    )


def _wheels(combination: tuple[Choice, ...], known: Facts) -> Cuda | None:
    """NVIDIA's wheels for those frameworks that pin none; None where there are no such wheels."""
    brought = {major(c.row.cuda) for c in combination if c.brings and c.row.cuda}
    packages: dict[str, str] = {}
    for choice in combination:
        # a framework that pins nothing finds the libraries that another one's pins bring
        if choice.brings or choice.row.cuda is None or major(choice.row.cuda) in brought:
            continue
        for family in choice.row.needs:
            text = _wheel(family, choice.row, known)
            if text is None:
                return None
            packages[family] = text
    return Cuda(provider="wheels", packages=tuple(sorted(packages.values())))


def _wheel(family: str, row: FrameworkRow, known: Facts) -> str | None:
    """One of NVIDIA's wheels, pinned: all from one toolkit, cuDNN the oldest that the framework accepts."""
    suffix = f"cu{major(row.cuda or '0')}"
    wheel, cublas = known.wheels.get(f"nvidia-{family}-{suffix}"), known.wheels.get(f"nvidia-cublas-{suffix}")
    if (
        wheel is None
        or cublas is None
        or cublas.toolkit is None
        or not at_least(cublas.toolkit, row.cuda or "0")
    ):
        return None
    if family == "cudnn":
        need = short(row.cudnn or "0", 2)
        fitting = [v for v in wheel.versions if major(v) == major(need) and at_least(short(v, 2), need)]
    elif wheel.toolkit is None:
        fitting = [v for v in wheel.versions if short(v, 2) == cublas.toolkit]
    else:
        fitting = list(wheel.versions)
    return f"{wheel.name}=={min(fitting, key=key)}" if fitting else None
