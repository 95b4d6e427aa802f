"""The compatibility tables in ``tables/``: one TOML file a subject, read once, typed and strict.

Every row names its sources by id; the file's ``[sources]`` table gives each id a public reference and the
day on which it was read. An unknown key, an unknown source id or a number where a version belongs is a
:class:`FactsError`: the tables ship with rtbuild, so one that does not read is a bug, not a user's mistake.
"""

from __future__ import annotations

import functools
import threading
import tomllib
import types
import typing
from dataclasses import MISSING, dataclass, fields
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from packaging.specifiers import SpecifierSet

from builder import resources
from builder.facts.finding import Source

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


class FactsError(ValueError):
    """A table that rtbuild ships does not read."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """What every row has."""

    sources: tuple[Source, ...]
    kept: str | None = None
    """Why a person fixed this row by hand; a refresh of the facts leaves such a row alone."""

    @property
    def source(self) -> Source:
        """The first source, which is the one that decided."""
        return self.sources[0]


Brings = Literal["inside", "pins", "extra", "outside"]
"""How a framework's wheel comes by cuDNN: ``inside`` the wheel itself; by unconditional ``pins`` on NVIDIA's
wheels; by pins of an ``extra``; or not at all, it expects one ``outside``."""


@dataclass(frozen=True, kw_only=True)
class FrameworkRow(Row):
    """One release line of one framework, in one CUDA variant."""

    versions: SpecifierSet
    latest: str
    """The newest release in the line."""
    python: tuple[str, ...]
    """Python versions for which there are wheels."""
    cuda: str | None = None
    """CUDA that the wheel was compiled with; None where no public source says so."""
    cudnn: str | None = None
    """cuDNN that it was compiled with, or the oldest that it accepts, as exactly as known."""
    brings: Brings = "outside"
    variant: str = ""
    """``cu121`` for wheels that exist per CUDA version, ``cuda12`` for JAX's plug-ins; empty otherwise."""
    default: bool = True
    """True where the default package index serves this variant."""
    extra: str | None = None
    """The extra that brings the pins, for ``brings = "extra"``."""
    pins: tuple[str, ...] = ()
    """The requirements on NVIDIA's wheels that decide: cuDNN and the CUDA runtime."""
    architectures: tuple[str, ...] = ()
    """``sm_80`` kernels and ``compute_90`` PTX in the wheel; empty where no public source lists them."""
    glibc: str = "2.17"
    """The oldest glibc that one of its wheels accepts."""
    needs: tuple[str, ...] = ()
    """Families of NVIDIA's wheels (``cublas``, ``cufft``) without which it silently runs on the CPU."""
    pip: tuple[str, ...] = ()
    """Bounds that its own metadata leaves open, and without which today's index gives it what breaks it."""


@dataclass(frozen=True, kw_only=True)
class FrameworkTable:
    """All rows of one framework. ``name`` is its distribution on the package index."""

    name: str
    import_name: str
    title: str
    newest: str
    """The newest release line covered; what is newer is unknown, not refused."""
    rows: tuple[FrameworkRow, ...]


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
    """Driver floor under minor-version compatibility; None where there is none: the toolkit's own driver."""
    capability_min: str | None = None
    capability_max: str | None = None


@dataclass(frozen=True, kw_only=True)
class CudnnRow(Row):
    """Which CUDA majors and GPUs a line of cuDNN serves."""

    versions: SpecifierSet
    cuda: tuple[str, ...]
    capability_min: str
    capability_max: str


@dataclass(frozen=True, kw_only=True)
class TagRow(Row):
    """``nvidia/cuda`` tags of one CUDA release: on which Ubuntu, with which cuDNN inside."""

    cuda: str
    infix: str
    """``cudnn8``, ``cudnn9`` or ``cudnn``: how the tag spells that cuDNN is in it."""
    ubuntu: tuple[str, ...]
    state: Literal["listed", "deleted"]
    cudnn: str | None = None
    branches: tuple[str, ...] = ()
    """Older driver branches that ``NVIDIA_REQUIRE_CUDA`` lets start on data-centre GPUs."""
    consumer: bool = False
    """True where those branches are let through on GeForce cards too."""


@dataclass(frozen=True, kw_only=True)
class BadRow(Row):
    """A combination known to fail although every single rule lets it pass."""

    id: str
    when: tuple[str, ...]
    """Requirements that must all hold: ``cudnn>=9.10.0,<9.10.1``, ``python>=3.12``, ``gpu>=9.0``."""
    outcome: Literal["warns", "impossible"]
    message: str
    remedy: str


@dataclass(frozen=True, kw_only=True)
class GpuRow(Row):
    """A GPU model and its compute capability."""

    name: str
    capability: str
    consumer: bool = False


@dataclass(frozen=True, kw_only=True)
class SystemRow(Row):
    """An operating system that a base can be."""

    name: str
    """``ubuntu22.04`` or ``debian/bookworm``."""
    glibc: str
    python: tuple[str, ...]
    """Python versions in its own archive, the default one first."""


@dataclass(frozen=True, kw_only=True)
class BuildRow(Row):
    """What compiling a package needs."""

    name: str
    """On the package index, in its normal form."""
    needs: tuple[str, ...]
    """Debian packages, beside a compiler and Python's headers."""
    versions: SpecifierSet | None = None


