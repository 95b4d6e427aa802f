"""The compatibility tables in ``tables/``, read once on first use: one TOML file a subject.

The releases of frameworks stand in ``data/releases/``: see :mod:`.frameworks`.
"""

import functools
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from builder.core import resources
from builder.core.model import Cell
from builder.core.suites import SUITES
from builder.core.versions import canonical, key, names_of, requirement, short
from builder.plan.facts.tables.frameworks import (
    FrameworkTable,
    R,
    Source,
    TableFile,
    Tables,
    read_table,
)
from builder.plan.facts.tables.packages import PackageName, PackageTable, read_package
from builder.plan.facts.tables.rows import (
    ArchitectureRow,
    ArchiveRow,
    BadRow,
    BranchRow,
    BuildRow,
    CardDriverRow,
    CompatRow,
    ComputerRow,
    CudnnRow,
    ElsewhereRow,
    ElsewhereSystemRow,
    ExtensionRow,
    FamilyRow,
    ForwardRow,
    FrameworkName,
    GpuRow,
    InstanceRow,
    JetpackRow,
    KernelModulesRow,
    KernelRow,
    NameRow,
    RemovedRow,
    SameFilesRow,
    ServerRow,
    SonameRow,
    SystemRow,
    TagRow,
    ToolkitRow,
    TorchHeaders,
    VendorBuildRow,
    WheelFamilyRow,
    WheelPageRow,
    WheelRow,
    WithoutRow,
)
from builder.plan.facts.tables.system_libraries import SystemChoiceRow, SystemLibraryRow


