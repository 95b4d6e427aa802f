"""Facts of a compiled package: a wheel's libraries by HTTP ranges, a source archive's build files.

Of each library so much is read as holds its names and symbols, of the largest more, for their GPU code: at
most :data:`MOST` of one wheel, in all. Nothing of a package is executed or loaded.
"""

import hashlib
import io
import re
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from zipfile import ZipInfo

from builder.core.errors import PackageIndexError
from builder.core.link_set import number_of
from builder.core.versions import key
from builder.plan.facts.reading import binary
from builder.plan.facts.reading.binary import SharedLibrary, library_of
from builder.plan.facts.reading.framework_wheel import metadata_beside, metadata_head, read_once, zip_of
from builder.plan.facts.reading.observed import Values, WheelReading
from builder.plan.facts.reading.torch_symbols import TORCH
from builder.plan.facts.tables import CUDA_LIBRARY
from builder.sources.index import IndexFile, RemoteZip, UnknownError, sdist_files
from builder.sources.net import Client

MOST = 48 << 20
"""Bytes that are read of one wheel."""
_NAMES, _CODE = 3 << 19, 6 << 20
"""Packed bytes of a library that hold its names and symbols; and the beginning of its GPU code."""
_FOR_CODE = 4
"""Libraries, the largest ones, that are read on for GPU code."""
_LIGHT, _AGREEING, _TRIED = 4 << 20, 3, 24
"""Bytes of the modules of a wheel that does not ask for NumPy; modules that tell which NumPy, of how many."""
_SOURCE = 32 << 20
"""Bytes of a source archive, packed."""
_BUILD_FILES = re.compile(r"[^/]+/(?:PKG-INFO|pyproject\.toml|setup\.py)")
_LISTED = 400
"""Names in one value."""

_LIBRARY = re.compile(r"(?:.*/)?[^/]+\.so(?:\.[\w.]+)?")
_MANGLED = re.compile(r"(lib[\w+]+?)[.-][0-9a-f]{8}(?=[.-]|\.so)")
"""A copy that auditwheel put into the wheel under a name of its own."""
_SYSTEM = re.compile(
    r"lib(?:c|m|dl|pthread|rt|util|resolv|anl|stdc\+\+|gcc_s|mvec)\.so(?:\.\d+)*|ld-linux-.*|libcuda\.so\.1"
)
"""Libraries that every base or driver has."""
_STABLE = re.compile(r"(?:aoti_)?torch_[a-z]")
_OTHER_MAKERS = re.compile(r".*(?:rocm|hip|xpu|sycl|_amd|_metal|_npu)[^/]*")
"""Libraries for other makers' GPUs, which are not loaded beside CUDA."""
_NO_PACKAGES = {"tests", "test", "docs", "doc", "examples", "benchmarks", "benchmark", "scripts", "tools"}
"""Folders that many wheels leave beside their packages by accident; nobody imports them."""


def read_package(file: IndexFile, client: Client, *, cache: Path | None = None) -> WheelReading:
    """Read one wheel, or take it from the cache. Nothing that a server does is an error: see ``unread``."""

    def read(reading: WheelReading) -> None:
        with zip_of(file, client, reading, limit=MOST) as archive:
            entries = _entries(archive, file, reading)
            reading.values = _values(archive, entries, reading)
            reading.read = dict.fromkeys(reading.values, "libraries")

    return read_once(file, "package", read, lambda reading: reading.metadata is not None, cache=cache)


def read_numpy(file: IndexFile, client: Client, *, cache: Path | None = None) -> WheelReading:
    """A wheel's metadata, the names by which it is imported, and the NumPy that its code is compiled for.

    Its extension modules are built with one NumPy, so the smallest ones that speak of it tell. Of a wheel
    that asks for NumPy the larger ones are read, too, if the small ones do not tell.
    """

    def read(reading: WheelReading) -> None:
        with zip_of(file, client, reading, limit=MOST) as archive:
            entries = _entries(archive, file, reading)
            reading.values = {"modules": _modules([entry.filename for entry in entries])}
            asks = re.search(r"(?mi)^Requires-Dist: numpy\b", reading.metadata or "") is not None
            every = [one for one in entries if _wanted(one.filename) and ".libs/" not in one.filename]
            told: list[str] = []
            for number, entry in enumerate(sorted(every, key=lambda one: one.compress_size)):
                far = archive.transferred > _LIGHT and not asks
                if far or archive.transferred + entry.compress_size + (64 << 10) > archive.limit:
                    reading.beyond.append("numpy_abi")
                    break
                told += filter(None, [binary.numpy_interface(archive.content(entry))])
                if len(told) == _AGREEING or (told and number > _TRIED):
                    break
            if told:
                reading.values["numpy_abi"] = min(told)
                reading.beyond = []
            reading.read = dict.fromkeys(reading.values, "libraries")

    return read_once(file, "numpy", read, lambda reading: reading.metadata is not None, cache=cache)


