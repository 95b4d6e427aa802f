"""The lock file, ``<matrix>.lock.json`` beside the matrix: bases, wheels and packages of its cells; and which
layer each wheel is in, which follows from the lock alone: its order, its sizes, its cell.

Wheels, Debian packages and base images are listed once and named by the cells. Keys are sorted and every
wheel and package stands on a line of its own, so that a diff shows what changed and nothing else. No host
name is in it, unless the matrix itself names a base by one.
"""

import enum
import functools
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from packaging.requirements import Requirement
from packaging.tags import Tag
from packaging.version import Version
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from builder.core.digests import digest_of
from builder.core.documents import parse_json, read_file
from builder.core.errors import UsageError
from builder.core.files import write_whole
from builder.core.model import (
    Base,
    Cell,
    Compilation,
    Deb,
    Matrix,
    Pinned,
    RegistryBase,
    RootfsBase,
    Sdist,
    StandalonePython,
    Wheel,
    WheelSource,
)
from builder.core.versions import canonical, holds, names_of
from builder.sources.index import Target, rank, wheel_name

_Item = TypeVar("_Item", Wheel, Deb, Sdist, StandalonePython)
_Named = TypeVar("_Named")

_ANY_GLIBC = "2.99"
"""Whether the base's own glibc is new enough for a wheel, a rule of ``check`` says."""


# -- its form

SCHEMA = 1

