"""What a runtime's image can stand on: any base, with a standalone Python, else one that has its Python."""

from dataclasses import dataclass

from builder.colab.runtimes import Runtime
from builder.facts.tables import Facts, load
from builder.facts.versions import at_least
from builder.index.pythons import offered
from builder.matrix.bases import SUITES


@dataclass(frozen=True, kw_only=True)
class BaseChoice:
    """One base for the runtime. ``note`` says in what it is not Colab's own system."""

    base: str
    system: str
    """Its row in the table of systems."""
    note: str = ""

    @property
    def suite(self) -> str | None:
        """The Debian release, whose CUDA and cuDNN are NVIDIA's wheels; None for NVIDIA's image."""
        return self.base.removeprefix("rootfs:debian/") if self.base.startswith("rootfs:") else None


def standalone_version(runtime: Runtime) -> str | None:
    """The runtime's very Python, if uv's catalogue has it: ``3.12.13``."""
    known = {one.version for one in offered("linux/amd64")}
    return runtime.python if runtime.python in known else None


def choose_bases(runtime: Runtime, *, any_python: bool) -> tuple[tuple[BaseChoice, ...], tuple[str, ...]]:
    """The bases, most faithful first, and for each kind that has none, why.

    Most faithful is NVIDIA's image with the runtime's CUDA and cuDNN; Debian's own packages need no registry.
    ``any_python``: the image gets a standalone one, so the base need not have it.
    """
    # Colab's since August 2023, if the lists do not say.
    own = (runtime.system or "Ubuntu 22.04").removeprefix("Ubuntu ")[:5]
    kinds = [kind(runtime, own, load(), any_python=any_python) for kind in (_nvidia_image, _debian)]
    choices = tuple(found for found in kinds if isinstance(found, BaseChoice))
    return choices, tuple(found for found in kinds if isinstance(found, str))


def _nvidia_image(runtime: Runtime, own: str, facts: Facts, *, any_python: bool) -> BaseChoice | str:
    rows = [row for row in facts.tags if row.cuda == runtime.cuda and row.state == "listed"]
    if runtime.cuda is None or not rows:
        return f"nvidia/cuda has no image of CUDA {runtime.cuda or '(not in the apt list)'} with cuDNN"
    fitting = [
        (row, ubuntu)
        for row in rows
        for ubuntu in row.ubuntu
        if (system := facts.systems.get(f"ubuntu{ubuntu}")) is not None
        and (any_python or runtime.python_minor in system.python)
    ]
    if not fitting:
        there = sorted({ubuntu for row in rows for ubuntu in row.ubuntu})
        return (
            f"no nvidia/cuda image has both CUDA {runtime.cuda} and Python {runtime.python_minor}: "
            f"the tags are of Ubuntu {', '.join(there)}"
        )
    row, ubuntu = min(fitting, key=lambda pair: (own != pair[1], pair[1]))
    whose = "" if any_python else f", whose own Python is {runtime.python_minor}"
    notes = [] if own == ubuntu else [f"Ubuntu {ubuntu}{whose}"]
    if runtime.cudnn is not None and row.cudnn != runtime.cudnn:
        notes.append(f"the image's cuDNN is {row.cudnn or 'not known'}, Colab's {runtime.cudnn}")
    base = f"nvidia/cuda:{row.cuda}-{row.infix}-runtime-ubuntu{ubuntu}"
    return BaseChoice(base=base, system=f"ubuntu{ubuntu}", note="; ".join(notes))


def _debian(runtime: Runtime, own: str, facts: Facts, *, any_python: bool) -> BaseChoice | str:
    """The Debian release with that Python; with any, the oldest whose glibc is not older than Ubuntu's."""
    rows = {suite: facts.systems[f"debian/{suite}"] for suite in SUITES}
    if any_python:
        ubuntu = facts.systems.get(f"ubuntu{own}")
        new = [suite for suite, row in rows.items() if ubuntu is None or at_least(row.glibc, ubuntu.glibc)]
        suite = min(new, key=lambda suite: float(rows[suite].glibc), default=None)
    else:
        suite = next((suite for suite, row in rows.items() if runtime.python_minor in row.python), None)
    if suite is None:
        has = ", ".join(f"{suite} {row.python[0]}" for suite, row in rows.items())
        return f"no Debian release has Python {runtime.python_minor} ({has})"
    note = f"Debian {suite} in place of {runtime.system or 'Ubuntu'}; CUDA and cuDNN are NVIDIA's wheels"
    return BaseChoice(base=f"rootfs:debian/{suite}", system=f"debian/{suite}", note=note)
