"""One framework of a cell with all that its wheel, or else the tables, tell about it."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from packaging.requirements import Requirement

from builder.core.model import Cell
from builder.core.versions import canonical, pinned, requirement
from builder.plan.facts.reading import Truth, WheelTruth
from builder.plan.facts.rules.finding import Finding, Value, decide
from builder.plan.facts.tables import Brings, FrameworkRow, FrameworkTable, Source, jax_cuda, load
from builder.sources.index import MACHINES, environment


@dataclass(frozen=True, kw_only=True)
class CellFramework:
    """One framework of the cell with all that is known of its wheel."""

    requirement: str
    name: str
    """The name of its table (``cupy`` for ``cupy-cuda12x``)."""
    title: str
    version: str | None
    variant: str
    table: FrameworkTable | None
    row: FrameworkRow | None
    wheel: WheelTruth | None
    cuda: Value | None
    cudnn: Value | None
    brings: Brings
    wants: tuple[tuple[Requirement, Source], ...]
    """Requirements on NVIDIA's wheels, by the wheel's metadata and the extras asked for."""
    pins: tuple[tuple[Requirement, Source], ...]
    """The installed ones of :attr:`wants`: none, if only the cell's own list is installed."""

    @property
    def carries_cuda(self) -> bool:
        """Whether CUDA and cuDNN come with it: inside its wheel, or by the pins in force."""
        return self.brings in {"pins", "inside"}

    @property
    def label(self) -> str:
        return f"{self.title} {self.version or self.requirement}"


def framework_of(text: str, cell: Cell, truth: Truth, notes: list[Finding]) -> CellFramework:
    """Resolves a requirement of ``framework_texts``; differences between wheel and table go to ``notes``."""
    parsed = requirement(text)
    distribution = canonical(parsed.name) if parsed else text
    wheel = truth.wheel(distribution)
    version = wheel.version if wheel else pinned(parsed) if parsed else None
    cupy = re.fullmatch(r"cupy-(cuda\d+x?)", distribution)
    name = load().table_name(distribution)
    table = load().frameworks.get(name)
    extras = frozenset(canonical(extra) for extra in parsed.extras) if parsed else frozenset()
    variant = cupy[1] if cupy else _variant(name, version, extras, cell)
    of = distribution if distribution == "tensorflow-gpu" or cupy else None
    row = table.row(version, variant, of, cell.platform) if table and version else None
    plugin = truth.wheel(f"jax-{variant}-plugin") if name == "jax" else None
    if wheel is not None and plugin is not None:
        # jax itself is Python only: what is compiled lies in its plug-in
        wheel = replace(wheel, cuda=plugin.cuda, cudnn=plugin.cudnn, architectures=plugin.architectures)
    wants = tuple(_active_pins(row, plugin or wheel, extras, name, cell))
    pins = () if cell.dependencies == "listed" else wants
    inside: Brings = "inside" if row is not None and row.brings == "inside" else "outside"

    def compiled(what: str, value: Literal["cuda", "cudnn"]) -> Value | None:
        label = f"{what} that {name} was compiled with"
        read, listed = getattr(wheel, value, None), getattr(row, value, None)
        return decide(
            Value(label, read, wheel.source) if read and wheel else None,
            Value(label, listed, row.source_of(value)) if listed and row else None,
            notes,
        )

    return CellFramework(
        requirement=text,
        name=name,
        title=table.title if table else distribution,
        version=version,
        variant=row.variant if row else variant,
        table=table,
        row=row,
        wheel=wheel,
        cuda=compiled("CUDA", "cuda"),
        cudnn=compiled("cuDNN", "cudnn"),
        brings="pins" if any("cudnn" in pin.name for pin, _ in pins) else inside,
        wants=wants,
        pins=pins,
    )


def _variant(name: str, version: str | None, extras: frozenset[str], cell: Cell) -> str:
    if version and "+" in version:
        return version.split("+", 1)[1]
    if name == "jax":
        return jax_cuda(extras, version) or _plugin_beside(cell)
    tails = (url.rstrip("/").rsplit("/", 1)[-1] for url in cell.index if name == "torch")
    return next((tail for tail in tails if re.fullmatch(r"cu\d+|cpu|xpu|rocm[\d.]+", tail)), "")


def _plugin_beside(cell: Cell) -> str:
    """The CUDA of JAX's plug-in, or of a jaxlib with CUDA in it, that the cell names itself."""
    for parsed in filter(None, map(requirement, cell.pip)):
        name, version = canonical(parsed.name), pinned(parsed) or ""
        text = version if name == "jaxlib" else name
        if found := re.match(r"jax-(cuda\d+)-plugin$|[\d.]+\+(cuda\d+)", text):
            return found[1] or found[2]
    return "cpu"


def _active_pins(
    row: FrameworkRow | None, wheel: WheelTruth | None, extras: frozenset[str], name: str, cell: Cell
) -> Iterator[tuple[Requirement, Source]]:
    """Requirements on NVIDIA's wheels that hold on Linux with these extras."""
    # jax itself pins nothing of NVIDIA's: its plug-in does, by an extra that jax's own extra asks for
    if wheel is not None and wheel.requires and wheel.name != "jax":
        extras |= {"with-cuda"} if name == "jax" else set()
        python, machine = f"{cell.python}.0", MACHINES.get(cell.platform, "")
        environments = [environment(python, machine=machine, extra=extra) for extra in ("", *sorted(extras))]
        for parsed in filter(None, map(requirement, wheel.requires)):
            ours = parsed.name.startswith(("nvidia-", "nvidia_"))
            if ours and (parsed.marker is None or any(map(parsed.marker.evaluate, environments))):
                yield parsed, wheel.source
    elif row is not None:
        asked = dict.fromkeys(line for extra in ("", *sorted(extras)) for line in row.extras.get(extra, ()))
        for parsed in filter(None, map(requirement, asked)):
            yield parsed, row.source_of("extras")