@dataclass(frozen=True, kw_only=True, eq=False)
class Facts:
    """All tables."""

    registry: tuple["FrameworkName", ...]
    """The frameworks that are known, and all by which they are recognised."""
    frameworks: Mapping[str, FrameworkTable]
    """By the distribution by which a matrix asks for it; one that only the probe knows is not among them."""
    toolkits: tuple[ToolkitRow, ...]
    families: Mapping[str, FamilyRow]
    architectures: tuple[ArchitectureRow, ...]
    card_drivers: Mapping[str, CardDriverRow]
    branches: Mapping[str, BranchRow]
    forward: ForwardRow
    compat: Mapping[str, CompatRow]
    sonames: tuple[SonameRow, ...]
    cudnn: tuple[CudnnRow, ...]
    tags: tuple[TagRow, ...]
    bad: tuple[BadRow, ...]
    gpus: Mapping[str, GpuRow]
    computers: Mapping[str, ComputerRow]
    instances: tuple[InstanceRow, ...]
    kernel_modules: Mapping[str, KernelModulesRow]
    without: Mapping[str, WithoutRow]
    systems: Mapping[str, SystemRow]
    wheels: Mapping[str, WheelRow]
    wheel_families: Mapping[str, WheelFamilyRow]
    kernels: Mapping[str, KernelRow]
    builds: tuple[BuildRow, ...]
    folder: Path
    """The folder of the tables that are read when they are first asked for."""

    @functools.cached_property
    def generations(self) -> Mapping[str, tuple[str, ...]]:
        """The compute capabilities of each generation of cards, by its name in lower case."""
        found: dict[str, tuple[str, ...]] = {}
        for kind in self.architectures:  # one row for each first driver
            found[kind.name.lower()] = found.get(kind.name.lower(), ()) + kind.capabilities
        return found

    @functools.cached_property
    def framework_libraries(self) -> tuple[str, ...]:
        """``libtorch``: how the names of frameworks' libraries begin."""
        return tuple(name for row in self.registry for name in row.libraries)

    @functools.cached_property
    def own_drivers(self) -> Mapping[str, ToolkitRow]:
        """The oldest toolkit of each minor version of CUDA, whose driver that version is said to need."""
        found: dict[str, ToolkitRow] = {}
        for row in self.toolkits:
            found.setdefault(short(row.version, 2), row)
        return found

    @functools.cached_property
    def package_names(self) -> Mapping[str, PackageName]:
        """The compiled packages that are read."""
        return {row.name: row for row in TableFile(self.folder / "packages.toml").rows(PackageName)}

    @functools.cached_property
    def packages(self) -> Mapping[str, PackageTable]:
        """Compiled packages beside the frameworks, each table read when it is first asked for."""
        names = self.package_names
        return Tables(names, lambda name: read_package(self.folder, name, light=names[name].light))

    @functools.cached_property
    def same_files(self) -> tuple[SameFilesRow, ...]:
        """Distributions of which an image has one."""
        return TableFile(self.folder / "same-files.toml").rows(SameFilesRow)

    def libraries_named(self, name: str) -> Iterator[SystemLibraryRow]:
        """All rows that a name may mean, as programs open it: ``libsndfile.so.1``, ``libsndfile.so``,
        ``sndfile``, ``snd*``.
        """
        every = self.system_libraries
        if name in every:
            yield every[name]
            return
        if name.endswith("*"):
            begins = f"lib{name[:-1].removeprefix('lib')}"
        else:
            begins = f"{name}." if ".so" in name else f"lib{name}.so."
        yield from (every[one] for one in every if one.startswith(begins))

    @functools.cached_property
    def loaded_by_imports(self) -> tuple[SystemLibraryRow, ...]:
        """Libraries of the system that the import of some wheel is on record to load."""
        return tuple(self.system_libraries[row.name] for row in self._by_hand.values() if row.loaded_by)

    @functools.cached_property
    def system_choices(self) -> tuple[SystemChoiceRow, ...]:
        """Libraries of the system of which the import of some wheel loads one of several releases."""
        return TableFile(self.folder / "system-libraries.toml").rows(SystemChoiceRow, "one_of")

    @functools.cached_property
    def _by_hand(self) -> Mapping[str, SystemLibraryRow]:
        rows = TableFile(self.folder / "system-libraries.toml").rows(SystemLibraryRow)
        return {row.name: row for row in rows}

    @functools.cached_property
    def _of_debian(self) -> Mapping[str, Any]:
        table: Mapping[str, Any] = json.loads((self.folder / "system-libraries.json").read_text("utf-8"))
        return table

    @functools.cached_property
    def system_libraries(self) -> Mapping[str, SystemLibraryRow]:
        """Libraries of the system, by the name that loaders are asked for."""
        table = self._of_debian
        read = f"the Contents and Packages indexes of Debian's {', '.join(table['suites'])}"
        source = Source("table", read, table["date"])

        def row(name: str) -> SystemLibraryRow:
            by_hand = self._by_hand.get(name)
            if name not in table["libraries"]:
                return self._by_hand[name]
            columns = table["libraries"][name].split()
            columns = columns if len(columns) > 1 else columns * len(table["suites"])
            found = {
                suite: tuple(text.split(",")) if text != "-" else ()
                for suite, text in zip(table["suites"], columns, strict=True)
            }
            return SystemLibraryRow(
                name=name,
                packages=tuple(dict.fromkeys(one for packages in found.values() for one in packages)),
                loaded_by=by_hand.loaded_by if by_hand is not None else (),
                by_suite={
                    suite: packages for suite, packages in found.items() if packages or suite in table["read"]
                },
                sources=(source, *(by_hand.sources if by_hand is not None else ())),
            )

        return Tables((*table["libraries"], *(self._by_hand.keys() - table["libraries"].keys())), row)

    def bare_packages(self, system: SystemRow | None) -> frozenset[str]:
        """The Debian packages with libraries that a minimal system with Python has; none of one that is on no
        record, and of other systems than Debian and Ubuntu.
        """
        suite = system.suite if system is not None else None
        return frozenset(self._of_debian["bare"].get(suite, "").split())

    @functools.cached_property
    def servers(self) -> Mapping[str, ServerRow]:
        """Servers that are images, by the name of their package."""
        rows = TableFile(self.folder / "elsewhere.toml").rows(ServerRow, "servers")
        return {row.name: row for row in rows}

    @functools.cached_property
    def extensions(self) -> tuple[ExtensionRow, ...]:
        """What PyTorch's tool for extensions compiles for."""
        return TableFile(self.folder / "kernel-compilers.toml").rows(ExtensionRow, "extensions")

    @functools.cached_property
    def wheel_pages(self) -> Mapping[str, WheelPageRow]:
        """Pages of wheels by package."""
        return {row.name: row for row in TableFile(self.folder / "wheel-pages.toml").rows(WheelPageRow)}

    @functools.cached_property
    def removed_names(self) -> tuple[RemovedRow, ...]:
        """What extensions of PyTorch's own kind lost."""
        return TableFile(self.folder / "kernel-compilers.toml").rows(RemovedRow, "removed")

    @functools.cached_property
    def torch_headers(self) -> TorchHeaders:
        """What PyTorch's own C++ headers lost."""
        table: Mapping[str, Any] = json.loads((self.folder / "torch-headers.json").read_text("utf-8"))
        rows = ((name, (until, now)) for until, each in table["gone"].items() for name, now in each.items())
        return TorchHeaders(
            gone=dict(rows), standards=table["standards"], by_type_until=table["by_type_until"]
        )

    @functools.cached_property
    def elsewhere(self) -> tuple[ElsewhereRow, ...]:
        """For a refusal: what there is of such a release outside of the package indexes that are asked."""
        return TableFile(self.folder / "elsewhere.toml").rows(ElsewhereRow)

    @functools.cached_property
    def vendor_builds(self) -> tuple[VendorBuildRow, ...]:
        """NVIDIA's own builds of releases, that for the newest CUDA first."""
        return TableFile(self.folder / "elsewhere.toml").rows(VendorBuildRow, "builds")

    @functools.cached_property
    def elsewhere_systems(self) -> Mapping[tuple[str, str], ElsewhereSystemRow]:
        """Builds for systems that images are not for, and without CUDA, by framework and system."""
        rows = TableFile(self.folder / "elsewhere.toml").rows(ElsewhereSystemRow, "systems")
        return {(row.name, row.system): row for row in rows}

    @functools.cached_property
    def jetpacks(self) -> Mapping[str, JetpackRow]:
        rows = TableFile(self.folder / "elsewhere.toml").rows(JetpackRow, "jetpacks")
        return {row.version: row for row in rows}

    @functools.cached_property
    def mistaken_names(self) -> Mapping[str, NameRow]:
        """Names that are none of the packages that people mean by them."""
        rows = [*TableFile(self.folder / "names.toml").rows(NameRow), *self._retired()]
        return {row.name: row for row in rows}

    def stub(self, name: str, version: str) -> NameRow | None:
        """The row of a stub of NVIDIA's, in the versions 0.0.0a0 and 0.0.1; None for others."""
        return next((row for row in self._retired() if row.name == name and key(version)[:2] < (0, 1)), None)

    def _retired(self) -> Iterator[NameRow]:
        """NVIDIA's names with a suffix that is no longer part of the name."""
        for family in self.wheel_families.values():
            for cuda in self.families if family.plain_from is not None else ():
                name, plain = f"nvidia-{family.name}-cu{cuda}", family.distribution(cuda)
                if plain != name:
                    yield NameRow(
                        name=name,
                        instead=plain,
                        outcome="impossible",
                        reason=f"for CUDA {cuda} it has no suffix, and this one is an empty stub",
                        sources=family.sources,
                    )

    @functools.cached_property
    def standalone_sums(self) -> Mapping[str, str]:
        """The sha256 of archives of python-build-standalone, by the name of the file."""
        return {row.file: row.sha256 for row in TableFile(self.folder / "standalone.toml").rows(ArchiveRow)}

    def companion_asks(self, name: str, version: str | None) -> tuple[str, ...]:
        """Requirements of a package's release on frameworks; without a version the newest release's names."""
        if name not in self.packages:
            return ()
        table = self.packages[name]
        row = table.rows[0] if version is None else table.row(version)
        asked = ((text, requirement(text)) for text in (row.requires if row is not None else ()))
        mine = [(t, canonical(p.name)) for t, p in asked if p and self.is_framework(p.name)]
        return tuple(dict.fromkeys(name if version is None else text for text, name in mine))

    def suggested_suites(self, cell: Cell) -> tuple[str, ...]:
        """The probe's suites besides ``conv`` that the packages have of a cell whose matrix names none.

        In PyTorch, ``vision`` needs torchvision, and ``compile`` a C compiler in the image.
        """
        if cell.verify:
            return ()
        asked = names_of((*cell.frameworks, *cell.pip))
        needs = {"vision": "torchvision" in asked, "compile": cell.compilers}
        lacking = {name for name, there in needs.items() if not there}
        found = set[str]()
        for row in self.registry:
            if any(re.fullmatch(row.packages, name) for name in asked):
                found |= set(row.suites) - (lacking if row.name == "torch" else set())
        return tuple(name for name in SUITES if name in found - {"conv"})

    def suites_told(self, cell: Cell) -> str:
        """The suites that a cell has to pass, and those that its packages suggest."""
        suggested = self.suggested_suites(cell)
        return ", ".join(cell.suites()) + (f"; suggested: {', '.join(suggested)}" if suggested else "")

    def table_name(self, distribution: str) -> str:
        """The table that a distribution is looked up in: ``cupy`` for ``cupy-cuda12x``."""
        if (known := self._tables_by_distribution.get(distribution)) is not None:
            return known
        heads = (name for name, table in self.frameworks.items() if table.named_by_cuda)
        return next((name for name in heads if distribution.startswith(f"{name}-cuda")), distribution)

    @functools.cached_property
    def _tables_by_distribution(self) -> Mapping[str, str]:
        """The framework of each distribution on record."""
        tables = self.frameworks.items()
        return {row.distribution: name for name, table in tables for row in table.rows}

    def is_framework(self, distribution: str) -> bool:
        """Whether there is a table of frameworks that has it, under whichever spelling."""
        return self.table_name(canonical(distribution)) in self.frameworks

    def stands_alone(self, distribution: str) -> bool:
        """Whether it is a compiled package, which a cell may name in a framework's place: DALI, XGBoost."""
        named = self.is_framework(distribution) or distribution in self.without
        return not named and distribution in self.packages

    def table(self, distribution: str) -> FrameworkTable:
        """The releases of a framework, or of a package that needs none. Raises KeyError for any other."""
        if self.stands_alone(distribution):
            return self.packages[distribution].alone
        return self.frameworks[self.table_name(distribution)]

    def soname(self, library: str, cuda: str) -> SonameRow | None:
        """The name of a library in a release of CUDA; None if no row has it."""
        rows = (row for row in self.sonames if row.library == library and key(row.since) <= key(cuda))
        return next((row for row in rows if key(cuda) < key(row.before)), None)

    def build_needs(self, name: str, version: str) -> tuple[str, ...] | None:
        """Debian packages that compiling this one needs; None if no row has it."""
        row = self.build_row(name, version)
        return row.needs if row is not None else None

    def build_row(self, name: str, version: str) -> BuildRow | None:
        """The row with what compiling this one needs; None if no row has it."""
        rows = (row for row in self.builds if row.name == name and row.needs is not None)
        return next((r for r in rows if r.versions is None or r.versions.contains(version)), None)


