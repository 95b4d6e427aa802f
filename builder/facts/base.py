"""CUDA, cuDNN and operating system of a base image, by registry or by table."""

import re
from dataclasses import dataclass

from builder.facts.finding import Finding, Source, Value, decide
from builder.facts.tables import Facts, SystemRow, TagRow
from builder.facts.truth import Truth
from builder.model import Base, Cell

TAG = re.compile(
    r"(?P<registry>.*/)?nvidia/cuda:(?P<cuda>\d+\.\d+(?:\.\d+)?)(?:-(?P<infix>cudnn\d*))?"
    r"-(?P<flavour>base|runtime|devel)-(?P<system>[a-z]+[\d.]*)(?:@sha256:[0-9a-f]+)?"
)
_VERSION = re.compile(r"[0-9][0-9A-Za-z.+~-]{0,40}")
"""Of CUDA or cuDNN, as NVIDIA's images have it: ``9.1.0.70-1``."""
DOCKER_HUB = {None, "docker.io/", "index.docker.io/", "registry-1.docker.io/"}


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

    @property
    def on_docker_hub(self) -> bool:
        return self.registry in DOCKER_HUB


def system_of(cell: Cell, truth: Truth, tag: CudaTag | None, facts: Facts) -> SystemRow | None:
    if cell.base.kind == "rootfs":
        return facts.systems.get(cell.base.name)
    read = truth.base.system if truth.base is not None else None
    return facts.systems.get(read or (tag.system if tag else _official(cell.base.name)))


def has_own_python(cell: Cell, system: SystemRow | None) -> bool:
    """Whether the image's Python is the base's own, as the matrix says, or as the base has it."""
    if cell.python_patch is not None or cell.python_from is not None:
        return cell.python_patch is None and cell.python_from == "base"
    return system is None or cell.python in system.python


def _official(name: str) -> str:
    """The system of ``ubuntu:24.04`` and ``debian:bookworm-slim``, the distributions' own images."""
    ubuntu = re.fullmatch(r"(?:.*/)?ubuntu:(\d\d\.\d\d)(?:@.*)?", name)
    if ubuntu:
        return f"ubuntu{ubuntu[1]}"
    debian = re.fullmatch(r"(?:.*/)?debian:([a-z]+)(?:-slim)?(?:@.*)?", name)
    return f"debian/{debian[1]}" if debian else ""


def tag_of(base: Base, facts: Facts) -> CudaTag | None:
    """The parts of an ``nvidia/cuda`` reference; None for any other base."""
    found = TAG.fullmatch(base.name) if base.kind == "registry" else None
    if found is None:
        return None
    cuda, infix, system = found["cuda"], found["infix"], found["system"]
    return CudaTag(
        text=base.name,
        registry=found["registry"],
        cuda=cuda,
        infix=infix,
        flavour=found["flavour"],
        system=system,
        row=_tag_row(facts.tags, cuda, infix, system.removeprefix("ubuntu")),
    )


def _tag_row(rows: tuple[TagRow, ...], cuda: str, infix: str | None, ubuntu: str) -> TagRow | None:
    # a tag without cuDNN comes and goes with its siblings that have it
    fits = [row for row in rows if row.cuda == cuda and ubuntu in row.ubuntu and infix in {None, row.infix}]
    return fits[0] if fits else None


LABELS = {"CUDA_VERSION": "CUDA in the base", "NV_CUDNN_VERSION": "cuDNN in the base"}


def base_value(
    tag: CudaTag | None, truth: Truth, variable: str, by_table: str | None, notes: list[Finding]
) -> Value | None:
    """A variable of the base's environment, checked against the tables' value for its tag."""
    what = LABELS[variable]
    table = None
    if tag is not None and by_table is not None:
        source = tag.row.source if tag.row is not None else Source("cell", f"the tag {tag.text}")
        table = Value(what, by_table, source)
    read = truth.base.variable(variable) if truth.base is not None else None
    if read is None or truth.base is None:
        return table
    if not _VERSION.fullmatch(read):
        return None  # whoever made the image wrote something else there, and its tag may be as wrong
    value = Value(what, read, Source("registry", truth.base.source))
    return decide(value, table, notes)
