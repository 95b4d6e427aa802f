"""Rows of compiled packages that stand beside the frameworks: vLLM, xformers, torchvision, OpenCV.

``data/packages.toml`` lists them, ``data/releases/packages/<name>.json`` has a row for each release, read
by ``rtbuild facts refresh`` from its wheel, or from the build files of its source archive.
"""

import functools
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

from packaging.requirements import Requirement

from builder.core import resources
from builder.core.packed_text import unpack_text
from builder.core.versions import canonical, key, pinned, release, requirement
from builder.plan.facts.tables.frameworks import (
    FactsError,
    FrameworkRow,
    FrameworkTable,
    Row,
    Source,
    trimmed,
)

_PINNED_CUDA = re.compile(r"nvidia-[a-z-]+-cu(\d\d)\b|cuda-toolkit(?:\[.*\])?[=>~]=(\d\d)\b")
_OF_OTHERS = re.compile(r"lib(?:torch|c10|tensorflow|cudnn|cu(?:df|ml))")
"""Libraries that another package brings, which is named beside."""
_NUMBERED = r"cudart|cublas|cublasLt|nvrtc|nvJitLink|nvjpeg|npp\w+"
_NOT_NUMBERED = (
    r"cudnn\w*|cufftw?|cufile\w*|cupti|curand|cusolver(?:Mg)?|cusparse(?:Lt)?|cutensor\w*|nccl\w*|nvperf\w*"
    r"|nvshmem\w*|nvToolsExt|pcsampling\w*"
)
NUMBERED = re.compile(rf"lib(?:{_NUMBERED})\.so\.(\d+)(?:\.\d+)*")
"""CUDA's libraries, by the names of their files, that have its major version in them, which is the group."""
CUDA_LIBRARY = re.compile(rf"(lib(?:{_NUMBERED}|{_NOT_NUMBERED}))(?:\.so\.(\d+)[\w.]*|[.-].*)")
"""Each of CUDA's libraries, with its stem and the first number behind ``.so``, if one follows at once:
auditwheel gives copies names of their own, such as ``libcudart-d0da41ae.so.11.0``."""
_SHARED = (
    "sources", "version", "distribution", "python", "platforms", "glibc", "glibc_arm64", "yanked", "requires",
    "extras", "numpy_abi", "cuda", "read", "unread",
)  # fmt: skip
"""The fields that a package's row and a framework's have in common."""


@dataclass(frozen=True, kw_only=True)
class PackageName(Row):
    """One package that is read."""

    name: str
    since: str
    """The oldest release whose requirements are read."""
    compiled: str
    """The oldest release whose libraries are read."""
    variants: bool = False
    """True if PyTorch's own indexes have builds of it for other CUDAs than the default index's."""
    nearest: str | None = None
    """The first release whose library for another minor of the same CUDA serves."""
    runtime: bool = False
    """True if it compiles its kernels as programs run: GPU code in its libraries is that of its tools."""
    optional: bool = False
    """True if it works without its libraries, and says so in a log: what they lack is a reservation."""
    least: str | None = None
    """The least compute capability that its maker names for any release on record."""
    instead: tuple[str, ...] = ()
    """Packages that do the same on other cards."""
    features: Mapping[str, str] = field(default_factory=dict)
    """The compute capability from which on it does something that cards before lack."""
    by_card: Mapping[str, str] = field(default_factory=dict)
    """What its maker names for cards of a compute capability; a clause."""
    without: str = ""
    """What programs take in its place, without any package; a clause."""
    without_least: str = "0"
    """The oldest compute capability that ``without`` serves."""
    light: bool = False
    """True if its code asks nothing of CUDA or of a framework: its requirements are read, and the NumPy that
    it is compiled for."""


