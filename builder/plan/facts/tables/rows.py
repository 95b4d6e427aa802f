"""The rows of the tables in ``data/``: a class a table, whose fields are those of its rows."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from packaging.specifiers import SpecifierSet

from builder.core.versions import at_least
from builder.plan.facts.tables.frameworks import (
    Row,
)


@dataclass(frozen=True, kw_only=True)
class ToolkitRow(Row):
    """One CUDA toolkit release."""

    version: str
    driver: str
    """Linux driver that it shipped with."""


@dataclass(frozen=True, kw_only=True)
class FamilyRow(Row):
    """One CUDA major version and the oldest driver that runs all of it."""

    major: str
    floor: str | None = None
    """Driver floor under minor-version compatibility; None if there is none: the toolkit's own driver."""
    capability_min: str | None = None
    capability_max: str | None = None


@dataclass(frozen=True, kw_only=True)
class CudnnRow(Row):
    """The CUDA majors and GPUs that a line of cuDNN serves."""

    versions: SpecifierSet
    cuda: tuple[str, ...]
    capability_min: str
    capability_max: str


@dataclass(frozen=True, kw_only=True)
class TagRow(Row):
    """``nvidia/cuda`` tags of one CUDA release: on which systems, with which cuDNN inside."""

    cuda: str
    infix: str
    """``cudnn8``, ``cudnn9`` or ``cudnn``: how the tag spells that cuDNN is in it; empty if no tag has it."""
    systems: tuple[str, ...]
    """``ubuntu22.04``, ``ubi9``: as the tag spells them."""
    state: Literal["listed", "deleted"]
    cudnn: str | None = None
    branches: tuple[str, ...] = ()
    """Older driver branches that ``NVIDIA_REQUIRE_CUDA`` lets start on data-centre GPUs."""
    consumer: bool = False
    """True if these branches may start it on GeForce cards, too."""


@dataclass(frozen=True, kw_only=True)
class BadRow(Row):
    """A combination known to fail although every single rule lets it pass."""

    id: str
    when: tuple[str, ...]
    """Requirements that must all hold: ``cudnn>=9.10.0,<9.10.1``, ``python>=3.12``, ``gpu>=9.0``."""
    outcome: Literal["warns", "impossible"]
    message: str
    remedy: str
    open: tuple[str, ...] = ()
    """Requirements that a resolver meets if no bound keeps it from that: ``setuptools>=82``, the newest."""
    without: tuple[str, ...] = ()
    """Distributions, and variables of a cell's ``env``, each of which is enough to mend it: nothing that is
    installed asks for one."""
    by_lock: bool = False
    """True if many packages ask for one of ``without``, so that a lock alone tells that there is none."""
    built: tuple[str, ...] = ()
    """Packages without a wheel: a cell that has all of them ``from-source`` is not concerned."""
    ends: tuple[str, ...] = ()
    """Modules whose import ends: for a cell that imports one, or one below it, it is impossible; a row that
    is so itself is of such a cell alone."""
    loads: str | None = None
    """The compiled module whose import ends: a row that is impossible warns of a lock whose imports do not
    certainly come to it."""
    says: str | None = None
    """An expression for the words with which it fails, by which the probe knows it; None if none tells it."""
    example: str | None = None
    """A line as programs print it, which the expression fits."""
    mend: tuple[str, ...] = ()
    """What pip is asked for: of a text with the words it is the command; () if no line for all is known."""
    named: bool = False
    """True if the words are those of many faults, so that a text has to name the releases, too."""


@dataclass(frozen=True, kw_only=True)
class GpuRow(Row):
    """A GPU model and its compute capability."""

    name: str
    capability: str
    consumer: bool | None = False
    """None for a compute capability that has cards for consumers and others."""
    short: bool = False
    """True if two characters are taken for the card also in a text that names no brand: ``T4``."""
    platform: str | None = None
    """The platform of the processor that it is built together with; None if it is a card of its own."""
    tegra: bool = False
    """True if NVIDIA promises that code for its own compute capability runs on it, and no other."""


@dataclass(frozen=True, kw_only=True)
class ComputerRow(Row):
    """A computer that is named in place of the card in it."""

    name: str
    card: str


@dataclass(frozen=True, kw_only=True)
class InstanceRow(Row):
    """A family of a cloud's instances, and the card in them."""

    name: str
    pattern: str
    """A regular expression for the beginning of the type in small letters, without ``standard_``."""
    card: str
    maker: str | None = None
    """The card's maker if it is not NVIDIA."""


