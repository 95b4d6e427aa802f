"""What is built from sources: chosen, locked, and read again."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Any

import pytest
from lock_values import lock_cell, lock_wheel
from packaging.requirements import Requirement

from builder.core.errors import CellError, PackageIndexError, UsageError
from builder.core.model import RootfsBase, Sdist, StandalonePython, Wheel, WheelSource
from builder.plan.lock import pinning
from builder.plan.lock.file import LockEntry, read_lock, render
from builder.plan.lock.pinning import BuildRoot, choose_sdist
from builder.sources.index import host_platform
from builder.sources.index.client import LocalWheel
from builder.sources.index.simple_api import IndexFile
from builder.sources.index.target import Target

if TYPE_CHECKING:
    from pathlib import Path

TARGET = Target(python="3.11", platform="linux/amd64", glibc="2.36")
SYSTEM = RootfsBase(suite="bookworm", debs=(), epoch=7)
SDIST = Sdist(name="tiny", version="1.0", file="tiny-1.0.tar.gz", sha256="a" * 64, size=10)
SETUPTOOLS = lock_wheel("setuptools")


def built_wheel(sdist: Sdist = SDIST) -> Wheel:
    source = WheelSource(sdist=sdist, requires=(SETUPTOOLS,), system=SYSTEM, python="3.11")
    return dataclasses.replace(lock_wheel("tiny", uploaded=0), source=source)


def file(name: str, *, sha256: str | None = "a" * 64, python: str | None = None) -> IndexFile:
    return IndexFile(name=name, url=f"https://index.invalid/{name}", sha256=sha256, requires_python=python)


def test_a_wheel_that_fits_is_not_built() -> None:
    files = (file("tiny-1.0.tar.gz"), file("tiny-1.0-py3-none-any.whl"))
    assert choose_sdist(Requirement("tiny"), files, TARGET) is None


def test_an_older_wheel_is_taken_before_newer_sources() -> None:
    files = (file("tiny-2.0.tar.gz"), file("tiny-1.0-py3-none-any.whl"))
    assert choose_sdist(Requirement("tiny"), files, TARGET) is None
    found = choose_sdist(Requirement("tiny>=2"), files, TARGET)
    assert found is not None
    assert found.file == "tiny-2.0.tar.gz"


def test_wheels_for_something_else_do_not_count() -> None:
    files = (file("tiny-1.0-py2-none-any.whl"), file("tiny-1.0-cp311-cp311-win32.whl"), file("tiny-1.0.zip"))
    found = choose_sdist(Requirement("tiny==1.0"), files, TARGET)
    assert found is not None
    assert (found.file, found.version) == ("tiny-1.0.zip", "1.0")


def test_the_newest_sources_for_this_python() -> None:
    files = (file("tiny-3.0.tar.gz", python=">=3.13"), file("tiny-2.0.tar.gz"), file("tiny-1.0.tar.gz"))
    found = choose_sdist(Requirement("Tiny"), files, TARGET)
    assert found is not None
    assert found.version == "2.0"


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ((), "no index has a wheel or sources of tiny==1.0"),
        ((file("tiny-1.0.tar.gz", python=">=3.13"),), "needs Python >=3.13"),
        ((file("tiny-1.0.tar.gz", sha256=None),), "no sha256 for tiny-1.0.tar.gz"),
        ((file("tiny-extra-1.0.tar.gz"),), "no index has a wheel or sources"),
    ],
)
def test_what_cannot_be_chosen(files: tuple[IndexFile, ...], said: str) -> None:
    with pytest.raises(PackageIndexError, match=said):
        choose_sdist(Requirement("tiny==1.0"), files, TARGET)


class Works:
    """A workshop that says what it was asked."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.said: list[str] = []
        self.systems: list[BuildRoot] = []

    def lock(self, sdist: Sdist, *, system: BuildRoot, **_: Any) -> LocalWheel:
        self.said.append(f"lock {sdist.file}")
        self.systems.append(system)
        return LocalWheel(wheel=built_wheel(sdist), path=self.path)

    def make(self, wheel: Wheel, _index: Any) -> Any:
        self.said.append(f"make {wheel.file}")
        return self.path


