"""The packages of a runtime that an index has at the same version, those that are built from its sources, and
reasons for the others.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal
from urllib.parse import unquote, urlsplit

from packaging.requirements import Requirement
from packaging.tags import Tag
from packaging.utils import canonicalize_name
from packaging.version import Version

from builder.core.errors import CellError, CommandError, PackageIndexError
from builder.core.items import item
from builder.core.model import Base, Compilation, Sdist, StandalonePython
from builder.image.sdist import COMPILED, LACKS, NETWORK
from builder.plan.facts.reading import read_wheel
from builder.plan.facts.tables import load
from builder.plan.lock import (
    BuildRoot,
    SdistBuilder,
    build_root,
    choose_sdist,
    compiler_system,
    sdist_version,
    suite_of,
)
from builder.release.colab.runtimes import PipPackage
from builder.sources.debian import Debian
from builder.sources.index import Index, IndexFile, LocalWheel, Target, host_platform, rank, takes, wheel_name

Progress = Callable[[str, int, int], None]
"""Told of the work in words, how many are done, and of how many."""
Reason = Literal[
    "own",  # Google's own package, published nowhere
    "repository",  # installed from a version control system
    "address",  # installed from an address that is no wheel of an index
    "absent",  # the index has no such project
    "vanished",  # the project is there, this version is not
    "source-only",  # no wheel of this version, only sources
    "python",  # wheels, but none for this Python
    "platform",  # wheels, but none for Linux on this machine
    "other-build",  # the same version, compiled for another CUDA
    "unread",  # what the index says of it cannot be read
]

_THREADS = 16
"""Project pages are small, and most of the time goes by in waiting for them."""
# The index of PyTorch's wheels with a label such as +cu124: https://pytorch.org/get-started/locally/
_TORCH_INDEX = "https://download.pytorch.org/whl/{}"


@dataclass(frozen=True, kw_only=True)
class Match:
    """One package of the runtime, with either a ``requirement`` or the ``reason`` why it has none."""

    package: PipPackage
    requirement: str | None = None
    """``torch==2.6.0``, for the matrix."""
    index: str | None = None
    """The further index that ``requirement`` needs, or that has the package as far as its name says."""
    reason: Reason | None = None
    detail: str = ""
    """The reason in words; for a match, a remark on it."""
    beside: tuple[str, ...] = ()
    """Requirements that the matrix needs beside it: the plug-in with what the runtime's wheel has inside."""
    file: IndexFile | None = None
    """The wheel that was found."""
    built: Path | None = None
    """The wheel that was built, if the index has only sources."""
    compiled: Compilation | None = None
    """Set if a compiler was needed: the wheel is for images on that Debian release alone."""


@dataclass(frozen=True, kw_only=True)
class Matching:
    matches: tuple[Match, ...]
    silent: tuple[str, ...]
    """Why further indexes that the runtime names were not asked."""

    @property
    def found(self) -> tuple[Match, ...]:
        return tuple(match for match in self.matches if match.requirement is not None)

    @property
    def missing(self) -> tuple[Match, ...]:
        return tuple(match for match in self.matches if match.requirement is None)

    @property
    def unasked(self) -> dict[str, str]:
        """The index that did not answer, by the name of each package that only it may have."""
        silent = ((m.package.name, m.index) for m in self.matches if m.file is None)
        return {name: _own_index(index) for name, index in silent if index is not None}


def match_packages(
    packages: Sequence[PipPackage],
    *,
    index: Index,
    target: Target,
    progress: Progress = lambda _text, _done, _of: None,
) -> Matching:
    """Ask the user's index about every package.

    Raises:
        PackageIndexError: the user's own index did not answer. One that only the runtime names may be silent.
    """
    named = further_indexes(packages)
    silent = _silent(named, index)
    asker = _Asker(index=index, target=target, fitting=target.tags(), named=named, silent=silent)
    found: list[Match] = []
    with ThreadPoolExecutor(_THREADS) as pool:
        for match in pool.map(asker.ask, packages):  # a silent index leaves the others unasked
            found.append(match)
            progress(f"asking for {match.package.name}", len(found), len(packages))
    return Matching(matches=tuple(found), silent=tuple(silent.values()))


