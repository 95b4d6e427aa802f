"""Values read from wheels and base images themselves; the facts fill in the missing ones.

A reading of one wheel is kept in the user's cache under the wheel's hash; the rules take what it says as a
:class:`WheelTruth`. A base's CUDA, cuDNN and operating system are told by the registry, else by the table of
its tags. Nothing here asks the network.
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from packaging.requirements import Requirement

from builder.core import resources
from builder.core.files import read_cached, write_cached
from builder.core.model import Base, Cell, RegistryBase, RootfsBase, Wheel
from builder.core.versions import canonical, exact_pin, key, more_exact, names_of, pinned, requirement, short
from builder.plan.facts.tables import Source, SystemRow, TagRow, load
from builder.sources.index import wheel_name

if TYPE_CHECKING:
    from collections.abc import Iterable

    from builder.core.import_outcomes import Missing
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
        """The source of the values that it tells."""
        digest = "" if self.sha256 is None else f" sha256:{self.sha256[:12]}"
        return Source("wheel", self.file + digest)


@dataclass(frozen=True, kw_only=True)
class BaseTruth:
    """A registry's answer about a base image: its config's environment, or that there is no such tag."""

    LABELS: ClassVar = ("org.opencontainers.image.ref.name", "org.opencontainers.image.version")
    """Labels that name the system: Ubuntu's own images set them
    (https://git.launchpad.net/cloud-images/+oci/ubuntu-base), NVIDIA's inherit them."""

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
    """All facts that are certain of one cell. The empty ``Truth()`` leaves everything to the tables."""

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
    """Names of all Debian packages of a locked rootfs, of a set without a lock :func:`bare_debs`; None for
    any other base."""
    links: tuple[WheelLinks, ...] = ()
    """Readings of the libraries of locked wheels, in the order of their installation."""
    imports: tuple[Missing, ...] = ()
    """Modules and names that imports of the cell's packages certainly lack, by the locked wheels."""
    loaded: frozenset[str] = frozenset()
    """Compiled modules that these imports certainly come to, and names of files of libraries that modules
    open."""
    unproven: str | None = "no lock names their wheels"
    """Why ``links`` and ``imports`` do not tell all; None if they do."""
    offered: frozenset[str] = frozenset()
    """Requirements that the user's own indexes meet, as far as they were asked without reading wheels."""

    def comes_to(self, paths: Iterable[str]) -> bool:
        """Whether imports of the cell's packages certainly come to one of these compiled modules."""
        from builder.core.link_set import is_loaded  # a build asks for none

        return any(is_loaded(path, self.loaded) for path in paths)

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
        """The truth of a proposed cell: a variant without an index of its own is one that the user's list."""
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


def bare_debs(cell: Cell) -> frozenset[str] | None:
    """The Debian packages, as far as they have libraries, of a cell whose base nobody has resolved: those of
    a bare system and the cell's ``apt``. None for a system of which nobody knows those.
    """
    bare = load().bare_packages(system_of(cell))
    return bare | {*cell.apt} if bare else None


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
    name, _, tag = reference.partition("@")[0].rpartition("/")[2].partition(":")
    release = tag.partition("-")[0]  # ubuntu:24.04 is two words; almalinux:9.4 has the glibc of all of 9
    words = {*name.split("-"), *tag.split("-"), name + release, name + release.partition(".")[0]}
    words = {word.replace(".", "") for word in words}
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


# -- one wheel: what is kept of it, and what it says by that

Values = dict[str, Any]
"""``cuda``, ``cudnn``, ``numpy_abi``, ``version``, ``glibc``, ``linked_glibc``: text; ``architectures``,
``needed``: several texts; ``gpu``: bool. An absent value was not found."""

_SCHEMA = 1
Kind = Literal[
    "small", "deep", "other", "metadata", "package", "numpy", "source", "symbols", "links-6", "modules"
]
"""``other``: the parts that are read of a second wheel; ``metadata``: none. ``package``: a compiled package's
libraries; ``numpy``: which NumPy they are compiled for; ``source``: the build files of its source archive;
``symbols``: what a PyTorch defines; ``links``: what the loader goes by; ``modules``: what an import takes."""
LINKS: Kind = "links-6"
"""Counts up when more is kept of a wheel's libraries: an earlier reading lacks that, and is made anew."""


@dataclass(kw_only=True)
class WheelReading:
    """Values read from one wheel, by one kind of reading."""

    file: str
    metadata: str | None = None
    """Its ``METADATA``, up to the description."""
    values: Values = field(default_factory=dict)
    read: dict[str, str] = field(default_factory=dict)
    """The member that told each value."""
    unread: list[str] = field(default_factory=list)
    """Parts that could not be read, with the reason."""
    beyond: list[str] = field(default_factory=list)
    """Values that may stand in the unread rest of a library."""
    transferred: int = 0


def reading_path(sha256: str | None, kind: Kind, cache: Path | None = None) -> Path | None:
    """The file of one reading, below ``cache`` or the user's; None for a wheel without a hash."""
    if not sha256:
        return None
    return (cache or resources.cache() / "wheelfacts") / sha256[:2] / f"{sha256}.{kind}.json"


def load_reading(place: Path | None) -> WheelReading | None:
    """The reading in this file; None if there is none of this program's format."""

    def parsed(document: dict[str, Any]) -> WheelReading | None:
        return WheelReading(**document | {"transferred": 0}) if document.pop("schema") == _SCHEMA else None

    return read_cached(place, parsed)


def save_reading(place: Path, reading: WheelReading) -> None:
    write_cached(place, {"schema": _SCHEMA, **asdict(reading)})


def add_values(known: Values, found: Values) -> tuple[str, ...]:
    """Add values that are not known yet, or that say the same more exactly; their names."""
    new = tuple(
        name
        for name, value in found.items()
        if name not in known or (isinstance(value, str) and more_exact(known[name], value))
    )
    known |= {name: found[name] for name in new}
    return new


def truth_of(file: str, small: WheelReading, *, sha256: str | None = None) -> WheelTruth:
    """A wheel's truth from a small reading. A value that is absent or does not parse stays None."""
    said, values, named = metadata_of(small.metadata), small.values, wheel_name(file)
    first, _, rest = file.removesuffix(".whl").partition("-")
    name = named.name if named is not None else canonical(first)
    version = str(named.version) if named is not None else rest.partition("-")[0]
    local = values.get("version")
    return WheelTruth(
        name=name,
        version=local if isinstance(local, str) and local.split("+")[0] == version else version,
        file=file,
        sha256=sha256,
        requires_python=said.python,
        requires=said.requires,
        tags=tuple(sorted(map(str, named.tags))) if named is not None else (),
        cuda=values.get("cuda"),
        cudnn=_pinned_cudnn(values.get("cudnn"), said.requires, name),
        architectures=tuple(values.get("architectures", ())),
        numpy_abi=values.get("numpy_abi"),
        gpu=values.get("gpu", True if "cuda" in values else None),
        needed=tuple(values.get("needed", ())),
        glibc=values.get("linked_glibc"),
    )


def with_deep(truth: WheelTruth, values: Values) -> WheelTruth:
    """The truth with the values of a deep reading of the same wheel."""
    exact = {name: told for name in ("cuda", "cudnn") if (told := getattr(truth, name)) is not None}
    add_values(exact, {name: values[name] for name in ("cuda", "cudnn") if name in values})
    return replace(
        truth,
        cuda=exact.get("cuda"),
        cudnn=exact.get("cudnn"),
        glibc=max(filter(None, (truth.glibc, values.get("glibc"))), key=key, default=None),
        architectures=tuple(values.get("architectures", truth.architectures)),
        numpy_abi=values.get("numpy_abi", truth.numpy_abi),
        gpu=values.get("gpu", truth.gpu),
    )


@dataclass(frozen=True)
class Metadata:
    """The fields of a wheel's ``METADATA`` that decide anything."""

    python: str | None
    requires: tuple[str, ...]
    extras: tuple[str, ...]


def metadata_of(text: str | None) -> Metadata:
    """The fields, empty for a wheel without ``METADATA``."""
    import email.parser  # a tenth of a second, for a wheel that was read alone
    import email.policy

    message = email.parser.Parser(policy=email.policy.compat32).parsestr(text or "", headersonly=True)

    def lines(name: str) -> tuple[str, ...]:
        return tuple(str(line) for line in message.get_all(name) or ())

    extras = tuple(canonical(name) for name in lines("Provides-Extra"))
    return Metadata(next(iter(lines("Requires-Python")), None) or None, lines("Requires-Dist"), extras)


def _pinned_cudnn(told: str | None, requires: tuple[str, ...], name: str) -> str | None:
    """The exact pin on NVIDIA's cuDNN, with which the wheel was built; more exact than its own value.

    A range is not: it says what the wheel accepts, so only its lower bound's major and minor would count.
    """
    exact = exact_pin(requires, r"nvidia-cudnn-cu\d+")
    if exact is None or (told is not None and short(exact, len(told.split("."))) != told):
        return told
    # PyTorch's pin is the very version; TensorFlow's a patch of the minor it was built with
    return exact if name == "torch" else short(exact, 2)


def is_of_nvidia(name: str) -> bool:
    """Whether a wheel is one of NVIDIA's own libraries."""
    return canonical(name).startswith("nvidia-")


def may_have_libraries(wheel: Wheel) -> bool:
    """False for a wheel for every platform."""
    return not wheel.file.endswith("-any.whl")
