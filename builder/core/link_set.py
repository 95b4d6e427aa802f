"""The link proof over wheels that nobody has installed: those of a lock, or of a resolved list.

What is known of a wheel's libraries is a :class:`LinkFile` each, which a table or a cache can keep.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from builder.core.elf import NO_LIBRARY, ElfFile, elf_links, elf_machine, elf_segments
from builder.core.link import (
    DRIVER_LIBRARIES,
    FRAMEWORK_CALLS,
    LinkProcess,
    ListedView,
    Opened,
    Search,
    import_framework,
)

SITE = "/site-packages"
"""Where the proof takes the wheels to lie: their run paths are relative."""
_BASE = "/base"
"""Where it takes the base's own libraries to lie."""
_EXTENSION = re.compile(r"(^|/)(?!lib)[^/]*\.so$")
_ELSEWHERE = re.compile(
    r"(?:rocm|hip|xpu|sycl|_amd|/amd|_metal|_npu)[^/]*(?:/|\.so)|/stubs/|(?:^|/)tests?/|\.data/data/"
)
"""Paths of libraries that no import opens beside CUDA: for other makers' cards, for linkers, for tests, or
outside of site-packages."""
_RUNTIME = re.compile(r"libcudart[^/]*\.so\.(\d+)")


@dataclass(frozen=True, kw_only=True)
class LinkFile:
    """The parts of a library that the loader goes by; plain values, which JSON can hold."""

    soname: str | None = None
    needed: tuple[str, ...] = ()
    rpath: str | None = None
    runpath: str | None = None
    asked: tuple[tuple[str, str, bool], ...] = ()
    """(file, version, weak) of versions of others' symbols."""
    offered: tuple[str, ...] | None = None
    """Versions of its own symbols; None if they have none."""

    def elf(self) -> ElfFile:
        """The file as the proof takes it; its symbols are unread."""
        return NO_LIBRARY._replace(
            kind=3,
            soname=self.soname,
            needed=list(self.needed),
            rpath=self.rpath,
            runpath=self.runpath,
            asked=lambda: list(self.asked),
            offered=lambda: None if self.offered is None else list(self.offered),
        )


def numberless(path: str) -> str:
    """A library's path without its numbers: of several that differ in a number alone, an import opens one."""
    return re.sub(r"\d+", "#", path)


_PART = re.compile(r"(?P<length>\d+)|B(?P<tag>\d+)|[CD][0-5]")


def stem(symbol: str) -> str | None:
    """The name of a function of ``c10`` without its arguments, mangled; None for another symbol, a template.

    Of https://itanium-cxx-abi.github.io/cxx-abi/abi.html#mangling, nested names alone.
    """
    begins = re.match(r"_ZNK?3c10", symbol)
    at, said = (begins.end(), begins[0]) if begins else (0, "")
    while found := _PART.match(symbol, at) if said else None:
        length = int(found["length"] or found["tag"] or 0)
        if length > len(symbol):
            return None
        end = found.end() + length
        said += symbol[at:end] if not found["tag"] else ""  # the tag tells the ABI of strings
        at = end
    return said if said and symbol[at : at + 1] == "E" else None


def number_of(symbol: str) -> int:
    """A symbol as a number of 48 bits, of which lists are a tenth as long."""
    return int.from_bytes(hashlib.sha256(symbol.encode()).digest()[:6], "little")


def other_forms(asked: Iterable[str], defined: Iterable[str]) -> list[str]:
    """Symbols that are asked for and not defined, if their function is defined in another form: with other
    arguments, or strings of another C++ ABI."""
    there = set(defined)
    stems = {stem(symbol) for symbol in there} - {None}
    return sorted(symbol for symbol in asked if symbol not in there and stem(symbol) in stems)