def further_indexes(packages: Sequence[PipPackage]) -> dict[PipPackage, str]:
    """The further index of each package that needs one.

    A freeze names NVIDIA's index only for wheels with an address; the other packages of NVIDIA, such as
    ``cuml-cu12``, come from there too.
    """
    named = {package: further for package in packages if (further := further_index(package)) is not None}
    makers = {further for package, further in named.items() if _of_nvidia(package)}
    if len(makers) == 1:
        named |= {package: next(iter(makers)) for package in packages if _of_nvidia(package)}
    return named


def _of_nvidia(package: PipPackage) -> bool:
    return re.search(r"-cu\d\d$", package.key) is not None and not package.key.startswith("nvidia-")


def further_index(package: PipPackage) -> str | None:
    """The index that a wheel's address lies on, or that PyTorch's label of a CUDA version stands for."""
    if package.kind == "wheel" and package.url is not None:
        parts = urlsplit(package.url)
        folder, _, _ = parts.path.rpartition("/")
        above, _, project = folder.rpartition("/")
        if canonicalize_name(project) == package.key:
            folder = above
        elif canonicalize_name(unquote(project)) != package.key and not re.search(r"/whl/\w+$", folder):
            return None  # a file by itself, as on a page of releases
        return f"{parts.scheme}://{parts.netloc}{folder}"
    label = Version(package.version).local if package.version else None
    if package.key.startswith("torch") and label and re.fullmatch(r"cu\d+|cpu", label):
        return _TORCH_INDEX.format(label)
    return None


def _silent(named: Mapping[PipPackage, str], index: Index) -> dict[str, str]:
    """Why a further index does not answer, by its address. Each is asked once, for one wait at most."""
    silent: dict[str, str] = {}
    for url, example in sorted({url: package for package, url in named.items()}.items()):
        try:
            index.with_extra((url,)).offers_of(url, example.key)
        except PackageIndexError as problem:
            silent[url] = problem.message
    return silent


@dataclass(frozen=True, kw_only=True)
class _Asker:
    index: Index
    target: Target
    fitting: Mapping[Tag, int]
    named: Mapping[PipPackage, str]
    silent: Mapping[str, str]

    def ask(self, package: PipPackage) -> Match:
        try:
            with item(package.name):
                return self._ask(package)
        except PackageIndexError:
            raise
        except CellError as error:
            return _no(package, "unread", error.message)

    def _ask(self, package: PipPackage) -> Match:
        if package.key == "google-colab":
            return _no(package, "own", "Google's own package, published nowhere")
        if package.kind == "vcs":
            return _no(package, "repository", f"installed from a repository: {package.url}")
        if package.version is None or package.kind == "url":
            return _no(package, "address", f"installed from an address that is no wheel: {package.url}")
        first = self._on_default(package, package.version)
        further = self.named.get(package)
        if first.requirement is not None or further is None:
            return first
        if further in self.silent:
            return _unasked(first, further)
        return self._on_further(package, package.version, further) or first

    def _on_default(self, package: PipPackage, version: str) -> Match:
        files = self.index.offers(package.name)
        if not files and package.kind == "wheel":
            return _no(package, "address", f"not on the index; installed from {package.url}")
        if not files and package.kind == "file":
            return _no(package, "own", f"not on the index; built by Google ({package.url})")
        if not files:
            return _no(package, "absent", "the index has no project of this name")
        wanted = Version(version)
        same = [file for file in files if _is(file, wanted.public)]
        best = self._best(same)
        if best is None:
            return self._why_not(package, version, files, same)
        if wanted.local is not None and not _is(best, version, local=True):
            return self._by_its_word(package, wanted, best)
        match = Match(package=package, requirement=f"{package.name}=={version}", file=best)
        return replace(match, detail=_remark(package, best))

    def _by_its_word(self, package: PipPackage, wanted: Version, best: IndexFile) -> Match:
        """A wheel without a label in its name is the same build if its own code says so."""
        match = Match(package=package, requirement=f"{package.name}=={wanted.public}", file=best)
        if plugins := self._plugins(package, wanted):
            detail = f"Colab's has CUDA inside; the index has it beside, as {' and '.join(plugins)}"
            return replace(match, beside=plugins, detail=detail)
        declared = read_wheel(best, self.index.client).values.get("version")  # with its CUDA: 2.6.0+cu124
        if declared == str(wanted):
            return replace(match, detail=f"the index's wheel says {declared} of itself: the same build")
        says = f"says {declared}" if isinstance(declared, str) else "does not say for which CUDA it is"
        return _no(package, "other-build", f"the index's wheel of {wanted.public} {says}")

    def _plugins(self, package: PipPackage, wanted: Version) -> tuple[str, ...]:
        """The plug-ins on the index for ``jaxlib 0.4.26+cuda12.cudnn89``, if all are there: since 2024 JAX's
        code for CUDA is a plug-in. https://docs.jax.dev/en/latest/changelog.html
        """
        cuda = re.match(r"cuda\d+", wanted.local or "") if package.key == "jaxlib" else None
        names = [f"jax-{cuda[0]}-{part}" for part in ("plugin", "pjrt")] if cuda is not None else []
        for name in names:
            if self._best([file for file in self.index.offers(name) if _is(file, wanted.public)]) is None:
                return ()
        return tuple(f"{name}=={wanted.public}" for name in names)

    def _on_further(self, package: PipPackage, version: str, further: str) -> Match | None:
        offered = self.index.with_extra((further,)).offers_of(further, package.name)
        best = self._best([file for file in offered if _is(file, version, local=True)])
        if best is None:
            return None
        return Match(package=package, requirement=f"{package.name}=={version}", index=further, file=best)

    def _best(self, files: Sequence[IndexFile]) -> IndexFile | None:
        ranked = [
            (key, file.name, file)
            for file in files
            if takes(file.requires_python, self.target.python)
            and (key := rank(file.name, self.fitting)) is not None
        ]
        return min(ranked, key=lambda row: row[:2])[2] if ranked else None

    def _why_not(
        self, package: PipPackage, version: str, files: Sequence[IndexFile], same: Sequence[IndexFile]
    ) -> Match:
        if not same:
            if any(sdist_version(file, package.name) == version for file in files):
                return _no(package, "source-only", f"the index has only the sources of {version}, no wheel")
            return _no(package, "vanished", f"the index no longer has {version}")
        tags = {tag for file in same if (wheel := wheel_name(file.name)) for tag in wheel.tags}
        ours = [tag for tag in tags if "linux" in tag.platform or tag.platform == "any"]
        if not ours:
            systems = sorted({tag.platform.split("_")[0] for tag in tags})
            return _no(package, "platform", f"wheels of {version} only for {', '.join(systems)}")
        pythons = sorted({tag.interpreter for tag in ours})
        place = f"Python {self.target.python}, {self.target.machine}, glibc {self.target.glibc}"
        return _no(package, "python", f"no wheel of {version} for {place}; there are {', '.join(pythons)}")


