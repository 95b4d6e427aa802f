"""What a runtime's image can stand on: Python's minor version must be the base's own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from builder.facts.tables import load
from builder.matrix.bases import SUITES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from builder.colab.runtimes import Runtime
    from builder.facts.tables import Facts, TagRow

_DEFAULT_UBUNTU = "22.04"
"""Colab's since August 2023."""
_WHEELS = "CUDA and cuDNN are NVIDIA's wheels"


@dataclass(frozen=True, kw_only=True)
class BaseChoice:
    """One base for the runtime. ``note`` says in what it is not Colab's own system."""

    base: str
    system: str
    """Its row in the table of systems."""
    provider: Literal["base", "wheels"]
    note: str = ""


def choose_bases(
    runtime: Runtime, facts: Facts | None = None
) -> tuple[tuple[BaseChoice, ...], tuple[str, ...]]:
    """The bases, most faithful first, and for each kind that has none, why.

    Most faithful is NVIDIA's image with the runtime's CUDA and cuDNN; Debian's own packages need no registry.
    """
    known = facts or load()
    choices: list[BaseChoice] = []
    reasons: list[str] = []
    image = _nvidia_image(runtime, known)
    if isinstance(image, str):
        reasons.append(image)
        plain = _plain_ubuntu(runtime, known)
        choices += [plain] if plain is not None else []
    else:
        choices.append(image)
    suite = next((s for s in SUITES if runtime.python_minor in known.systems[f"debian/{s}"].python), None)
    if suite is not None:
        note = f"Debian {suite} in place of {runtime.system or 'Ubuntu'}; {_WHEELS}"
        choices.append(
            BaseChoice(base=f"rootfs:debian/{suite}", system=f"debian/{suite}", provider="wheels", note=note)
        )
    else:
        has = ", ".join(f"{s} {known.systems[f'debian/{s}'].python[0]}" for s in SUITES)
        reasons.append(f"no Debian release has Python {runtime.python_minor} ({has})")
    return tuple(choices), tuple(reasons)


def _nvidia_image(runtime: Runtime, facts: Facts) -> BaseChoice | str:
    rows = [row for row in facts.tags if row.cuda == runtime.cuda and row.state == "listed"]
    if runtime.cuda is None or not rows:
        return f"nvidia/cuda has no image of CUDA {runtime.cuda or '(not in the apt list)'} with cuDNN"
    fitting = list(_with_python(runtime, rows, facts))
    if not fitting:
        there = sorted({ubuntu for row in rows for ubuntu in row.ubuntu})
        return (
            f"no nvidia/cuda image has both CUDA {runtime.cuda} and Python {runtime.python_minor}: "
            f"the tags are of Ubuntu {', '.join(there)}"
        )
    own = (runtime.system or f"Ubuntu {_DEFAULT_UBUNTU}").removeprefix("Ubuntu ")
    row, ubuntu = min(fitting, key=lambda pair: (not own.startswith(pair[1]), pair[1]))
    notes = [] if own.startswith(ubuntu) else [f"Ubuntu {ubuntu}, whose own Python is {runtime.python_minor}"]
    if runtime.cudnn is not None and row.cudnn != runtime.cudnn:
        notes.append(f"the image's cuDNN is {row.cudnn or 'not known'}, Colab's {runtime.cudnn}")
    return BaseChoice(
        base=f"nvidia/cuda:{row.cuda}-{row.infix}-runtime-ubuntu{ubuntu}",
        system=f"ubuntu{ubuntu}",
        provider="base",
        note="; ".join(notes),
    )


def _with_python(runtime: Runtime, rows: list[TagRow], facts: Facts) -> Iterator[tuple[TagRow, str]]:
    for row in rows:
        for ubuntu in row.ubuntu:
            system = facts.systems.get(f"ubuntu{ubuntu}")
            if system is not None and runtime.python_minor in system.python:
                yield row, ubuntu


def _plain_ubuntu(runtime: Runtime, facts: Facts) -> BaseChoice | None:
    """Ubuntu's own image, with NVIDIA's wheels in it."""
    for name, system in facts.systems.items():
        if name.startswith("ubuntu") and runtime.python_minor in system.python:
            ubuntu = name.removeprefix("ubuntu")
            note = f"Ubuntu {ubuntu}, whose own Python is {runtime.python_minor}; {_WHEELS}"
            return BaseChoice(base=f"ubuntu:{ubuntu}", system=name, provider="wheels", note=note)
    return None
