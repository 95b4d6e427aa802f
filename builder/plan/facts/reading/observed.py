"""Values read from wheels and base images themselves; the facts fill in the missing ones.

A base's CUDA, cuDNN and operating system are told by the registry, else by the table of its tags.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Self

from packaging.requirements import Requirement

from builder.core.model import Base, Cell, RegistryBase, RootfsBase, Wheel
from builder.core.versions import canonical, names_of, pinned, requirement
from builder.plan.facts.tables import Source, SystemRow, TagRow, load

if TYPE_CHECKING:
    from collections.abc import Iterable

    from builder.core.import_proof import Missing
    from builder.core.link_set import WheelLinks


@dataclass(frozen=True, kw_only=True)
class WheelTruth:
    """Values that one wheel has of itself. A field that was not read, or that the wheel lacks, is None."""

    name: str
    """Canonical name (``nvidia-cudnn-cu12``)."""
    version: str
    file: str
    sha256: str | None = None
    requires_python: str | None = None
    requires: tuple[str, ...] = ()
    """``Requires-Dist`` lines, as the wheel has them."""
    tags: tuple[str, ...] = ()
    """``cp311-cp311-manylinux_2_17_x86_64`` and so on, expanded."""
    cuda: str | None = None
    """CUDA that it was compiled with, ``12.2`` or ``12.5.1``; None for a CPU wheel or if not known."""
    cudnn: str | None = None
    """cuDNN that it was compiled with, as exactly as the wheel tells it: TensorFlow tells the major only."""
    architectures: tuple[str, ...] = ()
    """``sm_80``, ``compute_90``: kernels and PTX in the wheel, if it lists them."""
    numpy_abi: str | None = None
    """The newest NumPy major that its compiled code runs with: ``1``, ``2``."""
    gpu: bool | None = None
    """False for a wheel that says that it was built without CUDA."""
    needed: tuple[str, ...] = ()
    """Libraries of CUDA's that it is linked with (``libcudnn.so.9``), as far as a small part of it tells."""
    glibc: str | None = None
    """The oldest glibc with all of the symbols that this part asks for."""
    yanked: str | None = None
    """Why its maker yanked it, if the index says so."""

    @property
    def source(self) -> Source:
        """Of the values that it tells."""
        digest = "" if self.sha256 is None else f" sha256:{self.sha256[:12]}"
        return Source("wheel", self.file + digest)


@dataclass(frozen=True, kw_only=True)
class BaseTruth:
    """A registry's answer about a base image: its config's environment, or that there is no such tag."""

    LABELS: ClassVar = ("org.opencontainers.image.ref.name", "org.opencontainers.image.version")
    """Of the system, set by Ubuntu's own images (https://git.launchpad.net/cloud-images/+oci/ubuntu-base),
    inherited by NVIDIA's."""

    reference: str
    digest: str = ""
    env: tuple[tuple[str, str], ...] = ()
    exists: bool = True
    """False if the registry answered that there is no such tag. (A registry that did not answer is no
    truth at all: leave :attr:`Truth.base` None.)"""
    system: str | None = None
    """``ubuntu22.04``, if the image's labels say so."""

    def variable(self, name: str) -> str | None:
        return dict(self.env).get(name)

    @property
    def source(self) -> Source:
        return Source("registry", f"{self.reference}@{self.digest}" if self.digest else self.reference)


@dataclass(frozen=True, kw_only=True)
class Truth:
    """All that is known for certain about one cell. The empty ``Truth()`` leaves everything to the tables."""

    wheels: tuple[WheelTruth, ...] = ()
    base: BaseTruth | None = None
    locked: bool = False
    """True if ``wheels`` names every wheel of the image, so that one which is absent is really absent."""
    failed: str | None = None
    """The resolver's reason if the last lock of these requirements failed."""
    unread: tuple[str, ...] = ()
    """Wheels and bases that could not be read, each with the reason."""
    absent: tuple[str, ...] = ()
    """Requirements that no wheel of theirs meets on the package indexes, all of which answered."""
    debs: frozenset[str] | None = None
    """Names of all Debian packages of a locked rootfs; None for any other base."""
    links: tuple[WheelLinks, ...] = ()
    """What is known of the libraries of locked wheels, in the order of their installation."""
    imports: tuple[Missing, ...] = ()
    """What imports of the cell's packages certainly lack, by the modules of locked wheels."""
    unproven: str | None = "no lock names their wheels"
    """Why ``links`` and ``imports`` do not tell all; None if they do."""
    offered: frozenset[str] = frozenset()
    """Requirements that the user's own indexes meet, as far as they were asked without reading wheels."""

    @classmethod
    def of_lock(
        cls, wheels: Iterable[Wheel], base: BaseTruth | None, read: Iterable[WheelTruth] = ()
    ) -> Self:
        """Every wheel of a lock by name and version, with the values that were ``read`` of its very hash."""
        known = {wheel.sha256: wheel for wheel in read}
        every = (
            known.get(wheel.sha256)
            or WheelTruth(
                name=canonical(wheel.name), version=wheel.version, file=wheel.file, sha256=wheel.sha256
            )
            for wheel in wheels
        )
        return cls(wheels=tuple(every), base=base, locked=True)

    @classmethod
    def of_offer(cls, cell: Cell) -> Self:
        """Of a proposed cell: a variant without an index of its own is one that the user's list."""
        return cls(offered=frozenset((*cell.frameworks, *cell.pip)))

    def wheel(self, name: str) -> WheelTruth | None:
        wanted = canonical(name)
        return next((wheel for wheel in self.wheels if wheel.name == wanted), None)


def truth_of_base(base: RegistryBase) -> BaseTruth:
    """From an inspection by the registry client."""
    labels = dict(base.labels)
    name, version = map(labels.get, BaseTruth.LABELS)
    system = f"{name}{version}" if name and version else None
    return BaseTruth(reference=base.reference, digest=base.digest, env=base.env, system=system)


# -- the base of a cell

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
    named = names_of(cell.frameworks)
    beside: dict[str, tuple[str, Requirement]] = {}
    for text in cell.pip:
        parsed = requirement(text)
        name = canonical(parsed.name) if parsed is not None else ""
        if parsed is None or name in named or tables.table_name(name) not in tables.frameworks:
            continue
        if name not in beside or pinned(beside[name][1]) is None:
            beside[name] = text, parsed
    return (*cell.frameworks, *(text for text, _ in beside.values()))
