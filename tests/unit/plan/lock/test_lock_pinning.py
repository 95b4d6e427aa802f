"""One cell out of its parts, with stand-ins for the three outside worlds that count what is asked of them."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from lock_values import lock_cell, lock_deb, lock_registry_base, lock_wheel

from builder.core.errors import CellError, NoSolutionError, PackageIndexError, RegistrySilentError
from builder.core.model import Base, RootfsBase, StandalonePython
from builder.plan.facts.reading.observed import system_of, truth_of_base
from builder.plan.lock.file import LISTED_EARLY, lock_order
from builder.plan.lock.pinning import movable, pin, requirements
from builder.sources.index.simple_api import IndexFile
from builder.sources.index.target import Target

UBUNTU = {"org.opencontainers.image.ref.name": "ubuntu", "org.opencontainers.image.version": "22.04"}
BOOKWORM = Base(kind="rootfs", name="debian/bookworm")
CUDA = Base(kind="registry", name="nvidia/cuda:11.8.0-base-ubuntu22.04")


class Outside:
    """Index, registry and Debian in one; ``asked`` lists the calls."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []
        self.wheels = (
            lock_wheel("numpy"),
            lock_wheel("tensorflow", size=LISTED_EARLY + 1, uploaded=1_700_000_000),
        )
        self.labels = UBUNTU
        self.epoch = 1_650_000_000
        self.extra: tuple[str, ...] = ()

    def with_extra(self, extra: tuple[str, ...]) -> Outside:
        self.extra = extra
        return self

    def inspect(self, reference: str, platform: str) -> Any:
        self.asked.append(("inspect", reference, platform))
        return lock_registry_base(reference, **self.labels)

    def resolve(self, *args: Any, **options: Any) -> Any:
        if isinstance(args[0], str):
            self.asked.append(("debian", args[0], tuple(options["packages"]), options["python"]))
            return RootfsBase(suite=args[0], debs=(lock_deb("bash"),), epoch=self.epoch)
        self.asked.append(("index", args[0], options))
        return self.wheels

    def offers(self, _name: str) -> tuple[IndexFile, ...]:
        return ()


def lock(outside: Outside, cell: Any, **options: Any) -> Any:
    options = {"workshop": None, "pythons": None} | options
    return pin(cell, index=outside, registry=outside, debian=outside, **options)  # type: ignore[arg-type]


def test_a_release_that_is_for_older_pythons_alone_is_not_taken() -> None:
    """torch 1.7.0 asks for dataclasses on each Python, whose 0.8 is for 3.6 alone and 0.6 for any."""
    early, late = (
        dataclasses.replace(lock_wheel("dataclasses"), version=version, sha256=version * 8, file=file)
        for version in ("0.6", "0.8")
        for file in [f"dataclasses-{version}-py3-none-any.whl"]
    )

    class Index(Outside):
        def resolve(self, *args: Any, **options: Any) -> Any:
            if isinstance(args[0], str):
                return super().resolve(*args, **options)
            self.asked.append(args)
            return (early,) if "dataclasses!=0.8" in args[0] else (late,)

        def offers(self, name: str) -> tuple[IndexFile, ...]:
            return tuple(
                IndexFile(name=one.file, url="", sha256=one.sha256, requires_python=python)
                for one, python in ((late, ">=3.6, <3.7"), (early, None))
            )

    assert lock(Index(), lock_cell("a")).wheels == (early,)
    assert lock(Index(), lock_cell("a", dependencies="listed")).wheels == (late,)


def test_a_rootfs_cell() -> None:
    outside = Outside()
    cell = lock_cell("a", apt=("git", "curl"), index=("https://x.invalid/cu118",))
    pinned = lock(outside, cell)
    assert outside.asked[0] == ("debian", "bullseye", ("curl", "git"), True)
    kind, asked, options = outside.asked[1]
    assert (kind, asked) == (
        "index",
        ("tensorflow==2.8.4", "nvidia-cudnn-cu11==8.6.0.163", "numpy==1.23.5", "pip"),
    )
    assert options["target"] == Target(python="3.9", platform="linux/amd64", glibc="2.31")
    assert outside.extra == ("https://x.invalid/cu118",)
    assert [wheel.name for wheel in pinned.wheels] == ["tensorflow", "numpy"]
    assert pinned.epoch == 1_700_000_000
    outside.epoch = 1_800_000_000
    assert lock(outside, cell).epoch == 1_800_000_000