@dataclass(frozen=True, kw_only=True, eq=False)  # by identity, as caches key on rows
class PackageRow(Row):
    """One release of one package; its fields in the order of the generated rows."""

    version: str
    distribution: str
    archive: Literal["", "source"] = ""
    """``source`` for a release without wheels: it is compiled where it is installed."""
    python: tuple[str, ...] = ()
    platforms: tuple[str, ...] = ()
    """For which there are wheels."""
    glibc: str | None = None
    """The oldest glibc that one of its x86-64 wheels runs with."""
    glibc_arm64: str | None = None
    yanked: str | None = None
    requires: tuple[str, ...] = ()
    """Requirements that hold on Linux without an extra, but for NVIDIA's; a marker if Python decides."""
    extras: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Requirements on NVIDIA's wheels that hold without an extra, by ""."""
    torch: tuple[str, ...] = ()
    """Minor releases of PyTorch that define all symbols asked for of its small libraries; others may be
    missing. Empty if it asks for none, or if none has all."""
    abi: str | None = None
    """PyTorch's interface that it is compiled against: ``c++``, which changes with each minor release, or
    ``stable``."""
    numpy_abi: str | None = None
    """The newest NumPy major that its compiled code runs with."""
    cuda: str | None = None
    """CUDA that it was compiled with, as exactly as its pins, libraries and PTX tell; of a source archive the
    oldest that it compiles with."""
    needed: tuple[str, ...] = ()
    """Names of libraries (``libcudart.so.12``) that it is linked with and does not bring."""
    either: tuple[str, ...] = ()
    """The same, of libraries of which one is loaded: by the CUDA, the card or the FFmpeg that is there."""
    brings: tuple[str, ...] = ()
    """Names of the libraries inside."""
    architectures: tuple[str, ...] = ()
    """``sm_80`` kernels and ``compute_90`` PTX of most of its code."""
    other_code: tuple[str, ...] = ()
    """Architectures that single kernels have beyond those."""
    by_cuda: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """GPU code by CUDA, if it has a library for each (bitsandbytes); empty where it was not read."""
    modules: tuple[str, ...] = ()
    """The outermost files by which others import it: ``cv2/__init__.py``."""
    builds: tuple[str, ...] = ()
    """Requirements of its build."""
    compiles: tuple[str, ...] = ()
    """Needs of compiling it: ``torch``, ``nvcc``, ``network``."""
    read: Mapping[str, str] = field(default_factory=dict)
    unread: Mapping[str, str] = field(default_factory=dict)
    """For missing values, the reason."""

    @property
    def label(self) -> str:
        return f"{self.distribution} {self.version}"

    @property
    def pinned_cuda(self) -> frozenset[int]:
        """The majors of CUDA whose libraries its own requirements on NVIDIA's wheels bring."""
        found = (_PINNED_CUDA.match(line) for line in self.extras.get("", ()))
        return frozenset(int(one[1] or one[2]) for one in found if one is not None)

    @property
    def cuda_libraries(self) -> tuple[tuple[str, int], ...]:
        """(``libcudart.so.12``, 12): those of CUDA's with its major in their names that it is linked with."""
        named = ((name, NUMBERED.fullmatch(name)) for name in self.needed)
        return tuple((name, int(found[1])) for name, found in named if found is not None)

    @property
    def alone(self) -> FrameworkRow | None:
        """The release as an image may have it without a framework: what it is linked with comes with it.

        None for any other, and for one of which it is not known.
        """
        if (
            self.archive == "source"
            or self.cuda is None
            or not {number for _, number in self.cuda_libraries} <= self.pinned_cuda
            or any(_OF_OTHERS.match(name) for name in self.needed)
        ):
            return None
        return FrameworkRow(brings="pins", **{name: getattr(self, name) for name in _SHARED})

    def asks(self, name: str) -> tuple[Requirement, ...]:
        """Its requirements of one distribution."""
        return self._asked.get(name, ())

    @functools.cached_property
    def _asked(self) -> Mapping[str, tuple[Requirement, ...]]:
        found: dict[str, tuple[Requirement, ...]] = {}
        for line in self.requires:
            one = requirement(line)
            if one is not None and line.startswith(name := canonical(one.name)):
                found[name] = (*found.get(name, ()), one)
        return found

    @functools.cached_property
    def _sources(self) -> Mapping[str, Source]:
        return self.source.within(self.read)

    def source_of(self, value: str) -> Source:
        """The source of one of its values."""
        return self._sources.get(value, self.source)