@dataclass(frozen=True, kw_only=True)
class ArchitectureRow(Row):
    """A generation of GPUs and the driver branches that serve it."""

    name: str
    capabilities: tuple[str, ...]
    since: str | None = None
    """The first driver that serves it; None if it is older than every CUDA on record."""
    before: str | None = None
    """The first driver branch that serves it no more; None if each branch on record does."""
    cuda: str | None = None
    """The first CUDA with code for it, by the row's last source; None if code of an older generation runs."""
    nvcc: str | None = None
    """The first CUDA whose nvcc compiles for it, by the row's last source, where code of an older generation
    runs, too; None if nobody read that."""


@dataclass(frozen=True, kw_only=True)
class KernelModulesRow(Row):
    """The kind of a driver's kernel modules, ``open`` or ``proprietary``, that alone serves a generation."""

    name: str
    kind: str


@dataclass(frozen=True, kw_only=True)
class CardDriverRow(Row):
    """A card whose first driver is younger than its architecture's."""

    name: str
    since: str


@dataclass(frozen=True, kw_only=True)
class BranchRow(Row):
    """A driver branch and its lowest public release."""

    branch: str
    first: str


@dataclass(frozen=True, kw_only=True)
class ForwardRow(Row):
    """Cards on which the ``cuda-compat`` packages work."""

    cards: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class CompatRow(Row):
    """The driver branches for which a ``cuda-compat`` package is supported."""

    version: str
    branches: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class SonameRow(Row):
    """The name of one of CUDA's libraries in the releases from ``since`` to before ``before``."""

    library: str
    """As NVIDIA's wheels are named: ``cuda-nvrtc``."""
    since: str
    before: str
    soname: str


@dataclass(frozen=True, kw_only=True)
class WithoutRow(Row):
    """A distribution of a framework without CUDA."""

    name: str
    instead: str
    """The distribution that has CUDA."""


@dataclass(frozen=True, kw_only=True)
class ElsewhereRow(Row):
    """Sources of a framework's releases that no package index has."""

    name: str
    versions: SpecifierSet
    text: str
    capability_max: str | None = None
    """The newest compute capability that it is for; None for any."""
    newer: bool = False
    """Whether it is a way to a newer release."""


@dataclass(frozen=True, kw_only=True)
class VendorBuildRow(Row):
    """A framework's release in NVIDIA's own build, which no package index has."""

    name: str
    version: str
    cuda: str
    cards: tuple[str, ...]
    """The oldest and the newest compute capability that it serves."""
    python: str
    glibc: str
    system: str
    image: str = ""
    pip: tuple[str, ...] = ()
    """What pip installs, one after the other; empty if the image alone has it."""
    requires: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ServerRow(Row):
    """A server that its maker publishes as an image, by the name of its package."""

    name: str
    title: str
    image: str
    page: str
    """Where the maker lists the drivers that its releases ask for."""
    text: str


@dataclass(frozen=True, kw_only=True)
class ElsewhereSystemRow(Row):
    """The builds of a framework for a system, ``windows``, ``macos`` or ``linux``, with CUDA and without."""

    name: str
    system: str
    cuda: str
    """``index``: on PyTorch's own index; ``wheel``: in the default index's wheel; ``none``: nowhere."""
    cpu: str
    """The distribution that computes on the CPU alone."""
    index: str | None = None
    """The index of ``cpu``; None for the default one."""
    text: str = ""


@dataclass(frozen=True, kw_only=True)
class JetpackRow(Row):
    """A major version of JetPack, and where PyTorch's wheels for it are."""

    version: str
    l4t: str
    cuda: str
    python: str
    torch: str | None = None
    """The newest PyTorch that NVIDIA lists a wheel of for it; None where nobody read that."""
    releases: str = ""
    """The releases of JetPack that ``torch`` is for."""
    index: str | None = None
    """An index of wheels for it."""
    packages: tuple[str, ...] = ()
    """Those of ``index`` that are told."""
    page: str


@dataclass(frozen=True, kw_only=True)
class NameRow(Row):
    """A name that people type for a package whose distribution has another."""

    name: str
    instead: str
    outcome: Literal["warns", "impossible"]
    reason: str
    versions: SpecifierSet | None = None
    """The releases of the name that are meant; None for all."""


@dataclass(frozen=True, kw_only=True)
class SystemRow(Row):
    """An operating system that a base can be."""

    name: str
    """``ubuntu22.04`` or ``debian/bookworm``."""
    glibc: str
    python: tuple[str, ...]
    """Python versions in its own archive, the default one first."""
    libstdcxx: str | None = None
    """The newest GLIBCXX of its own libstdc++: ``3.4.30``; None if that is not on record."""

    @property
    def suite(self) -> str | None:
        """The Debian suite that it is or, of an Ubuntu, the one whose glibc is next to its own: their
        packages have the same names but for a few. None for others.
        """
        family, _, own = self.name.partition("/")
        newest_first = ("2.39", "trixie"), ("2.35", "bookworm"), ("2.31", "bullseye")
        if family.startswith("ubuntu"):
            return next((suite for glibc, suite in newest_first if at_least(self.glibc, glibc)), None)
        return own or None


