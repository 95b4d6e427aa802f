"""One framework of a cell with all that its wheel, or else the tables, tell about it."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from packaging.requirements import Requirement

from builder.facts.finding import Finding, Source, Value, decide
from builder.facts.frameworks import Brings, FrameworkRow, FrameworkTable
from builder.facts.tables import load
from builder.facts.truth import Truth, WheelTruth
from builder.facts.versions import canonical, pinned, requirement
from builder.index.target import MACHINES, environment
from builder.model import Cell


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


def table_name(distribution: str) -> str:
    """The table that a distribution is looked up in: ``cupy`` for ``cupy-cuda12x``."""
    if re.fullmatch(r"cupy-cuda\d+x?", distribution):
        return "cupy"
    return "tensorflow" if distribution == "tensorflow-gpu" else distribution


def framework_of(text: str, cell: Cell, truth: Truth, notes: list[Finding]) -> CellFramework:
    """Resolves an entry of ``cell.frameworks``; differences between wheel and table go to ``notes``."""
    parsed = requirement(text)
    distribution = canonical(parsed.name) if parsed else text
    wheel = truth.wheel(distribution)
    version = wheel.version if wheel else pinned(parsed) if parsed else None
    cupy = re.fullmatch(r"cupy-(cuda\d+x?)", distribution)
    name = table_name(distribution)
    table = load().frameworks.get(name)
    extras = frozenset(canonical(extra) for extra in parsed.extras) if parsed else frozenset()
    variant = cupy[1] if cupy else _variant(name, version, extras, cell)
    of = distribution if distribution == "tensorflow-gpu" or cupy else None
    row = table.row(version, variant, of) if table and version else None
    plugin = truth.wheel(f"jax-{variant}-plugin") if name == "jax" else None
    if wheel is not None and plugin is not None:
        # jax itself is Python only: what is compiled lies in its plug-in
        wheel = replace(wheel, cuda=plugin.cuda, cudnn=plugin.cudnn, architectures=plugin.architectures)
    active = _active_pins(row, plugin or wheel, extras, name, cell)

    installed = () if cell.dependencies == "listed" else active

    def compiled(what: str, value: str, by_table: str | None, read: str | None) -> Value | None:
        label = f"{what} that {name} was compiled with"
        from_table = None
        if by_table and row:
            from_table = Value(label, by_table, row.source_of(value))
        from_wheel = None
        if read and wheel is not None:
            from_wheel = Value(label, read, wheel.source)
        return decide(from_wheel, from_table, notes)

    return CellFramework(
        requirement=text,
        name=name,
        title=table.title if table else distribution,
        version=version,
        variant=row.variant if row else variant,
        table=table,
        row=row,
        wheel=wheel,
        cuda=compiled("CUDA", "cuda", row.cuda if row else None, wheel.cuda if wheel else None),
        cudnn=compiled("cuDNN", "cudnn", row.cudnn if row else None, wheel.cudnn if wheel else None),
        brings=_brings(row, installed),
        wants=active,
        pins=installed,
    )


def _variant(name: str, version: str | None, extras: frozenset[str], cell: Cell) -> str:
    if version and "+" in version:
        return version.split("+", 1)[1]
    if name == "jax":
        found = next(
            (re.match(r"cuda\d+", extra) for extra in sorted(extras) if extra.startswith("cuda")), None
        )
        return found.group(0) if found else _plugin_beside(cell)
    if name == "torch":
        for url in cell.index:
            tail = url.rstrip("/").rsplit("/", 1)[-1]
            if re.fullmatch(r"cu\d+|cpu|xpu|rocm[\d.]+", tail):
                return tail
    return ""


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
) -> tuple[tuple[Requirement, Source], ...]:
    # jax itself pins nothing of NVIDIA's: its plug-in does, by an extra that jax's own extra asks for
    if wheel is not None and wheel.requires and wheel.name != "jax":
        source = wheel.source
        extras |= {"with-cuda"} if name == "jax" else set()
        return tuple(_nvidia(wheel.requires, extras, source, cell))
    if row is None:
        return ()
    asked = dict.fromkeys(line for extra in ("", *sorted(extras)) for line in row.extras.get(extra, ()))
    source = row.source_of("extras")
    return tuple((parsed, source) for pin in asked if (parsed := requirement(pin)) is not None)


def _nvidia(
    lines: tuple[str, ...], extras: frozenset[str], source: Source, cell: Cell
) -> Iterator[tuple[Requirement, Source]]:
    """The ``Requires-Dist`` lines on NVIDIA's wheels that hold on Linux with these extras."""
    python, machine = f"{cell.python}.0", MACHINES.get(cell.platform, "")
    environments = [environment(python, machine=machine, extra=extra) for extra in ("", *sorted(extras))]
    for line in lines:
        parsed = requirement(line)
        if parsed is None or not parsed.name.startswith(("nvidia-", "nvidia_")):
            continue
        if parsed.marker is None or any(parsed.marker.evaluate(values) for values in environments):
            yield parsed, source


def _brings(row: FrameworkRow | None, active: tuple[tuple[Requirement, Source], ...]) -> Brings:
    if any("cudnn" in pin.name for pin, _ in active):
        return "pins"
    if row is not None and row.brings == "inside":
        return "inside"
    return "outside"