@dataclass(frozen=True, kw_only=True, eq=False)
class PackageTable:
    """All rows of one package, the newest first."""

    name: str
    rows: tuple[PackageRow, ...]
    date: str
    light: bool = False
    """As :attr:`PackageName.light`."""
    older: int | None = None
    """Final releases of the index that are older than the first on record; None if nobody counted."""

    @functools.cached_property
    def _by_version(self) -> Mapping[str, PackageRow]:
        return {trimmed(row.version): row for row in self.rows}

    def row(self, version: str) -> PackageRow | None:
        """The row of a release, with or without its local part."""
        found = self._by_version.get(trimmed(version))
        return found or self._by_version.get(trimmed(version.partition("+")[0]))

    @property
    def newest(self) -> str:
        return self.rows[0].version

    def numpy_abi(self, version: str) -> str | None:
        """The newest NumPy major that a release's compiled code runs with; None if nothing tells.

        A release that was not read is as old as an older one that runs with NumPy 2, or as a newer one that
        does not: makers do not go back.
        """
        row = self.row(version)
        if row is not None and row.numpy_abi is not None:
            return row.numpy_abi
        if self.light and row is not None and "numpy_abi" not in row.unread:
            return None
        mine = release(version)
        older = (one.numpy_abi for one in self.rows if release(one.version) < mine)
        newer = (one.numpy_abi for one in self.rows if release(one.version) > mine)
        return "2" if "2" in older else "1" if "1" in newer else None

    @functools.cached_property
    def alone(self) -> FrameworkTable:
        """Its releases that need no framework, for those who look for cells; it may be without a row."""
        rows = tuple(found for row in reversed(self.rows) if (found := row.alone) is not None)
        return FrameworkTable(name=self.name, title=self.name, rows=rows, date=self.date)


_NAMES = frozenset(one.name for one in fields(PackageRow))


def read_package(folder: Path, name: str, *, light: bool) -> PackageTable:
    """One package's table. Raises FactsError if its file does not read."""
    path = folder / "releases" / "packages" / f"{name}.json"
    try:
        document = json.loads(path.read_text("utf-8"))
        rows = [_row(raw, document["date"]) for raw in document["rows"]]
    except (OSError, ValueError, KeyError, TypeError) as problem:
        raise FactsError(f"{path.name}: {type(problem).__name__}: {problem}") from problem
    rows.sort(key=lambda row: release(row.version), reverse=True)
    return PackageTable(
        name=name, rows=tuple(rows), date=document["date"], light=light, older=document.get("older")
    )


def _row(raw: Mapping[str, Any], date: str) -> PackageRow:
    known = ((name, value) for name, value in raw.items() if name in _NAMES)
    values: dict[str, Any] = {n: tuple(value) if isinstance(value, list) else value for n, value in known}
    for name in ("extras", "by_cuda"):
        values[name] = {one: tuple(lines) for one, lines in raw.get(name, {}).items()}
    reference = f"{raw['distribution']} {raw['version']} on the default package index"
    return PackageRow(sources=(Source("table", reference, date),), **values)


def newest_minor(versions: Sequence[str]) -> list[str]:
    """The newest patch of each minor release; of ``0.0.x`` each x counts as one."""
    best: dict[tuple[int, ...], str] = {}
    for version in sorted(versions, key=release):
        numbers = key(version)
        best[numbers[:3] if numbers[:2] == (0, 0) else numbers[:2]] = version
    return list(best.values())


# -- the releases of a package that have a name


