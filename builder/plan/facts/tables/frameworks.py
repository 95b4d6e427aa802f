"""Rows of facts, each with its sources; the releases of frameworks.

Every row names its sources by id; the file's ``[sources]`` table gives each id a public reference and the
day on which it was read. An unknown key, an unknown source id or a number where a version belongs is a
:class:`FactsError`: the tables ship with rtbuild, so one that does not read is a bug, not a user's mistake.

``data/releases/<stem>.json`` holds one row for each release, read from the index and the wheels themselves;
``rtbuild facts refresh`` writes it. ``data/<stem>.toml`` holds values that no file has, with their sources:
values for a range of releases (``rows``), and CUDA variants that lie on an index of their maker's
(``variants``), one row of which stands for each release in its range. A value of the wheel's own wins, unless
the row is ``kept``.
"""

import functools
import json
import re
import threading
import tomllib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal, TypeVar

from packaging.specifiers import SpecifierSet

from builder.core.versions import key, more_exact, release

SourceKind = Literal["wheel", "registry", "table", "cell"]
"""``wheel``: read from the wheel; ``registry``: from the base image's config; ``table``: from the facts that
ship with rtbuild; ``cell``: stated by the matrix itself."""


@dataclass(frozen=True)
class Source:
    """The source of a value: a URL, ``repo@commit:path``, a wheel's file name or an image reference."""

    kind: SourceKind
    reference: str
    date: str | None = None
    """The day on which a table row was read, ``YYYY-MM-DD``; None for a value of the wheel or image."""

    def within(self, places: Mapping[str, str]) -> dict[str, "Source"]:
        """The source of each value: a place of its own below this one, such as ``METADATA`` of a wheel."""
        return {
            value: replace(self, reference=f"{place} of {self.reference}")
            for value, place in places.items()
            if place
        }

    def __str__(self) -> str:
        return f"{self.kind}: {self.reference}" + (f" ({self.date})" if self.date else "")


