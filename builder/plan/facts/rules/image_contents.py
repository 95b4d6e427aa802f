"""The content of an image to be: every framework, every copy of CUDA and cuDNN, each with its source.

Rules do not look things up themselves. They read a :class:`Stack`, in which each value carries its source:
a wheel or a registry if it was read, else the tables.
"""

import functools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from packaging.requirements import Requirement

from builder.core.model import Cell
from builder.core.versions import (
    canonical,
    contains,
    key,
    lower_bound,
    major,
    names_of,
    pinned,
    requirement,
)
from builder.plan.facts.reading import BaseTruth, CudaTag, Truth, framework_texts, system_of, tag_of
from builder.plan.facts.rules.cell_packages import (
    CellFramework,
    CellPackage,
    framework_of,
    markers_of,
    packages_beside,
)
from builder.plan.facts.rules.finding import CELL, Finding, Value, decide
from builder.plan.facts.rules.machines import among
from builder.plan.facts.tables import Source, SystemRow, load

_CUDA_WHEEL = re.compile(r"nvidia-cuda-runtime(?:-cu\d+)?|cuda-toolkit")
_CUDNN_WHEEL = re.compile(r"nvidia-cudnn(?:-cu\d+)?")
_VERSION = re.compile(r"[0-9][0-9A-Za-z.+~-]{0,40}")
"""The version of CUDA or cuDNN, as NVIDIA's images have it: ``9.1.0.70-1``."""
NOT_IN_RUNTIME = frozenset({"cuda-cupti", "cuda-nvcc"})
"""Libraries that NVIDIA's devel images add (gitlab.com/nvidia/container-images/cuda, ``dist/*/devel``)."""
CUDNN_APT = re.compile(r"libcudnn\d+(?:-cuda-\d+)?=(?P<version>[\d.]+)(?:-\d.*)?")


@dataclass(frozen=True, kw_only=True)
class Copy:
    """A copy of a library in the image. ``place``: ``base``, ``wheels``, ``apt`` or a framework's name."""

    place: str
    version: Value | None
    """None if it is there, but nothing says which version."""
    ranged: bool = False
    """True if a range of pins says it: ``version`` is the newest on record in it, as a resolver takes."""


@dataclass(frozen=True, kw_only=True)
class Stack:
    """Everything the rules look at."""

    cell: Cell
    truth: Truth
    driver: Value | None
    """That of the machine; the oldest of several."""
    machines: str | None
    """The driver as it was given: one, or :class:`MachineDrivers`."""
    frameworks: tuple[CellFramework, ...]
    """Those of ``cell.frameworks``, in their order, then those that stand in ``cell.pip``."""
    tag: CudaTag | None
    system: SystemRow | None
    base_cuda: Value | None
    asked: tuple[tuple[Requirement, Source], ...]
    """Requirements of the cell beside its frameworks, and the frameworks' pins on NVIDIA's wheels."""
    copies: tuple[Copy, ...]
    """Every copy of cuDNN."""
    wheel_cuda: Copy | None
    disagreements: tuple[Finding, ...]

    @functools.cached_property
    def beside(self) -> tuple[CellPackage, ...]:
        """Compiled packages beside the frameworks, as far as they are on record."""
        return packages_beside(self.cell, self.truth, self.frameworks)

    @functools.cached_property
    def markers(self) -> dict[str, str]:
        """The values of markers in the image."""
        return markers_of(self.cell.python, self.cell.platform)

    @functools.cached_property
    def package_names(self) -> set[str]:
        """The packages of the image, as far as they are known: those of the lock, else what is asked for."""
        if self.truth.locked:
            return {wheel.name for wheel in self.truth.wheels}
        lines = [line for one in self.frameworks if one.row is not None for line in one.row.requires]
        return names_of(lines) | asked_names(self.cell) | {one.name for one in self.beside}

    @property
    def _shared(self) -> list[Copy]:
        """Copies that a framework without its own may find: the wheels', else apt's, else the base's."""
        return [copy for place in ("wheels", "apt", "base") for copy in self.copies if copy.place == place]

    @property
    def cudnn(self) -> Copy | None:
        """The copy that a framework without its own finds."""
        return next(iter(self._shared), None)

    def cudnn_for(self, compiled: Value) -> Copy | None:
        """The copy that a framework finds: libraries of two majors have two names, so each finds its own."""
        majors = [(major(copy.version.text), copy) for copy in self._shared if copy.version is not None]
        own = [copy for number, copy in majors if number == major(compiled.text)]
        return own[0] if len(own) == 1 and len({number for number, _ in majors}) > 1 else self.cudnn

    @property
    def base_has_libraries(self) -> bool:
        """True if the base brings cuBLAS and the rest, not only the CUDA runtime."""
        read = self.truth.base is not None and self.truth.base.variable("NV_LIBCUBLAS_VERSION")
        return bool(read) or (self.tag is not None and self.tag.flavour != "base")

    @property
    def cuda(self) -> Value | None:
        """The CUDA that a framework without one of its own finds."""
        if self.wheel_cuda is not None and self.wheel_cuda.version is not None:
            return self.wheel_cuda.version
        pinned_by = (f.cuda for f in self.frameworks if f.brings == "pins" and f.cuda is not None)
        return next(pinned_by, self.base_cuda)