def _unasked(first: Match, further: str) -> Match:
    """The match if the further index is silent; ``first`` is the match of the user's own index."""
    package = first.package
    if first.reason == "other-build":  # the matrix names the right one, which locks once its index answers
        wanted = f"{package.name}=={package.version}"
        note = "PyTorch's own index did not answer: not looked at"
        return Match(package=package, requirement=wanted, index=further, detail=note)
    detail = f"{first.detail}; {_own_index(further)}, which has it, does not answer"
    return replace(first, index=further, detail=detail)


def _own_index(url: str) -> str:
    host = urlsplit(url).hostname or ""
    maker = next((name for name in ("PyTorch", "NVIDIA") if f"{name.lower()}." in host), None)
    return f"{maker}'s own index" if maker else f"the index at {host}"


def _no(package: PipPackage, reason: Reason, detail: str) -> Match:
    return Match(package=package, reason=reason, detail=detail)


def _remark(package: PipPackage, file: IndexFile) -> str:
    remarks = []
    if package.kind == "file":
        remarks.append("Colab has a build of Google's own; this is the index's of the same version")
    theirs = unquote((package.url or "").partition("#")[0]).rpartition("/")[2]
    if package.kind == "wheel" and theirs != file.name:
        remarks.append("another file than Colab's, of the same version")
    if file.yanked is not None:
        remarks.append(f"taken back by its maker: {file.yanked}")
    return "; ".join(remarks)


def _is(file: IndexFile, version: str, *, local: bool = False) -> bool:
    """Whether a file is a wheel of this version; without ``local`` a label after '+' does not count."""
    wheel = wheel_name(file.name)
    if wheel is None:
        return False
    return (wheel.version if local else Version(wheel.version.public)) == Version(version)


_BUILDERS = 2
"""Builds take a processor each."""
_TRIED = frozenset({"source-only", "python", "platform"})
"""Reasons for which there may be sources all the same."""


