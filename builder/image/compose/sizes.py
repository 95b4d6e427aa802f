"""How large locked cells are, worked out without building them: layers, packages, largest files.

And whether the disk has room for them, which is asked before the first byte is fetched.
"""

import re
import shutil
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from builder.core.errors import MissingToolError
from builder.core.model import Pinned, RegistryBase, Wheel
from builder.image.compose.cell_layers import installed, plan, python_title, ready_wheels, title_of
from builder.image.layers import Layer, LayerStore, Member
from builder.plan.facts.tables import CUDA_LIBRARY
from builder.sources.index import cache_path

UNPACKED = 2.0
"""Bytes unpacked for each byte of a wheel that is not at hand: measured on TensorFlow 2.8.4 with CUDA 11."""
BASE_UNPACKED = 2.2
"""The same for a registry image's compressed layers."""
DEB_UNPACKED = 4.0
"""The same for Debian's packages."""
COMPILERS = 270_000_000
"""Unpacked, of gcc, g++ and Python's headers, where the lock has no packages: Debian 12's Installed-Size."""
_TOOLCHAIN = re.compile(
    r"(gcc|g\+\+|cpp|binutils)(-.*)?|lib.*-dev(-bin)?|linux-libc-dev|rpcsvc-proto"
    r"|lib(binutils|cc1|ctf|gprofng|isl|mpc|mpfr|jansson|[alt]san|hwasan|ubsan|itm|quadmath)[-\d].*"
)
"""Debian's packages that `gcc`, `g++` and Python's headers bring into a minimal system."""
RECOMPRESSED = 1.1
"""Bytes of a zstd layer for each byte of its wheel, measured on the same."""
MARGIN = 500_000_000
"""Bytes left free for logs, the build's own files and whatever else uses the disk."""


@dataclass(frozen=True, kw_only=True)
class LayerSize:
    """One layer, in bytes. ``made``: its size is known, and not estimated from the lock."""

    title: str
    unpacked: int
    compressed: int
    made: bool
    identity: str
    """Equal for layers that two cells share."""


@dataclass(frozen=True, kw_only=True)
class PackageSize:
    """One wheel, in bytes. ``compressed`` is its part of its layer; ``known``: the wheel is at hand."""

    name: str
    version: str
    unpacked: int
    compressed: int
    known: bool


@dataclass(frozen=True, kw_only=True)
class FileSize:
    path: str
    size: int
    package: str


@dataclass(frozen=True, kw_only=True)
class CellSize:
    """All of it. ``doubled`` are CUDA libraries that are there more than once: soname → paths."""

    layers: tuple[LayerSize, ...]
    packages: tuple[PackageSize, ...]
    largest: tuple[FileSize, ...]
    doubled: tuple[tuple[str, tuple[str, ...]], ...]
    compilers: int | None = None
    """An estimate of the unpacked bytes of compilers and headers, which are in the base's layer. None: the
    cell has none."""

    @property
    def unpacked(self) -> int:
        return sum(layer.unpacked for layer in self.layers)

    @property
    def compressed(self) -> int:
        return sum(layer.compressed for layer in self.layers)


def measure(pinned: Pinned, *, store: LayerStore, place: Callable[[Wheel], Path]) -> CellSize:
    """Measure the base and the wheels of a cell. ``place`` gives the path of a download.

    Wheels that are neither layers nor downloaded are estimated from their sizes in the lock. Files are those
    that installing leaves, without those that the matrix's ``slim`` leaves out.
    """
    with store.lease() as lease:
        planned = plan(pinned, lease)
    base, python = pinned.base, pinned.python
    if isinstance(base, RegistryBase):
        layers = [_layer(base.reference, None, base.size, base.size * BASE_UNPACKED, base.digest)]
    else:
        size, identity = sum(deb.size for deb in base.debs), "-".join(deb.sha256 for deb in base.debs)
        known = next(iter(planned.base.layers), None)
        layers = [_layer(f"rootfs {base.suite}", known, size, size * DEB_UNPACKED, identity)]
    if python is not None:
        size = python.size or 33_000_000  # before it is fetched; about the size of 3.12.10 to 3.12.16
        title = python_title(python)
        made = next(iter(planned.interpreter), None)
        layers.append(_layer(title, made, size, size * 3.0, python.sha256))
    packages: list[PackageSize] = []
    files: list[FileSize] = []
    for group in planned.groups:
        inside = [_package(wheel, pinned, place(wheel), files) for wheel in group]
        packed = sum(one.compressed for one in inside)
        layer = _layer(
            title_of(group),
            planned.known.get(group),
            packed,
            sum(one.unpacked for one in inside),
            "-".join(wheel.sha256 for wheel in group),
        )
        layers.append(layer)
        packages += [
            replace(one, compressed=round(layer.compressed * one.compressed / packed) if packed else 0)
            for one in inside
        ]
    return CellSize(
        layers=tuple(layers),
        packages=tuple(sorted(packages, key=lambda one: (-one.unpacked, one.name))),
        largest=tuple(sorted(files, key=lambda one: (-one.size, one.path))[:20]),
        doubled=tuple(_doubled(files)),
        compilers=_compilers(pinned),
    )


