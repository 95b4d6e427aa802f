"""The frozen values that flow through rtbuild, from a matrix file to a report.

``matrix.yaml`` → :class:`Matrix` → :class:`Cell` → :class:`Pinned` → :class:`Recipe` → :class:`Image` →
:class:`Report`. Each arrow is one function; none changes what it was given.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from builder.core.digests import digest_of
from builder.core.suites import SUITES
from builder.core.versions import canonical

Profile = Literal["plain", "colab"]
"""The purpose of an image: plain ones run a command, those of ``colab`` start Jupyter for Colab's page."""

PythonFrom = Literal["base", "standalone"]
"""The origin of an image's Python: its distribution, or an archive whose Python runs on any of them."""

IMAGES = "rtbuild"
"""The repository of images in an engine's store."""


@dataclass(frozen=True, kw_only=True, order=True)
class Span:
    """A place in a matrix file. Lines and columns count from 1."""

    file: str
    line: int
    column: int
    width: int = 1

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


@dataclass(frozen=True, kw_only=True)
class Base:
    """The base of an image, as the matrix names it.

    ``registry``: ``name`` is an image reference (``nvidia/cuda:11.8.0-base-ubuntu22.04``).
    ``rootfs``: ``name`` is ``<distribution>/<suite>`` (``debian/bookworm``).
    """

    kind: Literal["registry", "rootfs"]
    name: str

    def __str__(self) -> str:
        return self.name if self.kind == "registry" else f"rootfs:{self.name}"


@dataclass(frozen=True, kw_only=True)
class Cuda:
    """The source of CUDA and cuDNN: the base image, NVIDIA's wheels, or none (a CPU image).

    ``packages`` are requirement strings for ``wheels``; empty if the framework brings its own pins.
    """

    provider: Literal["base", "wheels", "none"]
    packages: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options that a matrix sets for all of its cells."""

    compression: Literal["zstd", "gzip"] = "zstd"
    strict_cudnn: bool = False
    """Demand loaded cuDNN == compiled cuDNN; the default is NVIDIA's rule (same major, minor not older)."""
    max_size: int | None = None
    """Budget for an image, in bytes unpacked; a bigger image fails its cell."""
    slim: bool = True
    """Leave out of wheels what an image does without: see :mod:`builder.image.recipe.slim`."""


class HasPythons(Protocol):
    """An operating system as the facts have it."""

    @property
    def python(self) -> tuple[str, ...]:
        """Versions in its own archive."""


