"""The frameworks of a cell and the compiled packages beside them: which release of each the image gets.

A lock says it. Without one, a pinned package is the release that it names; of another the newest release on
record is taken that goes with everything else which is asked for, as a resolver does.
"""

import functools
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from builder.core.model import Cell
from builder.core.versions import apart, canonical, contains, holds, pinned, release, requirement
from builder.plan.facts.reading import Truth, WheelTruth
from builder.plan.facts.rules.finding import CELL, Finding, Value, decide
from builder.plan.facts.tables import (
    Brings,
    FrameworkRow,
    FrameworkTable,
    PackageRow,
    PackageTable,
    Source,
    jax_cuda,
    load,
)
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


# -- packages beside them

Wanted = tuple[str, Requirement]
Bounds = Mapping[str, Sequence[SpecifierSet]]
PYTORCH = re.compile(r"https://download\.pytorch\.org/whl/(?:cu\d+|cpu)/?$")
"""PyTorch's own indexes, of which it is known which packages they have."""
_RECHOICES = 3
"""Choices that are made anew of one package, because somebody who came later wants another release."""
_TAIL = re.compile(r"(?:cu\d+|cpu|rocm[\d.]+|xpu)")


@dataclass(frozen=True, kw_only=True)
class CellPackage:
    """One package."""

    name: str
    table: PackageTable
    version: str | None
    """None if no release on record goes with the rest."""
    row: PackageRow | None
    wanted: Sequence[Wanted] = ()
    """Who asks for it, and what: ``("the cell", <Requirement("vllm==0.33.0")>)``."""
    variant: str = ""
    """``cu126`` for a build of PyTorch's own index: what was read is of the default index's."""
    elsewhere: bool = False
    """True if it may come from an index of the cell's whose files were not read."""
    chosen: bool = False
    """True if a resolver would take it, and nothing names the release."""
    source: Source = CELL

    @property
    def label(self) -> str:
        """``xformers 0.0.30 (because vllm 0.9.2 wants xformers==0.0.30)``."""
        text = f"{self.name} {self.version}" if self.version else self.name
        who = [f"{one} wants {asked}" for one, asked in self.wanted if one != "the cell"]
        if who and len(who) == len(self.wanted):
            return f"{text} (because {who[0].partition(';')[0].strip()})"
        return f"{text} (the newest that goes with the rest)" if self.chosen and self.version else text


def packages_beside(cell: Cell, truth: Truth, frameworks: Sequence[CellFramework]) -> tuple[CellPackage, ...]:
    """The packages of a cell that are on record."""
    tables = load().packages
    if truth.locked:
        return tuple(
            _of(wheel.name, wheel.version, cell.index, source=wheel.source)
            for wheel in truth.wheels
            if wheel.name in tables
        )
    alone = (parsed for parsed in map(requirement, cell.frameworks) if parsed is not None)
    asked = tuple(parsed for parsed in map(requirement, cell.pip) if parsed is not None)
    asked += tuple(parsed for parsed in alone if load().stands_alone(canonical(parsed.name)))
    if not any(canonical(parsed.name) in tables for parsed in asked):
        return ()
    place = _Place(
        python=cell.python,
        platform=cell.platform,
        index=cell.index,
        built=(*cell.from_source, *(name for name, _ in cell.compiled)),
        settled=tuple(_settled(cell, frameworks)),
        listed=cell.dependencies == "listed",
    )
    return _walk(asked, place)


def _settled(cell: Cell, frameworks: Sequence[CellFramework]) -> Iterator[Requirement]:
    """The bounds that hold whichever releases are chosen: the frameworks' releases, the cell's own
    requirements, and those of its frameworks. Nobody resolves a list: its releases alone are certain.
    """
    lines = [f"{one.name}=={one.version}" for one in frameworks if one.version]
    if cell.dependencies != "listed":
        lines += [*cell.frameworks, *cell.cuda.packages, *cell.pip]
        lines += [text for one in frameworks if one.row is not None for text in one.row.requires]
        yield from (parsed for one in frameworks for parsed, _ in one.wants if parsed.specifier)
    yield from (parsed for parsed in map(requirement, lines) if parsed is not None and parsed.specifier)


