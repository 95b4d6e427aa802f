"""Certain knowledge about cells for the rules: read from wheels and registries, or kept from before.

A lock names every wheel of an image by hash. What those of the frameworks say of themselves is read by ranges
and kept by that hash for good. What a registry says of a tag can change, so it is kept with its day and
believed for :data:`~builder.plan.facts.reading.cache.BASE_DAYS`. What could not be read stands in
:attr:`Truth.unread`: never a yes.
"""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from packaging.requirements import Requirement
from packaging.tags import Tag
from packaging.utils import parse_sdist_filename
from packaging.version import Version

from builder.core import versions
from builder.core.errors import CellError, ImageMissingError, RtbuildError
from builder.core.items import item
from builder.core.model import Cell, Pinned, Wheel
from builder.core.versions import canonical, requirement
from builder.plan.facts.reading.cache import ReadingCache, base_reference, framework_wheels, together
from builder.plan.facts.reading.framework_wheel import read_wheel
from builder.plan.facts.reading.observed import (
    BaseTruth,
    Truth,
    WheelTruth,
    framework_texts,
    system_of,
    truth_of,
    truth_of_base,
    with_deep,
)
from builder.plan.facts.tables import jax_cuda
from builder.sources.index import Files, Index, IndexFile, Target, page, rank, wheel_name
from builder.sources.oci import Registry

Pair = tuple[Cell, Pinned | None]
Offered = Mapping[tuple[str, tuple[str, ...]], Files]
"""A project's files by its name and a cell's own indexes."""

_THREADS = 4
_ONLY_SOURCES = (
    ", only sources: name an index that has a wheel of it in `index`, or the package in `from-source`"
)


@dataclass(frozen=True, kw_only=True)
class Reading:
    """The result of :func:`read_cells` for several cells."""

    truths: tuple[Truth, ...]
    """One for each cell, in the order asked."""
    wheels: int
    """Wheels that were looked at, each once."""
    bases: int
    transferred: int
    """Bytes read out of wheels; 0 if all were known."""
    seconds: float


def read_cells(
    pairs: Sequence[Pair], *, index: Index, registry: Registry, readings: ReadingCache, deep: bool = False
) -> Reading:
    """Read the wheels and bases of cells, each once. Nothing that a server does is an error here.

    Of a cell that is not locked, those wheels of its frameworks are read that the index offers it. At most
    1 MiB is read of a wheel, and with ``deep`` 16 MiB, and of a lock's wheels what the loader goes by
    (:mod:`.wheel_links_read`) and what an import takes (:mod:`.wheel_modules`).
    """
    started = time.monotonic()
    pages = sorted({(name, cell.index) for cell, pinned in pairs for name in _distributions(cell, pinned)})
    bases = sorted(
        {(name, cell.platform) for cell, pinned in pairs if (name := base_reference(cell, pinned))}
    )
    with ThreadPoolExecutor(_THREADS) as pool:
        read_bases = pool.map(lambda base: _base(base[0], base[1], registry, readings), bases)
        read_pages = pool.map(lambda asked: page(asked[0], index.with_extra(asked[1])), pages)
        offered = dict(zip(pages, read_pages, strict=True))
        wanted = [list(_wanted(cell, pinned, offered)) for cell, pinned in pairs]
        wheels = {
            (wheel.file, wheel.sha256): (wheel, cell.index)
            for (cell, _), found in zip(pairs, wanted, strict=True)
            for wheel in found
            if isinstance(wheel, Wheel)
        }

        def one(asked: tuple[Wheel, tuple[str, ...]]) -> tuple[WheelTruth | None, tuple[str, ...], int]:
            wheel, extra = asked
            try:
                with item(wheel.file):
                    return _wheel(wheel, offered[canonical(wheel.name), extra], index, readings, deep=deep)
            except CellError as problem:
                return None, (problem.message,), 0

        about_wheels = dict(zip(wheels, pool.map(one, wheels.values()), strict=True))
        about_bases = dict(zip(bases, read_bases, strict=True))
    truths, linked = [], 0
    for cell, pinned in pairs if deep else ():
        if pinned is not None:
            wider = index.with_extra(cell.index)
            linked += readings.read_proofs(cell, pinned.wheels, pinned.base, wider)[0]
    for (cell, pinned), found in zip(pairs, wanted, strict=True):
        mine = [about_wheels[wheel.file, wheel.sha256] for wheel in found if isinstance(wheel, Wheel)]
        reference = base_reference(cell, pinned)
        base, why = about_bases[reference, cell.platform] if reference else (None, ())
        missing = (reason for reason in found if isinstance(reason, str))
        unread = [*why, *missing, *(reason for _, reasons, _ in mine for reason in reasons)]
        told = [truth for truth, _, _ in mine if truth is not None]
        absent = tuple(_absent(cell, told, offered)) if pinned is None else ()
        truth = replace(together(pinned, told, base, unread), absent=absent)
        if pinned is not None:
            truth = readings.with_proofs(truth, pinned.wheels, readings.imports_of(cell, pinned))
        truths.append(truth)
    return Reading(
        truths=tuple(truths),
        wheels=len(wheels),
        bases=len(bases),
        transferred=linked + sum(size for _, _, size in about_wheels.values()),
        seconds=time.monotonic() - started,
    )


