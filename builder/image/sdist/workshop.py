"""Builds a wheel from a source distribution: twice to lock it, and again from the lock, by hash."""

import hashlib
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from builder.core.digests import digest_of, file_sha256
from builder.core.errors import CellError, PackageIndexError
from builder.core.files import read_cached, write_cached, write_whole
from builder.core.model import Compilation, Sdist, Wheel, WheelSource
from builder.image.compose import Pythons, cached_rootfs
from builder.image.sandbox import Limits
from builder.image.sdist import wheel as wheels
from builder.image.sdist.bench import (
    COMPILING,
    INSIDE,
    WRAPPER,
    BuildEnvironment,
    build_system,
    laid_out,
    unpack,
)
from builder.plan.lock import BuildRoot, choose_sdist
from builder.sources.debian import Debian
from builder.sources.index import Index, LocalWheel, Target, cache_path, host_platform

_FORMAT = 1
"""To be raised when the same source comes out as another wheel."""


@dataclass(frozen=True, kw_only=True)
class Workshop:
    """Builds wheels and keeps them in the cache beside fetched ones."""

    debian: Debian
    cache: Path
    limits: Limits = field(default_factory=Limits)
    cancel: threading.Event = field(default_factory=threading.Event)
    progress: Callable[[str], None] = field(default=lambda _text: None)

    def lock(
        self,
        sdist: Sdist,
        *,
        index: Index,
        target: Target,
        system: BuildRoot,
        pins: Sequence[str] = (),
        needs: Sequence[str] | None = None,
        inner: bool = False,
    ) -> LocalWheel:
        """Resolve the requirements of the build, and build the wheel twice.

        With ``needs`` it may be compiled, in a ``system`` that has a compiler and those Debian packages.
        A requirement of which the index has only sources is built first, in the same way, as ``inner``; its
        own build has to do with wheels.

        ``pins`` are the cell's own requirements: a version of setuptools among them is the one that builds.

        Raises:
            CellError: it cannot be built, is neither pure Python nor compiled for the cell, or two builds
                differ.
            PackageIndexError: the index did not give the sources, or what the build requires.
            MissingToolError: this machine cannot run foreign code shut in.
        """
        self.progress(f"building {sdist.file}")
        archive = index.fetch(sdist, cache=self.cache)
        sdist = replace(sdist, size=archive.stat().st_size)
        compiled = None if needs is None else Compilation(needs=tuple(needs), libraries=())
        source = WheelSource(
            sdist=sdist,
            requires=(),
            system=system.base,
            python=target.python,
            compiled=compiled,
            interpreter=system.interpreter,
        )
        build = partial(
            self.lock, index=index, target=target, system=system, pins=pins, needs=needs, inner=True
        )
        with self._bench(source, archive) as bench:
            requirements = _Requirements(
                bench=bench,
                index=index,
                target=replace(target, python=bench.python, platform=host_platform()),
                pins=pins,
                build=None if inner else build,
            )
            source = replace(source, requires=requirements.lay())
            if (known := self._known(source)) is not None:
                return known
            name, content = bench.build()
            different = wheels.differing((name, content), bench.build())
            if different:
                said = f"{sdist.file} does not come out the same when it is built twice: {different}"
                hint = "it holds a time or random data: pin another version, or name an index with a wheel"
                raise CellError(said, hint=hint)
            if compiled is not None:
                compiled = replace(compiled, libraries=bench.libraries(content))
                source = replace(source, compiled=compiled)
        return self._keep(name, wheels.normalised(content), source)

    def make(self, wheel: Wheel, index: Index) -> Path:
        """The file of a locked wheel, built again if it is not in the cache.

        Raises CellError if it differs from the locked one.
        """
        path = cache_path(wheel, self.cache)
        source = wheel.source
        if source is None:
            raise ValueError(f"{wheel.file} is not built here")
        if path.is_file() and file_sha256(path) == wheel.sha256:
            return path
        self.progress(f"building {wheel.file} from {source.sdist.file}")
        for required in source.requires:
            if required.source is not None:
                self.make(required, index)
        archive = index.fetch(source.sdist, cache=self.cache)
        with self._bench(source, archive) as bench:
            bench.lay(source.requires, index)
            name, content = bench.build()
        data = wheels.normalised(content)
        sha256 = hashlib.sha256(data).hexdigest()
        if (name, sha256) != (wheel.file, wheel.sha256):
            raise CellError(
                f"{source.sdist.file} was built to {name} with sha256:{sha256}, but the lock has "
                f"{wheel.file} with sha256:{wheel.sha256}: its build depends on the machine",
                hint="nothing was put into an image; `rtbuild lock --upgrade-only "
                f"{wheel.name}` locks what comes out here",
            )
        return self._keep(name, data, source).path

    def _keep(self, name: str, data: bytes, source: WheelSource) -> LocalWheel:
        wheel = _wheel(source, name, hashlib.sha256(data).hexdigest(), len(data))
        path = cache_path(wheel, self.cache)
        write_whole(path, data)
        note: dict[str, Any] = {"file": wheel.file, "sha256": wheel.sha256}
        if source.compiled is not None:
            note["libraries"] = list(source.compiled.libraries)
        write_cached(self._note(source), note)
        return LocalWheel(wheel=wheel, path=path)

    def _known(self, source: WheelSource) -> LocalWheel | None:
        """The wheel that this machine built from this source, if it is still there."""

        def told(said: dict[str, Any]) -> LocalWheel | None:
            made_of = source
            if source.compiled is not None:
                compiled = replace(source.compiled, libraries=tuple(said["libraries"]))
                made_of = replace(source, compiled=compiled)
            wheel = _wheel(made_of, said["file"], said["sha256"])
            path = cache_path(wheel, self.cache)
            if file_sha256(path) != wheel.sha256:
                return None
            return LocalWheel(wheel=replace(wheel, size=path.stat().st_size), path=path)

        return read_cached(self._note(source), told)

    def _note(self, source: WheelSource) -> Path:
        document = {
            "format": _FORMAT,
            "sdist": source.sdist.sha256,
            "requires": sorted(wheel.sha256 for wheel in source.requires),
            "system": [deb.sha256 for deb in source.system.debs],
            "python": source.python,
            "inside": hashlib.sha256(INSIDE.read_bytes()).hexdigest(),
        }
        if source.interpreter is not None:
            document["interpreter"] = source.interpreter.sha256
        if source.compiled is not None:
            document["wrapper"] = hashlib.sha256(WRAPPER).hexdigest()
        return self.cache / "built" / f"{digest_of(document).removeprefix('sha256:')}.json"

    @contextmanager
    def _bench(self, made_of: WheelSource, archive: Path) -> Iterator[BuildEnvironment]:
        rootfs = cached_rootfs(made_of.system, cache=self.cache, fetch=self.debian.fetch)
        python = made_of.interpreter
        tars = (rootfs,) if python is None else (rootfs, Pythons(self.cache).tar(python))
        compiles = made_of.compiled is not None
        with laid_out(*tars) as root, tempfile.TemporaryDirectory(prefix="rtbuild-sdist-") as name:
            folder = Path(name)
            source = unpack(archive, folder / "sdist")
            yield BuildEnvironment(
                sdist=made_of.sdist,
                root=root,
                folder=folder,
                source=source,
                system=build_system(source, what=made_of.sdist.file),
                compiles=compiles,
                cache=self.cache,
                limits=COMPILING if compiles else self.limits,
                cancel=self.cancel,
            )