def markers_of(python: str, platform: str) -> dict[str, str]:
    """The values of markers in a cell."""
    return environment(f"{python}.0", machine=MACHINES.get(platform, ""))


def firm_wishes(cell: Cell, frameworks: Sequence[CellFramework], name: str) -> list[Requirement]:
    """The bounds on one package that hold whichever releases are chosen."""
    values = markers_of(cell.python, cell.platform)
    mine = (parsed for parsed in _settled(cell, frameworks) if canonical(parsed.name) == name)
    return [parsed for parsed in mine if holds(parsed, values)]


@dataclass(frozen=True, kw_only=True)
class _Place:
    """The facts of a cell by which a resolver chooses releases."""

    python: str
    platform: str
    index: tuple[str, ...]
    built: tuple[str, ...]
    """Packages that are built from their sources."""
    settled: tuple[Requirement, ...]
    """The requirements that no choice changes."""
    listed: bool

    @property
    def markers(self) -> dict[str, str]:
        return markers_of(self.python, self.platform)

    def bounds(self, values: dict[str, str]) -> dict[str, list[SpecifierSet]]:
        """The bounds of :attr:`settled` whose markers hold, by distribution."""
        found: dict[str, list[SpecifierSet]] = {}
        for one in self.settled:
            if holds(one, values):
                found.setdefault(canonical(one.name), []).append(one.specifier)
        return found


@functools.lru_cache(maxsize=2048)
def _walk(pip: tuple[Requirement, ...], place: _Place) -> tuple[CellPackage, ...]:
    """The packages that are asked for, and those that they ask for; a matrix has many cells with the same."""
    tables, values = load().packages, place.markers
    bounds = place.bounds(values)
    asked: dict[str, list[Wanted]] = {}
    for parsed in pip:
        asked.setdefault(canonical(parsed.name), []).append(("the cell", parsed))
    found: dict[str, CellPackage] = {}
    waiting = [name for name in asked if name in tables]
    again = Counter[str]()
    for one in pip if not place.listed else ():
        for asks in _wishes_of_pin(one, values):
            bounds.setdefault(canonical(asks.name), []).append(asks.specifier)
    while waiting:
        name = waiting.pop(0)
        # a resolver takes an older release of who wants it, where nobody names that one's
        firm = [wanted for wanted in asked[name] if not _is_chosen(wanted[0], found)]
        taken = _chosen(name, asked[name], place, bounds, values)
        if taken.version is None and len(firm) < len(asked[name]):
            taken = _chosen(name, firm, place, bounds, values)
        found[name] = taken
        for text in taken.row.requires if taken.row is not None and not place.listed else ():
            wish = requirement(text)
            if wish is None or not holds(wish, values):
                continue
            other = canonical(wish.name)
            asked.setdefault(other, []).append((f"{name} {taken.version}", wish))
            if other not in tables or other in waiting:
                continue
            known = found.get(other)
            if known is not None:
                late = known.chosen and known.version and not contains(wish.specifier, known.version)
                if not late or again[other] == _RECHOICES:
                    continue
                again[other] += 1
            waiting.append(other)
    return tuple(found.values())


def _wishes_of_pin(parsed: Requirement, values: dict[str, str]) -> Iterator[Requirement]:
    """The requirements of the release that a requirement pins, if it is on record."""
    name, exact = canonical(parsed.name), pinned(parsed)
    row = load().packages[name].row(exact) if exact is not None and name in load().packages else None
    for text in row.requires if row is not None else ():
        wish = requirement(text)
        if wish is not None and holds(wish, values):
            yield wish


def _is_chosen(who: str, found: Mapping[str, CellPackage]) -> bool:
    """Whether a wish is of a release that a resolver takes, and that nobody names."""
    one = found.get(who.partition(" ")[0])
    return one is not None and one.chosen


def _chosen(
    name: str, wanted: list[Wanted], place: _Place, bounds: Bounds, values: dict[str, str]
) -> CellPackage:
    exact = next(filter(None, (pinned(parsed) for _, parsed in wanted)), None)
    if exact is not None:
        return _of(name, exact, place.index, wanted=wanted)
    fitting = (
        row
        for row in load().packages[name].rows
        if all(contains(parsed.specifier, row.version) for _, parsed in wanted)
        and all(contains(specifier, row.version) for specifier in bounds.get(name, ()))
        and row.yanked is None
        and _takes(row, place, bounds, values)
    )
    row = next(fitting, None)
    return _of(name, row.version if row is not None else None, place.index, wanted=wanted, chosen=True)


