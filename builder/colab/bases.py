"""What a runtime's image can stand on: any base, with a standalone Python, else one that has its Python."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from builder.colab.runtimes import Runtime
from builder.facts.tables import Facts, TagRow, load
from builder.facts.versions import at_least
from builder.index.pythons import offered
from builder.matrix.bases import SUITES

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


def standalone_version(runtime: Runtime) -> str | None:
    """The runtime's very Python, if uv's catalogue has it: ``3.12.13``."""
    known = {one.version for one in offered("linux/amd64")}
    return runtime.python if runtime.python in known else None


def choose_bases(
    runtime: Runtime, facts: Facts | None = None, *, any_python: bool
) -> tuple[tuple[BaseChoice, ...], tuple[str, ...]]:
    """The bases, most faithful first, and for each kind that has none, why.

    Most faithful is NVIDIA's image with the runtime's CUDA and cuDNN; Debian's own packages need no registry.
    ``any_python``: the image gets a standalone one, so the base need not have it.
    """
    known = facts or load()
    choices: list[BaseChoice] = []
    reasons: list[str] = []
    image = _nvidia_image(runtime, known, any_python=any_python)
    if isinstance(image, str):
        reasons.append(image)
        plain = _plain_ubuntu(runtime, known, any_python=any_python)
        choices += [plain] if plain is not None else []
    else:
        choices.append(image)
    suite = _suite(runtime, known, any_python=any_python)
    if suite is not None:
        note = f"Debian {suite} in place of {runtime.system or 'Ubuntu'}; {_WHEELS}"
        choices.append(
            BaseChoice(base=f"rootfs:debian/{suite}", system=f"debian/{suite}", provider="wheels", note=note)
        )
    else:
        has = ", ".join(f"{s} {known.systems[f'debian/{s}'].python[0]}" for s in SUITES)
        reasons.append(f"no Debian release has Python {runtime.python_minor} ({has})")
    return tuple(choices), tuple(reasons)


def _own_ubuntu(runtime: Runtime) -> str:
    """``22.04`` of ``Ubuntu 22.04.5``."""
    return (runtime.system or f"Ubuntu {_DEFAULT_UBUNTU}").removeprefix("Ubuntu ")[:5]


def _suite(runtime: Runtime, facts: Facts, *, any_python: bool) -> str | None:
    """The Debian release with that Python; with any, the oldest whose glibc is not older than Ubuntu's."""
    rows = {suite: facts.systems[f"debian/{suite}"] for suite in SUITES}
    if not any_python:
        return next((suite for suite, row in rows.items() if runtime.python_minor in row.python), None)
    own = facts.systems.get(f"ubuntu{_own_ubuntu(runtime)}")
    fitting = [suite for suite, row in rows.items() if own is None or at_least(row.glibc, own.glibc)]
    return min(fitting, key=lambda suite: float(rows[suite].glibc), default=None)


def _nvidia_image(runtime: Runtime, facts: Facts, *, any_python: bool) -> BaseChoice | str:
    rows = [row for row in facts.tags if row.cuda == runtime.cuda and row.state == "listed"]
    if runtime.cuda is None or not rows:
        return f"nvidia/cuda has no image of CUDA {runtime.cuda or '(not in the apt list)'} with cuDNN"
    fitting = list(_with_python(runtime, rows, facts, any_python=any_python))
    if not fitting:
        there = sorted({ubuntu for row in rows for ubuntu in row.ubuntu})
        return (
            f"no nvidia/cuda image has both CUDA {runtime.cuda} and Python {runtime.python_minor}: "
            f"the tags are of Ubuntu {', '.join(there)}"
        )
    own = _own_ubuntu(runtime)
    row, ubuntu = min(fitting, key=lambda pair: (own != pair[1], pair[1]))
    notes = [] if own == ubuntu else [_other_ubuntu(ubuntu, runtime, any_python=any_python)]
    if runtime.cudnn is not None and row.cudnn != runtime.cudnn:
        notes.append(f"the image's cuDNN is {row.cudnn or 'not known'}, Colab's {runtime.cudnn}")
    return BaseChoice(
        base=f"nvidia/cuda:{row.cuda}-{row.infix}-runtime-ubuntu{ubuntu}",
        system=f"ubuntu{ubuntu}",
        provider="base",
        note="; ".join(notes),
    )


def _other_ubuntu(ubuntu: str, runtime: Runtime, *, any_python: bool) -> str:
    return (
        f"Ubuntu {ubuntu}" if any_python else f"Ubuntu {ubuntu}, whose own Python is {runtime.python_minor}"
    )


def _with_python(
    runtime: Runtime, rows: list[TagRow], facts: Facts, *, any_python: bool
) -> Iterator[tuple[TagRow, str]]:
    for row in rows:
        for ubuntu in row.ubuntu:
            system = facts.systems.get(f"ubuntu{ubuntu}")
            if system is not None and (any_python or runtime.python_minor in system.python):
                yield row, ubuntu


def _plain_ubuntu(runtime: Runtime, facts: Facts, *, any_python: bool) -> BaseChoice | None:
    """Ubuntu's own image, with NVIDIA's wheels in it."""
    own = f"ubuntu{_own_ubuntu(runtime)}"
    for name, system in facts.systems.items():
        if (
            name == own
            if any_python
            else (name.startswith("ubuntu") and runtime.python_minor in system.python)
        ):
            ubuntu = name.removeprefix("ubuntu")
            note = f"{_other_ubuntu(ubuntu, runtime, any_python=any_python)}; {_WHEELS}"
            return BaseChoice(base=f"ubuntu:{ubuntu}", system=name, provider="wheels", note=note)
    return None
