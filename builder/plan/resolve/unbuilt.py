"""Packages of which the index has only sources: found out, read, and given to the resolver as wheels.

Nothing of them is run here: a wheel with their metadata and no code stands in for each. The cell then names
them ``from-source``, and ``rtbuild lock`` builds them.
"""

import functools
import re
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from pathlib import Path

from packaging.requirements import Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet

from builder.core import resources
from builder.core.errors import NoSolutionError, PackageIndexError
from builder.core.model import Cell, Sdist, Wheel
from builder.core.versions import canonical, name_pattern, pinned
from builder.plan.facts.rules import Finding, Outcome
from builder.plan.facts.tables import load
from builder.plan.lock import choose_sdist
from builder.sources.index import Index, LocalWheel, SdistContents, Target, sdist_contents

Solve = Callable[[Cell, Sequence[LocalWheel]], Sequence[Wheel]]
_MOST = 24
"""Packages that are built from sources for one cell."""
_LARGEST = 200 << 20
"""Bytes of a source archive that is read."""
_LACKING = re.compile(
    r"Wheels are required for `(?P<told>[\w.-]+)`"
    r"|(?<![\w.-])(?P<name>[A-Za-z0-9][\w.-]*)(?:[<>=!~][^\s]*)? ha(?:s|ve) no usable wheels"
)
"""uv's words for a package that has sources alone."""


def with_sources(
    cell: Cell,
    asked: Sequence[str],
    target: Target,
    index: Index,
    solve: Solve,
    *,
    boldly: Set[str] = frozenset(),
) -> tuple[Cell, Sequence[Wheel], tuple[str, ...]]:
    """The cell, solved, with what it needs ``from-source``, and the reason for each of those packages.

    ``asked`` are its requirements. ``boldly``: packages that a compiler alone is tried on.

    Raises:
        NoSolutionError: there is none with sources either.
        PackageIndexError: the index did not answer.
    """
    built: dict[str, tuple[Sdist, SdistContents]] = {}
    narrowed: set[str] = set()
    with tempfile.TemporaryDirectory(prefix="rtbuild-resolve-") as folder:
        stand_ins: list[LocalWheel] = []
        while True:
            tried = _named(cell, asked, built, narrowed)
            try:
                return tried, solve(tried, stand_ins), tuple(_reasons(built))
            except NoSolutionError as problem:
                new = [name for name in lacking(problem.message) if name not in built]
                if not new or len(built) + len(new) > _MOST:
                    raise
                for name in new:
                    wanted = _wanted(name, asked, problem.message)
                    found = _source(wanted, target, index)
                    if found is None:
                        found = _source(_told(wanted, problem.message), target, index)
                        narrowed.add(name)
                    if found is None or (
                        found[1].compiled and not _compiles(cell, found[0], boldly=name in boldly)
                    ):
                        raise
                    built[name] = found
                    stand_ins.append(_stand_in(*found, Path(folder)))


def _compiles(cell: Cell, sdist: Sdist, *, boldly: bool) -> bool:
    """Whether it is known how to compile it, in the Debian release that the cell stands on."""
    known = boldly or load().build_needs(sdist.name, sdist.version) is not None
    return cell.base.kind == "rootfs" and known


def untried(cell: Cell) -> Iterator[Finding]:
    """What is compiled with a compiler alone because nobody read what its build needs."""
    asked = (Requirement(text) for text in cell.pip)
    versions = {canonical(parsed.name): pinned(parsed) or "0" for parsed in asked}
    for name, needs in cell.compiled:
        if not needs and load().build_needs(name, versions.get(name, "0")) is None:
            text = (
                f"whether {name} compiles with a compiler alone is not known: what its build needs was "
                "read nowhere; `rtbuild lock` tells, and names what is missing"
            )
            yield Finding(Outcome.UNKNOWN, text, rule="from-source")


def lacking(message: str) -> list[str]:
    """The packages that by the resolver's words have sources alone."""
    return list(dict.fromkeys(canonical(m["told"] or m["name"]) for m in _LACKING.finditer(message)))


def asked_by_sources(message: str, asked: Sequence[str], target: Target, index: Index) -> Iterator[str]:
    """What the packages ask for that, by the resolver's words, have sources alone."""
    for name in lacking(message):
        if (found := _source(_wanted(name, asked, message), target, index)) is not None:
            yield from (canonical(Requirement(text).name) for text in found[1].requires)


