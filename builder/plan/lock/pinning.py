"""One cell, fixed by content: its base, its wheels and the epoch; packages for which an index has only
sources are built.

:mod:`builder.image.sdist` builds them; :func:`built` receives it as ``workshop``. A compiled file loads the
libraries that it was linked with, so it is compiled with the packages of the image's own Debian release.
"""

import re
import threading
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

from packaging.requirements import Requirement
from packaging.utils import parse_sdist_filename
from packaging.version import Version

from builder.core.errors import CellError, NoSolutionError, PackageIndexError, RegistrySilentError
from builder.core.model import Base, Cell, Pinned, RegistryBase, RootfsBase, Sdist, StandalonePython, Wheel
from builder.core.versions import canonical, key
from builder.plan.facts.reading import BaseTruth, ReadingCache, system_of
from builder.plan.facts.tables import SystemRow, load
from builder.plan.lock.file import lock_order
from builder.sources.debian import Debian
from builder.sources.index import (
    Index,
    IndexFile,
    LocalWheel,
    Target,
    host_platform,
    known_release,
    rank,
    takes,
    wheel_name,
)
from builder.sources.oci import Registry

_NEWEST = "trixie"
"""Debian's newest release, which has the newest glibc: any standalone Python runs on it."""
COMPILER = ("build-essential",)
"""Packages for every build of compiled code, and for no image. Python's headers are ``python3-dev``, or come
with a standalone Python."""
_ARCHIVES = re.compile(r"\.(tar\.gz|tar\.bz2|tar\.xz|tgz|zip)$")


@dataclass(frozen=True, kw_only=True)
class BuildRoot:
    """The system that a source is built in."""

    base: RootfsBase
    interpreter: StandalonePython | None = None
    """Set if ``base`` has no Python."""


class SdistBuilder(Protocol):
    """The builder of sources: :class:`builder.image.sdist.Workshop`."""

    @property
    def cancel(self) -> threading.Event:
        """Once set, the running build ends soon, by a CancelledError."""

    def lock(
        self,
        sdist: Sdist,
        *,
        index: Index,
        target: Target,
        system: BuildRoot,
        pins: Sequence[str] = (),
        needs: Sequence[str] | None = None,
    ) -> LocalWheel: ...

    def make(self, wheel: Wheel, index: Index) -> Path: ...


class PythonSource(Protocol):
    """The source of standalone Pythons: :class:`builder.image.compose.systems.Pythons`."""

    def pin(
        self,
        version: str,
        platform: str,
        *,
        glibc: str | None,
        note: Callable[[str], None] | None = None,
        at_once: bool = False,
    ) -> StandalonePython: ...


def built(
    cell: Cell,
    requirements: Sequence[str],
    *,
    index: Index,
    debian: Debian,
    workshop: SdistBuilder,
    target: Target,
    base: object,
    pythons: PythonSource | None = None,
    interpreter: StandalonePython | None = None,
    previous: Sequence[Wheel] = (),
    upgrade: Collection[str] | bool = False,
) -> tuple[LocalWheel, ...]:
    """The wheels of ``cell.from_source`` and ``cell.compiled`` that no index has.

    ``interpreter`` is the cell's own Python, if that is no distribution's. A source that was locked before
    stays, unless ``upgrade`` names its package; also beside a newer one, if ``upgrade`` names others.

    Raises:
        CellError: a name that no requirement has, sources that do not fit, a build that failed, or compiled
            code that the cell's image cannot run.
        PackageIndexError: the index did not answer.
    """
    asked = {canonical(one.name): one for one in map(Requirement, requirements)}
    old = {canonical(wheel.name): wheel for wheel in previous if wheel.source is not None}
    made: list[LocalWheel] = []
    pure: BuildRoot | None = None
    here = cell.platform == host_platform()
    if cell.compiled:
        refuse_place(cell, host_platform())
    for given, needs in (*((name, None) for name in cell.from_source), *cell.compiled):
        name = canonical(given)
        wanted = asked.get(name)
        if wanted is None:
            hint = f"add {name}==VERSION to 'pip'"
            raise CellError(f"'from-source' names {name}, but no requirement of the cell does", hint=hint)
        kept = old.get(name)
        moves = upgrade if isinstance(upgrade, bool) else name in map(canonical, upgrade)
        sdist = None
        if kept is not None and kept.source is not None and upgrade and not moves:
            sdist = kept.source.sdist if wanted.specifier.contains(kept.version, prereleases=True) else None
        sdist = sdist or choose_sdist(wanted, index.offers(wanted.name), target)
        if sdist is None:
            continue
        if kept is not None and not moves and _fits(kept, sdist, cell.python, needs, interpreter):
            made.append(LocalWheel(wheel=kept, path=workshop.make(kept, index)))
            continue
        build = partial(workshop.lock, sdist, index=index, target=target, pins=requirements)
        if needs is not None:
            with_compiler = compiler_system(
                cell.base, needs, platform=cell.platform, debian=debian, python=interpreter is None
            )
            made.append(build(system=BuildRoot(base=with_compiler, interpreter=interpreter), needs=needs))
            continue
        if pure is None and isinstance(base, RootfsBase) and not (cell.apt or cell.compilers) and here:
            pure = BuildRoot(base=base, interpreter=interpreter)
        elif pure is None:
            pure = build_root(cell.python, interpreter if here else None, debian=debian, pythons=pythons)
        made.append(build(system=pure))
    if isinstance(base, RootfsBase):
        refuse_missing((one.wheel for one in made), base)
    return tuple(made)


