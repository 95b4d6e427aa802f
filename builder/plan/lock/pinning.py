"""One cell, fixed by content: its base, its wheels and the epoch."""

from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from builder.core.errors import CellError, NoSolutionError, PackageIndexError, RegistrySilentError
from builder.core.model import Cell, Pinned, RegistryBase, RootfsBase, StandalonePython, Wheel
from builder.core.versions import canonical
from builder.plan.facts.reading import BaseTruth, ReadingCache, system_of
from builder.plan.facts.tables import load
from builder.plan.lock import from_source
from builder.plan.lock.file import lock_order
from builder.plan.lock.from_source import PythonSource, SdistBuilder
from builder.sources.debian import Debian
from builder.sources.index import Index, Target, takes
from builder.sources.oci import Registry

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
    target = Target(python=cell.python, platform=cell.platform, glibc=glibc)
    built = from_source.built(
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
        built=built,
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
        return any(not takes(file.requires_python, target.python) for file in mine)

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
