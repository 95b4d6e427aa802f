"""One framework of a cell with all that its wheel, or else the tables, tell about it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from builder.facts.decide import decide
from builder.facts.finding import Source, Value
from builder.facts.versions import canonical, contains, pinned, requirement

if TYPE_CHECKING:
    from collections.abc import Iterator

    from packaging.requirements import Requirement

    from builder.facts.finding import Finding
    from builder.facts.tables import Brings, Facts, FrameworkRow, FrameworkTable
    from builder.facts.truth import Truth, WheelTruth
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
    pins: tuple[tuple[Requirement, Source], ...]
    """Requirements on NVIDIA's wheels that are in force in this cell."""

    @property
    def label(self) -> str:
        return f"{self.title} {self.version or self.requirement}"


ALIASES = {
    "tensorflow-gpu": "tensorflow",
    "tensorflow-intel": "tensorflow",
    "paddlepaddle": "paddlepaddle-gpu",
}


def framework_of(text: str, cell: Cell, truth: Truth, facts: Facts, notes: list[Finding]) -> CellFramework:
    """Resolves an entry of ``cell.frameworks``; differences between wheel and table go to ``notes``."""
    parsed = requirement(text)
    distribution = canonical(parsed.name) if parsed else text
    wheel = truth.wheel(distribution)
    version = wheel.version if wheel else pinned(parsed) if parsed else None
    cupy = re.fullmatch(r"cupy-(cuda\d+x)", distribution)
    name = "cupy" if cupy else ALIASES.get(distribution, distribution)
    table = facts.frameworks.get(name)
    extras = frozenset(canonical(extra) for extra in parsed.extras) if parsed else frozenset()
    variant = cupy[1] if cupy else _variant(name, version, extras, cell.index)
    row = _row(table, version, variant) if table and version else None
    plugin = truth.wheel(f"jax-{variant}-plugin") if name == "jax" else None
    active = _active_pins(row, plugin or wheel, extras, name)

    def compiled(what: str, by_table: str | None, read: str | None) -> Value | None:
        label = f"{what} that {name} was compiled with"
        from_table = Value(what=label, text=by_table, source=row.source) if by_table and row else None
        from_wheel = None
        if read and wheel is not None:
            from_wheel = Value(what=label, text=read, source=Source(kind="wheel", reference=wheel.reference))
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
        cuda=compiled("CUDA", row.cuda if row else None, wheel.cuda if wheel else None),
        cudnn=compiled("cuDNN", row.cudnn if row else None, wheel.cudnn if wheel else None),
        brings=_brings(row, active),
        pins=active,
    )


def _variant(name: str, version: str | None, extras: frozenset[str], index: tuple[str, ...]) -> str:
    if version and "+" in version:
        return version.split("+", 1)[1]
    if name == "jax":
        found = next(
            (re.match(r"cuda\d+", extra) for extra in sorted(extras) if extra.startswith("cuda")), None
        )
        return found.group(0) if found else "cpu"
    if name == "torch":
        for url in index:
            tail = url.rstrip("/").rsplit("/", 1)[-1]
            if re.fullmatch(r"cu\d+|cpu", tail):
                return tail
    return ""


def _row(table: FrameworkTable, version: str, variant: str) -> FrameworkRow | None:
    public = version.split("+", 1)[0]
    for row in table.rows:
        if (row.variant == variant or (not variant and row.default)) and contains(row.versions, public):
            return row
    return None


def _active_pins(
    row: FrameworkRow | None, wheel: WheelTruth | None, extras: frozenset[str], name: str
) -> tuple[tuple[Requirement, Source], ...]:
    # jax itself pins nothing of NVIDIA's: its plug-in does, by an extra that jax's own extra asks for
    if wheel is not None and wheel.requires and wheel.name != "jax":
        source = Source(kind="wheel", reference=wheel.reference)
        extras |= {"with-cuda"} if name == "jax" else set()
        return tuple(_nvidia(wheel.requires, extras, source))
    if row is None or row.brings not in {"pins", "extra"}:
        return ()
    wanted = canonical(row.extra) if row.extra else None
    if row.brings == "extra" and wanted not in extras:
        return ()
    return tuple((parsed, row.source) for pin in row.pins if (parsed := requirement(pin)) is not None)


def _nvidia(
    lines: tuple[str, ...], extras: frozenset[str], source: Source
) -> Iterator[tuple[Requirement, Source]]:
    """Of a wheel's ``Requires-Dist``, those on NVIDIA's wheels that hold on Linux with these extras."""
    environments = [{"extra": extra} for extra in ("", *sorted(extras))]
    for line in lines:
        parsed = requirement(line)
        if parsed is None or not parsed.name.startswith(("nvidia-", "nvidia_")):
            continue
        linux = {
            "platform_system": "Linux",
            "sys_platform": "linux",
            "platform_machine": "x86_64",
            "os_name": "posix",
        }
        if parsed.marker is None or any(parsed.marker.evaluate(linux | env) for env in environments):
            yield parsed, source


def _brings(row: FrameworkRow | None, active: tuple[tuple[Requirement, Source], ...]) -> Brings:
    if any("cudnn" in pin.name for pin, _ in active):
        return "pins"
    if row is not None and row.brings == "inside":
        return "inside"
    return "outside"