def test_the_patch_release_of_debian_s_python_meets_bounds(monkeypatch) -> None:
    """Debian 12 has Python 3.11.2: a pin that wants 3.11.5 asks for another Python."""

    class Debian12(Outside):
        said = "requested Python version (>=3.9.2) does not satisfy Python>=3.9.5"

        def resolve(self, *args: Any, **options: Any) -> Any:
            if isinstance(args[0], str):
                minimal = dataclasses.replace(lock_deb("python3.9-minimal"), version="3.9.2-6+deb11u2")
                return dataclasses.replace(super().resolve(*args, **options), debs=(minimal,))
            self.asked.append(("index", args[0], options))
            raise NoSolutionError(self.said)

    monkeypatch.setattr("builder.plan.lock.pinning.known_release", lambda *_: "3.9.25")
    outside = Debian12()
    with pytest.raises(NoSolutionError) as caught:
        lock(outside, lock_cell("a"))
    assert outside.asked[-1][2]["target"].release == "3.9.2"
    assert caught.value.hint == (
        'the Python of rootfs:debian/bullseye is 3.9.2: `python: "3.9.25"` takes one that stands alone'
    )
    outside.said = "numpy==1 and numpy==2"
    with pytest.raises(NoSolutionError) as caught:
        lock(outside, lock_cell("a"))
    assert caught.value.hint is None


def test_the_patch_release_of_a_standalone_python_meets_bounds() -> None:
    outside = Outside()
    lock(outside, lock_cell("a", python="3.12"), pythons=Interpreters("3.12.12"))
    target = outside.asked[1][2]["target"]
    assert (target.release, target.environment["python_full_version"]) == ("3.12.12", "3.12.12")


def test_a_registry_cell() -> None:
    outside = Outside()
    lock(outside, lock_cell("a", base=CUDA, python="3.11"))
    assert outside.asked[0] == ("inspect", CUDA.name, "linux/amd64")
    assert outside.asked[1][2]["target"].glibc == "2.35"


@pytest.mark.parametrize(
    ("base", "python", "words"),
    [
        (Base(kind="rootfs", name="debian/bullseye"), "3.10", r"rootfs:debian/bullseye has Python 3\.9,"),
        (CUDA, "3.9", r"ubuntu22\.04 has Python 3\.10 and 3\.11, but the cell wants 3\.9"),
    ],
)
def test_a_python_that_the_base_has_not(base: Base, python: str, words: str) -> None:
    with pytest.raises(CellError, match=words) as caught:
        lock(Outside(), lock_cell("a", base=base, python=python, python_from="base"))
    assert "set python to" in (caught.value.hint or "")


class Interpreters:
    """Standalone Pythons that are named and never fetched."""

    def __init__(self, newest: str) -> None:
        self.newest = newest

    def pin(self, version: str, _platform: str, **_: Any) -> StandalonePython:
        version = version if version.count(".") > 1 else self.newest
        file = f"cpython-{version}+20261110-x86_64-unknown-linux-gnu-install_only_stripped.tar.gz"
        return StandalonePython(version=version, build="20261110", file=file, sha256="c" * 64, size=3)


@pytest.mark.parametrize(
    ("base", "asked", "found"),
    [
        (BOOKWORM, {"python": "3.11"}, None),
        (BOOKWORM, {"python": "3.12"}, "3.12.1"),
        (BOOKWORM, {"python": "3.11", "python_from": "standalone"}, "3.12.1"),
        (BOOKWORM, {"python": "3.11", "python_patch": "3.11.9"}, "3.11.9"),
        (CUDA, {"python": "3.12"}, "3.12.1"),
        (CUDA, {"python": "3.10"}, None),
    ],
)
def test_a_python_that_the_base_has_not_is_a_standalone_one(
    base: Base, asked: dict[str, Any], found: str | None
) -> None:
    outside = Outside()
    pinned = lock(outside, lock_cell("a", base=base, **asked), pythons=Interpreters("3.12.1"))
    assert (None if pinned.python is None else pinned.python.version) == found
    assert [asked_[-1] for asked_ in outside.asked if asked_[0] == "debian"] == (
        [found is None] if base is BOOKWORM else []
    )


def test_a_python_that_sources_are_built_with_is_looked_for_before_they_are_built() -> None:
    """Hours of builds ended at an interpreter that nobody could fetch."""

    class Unreachable(Interpreters):
        def pin(self, version: str, platform: str, **options: Any) -> StandalonePython:
            if options.get("at_once"):
                raise PackageIndexError("the mirror gave nothing")
            return super().pin(version, platform, **options)

    pythons, cell = Unreachable("3.12.1"), lock_cell("a", base=BOOKWORM, python="3.12")
    assert lock(Outside(), cell, pythons=pythons).python.version == "3.12.1"
    outside = Outside()
    with pytest.raises(PackageIndexError, match="the mirror gave nothing"):
        lock(outside, dataclasses.replace(cell, from_source=("numpy",)), pythons=pythons)
    assert [asked[0] for asked in outside.asked] == ["debian"]


