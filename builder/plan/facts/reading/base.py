"""CUDA, cuDNN and operating system of a base image, by registry or by table."""

import re
from dataclasses import dataclass

from packaging.requirements import Requirement

from builder.core.model import Base, Cell, RegistryBase, RootfsBase
from builder.core.versions import canonical, pinned, requirement
from builder.plan.facts.reading.observed import BaseTruth, truth_of_base
from builder.plan.facts.tables import SystemRow, TagRow, load

TAG = re.compile(
    r"(?P<registry>.*/)?nvidia/cuda:(?P<cuda>\d+\.\d+(?:\.\d+)?)(?:-(?P<infix>cudnn\d*))?"
    r"-(?P<flavour>base|runtime|devel)-(?P<system>[a-z]+[\d.]*)(?:@sha256:[0-9a-f]+)?"
)
DOCKER_HUB = {None, "docker.io/", "index.docker.io/", "registry-1.docker.io/"}
"""Registries of a reference whose tags the tables list."""


@dataclass(frozen=True, kw_only=True)
class CudaTag:
    """An ``nvidia/cuda`` reference in its parts, and its row in the tables."""

    text: str
    registry: str | None
    cuda: str
    infix: str | None
    flavour: str
    system: str
    row: TagRow | None


def system_of(of: Cell | RegistryBase | RootfsBase, read: BaseTruth | None = None) -> SystemRow | None:
    """The row of the system of a cell's base, as read from the registry, else as the reference says; or of
    a base that is locked.
    """
    if isinstance(of, RootfsBase):
        return load().systems.get(f"debian/{of.suite}")
    if isinstance(of, RegistryBase):
        return _system(of.reference, truth_of_base(of).system)
    if of.base.kind == "rootfs":
        return load().systems.get(of.base.name)
    return _system(of.base.name, read.system if read is not None else None)


def _system(reference: str, told: str | None) -> SystemRow | None:
    """The row of a system by the image's labels, else by the end of its reference.

    If the labels name a system that no table has, it is unknown, whatever the tag says. Old images have no
    such labels, and an image made from Ubuntu's may give its own version there: for those, a whole word at
    the end of the reference counts.
    """
    systems = load().systems
    its_own = (
        told is not None and told.startswith("ubuntu") and not re.fullmatch(r"ubuntu\d\d\.(04|10)", told)
    )
    if told and not its_own:
        return systems.get(told)
    end = reference.partition("@")[0].rpartition("/")[2].replace(".", "")
    name, _, tag = end.partition(":")
    words = {*name.split("-"), *tag.split("-"), name + tag.partition("-")[0]}  # ubuntu:24.04 is two
    return next((row for key, row in systems.items() if re.sub(r"debian/|\.", "", key) in words), None)


def tag_of(base: Base) -> CudaTag | None:
    """The parts of an ``nvidia/cuda`` reference; None for any other base."""
    found = TAG.fullmatch(base.name) if base.kind == "registry" else None
    if found is None:
        return None
    cuda, infix, system = found["cuda"], found["infix"], found["system"]
    # a tag without cuDNN comes and goes with its siblings that have it
    rows = (r for r in load().tags if r.cuda == cuda and system in r.systems and infix in {None, r.infix})
    return CudaTag(
        text=base.name,
        registry=found["registry"],
        cuda=cuda,
        infix=infix,
        flavour=found["flavour"],
        system=system,
        row=next(rows, None),
    )


def framework_texts(cell: Cell) -> tuple[str, ...]:
    """A cell's requirements on frameworks: those of its ``framework``, then those that stand in its ``pip``.

    A framework is judged and read by what it is, whichever key names it. A build without CUDA has another
    distribution, and is none here; of several requirements on one distribution a pinned one counts.
    """
    tables = load()
    named = {canonical(parsed.name) for text in cell.frameworks if (parsed := requirement(text)) is not None}
    beside: dict[str, tuple[str, Requirement]] = {}
    for text in cell.pip:
        parsed = requirement(text)
        name = canonical(parsed.name) if parsed is not None else ""
        if parsed is None or name in named or tables.table_name(name) not in tables.frameworks:
            continue
        if name not in beside or pinned(beside[name][1]) is None:
            beside[name] = text, parsed
    return (*cell.frameworks, *(text for text, _ in beside.values()))