OLDEST_PYTHON = 6
"""The first minor version of CPython 3 that the probe runs on: a cell has no older one."""


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One combination out of a matrix. ``id`` is a legal Docker tag and the same string everywhere."""

    id: str
    matrix: str
    frameworks: tuple[str, ...]
    """Requirement strings, each pinned to one version: ``tensorflow==2.8.4``."""
    python: str
    """``3.9``: always a string, never a number."""
    base: Base
    cuda: Cuda
    platform: str = "linux/amd64"
    pip: tuple[str, ...] = ()
    imports: tuple[str, ...] = ()
    """What code in the image imports: ``moviepy.editor``, or ``openai:OpenAI`` for a name of a module."""
    apt: tuple[str, ...] = ()
    compilers: bool = False
    """The image has a C and a C++ compiler, and Python's headers: kernels are compiled as programs run."""
    env: tuple[tuple[str, str], ...] = ()
    verify: tuple[str, ...] = ()
    """Suites that the image has to pass to be published; empty: the matrix names none."""
    gpus: tuple[str, ...] = ()
    """GPU classes that the matrix claims (``T4``, ``A100``): checked against wheels, proven by reports."""
    index: tuple[str, ...] = ()
    """Extra package indexes by URL, for wheels such as PyTorch's ``cuNNN`` variants."""
    profile: Profile = "plain"
    """Its packages are among ``pip`` and ``apt`` already."""
    dependencies: Literal["resolved", "listed"] = "resolved"
    """``listed``: the packages named are all there are, as ``pip install --no-deps`` has it."""
    from_source: tuple[str, ...] = ()
    """Packages whose wheels may be built from their source distributions: foreign code runs, shut in."""
    compiled: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Packages that a compiler is needed for, each with the Debian packages of its build besides."""
    python_patch: str | None = None
    """``3.12.4``, if the matrix names a patch release: that of a standalone Python."""
    python_from: PythonFrom | None = None
    """None: the base's own if it has that version, else a standalone one."""
    variant: str | None = None
    """Appended to the id, to tell cells apart that differ only in packages or environment."""
    options: Options = field(default_factory=Options)
    excluded: str | None = None
    """The reason of the ``exclude`` rule that took this cell out; None for a cell that is in."""
    span: Span | None = field(default=None, compare=False)

    def image_name(self, repository: str = IMAGES) -> str:
        """The name of its image in an engine's store: ``<repository>/<matrix>:<cell id>``."""
        return f"{repository}/{self.matrix}:{self.id}"

    def has_own_python(self, system: HasPythons | None) -> bool:
        """Whether the image's Python is the base's own, as the matrix says, or as its system has it."""
        if self.python_patch is not None or self.python_from is not None:
            return self.python_patch is None and self.python_from == "base"
        return system is None or self.python in system.python

    def debian_packages(self, *, own_python: bool) -> tuple[str, ...]:
        """``apt``, and what ``compilers`` adds. A standalone Python has its headers with it: ``own_python``
        is whether it is the base's.
        """
        if not self.compilers:
            return self.apt
        named = {text.partition("=")[0] for text in self.apt}
        headers = (f"libpython{self.python}-dev",) if own_python else ()
        return (*self.apt, *(name for name in ("g++", "gcc", *headers) if name not in named))

    def suites(self) -> tuple[str, ...]:
        """The suites that verification runs: ``conv``, and those that the matrix names."""
        return tuple(name for name in SUITES if name in {"conv", *self.verify})

    @property
    def named_python(self) -> str:
        """The Python as the matrix names it: ``3.12``, or ``3.12.4``."""
        return self.python_patch or self.python

    def inputs(self) -> dict[str, Any]:
        """The inputs of a lock, as JSON: the cell without its place, reason and build options."""
        # Only if it is not the default: locks made before the key was there stay fresh.
        listed = {"dependencies": "listed"} if self.dependencies == "listed" else {}
        profile = {"profile": self.profile} if self.profile != "plain" else {}
        builds = [*self.from_source, *({name: list(needs)} for name, needs in self.compiled)]
        sources = {"from-source": builds} if builds else {}
        compilers = {"compilers": True} if self.compilers else {}
        imports = {"imports": list(self.imports)} if self.imports else {}
        return {
            **compilers,
            **imports,
            **listed,
            **profile,
            **sources,
            "frameworks": list(self.frameworks),
            "python": self.named_python,
            "base": str(self.base),
            "cuda": {"provider": self.cuda.provider, "packages": list(self.cuda.packages)},
            "platform": self.platform,
            "pip": list(self.pip),
            "apt": list(self.apt),
            "index": list(self.index),
        }


@dataclass(frozen=True, kw_only=True)
class Exemption:
    """A GPU class that cells are not published for, although they name it in ``gpus``."""

    gpu: str
    cells: str
    """A glob on ids."""
    reason: str