def _wanted(name: str, asked: Sequence[str], message: str) -> Requirement:
    """What is asked of a package: by the cell itself, or, in uv's words, by others."""
    bounds = SpecifierSet()
    for text in asked:
        parsed = Requirement(text)
        if canonical(parsed.name) == name:
            bounds &= parsed.specifier
    pattern = rf"(?i:depends on|require) {name_pattern(name)}(?P<bounds>[<>=!~][^\s]*)"
    for found in re.finditer(pattern, message):
        try:
            bounds &= SpecifierSet(found["bounds"].rstrip(",.;"))
        except InvalidSpecifier:
            continue
    return Requirement(f"{name}{bounds}")


def _told(wanted: Requirement, message: str) -> Requirement:
    """The same, of the releases without a wheel: a newer one has a wheel, and does not go with the rest."""
    found = re.search(
        rf"(?i)(?<![\w-]){name_pattern(wanted.name)}(?P<bounds>[<>=!~]\S*) ha(?:s|ve) no usable wheels",
        message,
    )
    try:
        bounds = SpecifierSet(found["bounds"]) if found else SpecifierSet()
    except InvalidSpecifier:
        bounds = SpecifierSet()
    return Requirement(f"{wanted.name}{wanted.specifier & bounds}")


def _source(wanted: Requirement, target: Target, index: Index) -> tuple[Sdist, SdistContents] | None:
    """The archive that a lock would build, read; None if there is none, or a wheel would be taken."""
    try:
        sdist = choose_sdist(wanted, index.offers(wanted.name), target)
    except PackageIndexError:
        return None  # no archive, or none for this Python: what the resolver said stands
    if sdist is None or (sdist.size or 0) > _LARGEST:
        return None
    return sdist, _read(sdist, index)


@functools.lru_cache(maxsize=256)
def _read(sdist: Sdist, index: Index) -> SdistContents:
    return sdist_contents(index.fetch(sdist, cache=resources.cache()))


def _named(
    cell: Cell, asked: Sequence[str], built: dict[str, tuple[Sdist, SdistContents]], narrowed: Set[str]
) -> Cell:
    """The cell that builds them. ``narrowed`` are those of which the resolver would take a wheel, too."""
    mine = {canonical(Requirement(text).name) for text in asked}
    pure = [name for name, (_, contents) in built.items() if not contents.compiled]
    compiled = [
        (name, tuple(load().build_needs(name, sdist.version) or ()))
        for name, (sdist, contents) in built.items()
        if contents.compiled
    ]
    pins = {name: f"=={sdist.version}" for name, (sdist, _) in built.items()}
    return replace(
        cell,
        pip=(
            *(_pinned(text, {name: pins[name] for name in narrowed & {*pins}}) for text in cell.pip),
            *(f"{name}{pin}" for name, pin in pins.items() if name not in mine),
        ),
        from_source=tuple(sorted({*cell.from_source, *pure})),
        compiled=tuple(sorted({**dict(cell.compiled), **dict(compiled)}.items())),
    )


def _pinned(text: str, pins: Mapping[str, str]) -> str:
    parsed = Requirement(text)
    pin = pins.get(canonical(parsed.name))
    if pin is None:
        return text
    parsed.specifier = SpecifierSet(pin)
    return str(parsed)


def _reasons(built: dict[str, tuple[Sdist, SdistContents]]) -> Iterator[str]:
    for name, (sdist, contents) in sorted(built.items()):
        alone = " with a compiler alone" * (load().build_needs(name, sdist.version) is None)
        how = f"compiled from them{alone}" if contents.compiled else "built from them"
        yield f"{name} {sdist.version}: the index has only its sources; `rtbuild lock` has it {how}"


def _stand_in(sdist: Sdist, contents: SdistContents, folder: Path) -> LocalWheel:
    """A wheel with the metadata of a source archive and no code."""
    name = sdist.name.replace("-", "_")
    file = f"{name}-{sdist.version}-py3-none-any.whl"
    metadata = [
        "Metadata-Version: 2.1",
        f"Name: {sdist.name}",
        f"Version: {sdist.version}",
        *(f"Requires-Dist: {text}" for text in contents.requires),
    ]
    path = folder / file
    with zipfile.ZipFile(path, "w") as archive:
        at = f"{name}-{sdist.version}.dist-info"
        archive.writestr(f"{at}/METADATA", "\n".join(metadata) + "\n")
        archive.writestr(f"{at}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{at}/RECORD", "")
    wheel = Wheel(name=sdist.name, version=sdist.version, file=file, sha256=sdist.sha256, size=sdist.size)
    return LocalWheel(wheel=wheel, path=path)