def _fits(
    kept: Wheel, sdist: Sdist, python: str, needs: Sequence[str] | None, interpreter: StandalonePython | None
) -> bool:
    source = kept.source
    return (
        source is not None
        and (source.sdist.sha256, source.python) == (sdist.sha256, python)
        and (needs is None or source.interpreter == interpreter)
        and needs == (None if source.compiled is None else source.compiled.needs)
    )


def build_root(
    python: str, interpreter: StandalonePython | None, *, debian: Debian, pythons: PythonSource | None
) -> BuildRoot:
    """A small Debian with that Python: its own if a release has it, else a standalone one. For a Python older
    than all of these the oldest release: a ``py3-none-any`` wheel is for each Python 3
    (https://packaging.python.org/en/latest/specifications/platform-compatibility-tags/).

    Raises CellError if neither a release nor uv's catalogue has that Python, PackageIndexError if the Debian
    archive, or the mirror of standalone Pythons, did not answer.
    """
    here = host_platform()
    if interpreter is None:
        if (suite := suite_of(python)) is not None:
            return BuildRoot(base=debian.resolve(suite, platform=here))
        if pythons is None:
            raise ValueError(f"no Debian release has Python {python}, and nothing is given to choose one")
        try:
            interpreter = pythons.pin(python, here, glibc=None, at_once=True)
        except PackageIndexError:
            raise
        except CellError:
            oldest = min((key(row.python[0]), row.name) for row in _debians())
            if key(python) > oldest[0]:
                raise
            return BuildRoot(base=debian.resolve(oldest[1].removeprefix("debian/"), platform=here))
    return BuildRoot(base=debian.resolve(_NEWEST, platform=here, python=False), interpreter=interpreter)


def suite_of(python: str) -> str | None:
    """The Debian release whose own Python that is: ``bookworm`` for ``3.11``."""
    suites = (row.name for row in _debians() if python in row.python)
    return next((name.removeprefix("debian/") for name in suites), None)


def _debians() -> list[SystemRow]:
    return [row for name, row in load().systems.items() if name.startswith("debian/")]


def choose_sdist(wanted: Requirement, files: Sequence[IndexFile], target: Target) -> Sdist | None:
    """The source to build; None if a wheel fits. Raises PackageIndexError if no source does either."""
    fitting = target.tags()
    wheels = [file for file in files if rank(file.name, fitting) is not None]
    admitted = [file for file in wheels if takes(file.requires_python, target.python)]
    versions = [str(wheel.version) for file in admitted if (wheel := wheel_name(file.name))]
    if next(iter(wanted.specifier.filter(versions)), None) is not None:
        return None
    sources = {v: file for file in files if (v := sdist_version(file, wanted.name)) is not None}
    allowed = sorted(wanted.specifier.filter(sources), key=Version, reverse=True)
    if not allowed:
        raise PackageIndexError(
            f"no index has a wheel or sources of {wanted}", hint="check the name and the version"
        )
    usable = [v for v in allowed if takes(sources[v].requires_python, target.python)]
    if not usable:
        file = sources[allowed[0]]
        raise PackageIndexError(
            f"{file.name} needs Python {file.requires_python}, but the cell has {target.python}",
            hint="take another version of it, or another Python",
        )
    file = sources[usable[0]]
    if file.sha256 is None:
        raise PackageIndexError(f"the index gives no sha256 for {file.name}", hint="use an index that does")
    return Sdist(
        name=canonical(wanted.name),
        version=usable[0],
        file=file.name,
        sha256=file.sha256,
        size=file.size,
    )