def _takes(row: PackageRow, place: _Place, bounds: Bounds, values: dict[str, str]) -> bool:
    """Whether an installer that knows names and requirements alone would take this release."""
    if row.archive == "source":
        return row.distribution in place.built
    return (
        place.python in row.python
        and place.platform in row.platforms
        and not any(
            apart(parsed.specifier, specifier)
            for name, specifiers in bounds.items()
            for parsed in row.asks(name)
            if holds(parsed, values)
            for specifier in specifiers
        )
    )


def _of(
    name: str,
    version: str | None,
    index: Sequence[str],
    *,
    wanted: Sequence[Wanted] = (),
    chosen: bool = False,
    source: Source = CELL,
) -> CellPackage:
    table = load().packages[name]
    variant, variants = (version or "").partition("+")[2], load().package_names[name].variants
    if not variant and variants:
        tails = (url.rstrip("/").rsplit("/", 1)[-1] for url in index)
        variant = next(filter(_TAIL.fullmatch, tails), "")
    return CellPackage(
        name=name,
        table=table,
        version=version,
        row=table.row(version) if version is not None else None,
        wanted=wanted,
        variant=variant,
        elsewhere=any(variants or not PYTORCH.match(url) for url in index),
        chosen=chosen,
        source=source,
    )


def settled(cell: Cell, packages: Sequence[CellPackage]) -> Cell:
    """The cell with the releases that were judged named: a later resolver takes no others.

    Those whose code asks nothing of CUDA are left to it: there are many, and it weighs them all together.
    """
    judged = (one for one in packages if one.chosen and not one.table.light)
    return with_releases(cell, {one.name: one.version for one in judged if one.version})


def with_releases(cell: Cell, versions: Mapping[str, str]) -> Cell:
    """The cell with these releases of packages that its ``pip`` names."""
    return replace(cell, pip=tuple(_exact(text, versions) for text in cell.pip)) if versions else cell


def _exact(text: str, chosen: Mapping[str, str]) -> str:
    parsed = requirement(text)
    version = chosen.get(canonical(parsed.name)) if parsed is not None else None
    if parsed is None or version is None:
        return text
    extras = f"[{','.join(sorted(parsed.extras))}]" if parsed.extras else ""
    return f"{parsed.name}{extras}=={version}"


def asked_once(beside: Sequence[str], own: Sequence[str]) -> tuple[str, ...]:
    """Requirements, and a cell's own behind them; one on a package that is asked for already joins that."""
    return _asked_once(tuple(beside), tuple(own))


@functools.lru_cache(maxsize=4096)
def _asked_once(beside: tuple[str, ...], own: tuple[str, ...]) -> tuple[str, ...]:
    """A search asks the same of thousands of cells."""
    found = dict.fromkeys(beside)
    for text in own:
        mine = Requirement(text)
        before = next(
            (one for one in found if canonical(Requirement(one).name) == canonical(mine.name)), None
        )
        if before is None:
            found[text] = None
            continue
        joined = Requirement(before)
        if not _within(joined.specifier, mine.specifier):
            clauses = [*joined.specifier, *mine.specifier]
            below = [clause for clause in clauses if clause.operator == "<"]
            lowest = min(below, key=lambda clause: release(clause.version), default=None)
            kept = (str(clause) for clause in clauses if clause.operator != "<" or clause == lowest)
            joined.specifier = SpecifierSet(",".join(dict.fromkeys(kept)))
        found = {str(joined) if one == before else one: None for one in found}
    return tuple(found)


def _within(asked: SpecifierSet, bounds: SpecifierSet) -> bool:
    """Whether one version, or an upper bound, that is asked for lies within other bounds already."""
    upper = [clause for clause in bounds if clause.operator == "<"]
    for clause in asked:
        if clause.operator == "==" and "*" not in clause.version:
            return contains(bounds, clause.version)
        if clause.operator in {"<", "<=", "~="} and len(upper) == len(bounds):
            return all(release(clause.version) <= release(one.version) for one in upper)
    return False