def link_file(read: Callable[..., bytes]) -> LinkFile | None:
    """A library's facts by its ``read``, as in :mod:`.elf`; None for what is none. Raises ValueError."""
    if elf_machine(read) is None:
        return None
    links = elf_links(read, elf_segments(read))
    if links is None:
        return None
    offered = links.offered()
    return LinkFile(
        soname=links.soname,
        needed=tuple(links.needed),
        rpath=links.rpath,
        runpath=links.runpath,
        asked=tuple(links.asked()),
        offered=None if offered is None else tuple(offered),
    )


@dataclass(frozen=True, kw_only=True)
class CudaSymbols:
    """The symbols of one of CUDA's libraries."""

    asked: Mapping[str, frozenset[str]]
    """Symbols that it cannot do without, by the name of CUDA's library that has to have them."""
    offered: frozenset[str]
    """Symbols that it has."""


@dataclass(frozen=True, kw_only=True)
class WheelLinks:
    """One wheel of a set."""

    name: str
    """Of the distribution, in its normal form."""
    version: str = ""
    files: Mapping[str, LinkFile]
    """By the path below site-packages."""
    digests: Mapping[str, str] = field(default_factory=dict)
    """Of each of these files, by one kind of hash; a path without one is taken for another content."""
    asks: frozenset[str] = frozenset()
    """Distributions that it requires: of the frameworks among them, the import comes first."""
    imports: tuple[str, ...] | None = None
    """The files that an import opens; None: its extension modules or, without any, all of its libraries."""
    numpy: Mapping[str, str] = field(default_factory=dict)
    """By file that asks for NumPy's C interface: the newest major release of it that it runs with."""
    numpy_api: int | None = None
    """The least API version of that interface that one of these asks for; None if any does not tell."""
    torch: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Symbols of PyTorch's namespace ``c10``, by file: what PyTorch's own libraries define, what others ask
    for."""
    torch_asked: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """All symbols of PyTorch that a file asks for, and that no other of the wheel defines."""
    torch_defined: frozenset[int] | None = None
    """Of PyTorch: the numbers of all of its symbols (:func:`number_of`); None if not all were read."""
    cuda: Mapping[str, "CudaSymbols"] = field(default_factory=dict)
    """Symbols of those of NVIDIA's own libraries that were read, by file."""
    unread: frozenset[str] = frozenset()
    """Files of which it is not known, or not surely, what they need: nothing that loads one is a yes."""

    @property
    def label(self) -> str:
        return f"{self.name} {self.version}".rstrip()


@dataclass(frozen=True, kw_only=True)
class SharedPath:
    """A path that several wheels own with different contents: the last one that is installed has it."""

    path: str
    owners: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class FileProof:
    """The result of an import of a wheel that opens one of its files, its frameworks being loaded."""

    wheel: str
    file: str
    opened: Opened
    """Paths in it are below :data:`SITE`."""
    certain: bool = True
    """False if it fails for want of a library that the set has in another place, where whoever is imported
    before may have loaded it from."""
    base: str | None = None
    """A library that it needs, of which nobody knows whether the base has it."""


@dataclass(frozen=True, kw_only=True)
class SetProof:
    """The link proof of a set. It is about files and versions; symbols are not in it."""

    files: tuple[FileProof, ...]
    shared: tuple[SharedPath, ...]
    runtimes: Mapping[str, tuple[str, ...]]
    """The majors of CUDA whose runtime a process with this wheel and its frameworks has, if more than one and
    not by its frameworks alone."""

    def loads(self, wheel: str) -> bool | None:
        """Whether a wheel finds what it needs: if any of its files does. None if nobody can say."""
        found = [proof for proof in self.files if proof.wheel == wheel]
        answers = [proof.opened.loads if proof.certain else None for proof in found]
        return True if True in answers or not answers else None if None in answers else False

    def broken(self, wheel: str) -> list[list[FileProof]]:
        """Its files that certainly fail. Those that are :func:`numberless` alike stand together, and only if
        all of them fail."""
        return [g for g in self._alike(wheel) if all(one.opened.loads is False and one.certain for one in g)]

    def doubtful(self, wheel: str) -> list[list[FileProof]]:
        """Its files, as :meth:`broken` has them, that load at best if the base has a library."""
        groups = (
            [one for one in g if one.opened.loads is not False or not one.certain] for g in self._alike(wheel)
        )
        return [g for g in groups if g and all(one.base is not None for one in g)]

    def _alike(self, wheel: str) -> Iterable[list[FileProof]]:
        groups: dict[str, list[FileProof]] = {}
        for proof in self.files:
            if proof.wheel == wheel:
                groups.setdefault(numberless(proof.file), []).append(proof)
        return groups.values()


