"""From sources to a wheel, on this machine's own Python in place of a Debian's: the rest is as it is."""

from __future__ import annotations

import hashlib
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from elf_files import library
from sandbox_system import system
from sdist_files import backend, sdist

from builder.core.errors import CellError, CommandError, PackageIndexError
from builder.core.model import Compilation, RootfsBase, Sdist
from builder.image.sandbox import Limits, View, run
from builder.image.sdist import Workshop, bench, workshop
from builder.plan.lock.pinning import BuildRoot
from builder.sources.debian import Debian
from builder.sources.index.client import cache_path
from builder.sources.index.simple_api import IndexFile
from builder.sources.index.target import Target

if TYPE_CHECKING:
    import threading
    from collections.abc import Sequence

    from builder.core.model import Wheel
    from builder.sources.index.client import LocalWheel

pytestmark = pytest.mark.slow

PYTHONS = sorted(Path("/usr/bin").glob("python3.*[0-9]"))
OWN = PYTHONS[-1].name.removeprefix("python") if PYTHONS else ""
SYSTEM = RootfsBase(suite="bookworm", debs=(), epoch=0)


class Files:
    """An index with one archive of sources, and nothing to build it with."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.resolved: list[tuple[str, ...]] = []

    @property
    def sdist(self) -> Sdist:
        sha256 = hashlib.sha256(self.path.read_bytes()).hexdigest()
        return Sdist(name="tiny", version="1.0", file="tiny-1.0.tar.gz", sha256=sha256, size=0)

    def fetch(self, _wanted: Sdist, *, cache: Path) -> Path:
        return self.path

    def fetch_all(self, wheels: Sequence[Wheel], *, cache: Path, stop: threading.Event) -> dict[str, Path]:
        assert not wheels
        return {}

    def resolve(
        self, requirements: Sequence[str], *, built: Sequence[LocalWheel] = (), **_place: str
    ) -> tuple[Wheel, ...]:
        self.resolved.append(tuple(requirements))
        return tuple(one.wheel for one in built)

    def offers(self, _name: str) -> tuple[IndexFile, ...]:
        return ()


@pytest.fixture
def at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    if not PYTHONS:
        pytest.skip("this machine has no Python in /usr/bin")
    for suite in (SYSTEM.suite,):
        root = system(tmp_path / suite)
        (root / "usr/bin").mkdir()
        (root / "usr/bin" / PYTHONS[-1].name).touch()
        (root / "suite").write_text(suite)
    monkeypatch.setattr(workshop, "cached_rootfs", lambda base, **_: tmp_path / base.suite)
    monkeypatch.setattr(workshop, "laid_out", nullcontext)

    def with_usr(program: Sequence[str], view: View, **options: Any) -> bytes:
        folders = {**view.folders, "/usr": Path("/usr")}
        return run(program, replace(view, folders=folders), **options)

    monkeypatch.setattr(bench, "run", with_usr)
    return lambda **limits: Workshop(
        debian=Debian({}, cache=tmp_path), cache=tmp_path / "cache", limits=Limits(**limits)
    )


def lock(
    works: Workshop,
    index: Files,
    pins: Sequence[str] = (),
    *,
    python: str = OWN,
    needs: Sequence[str] | None = None,
) -> LocalWheel:
    target = Target(python=python, platform="linux/amd64", glibc="2.36")
    outside: Any = index
    return works.lock(
        index.sdist, index=outside, target=target, system=BuildRoot(base=SYSTEM), pins=pins, needs=needs
    )


def test_a_wheel_is_built_and_kept(at: Any, tmp_path: Path) -> None:
    index = Files(sdist(tmp_path / "tiny-1.0.tar.gz", backend()))
    built = lock(at(), index)
    assert built.wheel.file == "tiny-1.0-py3-none-any.whl"
    assert built.wheel.sha256 == hashlib.sha256(built.path.read_bytes()).hexdigest()
    assert built.wheel.source is not None
    assert built.wheel.source.sdist.sha256 == index.sdist.sha256
    assert built.wheel.source.sdist.size == index.path.stat().st_size
    assert lock(at(), index).wheel == built.wheel


def test_it_is_made_again_from_the_lock(at: Any, tmp_path: Path) -> None:
    index = Files(sdist(tmp_path / "tiny-1.0.tar.gz", backend()))
    built = lock(at(), index)
    built.path.write_bytes(b"cut short")
    assert at().make(built.wheel, index) == built.path
    assert hashlib.sha256(built.path.read_bytes()).hexdigest() == built.wheel.sha256


def test_a_wheel_that_comes_out_otherwise_is_refused(at: Any, tmp_path: Path) -> None:
    index = Files(sdist(tmp_path / "tiny-1.0.tar.gz", backend()))
    wheel = replace(lock(at(), index).wheel, sha256="0" * 64)
    with pytest.raises(CellError, match=f"the lock has tiny-1.0-py3-none-any.whl with sha256:{'0' * 64}"):
        at().make(wheel, index)


def test_a_build_that_is_never_the_same_is_refused(at: Any, tmp_path: Path) -> None:
    index = Files(sdist(tmp_path / "tiny-1.0.tar.gz", backend(content="str(time.time_ns())")))
    with pytest.raises(CellError, match=r"does not come out the same when it is built twice: tiny\.py"):
        lock(at(), index)


def test_sources_are_dated_alike(at: Any, tmp_path: Path) -> None:
    index = Files(sdist(tmp_path / "tiny-1.0.tar.gz", backend(content='str(os.stat("backend.py").st_mtime)')))
    assert lock(at(), index).wheel.version == "1.0"


def test_what_the_backend_asks_for_is_resolved_too(at: Any, tmp_path: Path) -> None:
    index = Files(sdist(tmp_path / "tiny-1.0.tar.gz", backend(requires="return ['wheel>=0.40']")))
    lock(at(), index, pins=("wheel==0.45.1", "numpy==1"))
    assert index.resolved == [("wheel>=0.40", "wheel==0.45.1")]


def test_what_came_out_otherwise_is_not_known_afterwards(at: Any, tmp_path: Path) -> None:
    index = Files(sdist(tmp_path / "tiny-1.0.tar.gz", backend()))
    works = at()
    other = replace(works, cache=tmp_path / "elsewhere")
    with pytest.raises(CellError, match="depends on the machine"):
        other.make(replace(lock(works, index).wheel, sha256="0" * 64), index)
    assert not list(other.cache.rglob("*.*"))


@pytest.mark.parametrize(
    ("files", "error", "said"),
    [
        (backend(first="raise RuntimeError('no way')"), CommandError, "RuntimeError: no way"),
        (backend(first="os.fdopen(3)"), CommandError, "failed"),
        (backend(version="0.0.0"), CellError, "comes from git"),
        (backend(name="other"), CellError, "says other 1.0"),
        (backend(tags="cp311-cp311-linux_x86_64"), CellError, "compiled code"),
        (backend(more="Requires-Python: >=3.99\\n"), CellError, r"needs Python >=3\.99"),
        (backend(requires="return ['x @ https://host.invalid/x']"), CellError, "from an address"),
        (backend(requires="return 7"), CommandError, "what its build needs failed"),
        ({"setup.py": "", "pyproject.toml": '[build-system]\nrequires = []\nbuild-backend = "none"'},
         CommandError, "No module named 'none'"),
    ],
)  # fmt: skip
def test_what_does_not_build_says_why(
    at: Any, tmp_path: Path, files: dict[str, str], error: type[CellError], said: str
) -> None:
    index = Files(sdist(tmp_path / "tiny-1.0.tar.gz", files))
    with pytest.raises(error) as raised:
        lock(at(), index)
    shown = [str(raised.value), *getattr(raised.value, "tail", ())]
    assert any(said.replace("\\", "") in line for line in shown), shown


def test_an_endless_build_is_stopped(at: Any, tmp_path: Path) -> None:
    index = Files(sdist(tmp_path / "tiny-1.0.tar.gz", backend(first="time.sleep(60)")))
    with pytest.raises(CommandError, match=r"building tiny-1\.0\.tar\.gz was not done after 2 s"):
        lock(at(seconds=2), index)


ABI = f"cp{OWN.replace('.', '')}"
CODE = f"{ABI}-{ABI}-linux_x86_64"


def code(*, tags: str = CODE, machine: int = 62, **more: str) -> dict[str, str]:
    """A project whose wheel holds a shared library, ready-made."""
    return backend(tags=tags, content=repr(library("libpq.so.5", machine=machine)), **more)


def with_libpq(tmp_path: Path) -> None:
    """The build's system gets a library, and dpkg's word for whose it is."""
    lib, info = (tmp_path / SYSTEM.suite / part for part in ("usr/lib/x86_64-linux-gnu", "var/lib/dpkg/info"))
    lib.mkdir(parents=True)
    info.mkdir(parents=True)
    (lib / "libpq.so.5").touch()
    (info / "libpq5:amd64.list").write_text("/usr/lib/x86_64-linux-gnu/libpq.so.5\n")


@pytest.mark.parametrize("tags", [CODE, f"{ABI}-abi3-linux_x86_64", "cp38-abi3-linux_x86_64"])
def test_what_is_compiled_names_the_packages_that_it_loads(at: Any, tmp_path: Path, tags: str) -> None:
    with_libpq(tmp_path)
    index = Files(sdist(tmp_path / "tiny-1.0.tar.gz", code(tags=tags)))
    built = lock(at(), index, needs=("libpq-dev",))
    assert built.wheel.file == f"tiny-1.0-{tags}.whl"
    assert built.wheel.source is not None
    assert built.wheel.source.compiled == Compilation(needs=("libpq-dev",), libraries=("libpq5",))
    known = lock(at(), index, needs=("libpq-dev",))
    assert known == built
    assert known.wheel.source == built.wheel.source
    built.path.unlink()
    assert at().make(built.wheel, index) == built.path


@pytest.mark.parametrize(
    ("files", "said"),
    [
        (code(machine=183), r"tiny\.py is code of another machine than x86_64"),
        (code(tags="cp36-cp36m-linux_x86_64"), "is for another Python or machine than the cell's 3"),
        (code(tags=f"{ABI}-{ABI}-linux_aarch64"), "is for another Python or machine than the cell's 3"),
        (code(tags="cp399-abi3-linux_x86_64"), "is for another Python or machine than the cell's 3"),
        (code(tags=f"{ABI}-{ABI}-manylinux_2_17_x86_64"), "is for another Python or machine"),
        (backend(tags=CODE, content=repr(library("libgone.so.1"))), "nor a Debian package has libgone.so.1"),
        (backend(tags=CODE, content="str(time.time_ns())"), r"when it is built twice: tiny\.py"),
    ],
)
def test_compiled_code_that_is_not_taken(at: Any, tmp_path: Path, files: dict[str, str], said: str) -> None:
    with_libpq(tmp_path)
    index = Files(sdist(tmp_path / "tiny-1.0.tar.gz", files))
    with pytest.raises(CellError, match=said):
        lock(at(), index, needs=())


def test_a_header_that_is_not_there_is_named(at: Any, tmp_path: Path) -> None:
    said = "psycopg.h:36:10: fatal error: libpq-fe.h: No such file or directory"
    files = backend(first=f"raise RuntimeError({said!r})")
    index = Files(sdist(tmp_path / "tiny-1.0.tar.gz", files))
    with pytest.raises(CommandError, match=r"its build lacks the header libpq-fe\.h"):
        lock(at(), index, needs=())


def test_a_build_that_compiles_may_run_jobs_and_take_longer(at: Any, tmp_path: Path) -> None:
    with_libpq(tmp_path)
    content = "str('MAX_JOBS' in os.environ) + os.environ['PATH'].split(':')[0]"
    index = Files(sdist(tmp_path / "tiny-1.0.tar.gz", backend(content=content)))
    built = lock(at(seconds=0), index, needs=())
    assert built.wheel.source is not None
    assert built.wheel.source.compiled == Compilation(needs=(), libraries=())
    assert b"True/requires/.bin" in built.path.read_bytes()


def test_what_no_index_has_debian_may_have(at: Any, tmp_path: Path) -> None:
    class Lacks(Files):
        def resolve(self, requirements: Sequence[str], **place: Any) -> tuple[Wheel, ...]:
            if any(text.startswith("pycairo") for text in requirements):
                raise PackageIndexError("no wheel of pycairo")
            return super().resolve(requirements, **place)

    info = tmp_path / SYSTEM.suite / "usr/lib/python3/dist-packages/pycairo-1.20.1.egg-info"
    info.mkdir(parents=True)
    (info / "PKG-INFO").write_text("Metadata-Version: 2.1\nName: pycairo\nVersion: 1.20.1\n")
    old = Lacks(sdist(tmp_path / "tiny-1.0.tar.gz", backend(requires="return ['pycairo>=1.16', 'wheel']")))
    assert lock(at(), old, needs=("python3-cairo-dev",)).wheel.name == "tiny"
    assert old.resolved == [("wheel",)]
    new = Lacks(sdist(tmp_path / "tiny-1.0.tar.gz", backend(requires="return ['pycairo>=1.24']")))
    with pytest.raises(PackageIndexError):
        lock(at(), new, needs=("python3-cairo-dev",))
    with pytest.raises(PackageIndexError):
        lock(at(), old)


class TwoSources(Files):
    """An index that has sources alone, of ``tiny`` and of the ``inner`` that its build requires."""

    def __init__(self, path: Path, inner: Path) -> None:
        super().__init__(path)
        self.inner = inner

    def offers(self, name: str) -> tuple[IndexFile, ...]:
        sha256 = hashlib.sha256(self.inner.read_bytes()).hexdigest()
        return tuple(
            IndexFile(name=f"inner-{version}.tar.gz", url="", sha256=sha256)
            for version in ("1.0", "2.0")
            if name == "inner"
        )

    def fetch(self, wanted: Sdist, *, cache: Path) -> Path:
        return self.inner if wanted.name == "inner" else self.path

    def fetch_all(self, wheels: Sequence[Wheel], *, cache: Path, stop: threading.Event) -> dict[str, Path]:
        return {wheel.sha256: cache_path(wheel, cache) for wheel in wheels}

    def resolve(
        self, requirements: Sequence[str], *, built: Sequence[LocalWheel] = (), **place: str
    ) -> tuple[Wheel, ...]:
        if any(text.startswith("inner") for text in requirements) and not built:
            raise PackageIndexError("no wheel of inner")
        return super().resolve(requirements, built=built, **place)


def test_what_a_build_requires_and_no_index_has_a_wheel_of_is_built_first(at: Any, tmp_path: Path) -> None:
    inner = sdist(tmp_path / "inner-1.0.tar.gz", backend(name="inner", content="'x = 41'"))
    asked = "return ['inner>=1', 'absent; python_version<\"3\"']"
    files = backend(requires=asked, content="'y = %d' % (__import__('tiny').x + 1)")
    index = TwoSources(sdist(tmp_path / "tiny-1.0.tar.gz", files), inner)
    built = lock(at(), index, pins=["inner==1.0"])
    assert built.wheel.source is not None
    (required,) = built.wheel.source.requires
    assert (required.file, required.source is not None) == ("inner-1.0-py3-none-any.whl", True)
    assert b"y = 42" in built.path.read_bytes()
    built.path.unlink()
    cache_path(required, tmp_path / "cache").unlink()
    assert at().make(built.wheel, index) == built.path


def test_a_chain_of_sources_ends(at: Any, tmp_path: Path) -> None:
    inner = sdist(tmp_path / "inner-1.0.tar.gz", backend(name="inner", requires="return ['inner']"))
    index = TwoSources(sdist(tmp_path / "tiny-1.0.tar.gz", backend(requires="return ['inner==1.0']")), inner)
    with pytest.raises(PackageIndexError, match="no wheel of inner"):
        lock(at(), index)


def test_a_standalone_python_does_not_see_debian_s_packages(tmp_path: Path) -> None:
    info = tmp_path / "usr/lib/python3/dist-packages/pycairo-1.20.1.egg-info"
    info.mkdir(parents=True)
    (info / "PKG-INFO").write_text("Metadata-Version: 2.1\nName: pycairo\nVersion: 1.20.1\n")
    for folder, seen in (("usr/bin", {"pycairo": "1.20.1"}), ("opt/python/bin", {})):
        one: Any = SimpleNamespace(root=tmp_path, program=f"/{folder}/python3.12")
        assert bench.BuildEnvironment.distributions(one) == seen