def _entries(archive: RemoteZip, file: IndexFile, reading: WheelReading) -> list[ZipInfo]:
    """The wheel's directory; ``reading`` gets its metadata. Raises UnknownError."""
    reading.metadata = metadata_beside(archive, file.metadata) if file.metadata else None
    entries = list(archive.entries())
    if reading.metadata is None:
        own = [one for one in entries if re.fullmatch(r"[^/]+\.dist-info/METADATA", one.filename)]
        reading.metadata = metadata_head(archive.content(own[0])) if own else None
    return entries


@dataclass(frozen=True, kw_only=True)
class _Read:
    """One library of a wheel, as far as it was read."""

    path: str
    library: SharedLibrary | None
    code: binary.GpuCode
    numpy_abi: str | None
    whole: bool

    @property
    def own(self) -> bool:
        """False for a copy of somebody else's."""
        return ".libs/" not in self.path and not CUDA_LIBRARY.fullmatch(PurePosixPath(self.path).name)


def _values(archive: RemoteZip, entries: Sequence[ZipInfo], reading: WheelReading) -> Values:
    names = [entry.filename for entry in entries]
    found: Values = {"modules": _modules(names)}
    limits: list[str] = []
    libraries = list(_libraries(archive, entries, reading, limits))
    inside = {PurePosixPath(name).name for name in names}
    known = [one for one in libraries if one.library is not None]
    found |= _links(known, inside)
    brought = {_MANGLED.sub(r"\1", name) for name in inside if name.startswith("lib") and _wanted(name)}
    found["brings"] = sorted(brought)[:_LISTED]
    found |= _symbols(known)
    own = [one for one in libraries if one.own]
    coded = [one for one in libraries if not CUDA_LIBRARY.fullmatch(PurePosixPath(one.path).name)]
    for asked in (own, coded):  # a bundled copy of somebody else's counts where its own have no code
        found |= _code(asked)
        if not found["architectures"] and _may_have_cuda(reading, found):
            found |= _code(_read_on(archive, entries, asked))
        if found["architectures"]:
            break
    numpy = {one.numpy_abi for one in own if one.numpy_abi}
    if numpy:
        found["numpy_abi"] = min(numpy)
    if not found["architectures"] and not all(one.whole for one in coded):
        reading.beyond.append("architectures")
    nameless = [one.path for one in own if one.library is None]
    limits += [f"{path}: its names are not in its beginning" for path in nameless]
    found["limits"] = limits
    return {name: value for name, value in found.items() if value}


def _libraries(
    archive: RemoteZip, entries: Sequence[ZipInfo], reading: WheelReading, limits: list[str]
) -> Iterator[_Read]:
    """The libraries, each content once; the largest are read further. ``limits`` gets what was left out."""
    one_each = {entry.CRC: entry for entry in entries if _wanted(entry.filename)}
    every = sorted(one_each.values(), key=lambda entry: entry.compress_size)
    own = [entry.filename for entry in every if ".libs/" not in entry.filename]
    large = set(own[-_FOR_CODE:])
    for number, entry in enumerate(every):
        room = archive.limit - archive.transferred - (64 << 10)
        rest = sum(min(other.compress_size, _NAMES) for other in every[number + 1 :])
        most = min(
            entry.compress_size, _CODE if entry.filename in large else _NAMES, max(room - rest, _NAMES)
        )
        if most > room:
            limits.append(f"{entry.filename} and larger libraries: {MOST >> 20} MiB of the wheel were read")
            return
        try:
            content = archive.content(entry, most)
        except UnknownError as problem:
            reading.unread.append(f"{entry.filename}: {problem}")
            continue
        if content[:4] != b"\x7fELF":
            continue  # a linker script, or an empty file
        whole = len(content) == entry.file_size
        yield _Read(
            path=entry.filename,
            library=library_of(content, PurePosixPath(entry.filename).name, whole=whole),
            code=binary.code_in(content),
            numpy_abi=binary.numpy_abi(content),
            whole=whole,
        )