def _wheel(source: WheelSource, file: str, sha256: str, size: int = 0) -> Wheel:
    name, version = canonicalize_name(source.sdist.name), source.sdist.version
    return Wheel(name=name, version=version, file=file, sha256=sha256, size=size, source=source)


@dataclass(frozen=True, kw_only=True)
class _Requirements:
    """The requirements of a build, and the means to resolve them."""

    bench: BuildEnvironment
    index: Index
    target: Target
    pins: Sequence[str]
    """The cell's own requirements."""
    build: Callable[[Sdist], LocalWheel] | None

    def lay(self) -> tuple[Wheel, ...]:
        """Resolve what the project names, then what its backend adds, and lay it on the bench."""
        asked = self.bench.system.requires
        requires = self._resolve(asked)
        self.bench.lay(requires, self.index)
        if more := self.bench.requires_of_hook():
            requires = self._resolve([*asked, *more])
            self.bench.lay(requires, self.index)
        return requires

    def _resolve(self, asked: Sequence[str]) -> tuple[Wheel, ...]:
        """The wheels that the build requires, with the cell's own pins on the same packages if possible.

        Of what no index has wheels of, as pycairo for PyGObject, the system's own packages do; others are
        made by ``build``.
        """
        names = {canonicalize_name(Requirement(text).name) for text in asked}
        same = [text for text in self.pins if canonicalize_name(Requirement(text).name) in names]
        resolve = partial(self.index.resolve, target=self.target)
        if same:
            try:
                return resolve([*asked, *same])
            except PackageIndexError:
                pass  # the project wants another version, and its word counts
        try:
            return resolve(list(asked)) if asked else ()
        except PackageIndexError:
            own = self.bench.distributions() if self.bench.compiles else {}
            left = [text for text in asked if not _has(own, Requirement(text))]
            made = [self.build(sdist) for sdist in self._only_sources(left, same)] if self.build else []
            if len(left) == len(asked) and not made:
                raise
            return resolve(left, built=made) if left else ()

    def _only_sources(self, asked: Sequence[str], pins: Sequence[str]) -> Iterator[Sdist]:
        """The sources of the requirements that have no wheel, at the version of ``pins``."""
        for wanted in map(Requirement, asked):
            if wanted.marker is not None and not wanted.marker.evaluate(self.target.environment):
                continue
            for pin in map(Requirement, pins):
                if canonicalize_name(pin.name) == canonicalize_name(wanted.name):
                    wanted.specifier &= pin.specifier
            try:
                sdist = choose_sdist(wanted, self.index.offers(wanted.name), self.target)
            except PackageIndexError:
                continue  # the resolver's own words say more
            if sdist is not None:
                yield sdist


def _has(versions: Mapping[str, str], wanted: Requirement) -> bool:
    version = versions.get(canonicalize_name(wanted.name))
    return version is not None and wanted.specifier.contains(version, prereleases=True)