class Offers:
    def offers(self, _name: str) -> tuple[IndexFile, ...]:
        return (file("tiny-1.0.tar.gz"),)

    def resolve(self, suite: str, *, platform: str, python: bool = True) -> RootfsBase:
        assert platform == host_platform()
        return dataclasses.replace(SYSTEM, suite=suite if python else f"{suite} without Python")


def run(
    works: Works, *, names: tuple[str, ...] = ("tiny",), python: str = "3.11", **options: Any
) -> tuple[LocalWheel, ...]:
    cell = dataclasses.replace(lock_cell("a"), python=python, from_source=names)
    outside: Any = Offers()
    return pinning.built(
        cell,
        ("tiny==1.0",),
        index=outside,
        debian=outside,
        workshop=works,
        target=TARGET,
        **{"base": SYSTEM, **options},
    )


def test_what_was_locked_stays(tmp_path: Path) -> None:
    works = Works(tmp_path / "tiny.whl")
    (first,) = run(works)
    run(works, previous=(first.wheel,))
    run(works, previous=(first.wheel,), upgrade={"other"})
    run(works, previous=(first.wheel,), upgrade={"Tiny"})
    run(works, previous=(first.wheel,), upgrade=True)
    assert [said.split()[0] for said in works.said] == ["lock", "make", "make", "lock", "lock"]


class NewerOffers(Offers):
    def offers(self, _name: str) -> tuple[IndexFile, ...]:
        return (file("tiny-1.0.tar.gz"), file("tiny-2.0.tar.gz", sha256="b" * 64))


@pytest.mark.parametrize(
    ("asked", "upgrade", "done"),
    [
        ("tiny", {"other"}, "make"),
        ("tiny", {"tiny"}, "lock tiny-2.0.tar.gz"),
        ("tiny>1", {"other"}, "lock tiny-2.0.tar.gz"),
    ],
)
def test_newer_sources_move_nothing_that_nobody_names(
    tmp_path: Path, asked: str, upgrade: set[str], done: str
) -> None:
    works, outside = Works(tmp_path / "tiny.whl"), NewerOffers()
    cell = dataclasses.replace(lock_cell("a"), python="3.11", from_source=("tiny",))
    locked: Any = {"index": outside, "debian": outside, "workshop": works, "target": TARGET, "base": SYSTEM}
    pinning.built(cell, (asked,), **locked, previous=(built_wheel(),), upgrade=upgrade)
    assert works.said[0].startswith(done)


def test_a_name_that_nothing_asks_for(tmp_path: Path) -> None:
    with pytest.raises(CellError, match="no requirement of the cell does") as raised:
        run(Works(tmp_path), names=("other",))
    assert "add other==VERSION to 'pip'" in str(raised.value)


class Interpreters:
    """Standalone Pythons that are named and never fetched."""

    def pin(self, version: str, platform: str, **_: Any) -> StandalonePython:
        assert platform == host_platform()
        return interpreter(f"{version}.16")


def interpreter(version: str) -> StandalonePython:
    file = f"cpython-{version}+20261110-x86_64-unknown-linux-gnu-install_only_stripped.tar.gz"
    return StandalonePython(version=version, build="20261110", file=file, sha256="c" * 64, size=3)


@pytest.mark.parametrize(
    ("python", "suite"), [("3.9", "bullseye"), ("3.10", None), ("3.11", "bookworm"), ("3.13", "trixie")]
)
def test_the_debian_of_a_python(python: str, suite: str | None) -> None:
    assert pinning.suite_of(python) == suite


def test_a_python_that_no_debian_has_is_a_standalone_one(tmp_path: Path) -> None:
    works = Works(tmp_path / "tiny.whl")
    run(works, base=SYSTEM)
    run(works, python="3.12", base=None, pythons=Interpreters())
    run(works, python="3.12", base=SYSTEM, interpreter=interpreter("3.12.1"))
    own, between, same = works.systems
    assert (own.base, own.interpreter) == (SYSTEM, None)
    assert (between.base.suite, between.interpreter) == ("trixie without Python", interpreter("3.12.16"))
    assert (same.base, same.interpreter) == (SYSTEM, interpreter("3.12.1"))