def sdist_version(file: IndexFile, name: str) -> str | None:
    """The version of a source archive; None for any other file."""
    if not _ARCHIVES.search(file.name):
        return None
    try:
        found, version = parse_sdist_filename(_ARCHIVES.sub(".tar.gz", file.name))
    except ValueError:
        return None
    return str(version) if canonical(found) == canonical(name) else None


def refuse_place(cell: Cell, here: str) -> None:
    """Raise CellError if code compiled on this machine, a ``here``, would not run in the cell's image."""
    names = ", ".join(name for name, _ in cell.compiled)
    if cell.base.kind != "rootfs":
        raise CellError(
            f"{names} is compiled with a Debian release's own libraries, but {cell.base} has other ones",
            hint="put the cell on rootfs:debian/<suite>, or name an index that has wheels (`index:`)",
        )
    if cell.platform != here:
        raise CellError(
            f"{names} is compiled on this machine, for {here}, but the cell is for {cell.platform}",
            hint=f"lock and build it on a machine of {cell.platform}, or name an index that has wheels",
        )


def compiler_system(
    base: Base, needs: Sequence[str], *, platform: str, debian: Debian, python: bool = True
) -> RootfsBase:
    """The system that one package is compiled in: the compiler, the packages that its build names and, with
    ``python``, the release's own Python.

    Each package has its own system, because a build links with every library that it finds.
    """
    suite = base.name.rpartition("/")[2]
    headers = ("python3-dev",) if python else ()
    packages = sorted({*COMPILER, *headers, *needs})
    return debian.resolve(suite, platform=platform, packages=packages, python=python)


def refuse_missing(wheels: Iterable[Wheel], base: RootfsBase) -> None:
    """Raise CellError, naming all of them, if the image would lack libraries that the wheels load."""
    there = {deb.package for deb in base.debs}
    missing: dict[str, list[str]] = {}
    for wheel in wheels:
        if wheel.source is not None and wheel.source.compiled is not None:
            for package in set(wheel.source.compiled.libraries) - there:
                missing.setdefault(package, []).append(wheel.name)
    if missing:
        listed = "; ".join(f"{package}, by {', '.join(names)}" for package, names in sorted(missing.items()))
        raise CellError(
            f"compiled packages load libraries of Debian packages that the image does not have: {listed}",
            hint=f"add {', '.join(sorted(missing))} to 'apt'",
        )


_OLDEST_GLIBC = "2.17"
_AT_ONCE = 16