class FactsError(ValueError):
    """A table that rtbuild ships does not read."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Row:
    """The fields of every row."""

    sources: tuple[Source, ...]
    kept: str | None = None
    """Why a person fixed this row by hand; a refresh of the facts leaves such a row alone."""

    @property
    def source(self) -> Source:
        """The first source, which is the one that decided."""
        return self.sources[0]


R = TypeVar("R", bound=Row)
_T = TypeVar("_T")


class TableFile:
    """One TOML file of facts. Raises FactsError."""

    def __init__(self, path: Path) -> None:
        self.stem, self.values = path.stem, tomllib.loads(path.read_text("utf-8"))
        self._sources = {}
        for name, entry in self.values.pop("sources", {}).items():
            if set(entry) != {"reference", "date"}:
                raise FactsError(f"{path.name}: source {name!r} has not just a reference and a date")
            self._sources[name] = Source("table", entry["reference"], entry["date"])

    def rows(self, kind: type[R], key: str = "rows") -> tuple[R, ...]:
        raws = enumerate(self.values[key])
        return tuple(self._row(kind, raw, f"{self.stem}.{key}[{n}]") for n, raw in raws)

    def _row(self, kind: type[R], raw: dict[str, Any], where: str) -> R:
        names = raw.pop("sources", None)
        if not names:
            raise FactsError(f"{where}: a row without a source")
        if missing := ", ".join(name for name in names if name not in self._sources):
            raise FactsError(f"{where}: no such source: {missing}")
        values = {name: _plain(name, value, where) for name, value in raw.items()}
        try:
            return kind(sources=tuple(self._sources[name] for name in names), **values)
        except TypeError as problem:
            raise FactsError(f"{where}: {problem}") from problem


def _plain(name: str, value: Any, where: str) -> Any:
    """A value as dataclasses of facts have it: text, a flag, a list of text as a tuple, or text by text."""
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return tuple(value)
    if isinstance(value, dict) and all(isinstance(item, str) for item in value.values()):
        return value
    if not isinstance(value, str | bool):
        raise FactsError(f"{where}.{name}: {value!r} is not text, a flag, a list of text or text by text")
    return SpecifierSet(value) if name == "versions" and isinstance(value, str) else value


class Tables(Mapping[str, _T]):
    """The table of each name, read by ``reader`` when it is first asked for: few questions are about all."""

    def __init__(self, names: Iterable[str], reader: Callable[[str], _T]) -> None:
        self._names, self._reader = dict.fromkeys(names), reader
        self._read: dict[str, _T] = {}
        self._guard = threading.Lock()

    def __getitem__(self, name: str) -> _T:
        with self._guard:
            if name not in self._read:
                if name not in self._names:
                    raise KeyError(name)
                self._read[name] = self._reader(name)
            return self._read[name]

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


Brings = Literal["inside", "pins", "extra", "outside"]
"""How a framework's wheel comes by cuDNN: ``inside`` the wheel itself; by unconditional ``pins`` on NVIDIA's
wheels; by pins of an ``extra``; or not at all, it expects one ``outside``."""


@dataclass(frozen=True, kw_only=True, eq=False)  # by identity, as caches key on rows
class FrameworkRow(Row):
    """One release of one framework, in one CUDA variant; its fields in the order of the generated rows."""

    version: str
    """Public, without a local part: ``2.11.1``."""
    distribution: str
    """The distribution whose release it is: ``tensorflow-gpu``, ``cupy-cuda12x``."""
    variant: str = ""
    """``cu121`` for wheels that exist per CUDA version, ``cuda12`` for JAX's plug-ins; empty otherwise."""
    default: bool = True
    """True if the default package index serves this variant."""
    brings: Brings = "outside"
    extra: str | None = None
    """The extra that brings the pins, for ``brings = "extra"``."""
    aliases: tuple[str, ...] = ()
    """Extras without a number that mean this variant in this release: ``cuda`` of JAX."""
    cuda: str | None = None
    """CUDA that the wheel was compiled with; None if nothing says so."""
    cudnn: str | None = None
    """cuDNN that it was compiled with, as exactly as known."""
    architectures: tuple[str, ...] = ()
    """``sm_80`` kernels and ``compute_90`` PTX in the x86-64 wheel; empty if nothing lists them."""
    architectures_arm64: tuple[str, ...] = ()
    numpy_abi: str | None = None
    """The newest NumPy major (``1``, ``2``) that its compiled code runs with; None if nothing says it."""
    python: tuple[str, ...]
    """Python versions for which there are wheels on x86-64, else on ARM."""
    platforms: tuple[str, ...] = ("linux/amd64",)
    """For which there are wheels."""
    cpu_only: tuple[str, ...] = ()
    """The :attr:`platforms` whose wheel has no CUDA in it."""
    glibc: str | None = None
    """The oldest glibc that one of its x86-64 wheels accepts."""
    glibc_arm64: str | None = None
    yanked: str | None = None
    """Why its maker took it back."""
    requires: tuple[str, ...] = ()
    """All other requirements that hold on Linux without an extra; with a marker if Python decides."""
    extras: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Requirements on NVIDIA's wheels that hold on Linux by the extra that makes them, "" for none."""
    needs: tuple[str, ...] = ()
    """Families of NVIDIA's wheels (``cublas``, ``cufft``) without which it silently runs on the CPU."""
    pip: tuple[str, ...] = ()
    """Bounds missing in its own metadata, without which today's index gives it packages that break it."""
    read: Mapping[str, str] = field(default_factory=dict)
    """For each value of a file's, the file: ``torch/version.py``, ``METADATA``, ``file names``."""
    added: Mapping[str, Source] = field(default_factory=dict)
    """For each value that a person added, its source."""
    unread: Mapping[str, str] = field(default_factory=dict)
    """For missing values, the reason."""

    @property
    def carries_cuda(self) -> bool:
        """Whether CUDA and cuDNN come with it, without an extra."""
        return self.brings in {"pins", "inside"}

    @functools.cached_property
    def versions(self) -> SpecifierSet:
        return SpecifierSet(f"=={self.version}")

    @property
    def pins(self) -> tuple[str, ...]:
        """The requirements on NVIDIA's wheels that come with it, or with its own extra."""
        return (*self.extras.get("", ()), *(self.extras.get(self.extra, ()) if self.extra else ()))

    def is_named_by(self, extra: str) -> bool:
        """Whether an extra of JAX's names this CUDA: ``cuda11-cudnn86`` and ``cuda11-pip`` for ``cuda11``."""
        return bool(self.variant) and re.match(rf"{re.escape(self.variant)}(?!\d)", extra) is not None

    def elsewhere(self, platform: str) -> "FrameworkRow":
        """The row of the same release on its maker's index, of whose wheels for ``platform`` nothing is
        known.
        """
        return replace(
            self,
            platforms=tuple(other for other in self.platforms if other != platform),
            cpu_only=tuple(other for other in self.cpu_only if other != platform),
            unread={**self.unread, "platforms": _UNREACHED},
        )

    @functools.cached_property
    def _sources(self) -> Mapping[str, Source]:
        return {**self.source.within(self.read), **self.added}

    def source_of(self, value: str) -> Source:
        """The source of one of its values."""
        return self._sources.get(value, self.source)