def asked_names(cell: Cell) -> set[str]:
    """The packages that a cell itself asks for."""
    return names_of((*cell.frameworks, *cell.pip))


def given_driver(text: str) -> Value:
    """The driver of a machine, as somebody gave it."""
    return Value("driver", text, Source("cell", "the driver given"))


def stack_of(cell: Cell, truth: Truth | None = None, driver: str | None = None) -> Stack:
    """Resolves a cell against truth and tables."""
    truth, notes = truth or Truth(), list[Finding]()
    driver = among(driver, cell.gpus)
    names = ((text, requirement(text)) for text in framework_texts(cell))
    texts = (text for text, asked in names if asked is None or not load().stands_alone(canonical(asked.name)))
    frameworks = tuple(framework_of(text, cell, truth, notes) for text in texts)
    tag = tag_of(cell.base)
    asked = [(parsed, CELL) for text in (*cell.cuda.packages, *cell.pip) if (parsed := requirement(text))]
    asked += [pin for framework in frameworks for pin in framework.pins]
    return Stack(
        cell=cell,
        truth=truth,
        driver=given_driver(str(driver)) if driver is not None else None,
        machines=driver,
        frameworks=frameworks,
        tag=tag,
        system=system_of(cell, truth.base),
        base_cuda=_base_value(tag, truth.base, "CUDA_VERSION", tag.cuda if tag else None, notes),
        asked=tuple(asked),
        copies=(
            *_copies(cell, truth.base, tag, notes),
            *_from_wheels(_CUDNN_WHEEL, "cuDNN", asked, truth),
            *(Copy(place=f.name, version=f.cudnn) for f in frameworks if f.brings == "inside"),
        ),
        wheel_cuda=next(_from_wheels(_CUDA_WHEEL, "CUDA", asked, truth), None),
        disagreements=tuple(notes),
    )


def _copies(cell: Cell, base: BaseTruth | None, tag: CudaTag | None, notes: list[Finding]) -> Iterator[Copy]:
    """The copies of cuDNN in the base and from apt."""
    tagged = tag is not None and tag.infix is not None
    if tagged or (base is not None and base.variable("NV_CUDNN_VERSION")):
        listed = tag.row.cudnn if tag is not None and tagged and tag.row else None
        yield Copy(place="base", version=_base_value(tag, base, "NV_CUDNN_VERSION", listed, notes))
    for found in filter(None, map(CUDNN_APT.fullmatch, cell.apt)):
        yield Copy(place="apt", version=Value("cuDNN from apt", found["version"], CELL))


