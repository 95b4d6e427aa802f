"""From a source distribution to a wheel: once to lock it, twice over; and again from the lock, by hash."""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from builder.digests import digest_of, file_sha256
from builder.errors import CellError, PackageIndexError
from builder.files import write_whole
from builder.layers.archive import Archive
from builder.layers.rootfs import cached_rootfs
from builder.lock.index import cache_path
from builder.lock.sources import Built, host_platform
from builder.model import Source, Wheel
from builder.sdist import wheel as wheels
from builder.sdist.confined import Limits, run_confined
from builder.sdist.system import laid_out
from builder.sdist.unpack import BuildSystem, build_system, refuse_address, unpack

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from builder.lock.debian import Debian
    from builder.lock.index import Index
    from builder.lock.target import Target
    from builder.model import RootfsBase, Sdist

_INSIDE = Path(__file__).with_name("inside.py")
_EPOCH = 315619200
"""1980-01-02: what zip files can hold, and what does not depend on whether an index gives upload times."""
_FORMAT = 1
"""To be raised when the same source comes out as another wheel."""


@dataclass(frozen=True, kw_only=True)
class Workshop:
    """Builds wheels; what was built is kept in the cache, where fetched wheels are."""

    debian: Debian
    cache: Path
    limits: Limits = field(default_factory=Limits)
    cancel: threading.Event = field(default_factory=threading.Event)
    progress: Callable[[str], None] = field(default=lambda _text: None)

    def lock(
        self, sdist: Sdist, *, index: Index, target: Target, system: RootfsBase, pins: Sequence[str] = ()
    ) -> Built:
        """Find out what the wheel needs to be built, and build it twice.

        ``pins`` are the cell's own requirements: where it names a version of setuptools, that one builds.

        Raises:
            CellError: it cannot be built, is not pure Python, or two builds differ.
            PackageIndexError: the index did not give the sources, or what the build requires.
            MissingToolError: this machine cannot run foreign code shut in.
        """
        self.progress(f"building {sdist.file}")
        archive = index.fetch(sdist, cache=self.cache)
        sdist = replace(sdist, size=archive.stat().st_size)
        with self._bench(sdist, archive, system) as bench:
            asked = bench.system.requires
            requires = _resolve(asked, index, target, pins)
            bench.lay(requires, index)
            more = bench.requires_of_hook()
            if more:
                requires = _resolve((*asked, *more), index, target, pins)
                bench.lay(requires, index)
            source = Source(sdist=sdist, requires=requires, system=system, python=target.python)
            known = self._known(source)
            if known is not None:
                return known
            name, content = bench.build(target.python)
            again_name, again = bench.build(target.python)
        different = wheels.differing(content, again)
        if name != again_name or different:
            files = ", ".join(different[:8]) or f"{name} and {again_name}"
            raise CellError(
                f"{sdist.file} does not come out the same when it is built twice: {files}",
                hint="a time or chance is in it: pin another version, or name an index that has a wheel",
            )
        return self._keep(name, wheels.normalised(content), source)

    def make(self, wheel: Wheel, index: Index) -> Path:
        """The file of a locked wheel, built again where it is not in the cache.

        Raises CellError where it does not come out as it was locked.
        """
        path = cache_path(wheel, self.cache)
        source = wheel.source
        if source is None:
            raise ValueError(f"{wheel.file} is not built here")
        if path.is_file() and file_sha256(path) == wheel.sha256:
            return path
        self.progress(f"building {wheel.file} from {source.sdist.file}")
        archive = index.fetch(source.sdist, cache=self.cache)
        with self._bench(source.sdist, archive, source.system) as bench:
            bench.lay(source.requires, index)
            name, content = bench.build(source.python)
        built = self._keep(name, wheels.normalised(content), source)
        if (built.wheel.file, built.wheel.sha256) != (wheel.file, wheel.sha256):
            raise CellError(
                f"{source.sdist.file} was built to {built.wheel.file} with sha256:{built.wheel.sha256}, and "
                f"the lock has {wheel.file} with sha256:{wheel.sha256}: its build depends on the machine",
                hint="nothing was put into an image; `rtbuild lock --upgrade-package "
                f"{wheel.name}` locks what comes out here",
            )
        return built.path

    def _keep(self, name: str, data: bytes, source: Source) -> Built:
        wheel = Wheel(
            name=canonicalize_name(source.sdist.name),
            version=source.sdist.version,
            file=name,
            sha256=hashlib.sha256(data).hexdigest(),
            size=len(data),
            source=source,
        )
        path = cache_path(wheel, self.cache)
        write_whole(path, data)
        write_whole(self._note(source), json.dumps({"file": wheel.file, "sha256": wheel.sha256}).encode())
        return Built(wheel=wheel, path=path)

    def _known(self, source: Source) -> Built | None:
        """What this very source came out as on this machine, if it is still there."""
        try:
            said: dict[str, Any] = json.loads(self._note(source).read_text("utf-8"))
            wheel = Wheel(
                name=canonicalize_name(source.sdist.name),
                version=source.sdist.version,
                file=said["file"],
                sha256=said["sha256"],
                size=0,
                source=source,
            )
            path = cache_path(wheel, self.cache)
            if file_sha256(path) != wheel.sha256:
                return None
        except (OSError, ValueError, KeyError, TypeError):
            return None  # never built here, or removed
        return Built(wheel=replace(wheel, size=path.stat().st_size), path=path)

    def _note(self, source: Source) -> Path:
        document = {
            "format": _FORMAT,
            "sdist": source.sdist.sha256,
            "requires": sorted(wheel.sha256 for wheel in source.requires),
            "system": [deb.sha256 for deb in source.system.debs],
            "python": source.python,
            "inside": hashlib.sha256(_INSIDE.read_bytes()).hexdigest(),
        }
        return self.cache / "built" / f"{digest_of(document).removeprefix('sha256:')}.json"

    @contextmanager
    def _bench(self, sdist: Sdist, archive: Path, system: RootfsBase) -> Iterator[_Bench]:
        fetch = partial(self.debian.fetch, cache=self.cache)
        root = laid_out(cached_rootfs(system, cache=self.cache, fetch=fetch))
        with tempfile.TemporaryDirectory(prefix="rtbuild-sdist-") as name:
            folder = Path(name)
            source = unpack(archive, folder / "sdist")
            yield _Bench(
                sdist=sdist,
                root=root,
                folder=folder,
                source=source,
                system=build_system(source, what=sdist.file),
                workshop=self,
            )