def test_what_was_locked_stays_until_it_is_moved() -> None:
    cell = lock_cell("a", base=BOOKWORM, python="3.12")
    first = lock(Outside(), cell, pythons=Interpreters("3.12.1"))

    def again(of: Any = cell, **options: Any) -> str:
        found = lock(Outside(), of, previous=first, pythons=Interpreters("3.12.2"), **options).python
        assert found is not None
        return found.version

    assert (again(), again(upgrade={"numpy"})) == ("3.12.1", "3.12.1")
    assert (again(upgrade=True), again(upgrade={"python"})) == ("3.12.2", "3.12.2")
    assert again(dataclasses.replace(cell, python="3.13")) == "3.12.2"
    assert again(dataclasses.replace(cell, python_patch="3.12.1")) == "3.12.1"


def test_a_system_that_nothing_names() -> None:
    outside = Outside()
    outside.labels = {}
    notes: list[str] = []
    base = Base(kind="registry", name="our.registry/base:1")
    lock(outside, lock_cell("a", base=base, python="3.12"), note=notes.append)
    assert outside.asked[1][2]["target"].glibc == "2.17"
    assert "our.registry/base:1" in notes[0]

    def nothing_fits(*_: Any, **__: Any) -> Any:
        raise PackageIndexError("no wheel for glibc 2.17", hint="take a newer base")

    outside.resolve = nothing_fits  # type: ignore[method-assign]
    with pytest.raises(PackageIndexError, match=r"glibc 2\.17") as caught:
        lock(outside, lock_cell("a", base=base, python="3.12"))
    assert "of no known system" in (caught.value.hint or "")


@pytest.mark.parametrize(("version", "refused"), [("0.0.0a0", True), ("0.0.1", True), ("13.1.2.81", False)])
def test_a_stub_of_nvidia_s_is_not_locked(version: str, refused: bool) -> None:
    """uv takes nvidia-npp-cu13 0.0.0a0, which is empty, also where another package asks for it."""
    outside = Outside()
    outside.wheels += (lock_wheel("nvidia-npp-cu13", version),)
    if not refused:
        assert lock(outside, lock_cell("a")).wheels
        return
    with pytest.raises(NoSolutionError, match="its name is nvidia-npp now") as caught:
        lock(outside, lock_cell("a"))
    assert "nvidia-npp" in (caught.value.hint or "")


def test_what_was_locked_stays() -> None:
    outside = Outside()
    cell = lock_cell("a", apt=("git",))
    before = lock(outside, cell)
    outside.asked.clear()
    changed = dataclasses.replace(cell, pip=("rich",))
    after = lock(outside, changed, previous=before)
    assert after.base is before.base
    ((kind, _, options),) = outside.asked
    assert (kind, options["previous"], options["upgrade"]) == ("index", before.wheels, False)


@pytest.mark.parametrize(
    ("changes", "upgrade"),
    [
        ({"apt": ("git", "curl")}, False),
        ({"base": Base(kind="rootfs", name="debian/bookworm"), "python": "3.11"}, False),
        ({}, True),
        ({}, ["debian/bullseye", "numpy"]),
        ({}, ["rootfs:debian/bullseye"]),
        ({}, ["bash", "NumPy"]),
    ],
)
def test_when_a_base_is_resolved_again(changes: dict[str, Any], upgrade: Any) -> None:
    outside = Outside()
    cell = lock_cell("a", apt=("git",))
    before = lock(outside, cell)
    outside.asked.clear()
    lock(outside, dataclasses.replace(cell, **changes), previous=before, upgrade=upgrade)
    assert [call[0] for call in outside.asked] == ["debian", "index"]
    # uv knows no package of the base's name.
    passed = outside.asked[1][2]["upgrade"]
    assert passed is upgrade or passed == {name.lower() for name in upgrade} & {"numpy"}


def test_the_names_that_move_something() -> None:
    pinned = lock(Outside(), lock_cell("a", python="3.12"), pythons=Interpreters("3.12.1"))
    assert movable(pinned) == {
        *("bash", "debian/bullseye", "numpy", "python", "rootfs:debian/bullseye", "tensorflow")
    }
    pinned = lock(Outside(), lock_cell("a", base=CUDA, python="3.10"))
    assert movable(pinned) == {CUDA.name, "numpy", "tensorflow"}