def _may_have_cuda(reading: WheelReading, found: Values) -> bool:
    """Whether its name, its requirements or its libraries speak of CUDA."""
    linked = (*found["needed"], *found["either"], *found["brings"])
    return bool(
        re.search(r"[_-]cu\d|cuda|gpu", reading.file.partition("-")[0])
        or re.search(r"(?m)^Requires-Dist: (?:nvidia-|cuda-toolkit)(?!.*extra)", reading.metadata or "")
        or any(CUDA_LIBRARY.fullmatch(name) for name in linked)
    )


def _read_on(archive: RemoteZip, entries: Sequence[ZipInfo], own: Sequence[_Read]) -> list[_Read]:
    """The largest library that was not read to its end, with all that is left to read of the wheel."""
    cut = {one.path: one for one in own if not one.whole}
    sizes = {entry.filename: entry for entry in entries if entry.filename in cut}
    if not sizes:
        return list(own)
    entry = max(sizes.values(), key=lambda one: one.compress_size)
    room = archive.limit - archive.transferred - (64 << 10)
    try:
        content = archive.content(entry, min(entry.compress_size, room)) if room > 0 else b""
    except UnknownError:
        content = b""  # what is missing is on record already
    again = replace(cut[entry.filename], code=binary.code_in(content))
    return [again if one is cut[entry.filename] else one for one in own]


def _wanted(path: str) -> bool:
    return _LIBRARY.fullmatch(path) is not None and not _OTHER_MAKERS.fullmatch(path)


def _modules(names: Iterable[str]) -> list[str]:
    """The files by which others import it: the outermost packages, and modules beside them."""
    folders = {PurePosixPath(name).parent.parts for name in names if name.endswith("/__init__.py")}
    outer = [
        f"{'/'.join(parts)}/__init__.py"
        for parts in folders
        if parts and not any(parts[:n] in folders for n in range(1, len(parts)))
        if parts[0] not in _NO_PACKAGES and not parts[0].endswith((".data", ".dist-info"))
    ]
    beside = [
        name for name in names if re.fullmatch(r"\w+(?:\.[\w-]+)?\.(?:py|so)", name) and name != "setup.py"
    ]
    return sorted([*outer, *beside])[:_LISTED]


def _links(libraries: Sequence[_Read], inside: set[str]) -> Values:
    """The libraries that are needed from outside of the wheel.

    Of files that differ in a number alone, such as ``libx_cuda118.so`` and ``libx_cuda124.so``, one is
    loaded: needed is what all of them need, and ``either`` the rest.
    """
    groups: dict[str, list[set[str]]] = {}
    needed, either = set[str](), set[str]()
    glibc = [one.library.glibc for one in libraries if one.library is not None and one.library.glibc]
    for one in libraries:
        asked = set(one.library.needed) if one.library is not None else set()
        groups.setdefault(re.sub(r"\d+", "#", one.path), []).append(asked)
    for several in groups.values():
        common = set.intersection(*several)
        needed |= common
        either |= set.union(*several) - common
    outside = {name for name in needed | either if name not in inside and not _SYSTEM.fullmatch(name)}
    outside = {name for name in outside if not (_MANGLED.search(name) or name.startswith("libpython"))}
    return {
        "needed": sorted(outside & needed)[:_LISTED],
        "either": sorted(outside - needed)[:_LISTED],
        "glibc": max(glibc, key=key, default=None),
    }


def _symbols(libraries: Sequence[_Read]) -> Values:
    """PyTorch's symbols that it asks for, and by which of its interfaces."""
    asked = {
        symbol
        for one in libraries
        if one.library is not None and one.own
        for symbol in one.library.undefined
        if TORCH.match(symbol)
    }
    if not asked:
        return {}
    plain = {symbol for symbol in asked if not _STABLE.match(symbol)}
    return {"symbols": sorted(asked), "abi": "c++" if plain else "stable"}


def _code(libraries: Sequence[_Read]) -> Values:
    """GPU code: the widest list of a library's own, and what some kernels have beyond it.

    A library for one CUDA, ``libx_cuda124.so``, has a list of its own.
    """
    usual: dict[str, frozenset[str]] = {}
    some: set[str] = set()
    by_cuda: dict[str, list[str]] = {}
    ptx = [one.code.ptx for one in libraries if one.code.ptx is not None]
    for one in libraries:
        for_cuda = re.search(r"_cuda(\d{2})(\d)(?=[_.])", one.path)
        if one.code.containers:
            usual[one.path] = one.code.containers.most_common(1)[0][0]
            some |= set().union(*one.code.containers)
        if for_cuda:
            code = usual.get(one.path, frozenset())
            by_cuda[f"{for_cuda[1]}.{for_cuda[2]}"] = sorted(code, key=binary.order)
    widest = max(usual.values(), key=lambda code: (len(code), sorted(code)), default=frozenset[str]())
    return {
        "architectures": sorted(widest, key=binary.order),
        "other_code": sorted(some - widest, key=binary.order),
        "by_cuda": by_cuda,
        "ptx": f"{max(ptx)[0]}.{max(ptx)[1]}" if ptx else None,
    }