@dataclass(frozen=True, kw_only=True)
class _Bench:
    """A system with one project's sources beside it."""

    sdist: Sdist
    root: Path
    folder: Path
    """What is this build's own: ``sdist`` and ``requires``."""
    source: Path
    system: BuildSystem
    workshop: Workshop

    def lay(self, requires: Sequence[Wheel], index: Index) -> None:
        """Put the files of wheels where the build's Python finds them; those of an earlier call go."""
        target = self.folder / "requires"
        if target.exists():
            shutil.rmtree(target)
        target.mkdir()
        paths = index.fetch_all(requires, cache=self.workshop.cache, stop=self.workshop.cancel)
        for wheel in requires:
            with Archive(paths[wheel.sha256]) as archive:
                for name in archive.members:
                    place = _installed(name)
                    if place is not None:
                        path = target / place
                        path.parent.mkdir(parents=True, exist_ok=True)
                        path.write_bytes(archive.read(name))
        (target / "inside.py").write_bytes(_INSIDE.read_bytes())

    def requires_of_hook(self) -> tuple[str, ...]:
        """What the backend asks for besides: ``get_requires_for_build_wheel``."""
        what = f"asking {self.sdist.file} what its build needs"
        try:
            found = json.loads(self._run("requires", what))
            texts = tuple(str(Requirement(text)) for text in found)
        except (ValueError, TypeError, InvalidRequirement) as problem:
            raise CellError(f"{what}: no list of requirements came back: {problem}") from problem
        for text in texts:
            refuse_address(text, self.sdist.file)
        return texts

    def build(self, python: str) -> tuple[str, dict[str, tuple[bytes, bool]]]:
        """The wheel's file name and its files, after it was looked at."""
        what = f"building {self.sdist.file}"
        said, _, data = self._run("wheel", what).partition(b"\n")
        try:
            name = json.loads(said)
        except ValueError:
            name = None
        if not isinstance(name, str) or "/" in name or not name.endswith(".whl"):
            raise CellError(f"{what}: the build ended without a wheel")
        with tempfile.TemporaryDirectory(dir=self.folder) as folder:
            path = Path(folder) / name
            path.write_bytes(data)
            content = wheels.members(path)
            wheels.refuse_other(path, content, self.sdist, python)
        return name, content

    def _run(self, hook: str, what: str) -> bytes:
        python = next(self.root.glob("usr/bin/python3.*[0-9]"), None)
        if python is None:
            raise CellError(f"{what}: the system to build in has no Python")
        job = {
            "hook": hook,
            "backend": self.system.backend,
            "path": list(self.system.path),
            "source": f"/sdist/{self.source.name}",
            "work": "/build",
            "epoch": _EPOCH,
        }
        unpacked = sum(f.stat().st_size for f in self.source.rglob("*") if f.is_file())
        limits = self.workshop.limits
        return run_confined(
            [f"/usr/bin/{python.name}", "-s", "/requires/inside.py", json.dumps(job)],
            self.root,
            {f"/{part}": self.folder / part for part in ("sdist", "requires")},
            what=what,
            env=_ENVIRONMENT,
            limits=replace(limits, memory=limits.memory + 6 * unpacked),
            cancel=self.workshop.cancel,
        )


_ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin:/usr/bin:/bin",
    "HOME": "/build",
    "TMPDIR": "/tmp",  # noqa: S108 - the sandbox's own
    "LC_ALL": "C.UTF-8",
    "TZ": "UTC",
    "PYTHONPATH": "/requires",
    "PYTHONHASHSEED": "0",
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONNOUSERSITE": "1",
    "SOURCE_DATE_EPOCH": str(_EPOCH),
}


def _installed(name: str) -> str | None:
    """Where a wheel's file goes below one folder; None for scripts, headers and the like."""
    first, _, rest = name.partition("/")
    if not first.endswith(".data"):
        return name
    scheme, _, path = rest.partition("/")
    return path if scheme in {"purelib", "platlib"} else None


def _resolve(asked: Sequence[str], index: Index, target: Target, pins: Sequence[str]) -> tuple[Wheel, ...]:
    """What the build requires, as wheels; with the cell's own pins on the same packages where that can be."""
    target = replace(target, platform=host_platform())
    names = {canonicalize_name(Requirement(text).name) for text in asked}
    same = [text for text in pins if canonicalize_name(Requirement(text).name) in names]
    resolve = partial(index.resolve, python=target.python, platform=target.platform, glibc=target.glibc)
    if same:
        try:
            return resolve([*asked, *same])
        except PackageIndexError:
            pass  # the project wants another version, and its word counts
    return resolve(list(asked)) if asked else ()