@dataclass(frozen=True, kw_only=True)
class WheelRow(Row):
    """Versions of one of NVIDIA's wheels on the default package index, newest first."""

    name: str
    versions: tuple[str, ...]
    toolkit: str | None = None
    """The CUDA release that the newest version is from, where the version itself does not say so."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Facts:
    """All tables. Compared by identity, so that answers can be kept by the tables that they come from."""

    frameworks: Mapping[str, FrameworkTable]
    toolkits: tuple[ToolkitRow, ...]
    families: Mapping[str, FamilyRow]
    cudnn: tuple[CudnnRow, ...]
    tags: tuple[TagRow, ...]
    bad: tuple[BadRow, ...]
    gpus: Mapping[str, GpuRow]
    systems: Mapping[str, SystemRow]
    wheels: Mapping[str, WheelRow]
    builds: tuple[BuildRow, ...]

    def build_needs(self, name: str, version: str) -> tuple[str, ...] | None:
        """Debian packages that compiling this one needs; None where no row has it."""
        for row in self.builds:
            if row.name == name and (row.versions is None or row.versions.contains(version)):
                return row.needs
        return None


R = TypeVar("R", bound=Row)

FRAMEWORKS = ("tensorflow", "torch", "jax", "cupy", "onnxruntime", "paddle")


_guard = threading.Lock()


def load(folder: Path | None = None) -> Facts:
    """The tables, read once on first use. ``folder`` is for tests."""
    with _guard:
        return read(folder)


@functools.cache
def read(folder: Path | None) -> Facts:
    """What :func:`load` keeps: two threads that begin at once would each read it."""
    where = folder or resources.facts()
    frameworks = {}
    for stem in FRAMEWORKS:
        document, sources = _document(where / f"{stem}.toml")
        rows = _rows(FrameworkRow, document, "rows", sources, stem)
        table = FrameworkTable(rows=rows, **_plain(FrameworkTable, document, stem, besides={"rows"}))
        frameworks[table.name] = table
    cuda, cuda_sources = _document(where / "cuda.toml")
    families = _rows(FamilyRow, cuda, "families", cuda_sources, "cuda")
    return Facts(
        frameworks=frameworks,
        toolkits=_rows(ToolkitRow, cuda, "toolkits", cuda_sources, "cuda"),
        families={row.major: row for row in families},
        cudnn=_table(where, "cudnn", CudnnRow),
        tags=_table(where, "tags", TagRow),
        bad=_table(where, "known-bad", BadRow),
        gpus={row.name.lower(): row for row in _table(where, "gpus", GpuRow)},
        systems={row.name: row for row in _table(where, "systems", SystemRow)},
        wheels={row.name: row for row in _table(where, "nvidia-wheels", WheelRow)},
        builds=_table(where, "builds", BuildRow),
    )


def _table(where: Path, stem: str, kind: type[R]) -> tuple[R, ...]:
    document, sources = _document(where / f"{stem}.toml")
    return _rows(kind, document, "rows", sources, stem)


def _document(path: Path) -> tuple[dict[str, Any], dict[str, Source]]:
    document = tomllib.loads(path.read_text("utf-8"))
    sources = {}
    for key, entry in document.pop("sources").items():
        unknown = set(entry) - {"reference", "date", "kind"}
        if unknown or "reference" not in entry:
            raise FactsError(f"{path.name}: source {key!r} has unknown or missing keys: {sorted(unknown)}")
        sources[key] = Source(kind="table", reference=entry["reference"], date=entry["date"])
    return document, sources


def _rows(
    kind: type[R], document: dict[str, Any], key: str, sources: dict[str, Source], where: str
) -> tuple[R, ...]:
    return tuple(_row(kind, raw, sources, f"{where}.{key}[{n}]") for n, raw in enumerate(document[key]))


def _row(kind: type[R], raw: dict[str, Any], sources: dict[str, Source], where: str) -> R:
    values = _plain(kind, raw, where, besides={"sources"})
    names = raw.get("sources")
    if not names:
        raise FactsError(f"{where}: a row without a source")
    missing = [name for name in names if name not in sources]
    if missing:
        raise FactsError(f"{where}: no such source: {', '.join(missing)}")
    return kind(sources=tuple(sources[name] for name in names), **values)


def _plain(kind: type, raw: dict[str, Any], where: str, besides: set[str]) -> dict[str, Any]:
    """The values of ``raw`` as the dataclass wants them; anything else is an error."""
    types_of, required = _shape(kind)
    unknown = set(raw) - set(types_of)
    missing = required - set(raw) - besides
    if unknown or missing:
        raise FactsError(f"{where}: unknown keys {sorted(unknown)}, missing keys {sorted(missing)}")
    return {
        key: _value(types_of[key], value, f"{where}.{key}")
        for key, value in raw.items()
        if key not in besides
    }


@functools.cache
def _shape(kind: type) -> tuple[dict[str, Any], frozenset[str]]:
    required = frozenset(f.name for f in fields(kind) if f.default is MISSING)
    return typing.get_type_hints(kind, {**globals(), "Mapping": dict}), required


def _value(wanted: Any, value: Any, where: str) -> Any:
    if typing.get_origin(wanted) in {typing.Union, types.UnionType}:
        wanted = next(part for part in typing.get_args(wanted) if part is not type(None))
    if wanted is SpecifierSet:
        return SpecifierSet(value)
    if typing.get_origin(wanted) is Literal:
        if value in typing.get_args(wanted):
            return value
    elif typing.get_origin(wanted) is tuple:
        if isinstance(value, list) and all(isinstance(item, str) for item in value):
            return tuple(value)
    elif isinstance(value, wanted):
        return value
    raise FactsError(f"{where}: {value!r} is not {wanted}")