def pin(
    cell: Cell,
    *,
    index: Index,
    registry: Registry,
    debian: Debian,
    workshop: SdistBuilder,
    pythons: PythonSource,
    previous: Pinned | None = None,
    upgrade: Collection[str] | bool = False,
    note: Callable[[str], None] = lambda _text: None,
) -> Pinned:
    """Resolve a cell.

    ``previous`` is the cell's old entry, which :func:`builder.plan.lock.file.pinned_cell` also gives for a
    stale one: its base stays while the matrix names the same, and its wheels stay if the requirements allow
    it. ``upgrade`` True moves everything to the newest; names move those of :func:`movable`, and what these
    force to move.
    ``workshop`` builds what the cell has ``from_source``, ``pythons`` gives a standalone Python.

    Raises:
        CellError: the base has another Python than the cell wants, something could not be resolved, or only
            some packages are to move and the index has another one's locked file no longer; see
            :mod:`builder.sources.index.client`, :mod:`builder.sources.oci.registry` and
            :mod:`builder.sources.debian`.
    """
    own_names = _names_of_base(cell, previous)
    base_moves = upgrade if isinstance(upgrade, bool) else not own_names.isdisjoint(upgrade)
    base = None if base_moves else _kept_base(cell, previous)
    if base is None:
        base = _new_base(cell, registry, debian)
    row = system_of(base)
    unknown = f"{cell.base} is of no known system, so only wheels for glibc {_OLDEST_GLIBC} are taken"
    if row is None:
        note(unknown)
    own = cell.has_own_python(row)
    if own and row is not None and cell.python not in row.python:
        has = " and ".join(row.python)
        raise CellError(
            f"{cell.base} has Python {has}, but the cell wants {cell.python} from the base",
            hint=f"leave out 'from: base', set python to {row.python[0]}, or take another base",
        )
    glibc = row.glibc if row is not None else _OLDEST_GLIBC
    python = None if own else _python(cell, pythons, previous, glibc=glibc, upgrade=upgrade, note=note)
    old = () if previous is None else previous.wheels
    # uv takes names of Python packages alone, and refuses libstdc++6.
    moves = upgrade if isinstance(upgrade, bool) else _packages_of(old) & {*map(canonical, upgrade)}
    index = index.with_extra(cell.index)
    release = python.version if python is not None else _release_of(base, cell.python)
    target = Target(python=cell.python, platform=cell.platform, glibc=glibc, release=release)
    ready = built(
        cell,
        requirements(cell),
        index=index,
        debian=debian,
        workshop=workshop,
        target=target,
        base=base,
        pythons=pythons,
        interpreter=python,
        previous=old,
        upgrade=moves,
    )
    resolve = partial(
        index.resolve,
        target=target,
        previous=tuple(wheel for wheel in old if wheel.source is None),
        upgrade=moves,
        listed=cell.dependencies == "listed",
        built=ready,
    )
    try:
        asked = requirements(cell)
        wheels = resolve(asked)
        while cell.dependencies != "listed" and (above := _above_its_pythons(wheels, index, target)):
            asked += tuple(f"{one.name}!={one.version}" for one in above)
            wheels = resolve(asked)
    except PackageIndexError as problem:
        if isinstance(problem, NoSolutionError):
            ReadingCache().keep_failure(cell, problem.message)
        newest = known_release(cell.python, cell.platform) if own and release else ""
        if newest not in {"", release} and re.search(r"Python[<>=~]", problem.message):
            hint = f'the Python of {cell.base} is {release}: `python: "{newest}"` takes one that stands alone'
            raise type(problem)(problem.message, hint=hint) from problem
        if row is not None:
            raise
        hint = f"{unknown}; label the image as Ubuntu's own are ({' and '.join(BaseTruth.LABELS)})"
        raise type(problem)(problem.message, hint=hint) from problem
    ReadingCache().keep_failure(cell, None)
    _refuse_stubs(wheels)
    if moves and not isinstance(moves, bool):
        _refuse_gone(old, wheels, moves, index)
    epochs = [wheel.uploaded for wheel in wheels]
    if isinstance(base, RootfsBase):
        epochs.append(base.epoch)
    return Pinned(cell=cell, base=base, wheels=lock_order(wheels), epoch=max(epochs), python=python)


def _release_of(base: RegistryBase | RootfsBase, python: str) -> str:
    """The patch release of a Debian's own Python, by its package; empty if nobody knows it."""
    debs = base.debs if isinstance(base, RootfsBase) else ()
    named = (deb.version for deb in debs if deb.package == f"python{python}-minimal")
    found = (re.match(rf"(?:\d+:)?({re.escape(python)}\.\d+)-", version) for version in named)
    return next((one[1] for one in found if one is not None), "")


def _above_its_pythons(wheels: Sequence[Wheel], index: Index, target: Target) -> list[Wheel]:
    """Wheels for any Python whose release is for older ones alone, as dataclasses 0.8: of bounds on Python
    uv heeds the lower ones (https://docs.astral.sh/uv/reference/internals/resolver/), pip both.
    """

    def refuses(wheel: Wheel) -> bool:
        try:
            files = index.offers(wheel.name)
        except PackageIndexError:
            return False  # the build reads the wheel itself
        mine = (file for file in files if file.sha256 == wheel.sha256)
        return any(not takes(file.requires_python, target.release or target.python) for file in mine)

    pure = [wheel for wheel in wheels if wheel.source is None and wheel.file.endswith("-none-any.whl")]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return [wheel for wheel, refused in zip(pure, pool.map(refuses, pure), strict=True) if refused]


def movable(pinned: Pinned) -> frozenset[str]:
    """The names that ``upgrade`` knows of a locked cell.

    Its packages in normalized form; ``python``, if it has a standalone one; its base; and the Debian packages
    of a ``rootfs:`` base. One of these moves the whole base, as the archive has one state of a suite.
    """
    own = frozenset() if pinned.python is None else frozenset({"python"})
    return _packages_of(pinned.wheels) | _names_of_base(pinned.cell, pinned) | own