def build_missing(
    matching: Matching,
    *,
    index: Index,
    target: Target,
    debian: Debian,
    workshop: SdistBuilder,
    interpreter: StandalonePython | None = None,
    suite: str | None = None,
    progress: Progress = lambda _text, _done, _of: None,
) -> Matching:
    """The matching with the missing packages that could be built; each other one with the reason.

    What is not pure Python is compiled in the Debian release ``suite``, if this machine is of the runtime's
    kind: with the packages that the table of builds has for it, or with a compiler alone. ``interpreter`` is
    the runtime's Python, if no release has it.

    Raises:
        PackageIndexError: the index or the Debian archive did not answer.
        MissingToolError: nothing can be built on this machine.
    """
    tried = [match for match in matching.missing if match.reason in _TRIED]
    if not tried:
        return matching
    done: list[Match] = []
    if interpreter is None and suite_of(target.python) is None:
        reason = CellError(f"there is no Python {target.python} here to build with")
        done = [_not_built(match, reason) for match in tried]
    else:
        builder = _Builder(
            index=index,
            target=target,
            debian=debian,
            workshop=workshop,
            pins=[match.requirement for match in matching.found if match.requirement is not None],
            system=build_root(target.python, interpreter, debian=debian, pythons=None),
            suite=(suite or suite_of(target.python)) if target.platform == host_platform() else None,
        )
        with ThreadPoolExecutor(_BUILDERS) as pool:
            try:
                for match in pool.map(builder.build, tried):
                    done.append(match)
                    progress(f"building {match.package.name}", len(done), len(tried))
            except BaseException:
                workshop.cancel.set()  # those that run now would take minutes
                raise
    by_key = {match.package.key: match for match in done}
    return replace(matching, matches=tuple(by_key.get(m.package.key, m) for m in matching.matches))


@dataclass(frozen=True, kw_only=True)
class _Builder:
    index: Index
    target: Target
    debian: Debian
    workshop: SdistBuilder
    pins: Sequence[str]
    system: BuildRoot
    suite: str | None
    """The Debian release to compile in; None if nothing can be compiled."""

    def build(self, match: Match) -> Match:
        package = match.package
        wanted = Requirement(f"{package.name}=={package.version}")
        try:
            sdist = choose_sdist(wanted, self.index.offers(package.name), self.target)
            if sdist is None:
                return match
            built, how = self._built(sdist, load().build_needs(package.key, sdist.version))
        except CellError as problem:
            return _not_built(match, problem)
        return replace(
            match,
            requirement=str(wanted),
            reason=None,
            detail=f"the index has only sources: {how}",
            built=built.path,
            compiled=None if built.wheel.source is None else built.wheel.source.compiled,
        )

    def _built(self, sdist: Sdist, needs: Sequence[str] | None) -> tuple[LocalWheel, str]:
        """The wheel, and how it came about. Of two builds that fail, the second one's reason counts."""
        lock = partial(self.workshop.lock, sdist, index=self.index, pins=self.pins)
        try:
            return lock(target=self.target, system=self.system), f"built from {sdist.file}"
        except CellError as problem:
            of_code = (problem.hint or "").startswith(COMPILED)
            if self.suite is None or (needs is None and not of_code):
                raise
        base, needs = Base(kind="rootfs", name=f"debian/{self.suite}"), needs or ()
        target, python = replace(self.target, glibc=load().systems[base.name].glibc), self.system.interpreter
        root = compiler_system(
            base, needs, platform=target.platform, debian=self.debian, python=python is None
        )
        built = lock(target=target, system=BuildRoot(base=root, interpreter=python), needs=needs)
        return built, f"compiled in Debian {self.suite}, for images on it alone"


def _not_built(match: Match, problem: CellError) -> Match:
    return replace(match, detail=f"{match.detail}; not built from them: {_why(problem)}")


def _why(problem: CellError) -> str:
    """The line that says most: a build's own last words, if it failed by itself and was not stopped."""
    said = problem.message
    if isinstance(problem, CommandError) and problem.tail and said.endswith("failed"):
        said = problem.tail[-1].strip()
    cause = problem.hint.partition(":")[0] if isinstance(problem, CommandError) and problem.hint else ""
    known = cause if cause.startswith((LACKS, NETWORK, COMPILED)) else ""
    return known or said.splitlines()[0][:160]