def _from_wheels(
    name: re.Pattern[str], what: str, asked: Sequence[tuple[Requirement, Source]], truth: Truth
) -> Iterator[Copy]:
    """The copy that NVIDIA's wheels bring, if any: as locked, else as the cell's packages or a pin says."""
    said = [(wheel.version, wheel.source) for wheel in truth.wheels if name.fullmatch(wheel.name)]
    fitting = [] if truth.locked else [pin for pin in asked if name.fullmatch(canonical(pin[0].name))]
    said += [(exact, source) for parsed, source in fitting if (exact := pinned(parsed))]
    if said:
        yield Copy(place="wheels", version=Value(f"{what} from wheels", *said[0]))
    elif fitting:
        # the newest version on record in the range, else the oldest that the pins admit
        rows = (load().wheels.get(canonical(parsed.name)) for parsed, _ in fitting)
        versions = [version for row in rows if row is not None for version in row.versions]
        admitted = [v for v in versions if all(contains(parsed.specifier, v) for parsed, _ in fitting)]
        bounds = [bound for parsed, _ in fitting if (bound := lower_bound(parsed))]
        newest = max(admitted or bounds, key=key, default=None)
        label = f"{what} from wheels, the newest that the pins admit"
        value = Value(label, newest, fitting[0][1]) if newest is not None else None
        yield Copy(place="wheels", version=value, ranged=value is not None)


def component_versions(stack: Stack) -> dict[str, Value]:
    """Versions known for certain, by the names that ``known-bad.toml`` uses."""
    known = {f.name: Value(f.title, f.version.partition("+")[0], CELL) for f in stack.frameworks if f.version}
    for f in stack.frameworks:
        parsed = requirement(f.requirement)
        for extra in parsed.extras if parsed is not None and f.version else ():
            known[f"{f.name}[{canonical(extra)}]"] = known[f.name]
        if f.version and f.variant:
            known[f"{f.name}[{f.variant}]"] = known[f.name]
    known["python"] = Value("Python", stack.cell.python, CELL)
    if stack.cuda is not None and not (stack.wheel_cuda and stack.wheel_cuda.ranged):
        known["cuda"] = stack.cuda
    copy = stack.cudnn
    if copy is not None and copy.version is not None and not copy.ranged:
        known["cudnn"] = copy.version
    for parsed, source in stack.asked:
        if source is CELL and (exact := pinned(parsed)):
            name = re.sub(r"^nvidia-(cublas|cudnn)(-cu\d+)?$", r"\1", canonical(parsed.name))
            known.setdefault(name, Value(name, exact, CELL))
    for one in stack.beside:
        if one.version is not None:
            known.setdefault(one.name, Value(one.label, one.version.partition("+")[0], one.source))
    for wheel in stack.truth.wheels:
        name = re.sub(r"^nvidia-(cublas)(-cu\d+)?$", r"\1", wheel.name)
        if name not in {f.name for f in stack.frameworks}:
            known[name] = Value(name, wheel.version, wheel.source)
    return known


def _base_value(
    tag: CudaTag | None, read: BaseTruth | None, variable: str, by_table: str | None, notes: list[Finding]
) -> Value | None:
    """A variable of the base's environment, checked against the tables' value for its tag."""
    what = {"CUDA_VERSION": "CUDA in the base", "NV_CUDNN_VERSION": "cuDNN in the base"}[variable]
    table = None
    if tag is not None and by_table is not None:
        source = tag.row.source if tag.row is not None else Source("cell", f"the tag {tag.text}")
        table = Value(what, by_table, source)
    if read is None or (text := read.variable(variable)) is None:
        return table
    if not _VERSION.fullmatch(text):
        return None  # whoever made the image wrote something else there, and its tag may be as wrong
    return decide(Value(what, text, read.source), table, notes)