def test_apt_packages_do_not_move_a_registry_base() -> None:
    outside = Outside()
    cell = lock_cell("a", base=CUDA, python="3.10")
    before = lock(outside, cell)
    outside.asked.clear()
    lock(outside, dataclasses.replace(cell, apt=("git",)), previous=before, upgrade=["numpy"])
    assert [call[0] for call in outside.asked] == ["index"]


def test_the_order_of_layers() -> None:
    big, small = LISTED_EARLY + 1, 10
    wheels = [
        lock_wheel("zlib", size=small),
        lock_wheel("torch", size=big),
        lock_wheel("nvidia-nvtx-cu12", size=small),
        lock_wheel("absl", size=small),
        lock_wheel("nvidia-cublas-cu12", size=big),
        lock_wheel("triton", size=big),
    ]
    assert [wheel.name for wheel in lock_order(wheels)] == [
        "nvidia-cublas-cu12",
        "nvidia-nvtx-cu12",
        "torch",
        "triton",
        "absl",
        "zlib",
    ]
    assert lock_order(wheels) == lock_order(reversed(wheels))


@pytest.mark.parametrize(
    ("reference", "labels", "expected"),
    [
        ("nvidia/cuda:12.4.1-base-ubuntu22.04", {}, "ubuntu22.04"),
        ("nvidia/cuda:10.0-base-ubuntu1804@sha256:0", {}, "ubuntu18.04"),
        ("ubuntu:24.04", {}, "ubuntu24.04"),
        ("python:3.11-slim-bookworm", {}, "debian/bookworm"),
        ("nvidia/cuda:12.9.1-base-rockylinux8", {}, "rockylinux8"),
        ("our.registry:5000/ubuntu22.04/base:1", {}, None),
        ("misleading:ubuntu18.04", UBUNTU, "ubuntu22.04"),
        ("someone/not-ubuntu:24.04", {}, None),
        ("me/nobookworms:1", {}, None),
        ("from:ubuntu20.04", UBUNTU | {"org.opencontainers.image.version": "14.04"}, None),
        ("named:ubuntu22.04", UBUNTU | {"org.opencontainers.image.ref.name": "fedora"}, None),
        ("made:from-ubuntu20.04", UBUNTU | {"org.opencontainers.image.version": "1.4.2"}, "ubuntu20.04"),
    ],
)
def test_the_system_of_a_base(reference: str, labels: dict[str, str], expected: str | None) -> None:
    row = system_of(lock_registry_base(reference, **labels))
    assert (row.name if row is not None else None) == expected
    told = truth_of_base(lock_registry_base(reference, **labels))
    assert system_of(lock_cell("a", base=Base(kind="registry", name=reference)), told) == row


def test_nothing_is_asked_twice() -> None:
    assert requirements(lock_cell("a", pip=("pip", "tensorflow==2.8.4", "rich"))) == (
        "tensorflow==2.8.4",
        "nvidia-cudnn-cu11==8.6.0.163",
        "pip",
        "rich",
    )


def test_compilers_are_locked_as_debian_packages_are() -> None:
    outside = Outside()
    cell = lock_cell("a", apt=("git",), compilers=True)
    before = lock(outside, cell)
    assert outside.asked[0][2] == ("g++", "gcc", "git", "libpython3.9-dev")
    outside.asked.clear()
    lock(outside, dataclasses.replace(cell, pip=("rich",)), previous=before)
    assert [call[0] for call in outside.asked] == ["index"]
    lock(outside, dataclasses.replace(cell, compilers=False), previous=before)
    assert [call[0] for call in outside.asked] == ["index", "debian", "index"]
    lock(
        outside, lock_cell("a", base=BOOKWORM, python="3.12", compilers=True), pythons=Interpreters("3.12.1")
    )
    assert outside.asked[-2][2] == ("g++", "gcc")


def test_a_base_that_needs_no_registry_is_named_where_one_is_silent() -> None:
    class Silent(Outside):
        def inspect(self, reference: str, platform: str) -> Any:
            raise RegistrySilentError("registry docker.io did not answer", hint="a mirror")

    with pytest.raises(RegistrySilentError) as raised:
        lock(Silent(), lock_cell("a", base=CUDA))
    assert raised.value.hint == "a mirror; a base of rootfs:debian/<suite> needs no registry"