@dataclass(frozen=True, kw_only=True)
class NameSpan:
    """The releases of a package that have a module, or a name of one."""

    package: str
    since: str | None = None
    """The first release that has it; None for all that were read."""
    until: str | None = None
    """The first release without it; None if the newest has it."""
    home: str = ""
    """The module that has it then, if one has."""
    module: bool = False
    """Whether it is a module: its package may have a function of that name all the time."""

    @property
    def bounds(self) -> str:
        """``>=1.20,<2``."""
        told = ((">=", self.since), ("<", self.until))
        return ",".join(f"{sign}{version}" for sign, version in told if version is not None)


@functools.cache
def name_spans() -> Mapping[str, NameSpan]:
    """What the probe carries of names that releases lost or brought, by the whole name,
    ``numpy.float``: ``common/names.json``, read of wheels, and the rows by hand of ``common/patterns.ini``.
    """
    found: dict[str, NameSpan] = {}
    table = json.loads((resources.probe() / "common/names.json").read_text("utf-8"))
    for package, packed in table.items():
        row = json.loads(unpack_text(packed["row"]))
        for kind in ("new", "gone"):
            for place, modules in row[kind].items():
                for module, names in modules.items():
                    for text in names.split(" "):
                        name, _, home = text.partition(">")
                        whole, first = f"{module}.{name}".rstrip("."), place.partition(" ")[0]
                        if package == "keras" and kind == "new" and release(first) <= release("3.0"):
                            continue  # up to 2.12 its interface was made as it was built: no file tells it
                        _add_span(found, whole, package, (kind == "new", first, home), module=not name)
                        if package == "keras" and first == "3.0" and not home and kind == "gone":
                            found |= _in_tensorflow(whole)
    text = (resources.probe() / "common/patterns.ini").read_text("utf-8")
    by_hand = re.search(r"(?ms)^\[python-names\]\n(.*?)^\[", text)
    for name, asked in re.findall(r"(?m)^([\w.]+) = (\S+)$", by_hand[1] if by_hand is not None else ""):
        if (parsed := requirement(asked)) is not None and name.partition(".")[0] not in {
            "argument",
            "config",
        }:
            bounds = {one.operator: one.version for one in parsed.specifier}
            package = canonical(parsed.name)
            found[name] = NameSpan(package=package, since=bounds.get(">="), until=bounds.get("<"))
    return found


_OF_TF_KERAS = re.compile(r"keras\.(?:losses|metrics|backend)\b")
"""Modules of which tf.keras has the old names in place of Keras 3's."""


def _in_tensorflow(name: str) -> dict[str, NameSpan]:
    """A name that Keras 3 lost, as TensorFlow has it: 2.16 is the first with Keras 3
    (https://keras.io/getting_started/).
    """
    span = NameSpan(package="tensorflow", until="2.16")
    return {} if _OF_TF_KERAS.match(name) else {f"tensorflow.{name}": span}


def _add_span(
    found: dict[str, NameSpan], name: str, package: str, change: tuple[bool, str, str], *, module: bool
) -> None:
    """Add that a name, or a ``module``, came, or went, with a release, and where it is then."""
    came, first, home = change
    before = found.get(name)
    if came:
        found[name] = NameSpan(package=package, since=first, module=module)
    elif before is None or before.since is None or release(before.since) < release(first):
        since = before.since if before is not None else None
        both = before is not None and before.until == first and not before.module
        module = module and not both
        found[name] = NameSpan(package=package, since=since, until=first, home=home, module=module)


def leaving_out(
    pip: Iterable[str], name: str, version: str, tables: Mapping[str, PackageTable]
) -> Iterator[str]:
    """``vllm 0.33.0 wants torch==2.14.0``: what pinned packages ask for that a release does not meet."""
    for parsed in filter(None, map(requirement, pip)):
        table = tables.get(canonical(parsed.name))
        row = table.row(pinned(parsed) or "") if table is not None else None
        for asked in row.asks(name) if row is not None else ():
            if not asked.specifier.contains(version, prereleases=True):
                yield f"{row.label if row is not None else parsed} wants {asked.name}{asked.specifier}"