@dataclass(frozen=True, kw_only=True, eq=False)
class FrameworkTable:
    """All rows of one framework, the oldest first. ``name`` is its distribution on the package index."""

    name: str
    title: str
    rows: tuple[FrameworkRow, ...] = ()
    date: str | None = None
    """The day on which the index was last read and said something new."""
    oldest: str | None = None
    """The oldest release that the index has; None if older ones than the rows' may lie there."""
    elsewhere_since: str | None = None
    """From this release on it lies on an index of its maker's, which nobody reads; None if on none."""
    elsewhere_page: str | None = None
    """Its maker's page that names that index."""
    elsewhere_blackwell: str | None = None
    """The command that takes a build for cards of compute capability 10.0 and later from that index."""
    elsewhere_before: str | None = None
    """Before this release its build with CUDA lay on a page of its maker's alone; None if on none."""
    variants_since: str | None = None
    variants_before: str | None = None
    """Bounds of the releases of which every CUDA variant has a row, on whichever index of its maker's."""

    @functools.cached_property
    def newest(self) -> str:
        """The newest release covered; what is newer is unknown, not refused."""
        return max((row.version for row in self.rows), key=release)

    @functools.cached_property
    def named_by_cuda(self) -> bool:
        """Whether the build for each CUDA has a distribution of its own, named after it: cupy-cuda12x."""
        own = (bool(row.variant) and row.distribution == f"{self.name}-{row.variant}" for row in self.rows)
        return bool(self.rows) and all(own)

    @functools.cached_property
    def _distributions(self) -> list[str]:
        return sorted({row.distribution for row in self.rows})

    @functools.cached_property
    def _by_release(self) -> dict[tuple[str, str], list[FrameworkRow]]:
        found: dict[tuple[str, str], list[FrameworkRow]] = {}
        for row in self.rows:
            found.setdefault((row.distribution, trimmed(row.version)), []).append(row)
        return found

    def of(self, version: str, distribution: str | None = None) -> list[FrameworkRow]:
        """Every variant of a release; empty for one that does not exist, or is not covered."""
        public = trimmed(version.partition("+")[0])
        names = [distribution] if distribution else self._distributions
        return [row for name in names for row in self._by_release.get((name, public), ())]

    def on_its_makers_page(self, version: str) -> bool:
        """Whether the release's build with CUDA lies on a page of its maker's alone, which is no index."""
        return self.elsewhere_before is not None and release(version) < release(self.elsewhere_before)

    def no_such_release(self, version: str, distribution: str) -> str | None:
        """The sentence for a version that the index does not list between releases that it lists."""
        try:
            if release(version).is_prerelease or self.of(version, distribution):
                return None
        except ValueError:
            return None  # `===1foo` names something, and it is no version
        rows = [row for row in self.rows if row.distribution == distribution] or list(self.rows)
        known = sorted({row.version for row in rows}, key=release)
        public = version.partition("+")[0]
        # a name that its maker gave up ends before the others of its table do
        newest = key(self.newest)
        inside = key(known[0]) <= key(public) and (key(public) <= newest or key(public)[:2] == newest[:2])
        before = self.oldest is not None and key(public) < key(self.oldest)
        if not inside and not before:
            return None
        line = ", ".join(v for v in known if key(v)[:2] == key(public)[:2])
        near = f"there are {line}" if line else f"releases go from {known[0]} to {known[-1]}"
        index = f"with a wheel on the package index, as read on {self.date}"
        return f"there is no {distribution} {public} {index}: {near}"

    def no_such_variant(self, version: str) -> str | None:
        """The sentence for a CUDA build of a release, ``2.6.0+cu128``, that its maker did not make."""
        public, _, variant = version.partition("+")
        there = [row.variant for row in self.of(public)]
        if not re.fullmatch(r"cu\d+", variant) or variant in there or not there:
            return None
        if self.variants_since is None or self.variants_before is None:
            return None
        if not key(self.variants_since) <= key(public) < key(self.variants_before):
            return None
        return f"there is no +{variant} build of {self.title} {public}: there are {', '.join(sorted(there))}"

    def row(
        self, version: str, variant: str = "", distribution: str | None = None, platform: str = "linux/amd64"
    ) -> FrameworkRow | None:
        """The row of a release; without a variant, the default index's.

        A variant that is asked for by name comes from its maker's index, where the wheel for ARM may have
        CUDA although the default index's has none.
        """
        usual = self.name if any(row.distribution == self.name for row in self.rows[-1:]) else None
        rows = self.of(version, distribution or usual)
        fitting = [row for row in rows if row.variant == variant or (not variant and row.default)]
        with_cuda = (row for row in fitting if platform in row.platforms and platform not in row.cpu_only)
        row = next(with_cuda, next(iter(fitting), None))
        if row is None or not variant or not row.default or platform not in row.cpu_only:
            return row
        return row.elsewhere(platform)