def _packages_of(wheels: Iterable[Wheel]) -> frozenset[str]:
    return frozenset(canonical(wheel.name) for wheel in wheels)


def _names_of_base(cell: Cell, previous: Pinned | None) -> frozenset[str]:
    names = {cell.base.name, str(cell.base)}
    if previous is not None and isinstance(previous.base, RootfsBase):
        names |= {deb.package for deb in previous.base.debs}
    elif previous is not None and isinstance(previous.base, RegistryBase):
        names.add(previous.base.reference)
    return frozenset(names)


def _refuse_gone(before: Iterable[Wheel], now: Iterable[Wheel], moves: Collection[str], index: Index) -> None:
    """Raise PackageIndexError if a package moved that nobody named, because its file is there no more.

    uv takes another one without a word. What moved because a named package asks for it, is there still.
    """
    found = {canonical(wheel.name): wheel.sha256 for wheel in now}
    for wheel in before:
        name = canonical(wheel.name)
        if wheel.source is None and name not in moves and found.get(name, wheel.sha256) != wheel.sha256:
            index.address(wheel)


def _refuse_stubs(wheels: Iterable[Wheel]) -> None:
    """Refuse a name of NVIDIA's that is no longer one: the index has an empty wheel 0.0.0a0, and uv takes
    that.
    """
    for wheel in wheels:
        row = load().stub(wheel.name, wheel.version)
        if row is not None:
            raise NoSolutionError(
                f"{wheel.name} {wheel.version} is empty: its name is {row.instead} now",
                hint=f"name {row.instead}, or another version of the package that asks for {wheel.name}",
            )


def _python(
    cell: Cell,
    pythons: PythonSource,
    previous: Pinned | None,
    *,
    glibc: str,
    upgrade: Collection[str] | bool,
    note: Callable[[str], None],
) -> StandalonePython:
    """The Python that was locked before, if it fits and nothing moves it; else the newest."""
    kept = previous.python if previous is not None and previous.cell.platform == cell.platform else None
    wanted = cell.named_python
    moves = upgrade if isinstance(upgrade, bool) else "python" in upgrade
    if kept is not None and not moves and f"{kept.version}.".startswith(f"{wanted}."):
        return kept
    # sources are built with it: hours of that are no use if it cannot be had
    at_once = bool(cell.from_source or cell.compiled)
    return pythons.pin(wanted, cell.platform, glibc=glibc, note=note, at_once=at_once)


def requirements(cell: Cell) -> tuple[str, ...]:
    """All requirements for the package index; ``pip`` itself is in every image."""
    return tuple(dict.fromkeys((*cell.frameworks, *cell.cuda.packages, *cell.pip, "pip")))


def _kept_base(cell: Cell, previous: Pinned | None) -> RegistryBase | RootfsBase | None:
    own = _has_own_python(cell)
    if previous is None or _stands_on(previous.cell, previous.apt) != _stands_on(cell, _packages(cell)):
        return None
    if isinstance(previous.base, RootfsBase) and own != (previous.python is None):
        return None
    return previous.base


def _new_base(cell: Cell, registry: Registry, debian: Debian) -> RegistryBase | RootfsBase:
    """The base as the registry or Debian's archive gives it today, with the packages that a lock has.

    Raises CellError; see :mod:`builder.sources.oci.registry` and :mod:`builder.sources.debian`.
    """
    if cell.base.kind == "registry":
        try:
            return registry.inspect(cell.base.name, cell.platform)
        except RegistrySilentError as problem:
            way = "a base of rootfs:debian/<suite> needs no registry"
            hint = f"{problem.hint}; {way}" if problem.hint else way
            raise RegistrySilentError(problem.message, hint=hint) from problem
    suite = cell.base.name.rpartition("/")[2]
    packages, python = sorted(_packages(cell)), _has_own_python(cell)
    return debian.resolve(suite, platform=cell.platform, packages=packages, python=python)


def _has_own_python(cell: Cell) -> bool:
    return cell.has_own_python(load().systems.get(cell.base.name))


def _packages(cell: Cell) -> tuple[str, ...]:
    return cell.debian_packages(own_python=_has_own_python(cell))


def _stands_on(cell: Cell, packages: Sequence[str]) -> tuple[str, str, list[str]]:
    """The inputs of a base; a rootfs holds the cell's Debian packages too."""
    return str(cell.base), cell.platform, sorted(packages) if cell.base.kind == "rootfs" else []