def read_symbols(file: IndexFile, client: Client, *, cache: Path | None = None) -> WheelReading:
    """The symbols that a PyTorch's small libraries define, as numbers of 48 bits, by library."""

    def read(reading: WheelReading) -> None:
        with zip_of(file, client, reading, limit=MOST) as archive:
            for entry in archive.entries():
                found = re.fullmatch(r"torch/lib/(libc10|libc10_cuda|libtorch_python)\.so", entry.filename)
                if found is None:
                    continue
                library = library_of(archive.content(entry), found[1], whole=True)
                if library is not None:
                    reading.values[found[1]] = sorted({number_of(symbol) for symbol in library.defined})

    return read_once(file, "symbols", read, lambda reading: bool(reading.values), cache=cache)


def read_source(file: IndexFile, client: Client, *, cache: Path | None = None) -> WheelReading:
    """The build files of a source archive, which is read up to the last of them."""

    def read(reading: WheelReading) -> None:
        packed = _whole(file, client)
        reading.transferred = len(packed)
        texts = _build_files(packed, file.name)
        # without PKG-INFO, as NVIDIA's stubs of 2024, what it asks for is known to nobody before it is built
        reading.metadata = metadata_head(texts.get("PKG-INFO", b""))
        reading.values = source_values(texts)
        reading.read = dict.fromkeys(reading.values, "build files")
        reading.beyond += [] if "PKG-INFO" in texts else ["requires"]

    return read_once(file, "source", read, lambda reading: reading.metadata is not None, cache=cache)


def _whole(file: IndexFile, client: Client) -> bytes:
    """An archive. Raises UnknownError."""
    with client.get(file.url, stream=True) as answer:
        if answer.status_code != 200:
            raise UnknownError(f"the server answers {answer.status_code}")
        packed = bytearray()
        for chunk in answer.iter_content(256 << 10):
            packed += chunk
            if len(packed) > _SOURCE:
                raise UnknownError(f"more than {_SOURCE >> 20} MiB of it would have to be read")
    if file.sha256 and hashlib.sha256(packed).hexdigest() != file.sha256:
        raise UnknownError("it does not have the checksum that the index gives")
    return bytes(packed)


def _build_files(packed: bytes, name: str) -> dict[str, bytes]:
    """``PKG-INFO``, ``pyproject.toml`` and ``setup.py`` of a source archive. Raises UnknownError."""
    found: dict[str, bytes] = {}
    try:
        for path, content in sdist_files(io.BytesIO(packed), name, _BUILD_FILES):
            if content is not None:
                found[PurePosixPath(path).name] = content
            if len(found) == 3:
                break
    except PackageIndexError as problem:
        raise UnknownError("it is no source archive that can be read") from problem
    return found


def source_values(texts: Mapping[str, bytes]) -> Values:
    """The needs of a compilation, by ``pyproject.toml`` and ``setup.py``."""
    setup = texts.get("setup.py", b"").decode("utf-8", "replace")
    try:
        project = tomllib.loads(texts.get("pyproject.toml", b"").decode("utf-8", "replace"))
        asked = project.get("build-system", {}).get("requires", [])
        builds = [text for text in asked if isinstance(text, str)][:_LISTED]
    except (tomllib.TOMLDecodeError, AttributeError, TypeError):
        builds = []
    needs = []
    if "torch.utils.cpp_extension" in setup or any(re.match(r"torch\b", text) for text in builds):
        needs.append("torch")
    if re.search(r"\bCUDAExtension\b|\bnvcc\b|\bCUDA_HOME\b", setup):
        needs.append("nvcc")
    if re.search(r"urllib\.request|\bwget\b|subprocess[^\n]*\bpip\b|pip[\"', ]+(?:install|download)", setup):
        needs.append("network")
    code = Counter(re.findall(r"code=(sm_\d+[af]?)", setup))
    oldest = re.findall(
        r"(?:CUDA|cuda|nvcc)\D{0,40}(\d\d\.\d)\D{0,3} (?:and|or) (?:above|newer|later|higher)", setup
    )
    return {
        name: value
        for name, value in {
            "builds": builds,
            "compiles": needs,
            "architectures": sorted(code, key=binary.order),
            "cuda": min(oldest, key=key, default=None),
        }.items()
        if value
    }