@functools.lru_cache(maxsize=8192)
def trimmed(version: str) -> str:
    """``2.0`` and ``2.0.0`` are one release."""
    public, plus, local = version.partition("+")
    return public.removesuffix(".0").removesuffix(".0") + plus + local


@dataclass(frozen=True, kw_only=True)
class AddedRow(Row):
    """Values for the releases from ``since`` to before ``before`` that no file says."""

    since: str
    before: str
    variant: str | None = None
    distribution: str | None = None
    cuda: str | None = None
    cudnn: str | None = None
    numpy_abi: str | None = None
    architectures: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    pip: tuple[str, ...] = ()
    cpu_only: tuple[str, ...] = ()
    """Platforms whose wheel is without CUDA although nothing that is read of it says so."""

    def fits(self, row: FrameworkRow) -> bool:
        return (
            key(self.since) <= key(row.version) < key(self.before)
            and self.variant in {None, row.variant}
            and self.distribution in {None, row.distribution}
        )


@dataclass(frozen=True, kw_only=True)
class VariantRow(Row):
    """A CUDA variant of the releases in a range that lies on an index of their maker's."""

    since: str
    before: str
    variant: str
    cuda: str
    cudnn: str | None = None
    brings: Brings = "inside"
    pins: tuple[str, ...] = ()
    platforms: tuple[str, ...] = ()
    """For which its maker's index has wheels; empty if no source says more than x86-64."""
    architectures: tuple[str, ...] = ()
    architectures_arm64: tuple[str, ...] = ()

    def of(self, row: FrameworkRow) -> FrameworkRow:
        """The variant of one release, which has the same Pythons and NumPy as the default one."""
        names = ("cuda", "cudnn", "platforms", "architectures", "architectures_arm64")
        values = {name for name in names if getattr(self, name)}
        platforms = self.platforms or ("linux/amd64",)
        code = {"linux/amd64": "architectures", "linux/arm64": "architectures_arm64"}
        missing = [code[platform] for platform in platforms if code[platform] not in values]
        missing += [] if self.platforms else ["platforms"]
        return replace(
            row,
            variant=self.variant,
            default=False,
            cuda=self.cuda,
            cudnn=self.cudnn,
            brings=self.brings,
            extras={"": self.pins} if self.pins else {},
            architectures=self.architectures,
            architectures_arm64=self.architectures_arm64,
            cpu_only=(),
            platforms=platforms,
            sources=self.sources,
            read={
                name: f"the default variant's {where}"
                for name, where in row.read.items()
                if name not in values
            },
            added=dict.fromkeys((*values, "extras"), self.source),
            unread=dict.fromkeys(missing, _UNREACHED),
        )