@dataclass(frozen=True, kw_only=True)
class BuildRow(Row):
    """What compiling a package takes."""

    name: str
    """On the package index, in its normal form."""
    needs: tuple[str, ...] | None = None
    """Debian packages, beside a compiler and Python's headers; None if nobody read them."""
    rpm: tuple[str, ...] = ()
    """The same of Fedora."""
    mind: str = ""
    """What its own page says beside these names; empty if nobody read anything that a system may lack."""
    against: str = ""
    """The framework that the build imports, and its own requirements do not name."""
    versions: SpecifierSet | None = None


@dataclass(frozen=True, kw_only=True)
class ExtensionRow(Row):
    """What PyTorch's tool for extensions compiles for, in releases from ``since`` to before ``before``."""

    since: str
    before: str
    newest: str
    """The newest compute capability that it names; a newer card is an error."""


@dataclass(frozen=True, kw_only=True)
class WheelPageRow(Row):
    """A package whose wheels with CUDA lie on a page of its maker's: ``data/wheel-pages.toml`` says how."""

    name: str
    page: str
    index: Literal["cpu", "sources", "placeholder"]
    builds: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class RemovedRow(Row):
    """A name of PyTorch's C++ code that releases from ``until`` on have no more."""

    name: str
    until: str
    instead: str


@dataclass(frozen=True, kw_only=True)
class TorchHeaders:
    """What releases of PyTorch took out of its C++ headers, by the wheels: ``scripts/torch-headers``."""

    gone: Mapping[str, tuple[str, str]]
    """By header the first release without it, and the header of that name elsewhere, else nothing."""
    standards: Mapping[str, int]
    """By release the C++ standard that its headers ask for, as 17, where it is a newer one."""
    by_type_until: str | None
    """The first release whose AT_DISPATCH_… takes no ``tensor.type()``; None if every one does."""


@dataclass(frozen=True, kw_only=True)
class ArchiveRow(Row):
    """An archive of python-build-standalone."""

    file: str
    sha256: str


@dataclass(frozen=True, kw_only=True)
class WheelRow(Row):
    """Versions of one of NVIDIA's wheels on the default package index, newest first."""

    name: str
    versions: tuple[str, ...]
    toolkit: str | None = None
    """The CUDA release that the newest version is from, if the version itself does not show it."""


@dataclass(frozen=True, kw_only=True)
class WheelFamilyRow(Row):
    """A family of NVIDIA's wheels; ``data/nvidia-families.toml`` says what each field is."""

    name: str
    plain_from: str | None = None
    """The first CUDA major whose wheel has no ``-cuNN``; None if each has it."""
    extra: str | None = None
    libraries: tuple[str, ...] = ()
    brings: tuple[str, ...] = ()

    def distribution(self, cuda: str) -> str:
        """The wheel's name for a CUDA major: ``nvidia-cublas-cu12``, ``nvidia-cublas``."""
        plain = self.plain_from is not None and int(cuda) >= int(self.plain_from)
        return f"nvidia-{self.name}" if plain else f"nvidia-{self.name}-cu{cuda}"


@dataclass(frozen=True, kw_only=True)
class KernelRow(Row):
    """A package that compiles kernels as programs run; ``kernel-compilers.toml`` says what each field is."""

    name: str
    uses: str
    when: Literal["demand", "always"]
    needs: tuple[str, ...]
    brings: tuple[str, ...] = ()
    second: str | None = None
    unless: str | None = None


@dataclass(frozen=True, kw_only=True)
class SameFilesRow(Row):
    """Distributions that write the same files."""

    file: str
    names: tuple[str, ...]
    """The one to keep first."""
    reason: str


@dataclass(frozen=True, kw_only=True, eq=False)
class FrameworkName(Row):
    """One framework, and all by which it is recognised; ``data/frameworks.toml`` says what each is."""

    name: str
    title: str
    module: str
    distribution: str | None = None
    """Its name on the package index, by which a matrix asks for it; None if only the probe knows it."""
    told: str
    aliases: tuple[str, ...] = ()
    packages: str = ""
    pins: str = ""
    brings: tuple[str, ...] = ()
    colab: bool = False
    requesters: tuple[str, ...] = ()
    inner: tuple[str, ...] = ()
    libraries: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()
    printed_by: str | None = None
    opens: Mapping[str, str] = field(default_factory=dict)
    suites: tuple[str, ...] = ()
    """Suites of the probe that it has besides ``conv``."""
    cudnn: Mapping[str, str] = field(default_factory=dict)
    cuda: Mapping[str, str] = field(default_factory=dict)