def _distributions(cell: Cell, pinned: Pinned | None) -> Iterator[str]:
    """The frameworks of a cell, with JAX's plug-ins, which are compiled with CUDA while jax is not."""
    if pinned is not None:
        yield from (canonical(wheel.name) for wheel in framework_wheels(cell, pinned))
        return
    for parsed in filter(None, map(requirement, framework_texts(cell))):
        yield canonical(parsed.name)
        yield from _plugins(parsed)


def _plugins(parsed: Requirement) -> list[str]:
    cuda = jax_cuda(parsed.extras, versions.pinned(parsed)) if canonical(parsed.name) == "jax" else None
    return [f"jax-{cuda}-plugin"] if cuda is not None else []


def _wanted(cell: Cell, pinned: Pinned | None, offered: Offered) -> Iterator[Wheel | str]:
    """The wheel of each framework and plug-in that is locked, or that the cell would get; or why none."""
    yield from framework_wheels(cell, pinned)
    fitting = _tags(cell)
    if pinned is not None or not fitting:
        return
    for parsed in filter(None, map(requirement, framework_texts(cell))):
        first = _newest(parsed, offered, fitting, cell)
        yield first
        if isinstance(first, Wheel):
            for name in _plugins(parsed):
                yield _newest(Requirement(f"{name}=={first.version}"), offered, fitting, cell)


def _absent(cell: Cell, told: Iterable[WheelTruth], offered: Offered) -> Iterator[str]:
    """Requirements on frameworks, and their own on plug-ins, that no wheel meets, whatever its age or tags.

    What an index that did not answer has is not known, and a package that is compiled needs no wheel.
    """
    fitting = _tags(cell)
    asked: list[tuple[WheelTruth | None, str]] = [(None, text) for text in framework_texts(cell)]
    named = {name for text in framework_texts(cell) if (r := requirement(text)) for name in _plugins(r)}
    asked += [(wheel, text) for wheel in told for text in wheel.requires]
    for by, parsed in ((by, requirement(text)) for by, text in asked):
        name = canonical(parsed.name) if parsed is not None else ""
        if parsed is None or (by is not None and name not in named) or name in cell.from_source:
            continue
        files = offered.get((name, cell.index), "not asked")
        if isinstance(files, str):
            continue
        wanted = f"{parsed.name}{parsed.specifier}"
        wanted += "" if by is None else f", which {by.name} {by.version} asks for"
        meeting = [file for file in files if _meets(file, parsed)]
        if not meeting:
            sources = by is None and any(_is_source(file, parsed) for file in files)
            yield wanted + _ONLY_SOURCES * sources
        elif fitting and all(rank(file.name, fitting) is None for file in meeting):
            yield f"{wanted} for {_where(cell)}"


def _where(cell: Cell) -> str:
    return f"Python {cell.python} on {cell.platform} and the glibc of {cell.base}"


def _tags(cell: Cell) -> dict[Tag, int]:
    """The tags of wheels that a cell takes; none if its base's glibc is not known."""
    system = system_of(cell)
    if system is None:
        return {}
    return Target(python=cell.python, platform=cell.platform, glibc=system.glibc).tags()