_UNREACHED = "unreachable index: its wheels lie on one of their maker's, which was not read"


def read_table(folder: Path, stem: str) -> FrameworkTable:
    """One framework's table, put together. Raises FactsError if one of its files does not read."""
    file = TableFile(folder / f"{stem}.toml")
    added = file.rows(AddedRow)
    variants = file.rows(VariantRow, "variants") if "variants" in file.values else ()
    try:
        generated = json.loads((folder / "releases" / f"{stem}.json").read_text("utf-8"))
        found = [_generated(raw, generated["date"]) for raw in generated["rows"]]
    except (OSError, ValueError, KeyError, TypeError) as problem:
        raise FactsError(f"releases/{stem}.json: {type(problem).__name__}: {problem}") from problem
    read = {(row.version, row.variant) for row in found}
    whole = [one for row in found for one in _with_variants(_with_added(row, added), variants, read)]
    values = {name: value for name, value in file.values.items() if isinstance(value, str)}
    return FrameworkTable(rows=tuple(whole), date=generated["date"], **values)


_NAMES = frozenset(one.name for one in fields(FrameworkRow))


def _generated(raw: Mapping[str, Any], date: str) -> FrameworkRow:
    known = ((name, value) for name, value in raw.items() if name in _NAMES)
    values: dict[str, Any] = {n: tuple(value) if isinstance(value, list) else value for n, value in known}
    values["extras"] = {extra: tuple(lines) for extra, lines in raw.get("extras", {}).items()}
    reference = f"{raw['distribution']} {raw['version']} on the default package index"
    return FrameworkRow(sources=(Source("table", reference, date),), **values)


def _with_added(row: FrameworkRow, added: Iterable[AddedRow]) -> FrameworkRow:
    changed: dict[str, Any] = {}
    sources: dict[str, Source] = {}
    names = ["pip", "numpy_abi", "cpu_only"]
    if set(row.cpu_only) != set(row.platforms):
        names += ["cuda", "cudnn", "architectures", "needs"]
    for one in added:
        for name in names if one.fits(row) else ():
            value, old = getattr(one, name), changed.get(name, getattr(row, name))
            if value and (one.kept or not old or (name in {"cuda", "cudnn"} and more_exact(old, value))):
                changed[name], sources[name] = value, one.source
            elif value and name in {"needs", "pip"}:
                changed[name] = (*old, *value)
    return replace(row, **changed, added=sources) if changed else row


def _with_variants(
    row: FrameworkRow, variants: Sequence[VariantRow], read: Collection[tuple[str, str]]
) -> Iterator[FrameworkRow]:
    """A release, and its variants that were not read from an index of their own.

    The variant of the default index has a row of its own for ARM if only its maker's index has CUDA for it.
    """
    yield row
    for one in variants if row.default else ():
        covered = key(one.since) <= key(row.version) < key(one.before)
        if covered and ((row.version, one.variant) not in read or one.platforms == ("linux/arm64",)):
            yield one.of(row)