def prove(
    wheels: Sequence[WheelLinks],
    *,
    cached: Iterable[str] = (),
    given: Iterable[str] = (),
    maybe: Iterable[str] = (),
    based: Mapping[str, Iterable[str]] | None = None,
    loaded: Collection[str] = (),
) -> SetProof:
    """The proof for wheels in the order of their installation.

    ``cached``: folders below site-packages that the recipe tells ``ldconfig``. ``given``: names that the base
    has, whatever versions are asked of them. ``maybe``: names of which nobody knows whether the base has
    them: nothing that needs one is a yes, nor is it a no for that. ``based``: libraries of the base with the
    versions of symbols that each has. ``loaded``: as :func:`is_loaded` has it.
    """
    owner: dict[str, list[WheelLinks]] = {}
    for wheel in wheels:
        for path in wheel.files:
            owner.setdefault(path, []).append(wheel)
    listed = {f"{SITE}/{path}": found[-1].files[path].elf() for path, found in owner.items()}
    folders = {f"{SITE}/{folder.strip('/')}" for folder in cached}
    cache = {
        name: path for path in listed if (parts := path.rpartition("/"))[0] in folders and (name := parts[2])
    }
    for name, offered in (based or {}).items():
        listed[f"{_BASE}/{name}"] = LinkFile(soname=name, offered=tuple(offered)).elf()
        cache.setdefault(name, f"{_BASE}/{name}")
    unread = {f"{SITE}/{path}" for path, found in owner.items() if path in found[-1].unread}
    copies = Counter(
        name for path, facts in listed.items() for name in {path.rpartition("/")[2], facts.soname} if name
    )
    there = {**dict.fromkeys((*given, *maybe), ""), **DRIVER_LIBRARIES}
    maybe = frozenset(maybe) - copies.keys() - DRIVER_LIBRARIES.keys()
    search = Search([], cache, [], [], None, there, True)
    process = LinkProcess(ListedView(listed), search, symbols=False)
    versions = {wheel.name: wheel.version for wheel in wheels}
    started: dict[frozenset[str], LinkProcess] = {frozenset(): process}
    proofs, runtimes = list[FileProof](), dict[str, tuple[str, ...]]()
    for wheel in wheels:
        frameworks = frozenset(FRAMEWORK_CALLS) & wheel.asks
        if frameworks not in started:
            started[frameworks] = _with_frameworks(
                process, {name: versions.get(name, "") for name in frameworks}
            )
        mine = started[frameworks].fork()
        if wheel.imports is None:
            import_framework(mine, wheel.name, wheel.version, SITE)  # what it opens first is loaded then
        for file in _opened_by(wheel, loaded):
            opened, certain = _opened(mine, f"{SITE}/{file}", copies, unread)
            base = _first_of(maybe, mine, f"{SITE}/{file}", unread) if opened.loads is not False else None
            if base is not None:
                text = f"nobody read whether the base has {base}"
                opened = opened._replace(loads=None, kind="doubt", text=text, library=base)
            proof = FileProof(wheel=wheel.name, file=file, opened=opened, certain=certain, base=base)
            proofs.append(proof)
        majors = _runtimes(mine)
        if len(majors) > 1 and majors != _runtimes(started[frameworks]):
            runtimes[wheel.name] = tuple(sorted(majors))
    shared = tuple(
        SharedPath(path=path, owners=tuple(one.name for one in found))
        for path, found in sorted(owner.items())
        if len(found) > 1 and len({one.digests.get(path, one.name) for one in found}) > 1
    )
    return SetProof(files=tuple(proofs), shared=shared, runtimes=runtimes)