def test_a_python_that_nobody_has_is_served_by_the_oldest_debian(tmp_path: Path) -> None:
    class Catalogue:
        def pin(self, version: str, _platform: str, **_: Any) -> StandalonePython:
            raise CellError(f"uv's catalogue has no Python {version}")

    works = Works(tmp_path / "tiny.whl")
    run(works, python="3.7", base=None, pythons=Catalogue())
    (oldest,) = works.systems
    assert (oldest.base.suite, oldest.interpreter) == ("bullseye", None)
    with pytest.raises(CellError, match=r"no Python 3\.99"):
        run(works, python="3.99", base=None, pythons=Catalogue())


def test_a_lock_says_which_python_built(tmp_path: Path) -> None:
    wheel = built_wheel()
    assert wheel.source is not None
    wheel = dataclasses.replace(
        wheel, source=dataclasses.replace(wheel.source, interpreter=interpreter("3.12.1"))
    )
    path = tmp_path / "m.lock.json"
    path.write_text(text_of(wheel))
    read = read_lock(path)
    assert read
    assert read["a"].wheels[0].source == wheel.source
    assert render("m", read) == path.read_text()
    document = json.loads(path.read_text())
    del document["pythons"]
    path.write_text(json.dumps(document))
    with pytest.raises(UsageError, match="which is not in its table"):
        read_lock(path)


def text_of(*wheels: Wheel) -> str:
    entry = LockEntry(
        inputs="sha256:" + "0" * 64, platform="linux/amd64", base=SYSTEM, apt=(), wheels=wheels, epoch=7
    )
    return render("m", {"a": entry})


def test_the_lock_says_it_and_is_read_again(tmp_path: Path) -> None:
    wheel = built_wheel()
    path = tmp_path / "m.lock.json"
    path.write_text(text_of(wheel, lock_wheel("numpy")))
    read = read_lock(path)
    assert read
    again = read["a"].wheels
    assert again == (wheel, lock_wheel("numpy"))
    assert again[0].source == wheel.source
    assert render("m", read) == path.read_text()


def test_a_build_may_require_what_is_built(tmp_path: Path) -> None:
    inner = built_wheel()
    assert inner.source is not None
    sdist = dataclasses.replace(inner.source.sdist, name="outer", file="outer-1.0.tar.gz", sha256="e" * 64)
    source = dataclasses.replace(inner.source, sdist=sdist, requires=(elsewhere(inner),))
    outer = dataclasses.replace(
        inner, name="outer", file="outer-1.0-py3-none-any.whl", sha256="d" * 64, source=source
    )
    path = tmp_path / "m.lock.json"
    for wheels in ((outer,), (outer, inner)):
        path.write_text(text_of(*wheels))
        read = read_lock(path)
        assert read
        assert read["a"].wheels[0].source == source
        assert render("m", read) == path.read_text()


def elsewhere(wheel: Wheel) -> Wheel:
    """The same wheel as it was built in another system."""
    assert wheel.source is not None
    system = dataclasses.replace(SYSTEM, suite="trixie")
    return dataclasses.replace(wheel, source=dataclasses.replace(wheel.source, system=system))


def test_a_lock_without_such_wheels_is_as_before() -> None:
    text = text_of(lock_wheel("numpy"))
    assert "sdists" not in text
    assert "source" not in text


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("sdist", "nothing", "names nothing, which is not in its table"),
        ("requires", ["nothing"], "names nothing, which is not in its table"),
        ("rootfs", "nothing", "names nothing, which is not in its table"),
        ("requires", ["tiny-1.0-py3-none-any.whl"], "built with what is built with a built wheel itself"),
    ],
)
def test_a_lock_that_cannot_be(tmp_path: Path, field: str, value: Any, said: str) -> None:
    document = json.loads(text_of(built_wheel()))
    document["wheels"]["tiny-1.0-py3-none-any.whl"]["source"][field] = value
    (tmp_path / "m.lock.json").write_text(json.dumps(document))
    with pytest.raises(UsageError, match=said):
        read_lock(tmp_path / "m.lock.json")


def test_sources_cannot_climb_out_of_the_cache(tmp_path: Path) -> None:
    document = json.loads(text_of(built_wheel()))
    document["sdists"]["tiny-1.0.tar.gz"]["file"] = "../../tiny.tar.gz"
    (tmp_path / "m.lock.json").write_text(json.dumps(document))
    with pytest.raises(UsageError, match="damaged or changed by hand"):
        read_lock(tmp_path / "m.lock.json")
