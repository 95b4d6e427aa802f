"""What is compiled from sources: where it may be, in what, and what it asks of the image."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import pytest
from lock_values import lock_cell, lock_wheel

from builder.core.errors import CellError, UsageError
from builder.core.model import Base, Cell, Compilation, Deb, RootfsBase, Wheel, WheelSource
from builder.plan.lock import pinning
from builder.plan.lock.file import LockEntry, read_lock, render
from builder.sources.index import host_platform
from builder.sources.index.client import LocalWheel
from builder.sources.index.simple_api import IndexFile
from builder.sources.index.target import Target

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from builder.core.model import Sdist

TARGET = Target(python="3.11", platform="linux/amd64", glibc="2.36")
REQUIREMENTS = ("psycopg2==1.0", "pycairo==1.0", "tiny==1.0")
LOADED = {"psycopg2": ("libc6", "libpq5"), "pycairo": ("libc6", "libcairo2")}
CELL = dataclasses.replace(
    lock_cell("a"),
    python="3.11",
    base=Base(kind="rootfs", name="debian/bookworm"),
    platform=host_platform(),
    from_source=("tiny",),
    compiled=(("psycopg2", ("libpq-dev",)), ("pycairo", ("libcairo2-dev", "pkg-config"))),
)


def base(*packages: str) -> RootfsBase:
    debs = (
        Deb(package=name, version="1", architecture="amd64", file=f"pool/{name}.deb", sha256="a" * 64,
            size=1, archive="debian")
        for name in ("libc6", *packages)
    )  # fmt: skip
    return RootfsBase(suite="bookworm", debs=tuple(debs), epoch=7)


class Outside:
    """An index with sources of everything, a Debian that has every package, and a workshop for them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.systems: list[tuple[str, tuple[str, ...]]] = []
        self.locked: list[tuple[str, Sequence[str] | None]] = []

    def offers(self, name: str) -> tuple[IndexFile, ...]:
        return (IndexFile(name=f"{name}-1.0.tar.gz", url="https://index.invalid/x", sha256="a" * 64),)

    def resolve(
        self, suite: str, *, platform: str, packages: Sequence[str] = (), python: bool = True
    ) -> RootfsBase:
        assert platform == CELL.platform
        self.systems.append((suite, tuple(packages)))
        return base(*packages)

    def lock(self, sdist: Sdist, *, needs: Sequence[str] | None = None, **given: Any) -> LocalWheel:
        self.locked.append((sdist.name, needs))
        compiled = None if needs is None else Compilation(needs=tuple(needs), libraries=LOADED[sdist.name])
        source = WheelSource(
            sdist=sdist, requires=(), system=given["system"].base, python="3.11", compiled=compiled
        )
        return LocalWheel(wheel=dataclasses.replace(lock_wheel(sdist.name), source=source), path=self.path)

    def make(self, _wheel: Wheel, _index: Any) -> Path:
        return self.path


def run(outside: Outside, cell: Cell = CELL, *packages: str, **options: Any) -> tuple[LocalWheel, ...]:
    given: Any = outside
    standing = base("libpq5", "libcairo2", *packages) if "base" not in options else options.pop("base")
    return pinning.built(
        cell, REQUIREMENTS, index=given, debian=given, workshop=given, target=TARGET, base=standing, **options
    )


def test_each_is_compiled_in_a_system_of_its_own(tmp_path: Path) -> None:
    outside = Outside(tmp_path)
    run(outside)
    assert outside.locked == [
        ("tiny", None), ("psycopg2", ("libpq-dev",)), ("pycairo", ("libcairo2-dev", "pkg-config")),
    ]  # fmt: skip
    compilers = [(suite, packages) for suite, packages in outside.systems if packages]
    assert compilers == [
        ("bookworm", ("build-essential", "libpq-dev", "python3-dev")),
        ("bookworm", ("build-essential", "libcairo2-dev", "pkg-config", "python3-dev")),
    ]


def test_what_was_compiled_stays_until_its_build_needs_something_else(tmp_path: Path) -> None:
    first = tuple(built.wheel for built in run(Outside(tmp_path)))
    again = Outside(tmp_path)
    run(again, previous=first)
    assert again.locked == []
    changed = (("psycopg2", ("libpq-dev", "libssl-dev")), CELL.compiled[1])
    run(again, dataclasses.replace(CELL, compiled=changed), previous=first)
    assert again.locked == [("psycopg2", ("libpq-dev", "libssl-dev"))]
    pure = dataclasses.replace(CELL, from_source=("tiny", "pycairo"), compiled=CELL.compiled[:1])
    run(again, pure, previous=first)
    assert again.locked[1:] == [("pycairo", None)]


def test_all_libraries_that_the_image_lacks_are_named_at_once(tmp_path: Path) -> None:
    with pytest.raises(CellError, match="libcairo2, by pycairo; libpq5, by psycopg2") as raised:
        run(Outside(tmp_path), base=base())
    assert raised.value.hint == "add libcairo2, libpq5 to 'apt'"


def test_an_image_of_a_registry_is_refused(tmp_path: Path) -> None:
    cell = dataclasses.replace(CELL, base=Base(kind="registry", name="nvidia/cuda:12.5.1-base-ubuntu22.04"))
    with pytest.raises(CellError, match="psycopg2, pycairo is compiled with a Debian release's") as raised:
        run(Outside(tmp_path), cell)
    assert "put the cell on rootfs:debian/<suite>" in str(raised.value.hint)


def test_another_machine_is_refused(tmp_path: Path) -> None:
    other = "linux/arm64" if CELL.platform == "linux/amd64" else "linux/amd64"
    with pytest.raises(CellError, match=f"but the cell is for {other}") as raised:
        run(Outside(tmp_path), dataclasses.replace(CELL, platform=other))
    assert f"lock and build it on a machine of {other}" in str(raised.value.hint)


def written(tmp_path: Path) -> Path:
    wheels = tuple(built.wheel for built in run(Outside(tmp_path)))
    entry = LockEntry(
        inputs="sha256:" + "0" * 64,
        platform="linux/amd64",
        base=base("libpq5"),
        apt=(),
        wheels=wheels,
        epoch=7,
    )
    path = tmp_path / "m.lock.json"
    path.write_text(render("m", {"a": entry}))
    return path


def test_the_lock_says_it_and_is_read_again(tmp_path: Path) -> None:
    path = written(tmp_path)
    read = read_lock(path)
    assert read
    compiled = {wheel.name: wheel.source.compiled for wheel in read["a"].wheels if wheel.source}
    assert compiled["tiny"] is None
    assert compiled["psycopg2"] == Compilation(needs=("libpq-dev",), libraries=("libc6", "libpq5"))
    assert render("m", read) == path.read_text()


def test_a_lock_cannot_name_what_is_no_package(tmp_path: Path) -> None:
    path = written(tmp_path)
    path.write_text(path.read_text().replace('"libpq-dev"', '"-oAPT::x=1"'))
    with pytest.raises(UsageError, match="damaged or changed by hand"):
        read_lock(path)
