"""The packages of a runtime that an index has at the same version, and reasons for the others."""

import re
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal
from urllib.parse import unquote, urlsplit

from packaging.tags import Tag
from packaging.utils import canonicalize_name
from packaging.version import Version

from builder.core.errors import CellError, PackageIndexError
from builder.core.items import item
from builder.core.model import Compilation
from builder.plan.facts.reading import read_wheel
from builder.plan.lock import sdist_version
from builder.release.colab.parse import PipPackage
from builder.sources.index import Index, IndexFile, Target, rank, takes, wheel_name

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
        for match in pool.map(asker.match, packages):  # a silent index leaves the others unasked
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

    def match(self, package: PipPackage) -> Match:
        try:
            with item(package.name):
                return self._match(package)
        except PackageIndexError:
            raise
        except CellError as error:
            return _no(package, "unread", error.message)

    def _match(self, package: PipPackage) -> Match:
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
        """What stands on the index for ``jaxlib 0.4.26+cuda12.cudnn89``, if it is all there: since 2024 JAX's
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