@functools.cache
def load() -> Facts:
    """The tables that ship with rtbuild, read on first use."""
    return read(resources.facts())


def read(where: Path) -> Facts:
    """The tables in a folder. Raises FactsError."""

    def table(stem: str, kind: type[R]) -> tuple[R, ...]:
        return TableFile(where / f"{stem}.toml").rows(kind)

    cuda, gpus = TableFile(where / "cuda.toml"), TableFile(where / "gpus.toml")
    registry = table("frameworks", FrameworkName)
    stems = {row.distribution: row.name for row in registry if row.distribution is not None}
    return Facts(
        registry=registry,
        frameworks=Tables(stems, lambda name: read_table(where, stems[name])),
        toolkits=cuda.rows(ToolkitRow, "toolkits"),
        families={row.major: row for row in cuda.rows(FamilyRow, "families")},
        architectures=cuda.rows(ArchitectureRow, "architectures"),
        kernel_modules={row.name: row for row in cuda.rows(KernelModulesRow, "kernel_modules")},
        card_drivers={row.name: row for row in cuda.rows(CardDriverRow, "cards")},
        branches={row.branch: row for row in cuda.rows(BranchRow, "branches")},
        forward=cuda.rows(ForwardRow, "forward")[0],
        compat={row.version: row for row in cuda.rows(CompatRow, "compat")},
        sonames=cuda.rows(SonameRow, "sonames"),
        cudnn=table("cudnn", CudnnRow),
        tags=table("tags", TagRow),
        bad=table("known-bad", BadRow),
        gpus={row.name.lower(): row for row in gpus.rows(GpuRow)},
        computers={row.name.lower(): row for row in gpus.rows(ComputerRow, "computers")},
        instances=gpus.rows(InstanceRow, "instances"),
        without={row.name: row for row in table("without-cuda", WithoutRow)},
        systems={row.name: row for row in table("systems", SystemRow)},
        wheels={row.name: row for row in table("nvidia-wheels", WheelRow)},
        kernels={row.name: row for row in table("kernel-compilers", KernelRow)},
        wheel_families={row.name: row for row in table("nvidia-families", WheelFamilyRow)},
        builds=table("builds", BuildRow),
        folder=where,
    )


def jax_cuda(extras: Iterable[str], version: str | None) -> str | None:
    """``cuda12`` for the extras ``cuda12``, ``cuda12-local`` and, in the releases that say so, ``cuda``.

    Which of the numbered ones ``cuda`` is, the release's own metadata tells; of a release that is not on
    record, the newest one's.
    """
    for extra in sorted(extras, reverse=True):
        if found := re.match(r"cuda\d+", extra):
            return found[0]
        table = load().frameworks["jax"]
        rows = table.of(version or table.newest) or table.of(table.newest)
        if (named := next((row.variant for row in rows if extra in row.aliases), None)) is not None:
            return named
    return None