Digest = Annotated[str, StringConstraints(pattern=r"^sha256:[0-9a-f]{64}$")]
Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
# Names and paths from a lock become paths in the cache and addresses on a mirror: none may climb out.
FileName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.+!-]*\.whl$")]
SdistName = Annotated[
    str, StringConstraints(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.+!-]*\.(?:tar\.(?:gz|bz2|xz)|tgz|zip)$")
]
ArchiveName = Annotated[str, StringConstraints(pattern=r"^cpython-[A-Za-z0-9_.+-]+\.tar\.gz$")]
PoolPath = Annotated[
    str, StringConstraints(pattern=r"^(?:[A-Za-z0-9_+~:%-][A-Za-z0-9_.+~:%-]*/)+[A-Za-z0-9][^/\s]*\.deb$")
]
Word = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.+~:!-]*$")]
Package = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9+.-]+(?:=[A-Za-z0-9.+:~-]+)?$")]
Count = Annotated[int, Field(ge=0)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class LockedSdist(_Strict):
    """A source distribution that wheels are built from."""

    name: Word
    version: Word
    file: SdistName
    sha256: Sha256
    size: Count = Field(description="Bytes.")


class LockedCompilation(_Strict):
    """Debian packages of a wheel that is compiled, by name."""

    needs: list[Package] = Field(description="What the matrix names for its build.")
    libraries: list[Word] = Field(description="Whose libraries it loads: they are in the image.")


class LockedPython(_Strict):
    """An archive of python-build-standalone. No field says where it is: that is uv's configuration."""

    version: Word
    build: Word = Field(description="The release that it is from.")
    file: ArchiveName
    sha256: Sha256
    size: Count = Field(description="Bytes; 0 if it was locked without being fetched.")


class LockedSource(_Strict):
    """The source of a wheel that no index has."""

    sdist: str = Field(description="Key of `sdists`.")
    requires: list[str] = Field(description="What its build needs: keys of `wheels`.")
    rootfs: str = Field(description="What it is built in: key of `rootfs`.")
    python: str = Field(description="Minor version of Python that it is for.")
    interpreter: str | None = Field(None, description="Key of `pythons`, if `rootfs` has no Python.")
    compiled: LockedCompilation | None = None


class LockedWheel(_Strict):
    """A wheel. No field says where it comes from: that is the reader's own package index."""

    name: Word
    version: Word
    file: FileName
    sha256: Sha256
    size: Count = Field(description="Bytes.")
    uploaded: Count = Field(description="Seconds since 1970, by the index; 0 if it does not say.")
    source: LockedSource | None = None


class LockedDeb(_Strict):
    """A Debian package."""

    package: Word
    version: Word
    architecture: Word
    file: PoolPath = Field(description="Path below the archive's root.")
    sha256: Sha256
    size: Count = Field(description="Bytes.")
    archive: Literal["debian", "debian-security"]


class LockedImage(_Strict):
    """The parts of a registry image's config that a lock keeps, under the digest of its manifest."""

    env: dict[str, str]
    labels: dict[str, str]
    size: Count = Field(description="Sum of the compressed layers, in bytes.")


class LockedRootfs(_Strict):
    """An operating system out of Debian packages."""

    suite: Word
    epoch: Count = Field(description="Newest date of the suite's Release files, seconds since 1970.")
    debs: list[str] = Field(description="Keys of `debs`.")


class ImageName(_Strict):
    image: str = Field(description="The reference as the matrix has it.")
    digest: Digest = Field(description="Key of `images`.")


class RootfsName(_Strict):
    rootfs: str = Field(description="Key of `rootfs`.")


class LockedCell(_Strict):
    """One cell of the matrix."""

    inputs: Digest = Field(description="Digest of what the matrix said when the cell was locked.")
    platform: str
    epoch: Count = Field(description="SOURCE_DATE_EPOCH of the image.")
    base: ImageName | RootfsName
    apt: list[str]
    wheels: list[str] = Field(description="Keys of `wheels`, in the order of their layers.")
    python: str | None = Field(None, description="Key of `pythons`; none if it is the base's own.")
    added: dict[str, str] = Field(
        default_factory=dict,
        description="Bounds that the resolver was given beside what the matrix asks for, and why.",
    )


class Document(_Strict):
    """A lock file of rtbuild."""

    version: Literal[1] = Field(alias="schema")
    matrix: str
    cells: dict[str, LockedCell]
    images: dict[str, LockedImage]
    rootfs: dict[str, LockedRootfs]
    debs: dict[str, LockedDeb]
    wheels: dict[str, LockedWheel]
    sdists: dict[str, LockedSdist] = Field(default_factory=dict)
    pythons: dict[str, LockedPython] = Field(default_factory=dict)


# -- its cells


class LockStatus(enum.StrEnum):
    """The state of a cell in the lock."""

    FRESH = "fresh"
    STALE = "stale"
    MISSING = "missing"
    EDITED = "edited"
    """The digest of inputs is the cell's, and the entry is another cell's: rtbuild did not write it so."""


@dataclass(frozen=True, kw_only=True)
class LockEntry:
    """One cell of a lock file."""

    inputs: str
    """Digest of :meth:`builder.core.model.Cell.inputs` when it was locked."""
    platform: str
    base: RegistryBase | RootfsBase
    apt: tuple[str, ...]
    wheels: tuple[Wheel, ...]
    epoch: int
    python: StandalonePython | None = None
    added: tuple[tuple[str, str], ...] = ()


def lock_path(matrix: Path) -> Path:
    """``matrices/torch.yaml`` → ``matrices/torch.lock.json``."""
    return matrix.with_name(f"{matrix.stem}.lock.json")


def read_lock(path: Path) -> dict[str, LockEntry]:
    """The entries of a lock by their cells' ids; none without a lock file.

    Raises UsageError for a damaged one, one that was changed by hand, or a newer rtbuild's.
    """
    text, wrong = "", "is not a lock file"
    try:
        text = read_file(path).decode()
        raw = parse_json(text)
        version = raw.get("schema") if isinstance(raw, dict) else None
        if isinstance(version, int) and version > SCHEMA:
            raise UsageError(
                f"{path} has schema {version}, and this rtbuild knows up to {SCHEMA}",
                hint="a newer rtbuild wrote it: install that one",
            )
        if version == SCHEMA and isinstance(raw, dict) and "cells" in raw:
            wrong = "is not as rtbuild wrote it, but damaged or changed by hand"
        return _from_document(Document.model_validate(raw))
    except FileNotFoundError:
        return {}
    except OSError as problem:
        raise UsageError(f"cannot read the lock {path}: {problem.strerror or problem}") from problem
    except ValueError as problem:
        why = str(problem)
        if isinstance(problem, ValidationError):
            first = problem.errors()[0]
            why = f"{'.'.join(map(str, first['loc'])) or 'top level'}: {first['msg']}"
        elif "\n<<<<<<< " in f"\n{text}":
            why = "it holds conflict markers of a merge"
        raise UsageError(
            f"{path} {wrong}: {why}",
            hint="restore it from version control, or delete it and run `rtbuild lock`",
        ) from problem


def merge(path: Path, matrix: Matrix, pinned: Mapping[str, Pinned]) -> dict[str, LockEntry]:
    """Put ``pinned`` cells (by id) into the matrix's lock and write it, unless it is the same; its entries.

    Other cells keep their entries, also those whose new resolution failed; entries of cells that the matrix
    no longer has are dropped.
    """
    ids = {cell.id for cell in matrix.cells if cell.excluded is None}
    mine = {
        key: LockEntry(
            inputs=digest_of(one.cell.inputs()),
            platform=one.cell.platform,
            base=one.base,
            apt=tuple(sorted(one.apt)),
            wheels=one.wheels,
            epoch=one.epoch,
            python=one.python,
            added=one.added,
        )
        for key, one in pinned.items()
    }
    cells: dict[str, LockEntry] = {}

    def content() -> bytes:
        nonlocal cells
        cells = {key: entry for key, entry in read_lock(path).items() if key in ids} | mine
        return render(matrix.name, cells).encode()

    if content() != (path.read_bytes() if path.exists() else None):
        write_whole(path, content)  # another process may have put other cells in
    return cells


def status(cell: Cell, entries: Mapping[str, LockEntry]) -> LockStatus:
    entry = entries.get(cell.id)
    if entry is None:
        return LockStatus.MISSING
    other = cell.python_from is not None and (cell.python_from == "base") != (entry.python is None)
    if other or entry.inputs != digest_of(cell.inputs()):
        return LockStatus.STALE
    return LockStatus.EDITED if _differences(cell, entry) else LockStatus.FRESH


def state(cell: Cell, entries: Mapping[str, LockEntry]) -> str:
    """The state of a cell in a lock, in words: ``stale: the base was …``, as far as the entry tells."""
    found = status(cell, entries)
    if found is LockStatus.MISSING:
        return "missing: it is not in the lock" if entries else "missing: there is no lock yet"
    if found is LockStatus.FRESH:
        return "fresh"
    reasons = "; ".join(_differences(cell, entries[cell.id])[:3])
    if found is LockStatus.EDITED:
        return f"changed by hand: {reasons}; the digest of its inputs is that of the matrix"
    return f"stale: {reasons or 'its digest of inputs is of another matrix than the one that stands here'}"


def _differences(cell: Cell, entry: LockEntry) -> list[str]:
    """How an entry differs from the cell, as far as it tells."""
    rootfs = isinstance(entry.base, RootfsBase)
    base = f"rootfs:debian/{entry.base.suite}" if rootfs else entry.base.reference  # type: ignore[union-attr]
    versions: dict[str, str] = {canonical(wheel.name): wheel.version for wheel in entry.wheels}
    origin = "base" if entry.python is None else "standalone"
    target = Target(python=cell.python, platform=cell.platform, glibc=_ANY_GLIBC)
    other = [wheel.file for wheel in entry.wheels if rank(wheel.file, _tags(target)) is None]
    wanted = set(cell.debian_packages(own_python=entry.python is None))
    why = [
        (base != str(cell.base), f"it was made for {base}, and the matrix names {cell.base}"),
        (entry.platform != cell.platform, f"it was made for {entry.platform}"),
        (set(entry.apt) != wanted, "the matrix names other Debian packages"),
        (cell.python_from not in (None, origin), f"its Python is of another origin: {origin}"),
        *(
            _other_version(text, versions, target)
            for text in (*cell.frameworks, *cell.pip, *cell.cuda.packages)
        ),
        (bool(other), f"{', '.join(other[:2])} is not for Python {cell.python} on {cell.platform}"),
    ]
    return [text for differs, text in why if differs]


@functools.cache
def _tags(target: Target) -> Mapping[Tag, int]:
    return target.tags()


def _other_version(text: str, versions: Mapping[str, str], target: Target) -> tuple[bool, str]:
    """Whether a requirement of the matrix is not met by the locked version, and that said."""
    try:
        parsed = Requirement(text)
        if not holds(parsed, target.environment):
            return False, ""
        found = versions.get(canonical(parsed.name))
        met = found is not None and parsed.specifier.contains(found, prereleases=True)
    except ValueError:
        return False, ""
    locked = f"{parsed.name} {found}" if found is not None else f"no {parsed.name}"
    return not met, f"it has {locked}, and the matrix asks for {text}"


def pinned_cell(cell: Cell, entries: Mapping[str, LockEntry], *, stale: bool = False) -> Pinned | None:
    """The cell as it is locked; None if the lock has no entry that fits.

    With ``stale`` an entry for other inputs is given too, for a new resolution to start from. Its ``cell``
    then names the base and the ``apt`` packages that the entry was made with.
    """
    found = status(cell, entries)
    if found is LockStatus.MISSING or (found is not LockStatus.FRESH and not stale):
        return None
    entry = entries[cell.id]
    if found is not LockStatus.FRESH:
        if isinstance(entry.base, RootfsBase):
            kept = Base(kind="rootfs", name=f"debian/{entry.base.suite}")
        else:
            kept = Base(kind="registry", name=entry.base.reference)
        cell = replace(cell, base=kept, platform=entry.platform, apt=entry.apt, compilers=False)
    return Pinned(
        cell=cell,
        base=entry.base,
        wheels=entry.wheels,
        epoch=entry.epoch,
        python=entry.python,
        added=entry.added,
    )


def render(matrix: str, cells: Mapping[str, LockEntry]) -> str:
    """The file's text: the same for the same content."""
    entries = cells.values()
    installed = {wheel for entry in entries for wheel in entry.wheels}
    sources = _sources(installed)
    wheels = _keys(installed | {wheel for source in sources for wheel in source.requires}, lambda w: w.file)
    sdists = _keys({source.sdist for source in sources}, lambda sdist: sdist.file)
    interpreters = {entry.python for entry in entries} | {source.interpreter for source in sources}
    pythons = _keys({one for one in interpreters if one is not None}, lambda python: python.file)
    systems = {entry.base for entry in entries if isinstance(entry.base, RootfsBase)}
    systems |= {source.system for source in sources}
    debs = _keys(
        {deb for base in systems for deb in base.debs}, lambda d: f"{d.package}_{d.version}_{d.architecture}"
    )
    hashes = {one: digest_of([one.epoch, [deb.sha256 for deb in one.debs]])[7:19] for one in systems}
    names = {one: f"debian/{one.suite}#{short}" for one, short in hashes.items()}
    images = {entry.base.digest: entry.base for entry in entries if isinstance(entry.base, RegistryBase)}

    def base_of(entry: LockEntry) -> dict[str, Any]:
        if isinstance(entry.base, RootfsBase):
            return {"rootfs": names[entry.base]}
        return {"image": entry.base.reference, "digest": entry.base.digest}

    def row_of(wheel: Wheel) -> dict[str, Any]:
        row = dict(vars(wheel))
        source = row.pop("source")
        if source is not None:
            row["source"] = {
                "sdist": sdists[source.sdist],
                "requires": [wheels[one] for one in source.requires],
                "rootfs": names[source.system],
                "python": source.python,
                **({"compiled": vars(source.compiled)} if source.compiled is not None else {}),
                **({"interpreter": pythons[source.interpreter]} if source.interpreter is not None else {}),
            }
        return row

    document = {
        "schema": SCHEMA,
        "matrix": matrix,
        "cells": {
            key: {
                "inputs": entry.inputs,
                "platform": entry.platform,
                "epoch": entry.epoch,
                "base": base_of(entry),
                "apt": list(entry.apt),
                "wheels": [wheels[wheel] for wheel in entry.wheels],
                **({"python": pythons[entry.python]} if entry.python is not None else {}),
                **({"added": dict(entry.added)} if entry.added else {}),
            }
            for key, entry in cells.items()
        },
        "images": {
            digest: {"env": dict(base.env), "labels": dict(base.labels), "size": base.size}
            for digest, base in images.items()
        },
        "rootfs": {
            names[base]: {"suite": base.suite, "epoch": base.epoch, "debs": [debs[deb] for deb in base.debs]}
            for base in systems
        },
        "debs": {key: vars(deb) for deb, key in debs.items()},
        "wheels": {key: row_of(wheel) for wheel, key in wheels.items()},
        **({"pythons": {key: vars(python) for python, key in pythons.items()}} if pythons else {}),
        **({"sdists": {key: vars(sdist) for sdist, key in sdists.items()}} if sdists else {}),
    }
    return _layout(document) + "\n"


def _keys(items: Iterable[_Item], name: Callable[[_Item], str]) -> dict[_Item, str]:
    """A readable name for each; with a piece of the hash if two files have the same name.

    The hash is the row's if the file is the same, too: Debian moves a package from one archive to another.
    """
    named: dict[str, list[_Item]] = {}
    for item in sorted(items):
        named.setdefault(name(item), []).append(item)
    return {
        item: key if len(same) == 1 else f"{key}#{_piece(item, same)}"
        for key, same in named.items()
        for item in same
    }


def _piece(item: _Item, same: Sequence[_Item]) -> str:
    alone = [one.sha256 for one in same].count(item.sha256) == 1
    return item.sha256[:12] if alone else digest_of(repr(item)).removeprefix("sha256:")[:12]


def _layout(value: Any, indent: str = "") -> str:
    """JSON with sorted keys, one item a line; an object of plain values stays on its line."""
    deeper = indent + " "
    if isinstance(value, (list, tuple)) and value:
        return "[\n" + ",\n".join(deeper + _layout(item, deeper) for item in value) + f"\n{indent}]"
    if isinstance(value, dict) and any(isinstance(item, dict | list | tuple) for item in value.values()):
        lines = [f"{deeper}{json.dumps(key)}: {_layout(value[key], deeper)}" for key in sorted(value)]
        return "{\n" + ",\n".join(lines) + f"\n{indent}}}"
    return json.dumps(value, sort_keys=True, ensure_ascii=False)


def _sources(wheels: Iterable[Wheel]) -> tuple[WheelSource, ...]:
    """The sources of wheels that are built, and of the built ones that their builds require."""
    found = {wheel: wheel.source for wheel in sorted(wheels) if wheel.source}
    inner = {one: one.source for source in found.values() for one in source.requires if one.source}
    return tuple((inner | found).values())  # of one wheel that both have, the image's


def _named(table: Mapping[str, _Named], names: Iterable[str], user: str) -> list[_Named]:
    """The items of these names. Raises ValueError if one is not there."""
    for name in names:
        if name not in table:
            raise ValueError(f"{user} names {name}, which is not in its table")
    return [table[name] for name in names]


def _from_document(document: Document) -> dict[str, LockEntry]:
    """Raises ValueError if a name is in no table, or a wheel's build requires builds of builds."""
    debs = {key: Deb(**item.model_dump()) for key, item in document.debs.items()}
    systems = {
        key: RootfsBase(
            suite=item.suite, epoch=item.epoch, debs=tuple(_named(debs, item.debs, f"rootfs {key}"))
        )
        for key, item in document.rootfs.items()
    }
    sdists = {key: Sdist(**item.model_dump()) for key, item in document.sdists.items()}
    pythons = {key: StandalonePython(**item.model_dump()) for key, item in document.pythons.items()}

    @functools.cache
    def wheel_of(key: str) -> Wheel:
        item, user, source = document.wheels[key], f"wheel {key}", None
        if item.source is not None:
            made, runs = item.source.compiled, item.source.interpreter
            inner = [one.source for one in _named(document.wheels, item.source.requires, user) if one.source]
            if any(one.source for each in inner for one in _named(document.wheels, each.requires, user)):
                raise ValueError(f"{user} is built with what is built with a built wheel itself")
            source = WheelSource(
                sdist=_named(sdists, [item.source.sdist], user)[0],
                requires=tuple(map(wheel_of, item.source.requires)),
                system=_named(systems, [item.source.rootfs], user)[0],
                python=item.source.python,
                compiled=Compilation(needs=(*made.needs,), libraries=(*made.libraries,)) if made else None,
                interpreter=_named(pythons, [runs], user)[0] if runs else None,
            )
        named = wheel_name(item.file)
        if named is None:
            raise ValueError(f"{user}: its file {item.file} is not named as a wheel")
        if (named.name, named.version) != (canonical(item.name), Version(item.version)):
            said = f"{item.name} {item.version}"
            raise ValueError(f"{user}: its file {item.file} is {named.name} {named.version}, not {said}")
        return Wheel(**item.model_dump(exclude={"source"}), source=source)

    def base_of(base: ImageName | RootfsName, user: str) -> RegistryBase | RootfsBase:
        if isinstance(base, RootfsName):
            return _named(systems, [base.rootfs], user)[0]
        (image,) = _named(document.images, [base.digest], user)
        return RegistryBase(
            reference=base.image,
            digest=base.digest,
            env=tuple(sorted(image.env.items())),
            labels=tuple(sorted(image.labels.items())),
            size=image.size,
        )

    wheels = {key: wheel_of(key) for key in document.wheels}
    return {
        key: LockEntry(
            inputs=cell.inputs,
            platform=cell.platform,
            base=base_of(cell.base, user := f"cell {key}"),
            apt=tuple(cell.apt),
            wheels=tuple(_named(wheels, cell.wheels, user)),
            epoch=cell.epoch,
            python=_named(pythons, [cell.python], user)[0] if cell.python is not None else None,
            added=tuple(cell.added.items()),
        )
        for key, cell in document.cells.items()
    }


LISTED_EARLY = 50_000_000
"""Bytes of a wheel file above which a lock lists it before the others, after NVIDIA's."""
OWN_LAYER = 8 << 20
"""Bytes of a wheel file from which it gets a layer of its own."""
MAX_OWN_LAYERS = 64
"""Engines take 127 layers; base and recipe need some. Beyond this many, the smaller wheels share one."""

Group = tuple[Wheel, ...]
"""Wheels that share a layer."""


def lock_order(wheels: Iterable[Wheel]) -> tuple[Wheel, ...]:
    """Wheels in the order of their layers: NVIDIA's, then the other large ones, then the small; each by name.

    Engines share unpacked layers between images only up to the first one that differs. NVIDIA's wheels are
    the same for every framework and Python of a CUDA version, a framework for every cell that pins it, and
    the small packages for hardly two. Names, not sizes, order a group: a new version changes the size.
    """

    def key(wheel: Wheel) -> tuple[int, str, str]:
        group = 0 if wheel.name.startswith("nvidia-") else 1 if wheel.size > LISTED_EARLY else 2
        return group, wheel.name, wheel.file

    return tuple(sorted(wheels, key=key))


def stands_alone(group: Group) -> bool:
    """Whether a layer is that of one large wheel."""
    return len(group) == 1 and group[0].size >= OWN_LAYER


def groups_of(pinned: Pinned) -> tuple[Group, ...]:
    """The wheels of each layer: lowest layer first, each large wheel alone, then all small ones together."""
    frameworks = names_of(pinned.cell.frameworks)

    def shared_first(wheel: Wheel) -> int:
        """NVIDIA's wheels, which frameworks of one CUDA have in common; others; the frameworks, of which each
        release is another. The order within each of these stays the lock's.
        """
        name = canonical(wheel.name)
        return 0 if name.startswith("nvidia-") else 1 + (name in frameworks)

    large = sorted(
        (wheel for wheel in pinned.wheels if wheel.size >= OWN_LAYER), key=lambda wheel: -wheel.size
    )
    alone = [wheel for wheel in pinned.wheels if wheel in large[:MAX_OWN_LAYERS]]
    small = tuple(sorted(wheel for wheel in pinned.wheels if wheel not in alone))
    if pinned.cell.dependencies == "listed":
        alone.sort(key=lambda wheel: wheel.name, reverse=True)
    else:
        alone.sort(key=shared_first)
    groups = tuple((wheel,) for wheel in alone)
    return (*groups, small) if small else groups