def _compilers(pinned: Pinned) -> int | None:
    if not pinned.cell.compilers:
        return None
    if isinstance(pinned.base, RegistryBase):
        return COMPILERS
    return round(
        DEB_UNPACKED * sum(deb.size for deb in pinned.base.debs if _TOOLCHAIN.fullmatch(deb.package))
    )


def _package(wheel: Wheel, pinned: Pinned, path: Path, files: list[FileSize]) -> PackageSize:
    """A wheel by itself, ``compressed`` as in its archive; its files go into ``files`` if it is at hand."""
    size = partial(PackageSize, name=wheel.name, version=wheel.version)
    if not path.is_file():
        return size(unpacked=round(wheel.size * UNPACKED), compressed=wheel.size, known=False)
    with installed(path, wheel, pinned) as found:
        files += [FileSize(path=f"/{file.path}", size=file.size, package=wheel.name) for file in found.files]
    packed = sum(f.content.compressed if isinstance(f.content, Member) else f.size for f in found.files)
    return size(unpacked=found.size, compressed=packed, known=True)


def _layer(title: str, made: Layer | None, compressed: int, unpacked: float, identity: str) -> LayerSize:
    """The sizes of a layer that is ``made``, or else the estimates."""
    return LayerSize(
        title=title,
        unpacked=made.unpacked if made else round(unpacked),
        compressed=made.size if made else compressed,
        made=made is not None,
        identity=identity,
    )


def _doubled(files: Sequence[FileSize]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Libraries of CUDA that the loader could find twice. A folder counts once: links are no copies."""
    places: dict[str, dict[str, str]] = defaultdict(dict)
    for file in files:
        folder, _, name = file.path.rpartition("/")
        match = CUDA_LIBRARY.fullmatch(name)
        if match is not None and match[2] is not None:
            places[f"{match[1]}.so.{match[2]}"].setdefault(folder, file.path)
    for soname, paths in sorted(places.items()):
        if len(paths) > 1:
            yield soname, tuple(sorted(paths.values()))


@dataclass(frozen=True, kw_only=True)
class Need:
    """Bytes that a run will add, at most: in the engine's store, and in rtbuild's cache."""

    engine: int
    cache: int


def estimate(
    cells: Iterable[Pinned], *, cached: frozenset[str] = frozenset(), ready: frozenset[str] = frozenset()
) -> Need:
    """The bytes that building these cells takes. Wheels and bases that cells share count once.

    By their sha256, ``cached`` are wheels that were fetched before, and ``ready`` those whose layers are
    made: of these the cache needs nothing more.
    """
    wheels = {wheel.sha256: wheel.size for cell in cells for wheel in cell.wheels}
    blobs = sum(wheels.values())
    bases: dict[str, tuple[float, int]] = {}
    for cell in cells:
        if isinstance(cell.base, RegistryBase):
            bases[cell.base.digest] = (cell.base.size * (1 + BASE_UNPACKED), cell.base.size)
        else:
            size = sum(deb.size for deb in cell.base.debs)
            bases[cell.base.suite] = (size * (1 + DEB_UNPACKED), round(size * (1 + DEB_UNPACKED)))
    engine = blobs * (UNPACKED + RECOMPRESSED) + sum(in_engine for in_engine, _ in bases.values())
    new = {sha256: size for sha256, size in wheels.items() if sha256 not in ready}
    fetch = sum(size for sha256, size in new.items() if sha256 not in cached)
    cache = sum(in_cache for _, in_cache in bases.values()) + fetch + sum(new.values()) * RECOMPRESSED
    return Need(engine=round(engine), cache=round(cache))


def check_room(
    missing: Sequence[Pinned], *, cache: Path, store: LayerStore, engine_free: int | None, engine_root: str
) -> None:
    """Raise MissingToolError if the disk has no room for the images of these cells."""
    wheels = {wheel for cell in missing for wheel in cell.wheels}
    need = estimate(
        missing,
        cached=frozenset(wheel.sha256 for wheel in wheels if cache_path(wheel, cache).is_file()),
        ready=frozenset(sha256 for cell in missing for sha256 in ready_wheels(cell, store)),
    )
    refuse_full(need, engine_free=engine_free, engine_root=engine_root, cache=cache)


def refuse_full(need: Need, *, engine_free: int | None, engine_root: str, cache: Path) -> None:
    """Raise MissingToolError if the estimate does not fit; unknown free space (a remote engine) passes."""
    cache.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(cache).free
    disks = [(str(cache), need.cache, free)]
    if engine_free is not None and abs(engine_free - free) < MARGIN:
        disks = [(f"{cache} and {engine_root}", need.cache + need.engine, free)]
    elif engine_free is not None:
        disks.append((engine_root, need.engine, engine_free))
    for where, bytes_, there in disks:
        wanted = bytes_ + MARGIN
        if wanted > there:
            raise MissingToolError(
                f"this takes about {wanted / 1e9:.1f} GB on the disk of {where}, "
                f"and {there / 1e9:.1f} GB are free",
                hint="free some (`docker system prune`, `rtbuild cache --prune 20GB`), select fewer cells, "
                "or set RTBUILD_CACHE to a larger disk",
            )