def _opened(
    process: LinkProcess, path: str, copies: Mapping[str, int], unread: Collection[str]
) -> tuple[Opened, bool]:
    """The result of opening a file, and whether a failure is one whatever was imported before."""
    before = [one.path for one in process.loaded]
    trial = process.fork()
    opened = process.open(path)
    blind = [one for one in (*before, *(row.path for row in opened.rows)) if one in unread]
    if opened.loads and blind:
        text = f"nobody read what {blind[0].removeprefix(SITE + '/')} needs"
        return opened._replace(loads=None, kind="doubt", text=text, library=blind[0]), True
    if opened.loads is not False or _alone(opened, copies):
        return opened, True
    trial.search = trial.search._replace(given={**dict.fromkeys(copies, ""), **trial.search.given})
    again = trial.open(path)
    return (again, True) if again.loads is False and _alone(again, copies) else (opened, False)


def _first_of(names: Collection[str], process: LinkProcess, path: str, unread: Collection[str]) -> str | None:
    """The first of the names that a loaded file needs, directly or through others whose needs are surely
    known; None without one.
    """
    by_name = {name: one for one in process.loaded for name in one.names} if names else {}
    left = [path]
    for who in left:
        one = by_name.get(who) if who not in unread else None
        needed: list[str] = one.facts.needed if one is not None and one.facts is not None else []
        for name in needed:
            other = by_name.get(name)
            if other is not None and other.path is None and name in names:
                return name
            if other is not None and other.path is not None and other.path not in left:
                left.append(other.path)
    return None


def _alone(opened: Opened, copies: Mapping[str, int]) -> bool:
    """Whether no other file of the set has the name at fault."""
    number = copies.get((opened.library or "").rpartition("/")[2], 0)
    return number == 0 if opened.kind == "absent" else number <= 1


def _with_frameworks(process: LinkProcess, versions: Mapping[str, str]) -> LinkProcess:
    """A process in which these frameworks are imported, as far as they load; by their releases."""
    made = process.fork()
    for name, version in sorted(versions.items()):
        import_framework(made, name, version, SITE)
    return made


def _runtimes(process: LinkProcess) -> set[str]:
    """The majors of CUDA whose runtime is loaded."""
    return {found[1] for one in process.loaded if one.path and (found := _RUNTIME.search(one.path))}


def opened_by_import(name: str, paths: Iterable[str]) -> tuple[str, ...]:
    """The libraries of a wheel that its import may open, of those at ``paths``: what the import of a
    framework is known to, else its extension modules or, without any, all of them.
    """
    paths = tuple(paths)
    if name in FRAMEWORK_CALLS:
        return tuple(path for path, _ in FRAMEWORK_CALLS[name] if path in paths)
    files = [path for path in paths if not _ELSEWHERE.search(path)]
    return tuple(path for path in files if _EXTENSION.search(path)) or tuple(files)


def is_loaded(path: str, loaded: Collection[str]) -> bool:
    """Whether a library of a wheel is among those that imports certainly come to: dotted names of compiled
    modules, and names of files that modules open.
    """
    module = re.sub(r"(?:\.[\w-]+)*\.so", "", path).replace("/", ".")
    return module in loaded or path.rpartition("/")[2] in loaded


def _opened_by(wheel: WheelLinks, loaded: Collection[str]) -> Iterable[str]:
    if wheel.imports is not None:
        return wheel.imports
    more = (path for path in wheel.files if path.rpartition("/")[2] in loaded)
    return dict.fromkeys((*opened_by_import(wheel.name, wheel.files), *more))