@dataclass(frozen=True, kw_only=True)
class Publishing:
    """A matrix's settings for the publication of its images."""

    staging: str | None = None
    repository: str | None = None
    max_age: int | None = None
    """The greatest age of a report, in seconds."""
    aliases: tuple[tuple[str, str], ...] = ()
    """Tags beside those that are measured, and the ids of the cells that they name."""
    exempt: tuple[Exemption, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Matrix:
    """One matrix file, expanded. ``cells`` keeps file order and holds the excluded ones too."""

    name: str
    path: Path
    description: str
    cells: tuple[Cell, ...]
    publish: Publishing = field(default_factory=Publishing)


@dataclass(frozen=True, kw_only=True, order=True)
class Wheel:
    """A wheel by content. ``size`` is in bytes as downloaded; no field names a host."""

    name: str
    version: str
    file: str
    sha256: str
    size: int
    uploaded: int = 0
    """The time of its upload by the index, in seconds since 1970; 0 if the index does not say."""
    source: WheelSource | None = field(default=None, compare=False)
    """The sources of a wheel that no index has: see :mod:`builder.image.sdist`."""


@dataclass(frozen=True, kw_only=True, order=True)
class StandalonePython:
    """An archive of python-build-standalone by content; ``file`` has version, build and target in it."""

    version: str
    """With the patch: ``3.12.16``."""
    build: str
    """The release that it is from, a date: ``20261110``."""
    file: str
    sha256: str
    size: int
    """In bytes; 0 before it is fetched."""


@dataclass(frozen=True, kw_only=True, order=True)
class Sdist:
    """A source distribution by content."""

    name: str
    version: str
    file: str
    sha256: str
    size: int


@dataclass(frozen=True, kw_only=True)
class Compilation:
    """The compilation of a wheel: Debian packages, by name."""

    needs: tuple[str, ...]
    """Packages that the matrix names for the build, beside the compiler."""
    libraries: tuple[str, ...]
    """Packages whose libraries the wheel links against; the image must contain them."""


@dataclass(frozen=True, kw_only=True)
class WheelSource:
    """The inputs that decide the bytes of a built wheel."""

    sdist: Sdist
    requires: tuple[Wheel, ...]
    """The wheels that its build requires, by name; none of them is in the image."""
    system: RootfsBase
    python: str
    """The one that the wheel is for: of ``system``, or ``interpreter``."""
    compiled: Compilation | None = None
    """None for pure Python."""
    interpreter: StandalonePython | None = None
    """The Python that runs the build, if ``system`` has none."""


@dataclass(frozen=True, kw_only=True, order=True)
class Deb:
    """A Debian package by content. ``file`` is its path below the archive's root (``pool/…``)."""

    package: str
    version: str
    architecture: str
    file: str
    sha256: str
    size: int
    archive: str
    """The distribution's archive: ``debian`` or ``debian-security``."""


@dataclass(frozen=True, kw_only=True)
class RegistryBase:
    """A registry image as its manifest and config describe it; nothing is read from the tag's text."""

    reference: str
    digest: str
    """Digest of the platform's manifest, not of the index."""
    env: tuple[tuple[str, str], ...]
    labels: tuple[tuple[str, str], ...]
    size: int
    """Sum of the compressed layers, in bytes."""

    def variable(self, name: str) -> str | None:
        return dict(self.env).get(name)


@dataclass(frozen=True, kw_only=True)
class RootfsBase:
    """An operating system put together from Debian's packages."""

    suite: str
    debs: tuple[Deb, ...]
    epoch: int
    """Date of the suite's Release file, in seconds since 1970."""


@dataclass(frozen=True, kw_only=True)
class Pinned:
    """A cell with everything in it fixed by content."""

    cell: Cell
    base: RegistryBase | RootfsBase
    wheels: tuple[Wheel, ...]
    """In the order in which their layers are stacked: largest families first, see
    :mod:`builder.image.layers`.
    """
    epoch: int
    """``SOURCE_DATE_EPOCH`` of the lock: the newest upload time in it."""
    python: StandalonePython | None = None
    """None if Python is the base's own."""
    added: tuple[tuple[str, str], ...] = ()
    """Bounds that a resolution had beside what the cell asks for, and why: ``("numpy<2", "known-bad: …")``.
    Its wheels are what decides the image."""

    @property
    def apt(self) -> tuple[str, ...]:
        """The Debian packages that the cell asks for, with those of its compilers."""
        return self.cell.debian_packages(own_python=self.python is None)

    @property
    def installs(self) -> bool:
        """Whether apt-get has to look into the base: for its Python, or for the cell's packages."""
        return isinstance(self.base, RegistryBase) and (self.python is None or bool(self.apt))

    @property
    def has_cudnn8(self) -> bool:
        """Whether a wheel brings cuDNN 8, which opens NVRTC as ``libnvrtc.so``: no wheel has that name."""
        return any(
            re.fullmatch(r"nvidia-cudnn-cu\d+", canonical(wheel.name)) and wheel.version.startswith("8.")
            for wheel in self.wheels
        )

    @property
    def has_nvidia_folders(self) -> bool:
        """Whether a wheel brings libraries in ``nvidia/*/lib``: PyTorch's have CUDA in them until 1.12."""
        names = (canonical(wheel.name) for wheel in self.wheels)
        return any(re.fullmatch(r"nvidia-(cu|nccl|nv|npp)[a-z-]*?(-cu\d+)?", name) for name in names)

    @property
    def inputs(self) -> str:
        """Digest of all that decides the image's content, apart from rtbuild's own files."""
        base: dict[str, Any]
        if isinstance(self.base, RegistryBase):
            base = {"digest": self.base.digest}
        else:
            base = {"suite": self.base.suite, "debs": [d.sha256 for d in self.base.debs]}
        return digest_of(
            {
                "cell": self.cell.inputs(),
                "env": [list(pair) for pair in self.cell.env],
                "base": base,
                **({"python": self.python.sha256} if self.python else {}),
                "wheels": [w.sha256 for w in self.wheels],
                "epoch": self.epoch,
                "compression": self.cell.options.compression,
            }
        )


@dataclass(frozen=True, kw_only=True, order=True)
class DebianPackage:
    """A package of the distribution that is installed in an image."""

    name: str
    version: str
    architecture: str


@dataclass(frozen=True, kw_only=True)
class Image:
    """A built image in an engine's store."""

    cell: Cell
    reference: str
    digest: str
    """The engine's name for it: with the containerd image store the manifest digest, else the image id."""
    content: str
    """Digest over the ordered layer diff ids and the config without its dates: equal for equal content."""
    size: int
    """Unpacked, in bytes."""
    reused: bool = False
    """True if an image with the same inputs was there already and nothing was built."""
    pushed: str | None = None
    """``repository@sha256:…``: its place in a registry, by the digest of its manifest there."""

    @property
    def manifest(self) -> str:
        """The digest that a report on it is about: the registry's, if one has it."""
        return self.pushed.partition("@")[2] if self.pushed else self.digest


class Verdict(enum.StrEnum):
    """The result of a report in one word; see the table in ``docs/verdicts.md``."""

    WORKS = "works"
    UNVERIFIED = "unverified"
    BROKEN = "broken"
    UNSUPPORTED_GPU = "unsupported-gpu"
    HOST = "host"
    BUSY = "busy"


@dataclass(frozen=True, kw_only=True)
class Difference:
    """Something that the matrix asked for and the probe did not find."""

    what: str
    asked: str
    found: str


@dataclass(frozen=True, kw_only=True)
class Report:
    """The probe's findings in one image on one machine. ``document`` is the probe's own JSON, unchanged."""

    image: str
    """:attr:`Image.content` of the image that was probed."""
    digest: str
    verdict: Verdict
    cause: str | None
    differences: tuple[Difference, ...]
    document: Mapping[str, Any]
    reused: bool = False
    summary: str = ""
    """The verdict in one sentence. Not always the probe's: an engine that refuses a GPU says so outside."""
    remedy: str | None = None

    @property
    def test_double(self) -> bool:
        """True if a stand-in for a GPU or driver took part: never evidence for anything."""
        return bool(self.document.get("test_double"))