def _meets(file: IndexFile, parsed: Requirement) -> bool:
    wheel = wheel_name(file.name)
    return wheel is not None and parsed.specifier.contains(wheel.version, prereleases=True)


def _is_source(file: IndexFile, parsed: Requirement) -> bool:
    """Whether a file holds the sources of a release that a requirement admits."""
    try:
        _, version = parse_sdist_filename(file.name)
    except ValueError:  # a wheel, or a name of long ago
        return False
    return parsed.specifier.contains(version)


def _newest(parsed: Requirement, offered: Offered, fitting: dict[Tag, int], cell: Cell) -> Wheel | str:
    """The wheel of the newest release on the index that a requirement admits."""
    name = canonical(parsed.name)
    files = offered[name, cell.index]
    if isinstance(files, str):
        return f"{name} could not be read: {files}"
    admitted = [(version, file) for version, file in _releases(files) if parsed.specifier.contains(version)]
    if not admitted:
        return f"the package index has no wheel of {parsed}"
    ranks = [(version, rank(file.name, fitting), file) for version, file in admitted]
    ranked = [(version, rank, file) for version, rank, file in ranks if rank is not None]
    if not ranked:
        return f"the package index has wheels of {parsed}, but none for {_where(cell)}"
    newest = max(version for version, _, _ in ranked)
    _, _, file = min((one for one in ranked if one[0] == newest), key=lambda one: one[1])
    version = file.name.split("-")[1]
    return Wheel(name=name, version=version, file=file.name, sha256=file.sha256 or "", size=file.size)


def _releases(files: Iterable[IndexFile]) -> Iterator[tuple[Version, IndexFile]]:
    """Final releases that were not yanked."""
    for file in files:
        wheel = wheel_name(file.name)
        if wheel is not None and not wheel.version.is_prerelease and file.yanked is None:
            yield wheel.version, file


def _base(
    reference: str, platform: str, registry: Registry, readings: ReadingCache
) -> tuple[BaseTruth | None, tuple[str, ...]]:
    try:
        with item(reference):
            base = truth_of_base(registry.inspect(reference, platform))
    except ImageMissingError:
        mirror = readings.mirror(reference)
        asked = f"{reference} (asked at its mirror {mirror})" if mirror else reference
        base = BaseTruth(reference=asked, exists=False)
    except RtbuildError as problem:
        known = readings.base(reference, platform)
        return known, (f"the base {reference} could not be read: {problem.message}",)
    readings.keep_base(reference, platform, base)
    return base, ()


def _wheel(
    wheel: Wheel, files: Files, index: Index, readings: ReadingCache, *, deep: bool
) -> tuple[WheelTruth | None, tuple[str, ...], int]:
    """A wheel's truth, what could not be read, and the bytes that it took."""
    known = readings.wheel(wheel) if wheel.sha256 else None
    listed = () if isinstance(files, str) else files
    file = next((f for f in listed if f.name == wheel.file and f.sha256 in {None, wheel.sha256}), None)
    if file is None:
        why = "with the locked hash is no longer on the package index"
        if wheel.source is not None:
            why = "is built from sources, and was not looked into"
        if isinstance(files, str):
            why = f"could not be read: {files}"
        # a wheel never changes, so what is known of it needs no index
        settled = known is not None and (isinstance(files, str) or wheel.source is not None)
        return known, () if settled else (f"{wheel.file} {why}",), 0
    unread, size = list[str](), 0
    if known is None:
        locked = replace(file, sha256=wheel.sha256 or None, size=wheel.size)
        reading = read_wheel(locked, index.client, cache=readings.wheel_folder)
        known = truth_of(file.name, reading, sha256=locked.sha256)
        unread, size = reading.unread, reading.transferred
    if deep:
        reading = read_wheel(file, index.client, "deep", cache=readings.wheel_folder)
        known = with_deep(known, reading.values)
        unread, size = unread + reading.unread, size + reading.transferred
    return replace(known, yanked=file.yanked), tuple(f"{file.name}: {reason}" for reason in unread), size
