"""Packages that an index has only sources of: built where they can be, explained where not."""

from __future__ import annotations

import threading
import zipfile
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from builder.core.errors import CancelledError, CellError, CommandError
from builder.core.model import RootfsBase, Sdist, StandalonePython, Wheel, WheelSource
from builder.plan.lock.pinning import BuildRoot
from builder.release.colab.match import Matching, build_missing, match_packages
from builder.release.colab.runtimes import parse_freeze
from builder.sources.index.client import LocalWheel
from builder.sources.index.simple_api import IndexFile
from builder.sources.index.target import Target

if TYPE_CHECKING:
    from pathlib import Path

TARGET = Target(python="3.11", platform="linux/amd64", glibc="2.35")
SYSTEM = RootfsBase(suite="bookworm", debs=(), epoch=0)


class Offers:
    """An index in memory, in the place of the network."""

    def offers(self, name: str) -> tuple[IndexFile, ...]:
        files = {"numpy": "numpy-2.0-py3-none-any.whl", "google-colab": "google-colab-1.0.tar.gz"}
        return (file(files.get(name, f"{name}-1.0.tar.gz")),)


class SmallDebian:
    def resolve(self, suite: str, **_: Any) -> RootfsBase:
        return replace(SYSTEM, suite=suite)


class Works:
    """Builds ``good`` and nothing else."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.cancel = threading.Event()
        self.pins: tuple[str, ...] = ()
        self.system: BuildRoot | None = None

    def lock(self, sdist: Sdist, *, pins: list[str], system: BuildRoot, **_: Any) -> LocalWheel:
        self.pins = tuple(pins)
        self.system = system
        if sdist.name == "stub":
            hint = "its build asks the network, which it does not get: name the index"
            raise CommandError("failed", command=(), returncode=1, tail=("errno -3",), hint=hint)
        if sdist.name == "broken":
            raise CommandError(
                "failed", command=(), returncode=1, tail=("SyntaxError: 2",), hint="pin another"
            )
        if sdist.name == "other":
            raise CellError("other says no")
        path = self.folder / "good-1.0-py3-none-any.whl"
        with zipfile.ZipFile(path, "w") as wheel:
            wheel.writestr(
                "good-1.0.dist-info/METADATA", "Name: good\nVersion: 1.0\nRequires-Dist: numpy<2\n"
            )
        source = WheelSource(sdist=sdist, requires=(), system=SYSTEM, python="3.11")
        made = Wheel(name="good", version="1.0", file=path.name, sha256="b" * 64, size=1, source=source)
        return LocalWheel(wheel=made, path=path)


def file(name: str) -> IndexFile:
    return IndexFile(name=name, url=f"https://index.invalid/{name}", sha256="a" * 64)


def run(tmp_path: Path, *, python: str = "3.11", **options: Any) -> tuple[Matching, Works]:
    text = "good==1.0\nstub==1.0\nbroken==1.0\nother==1.0\nnumpy==2.0\ngoogle-colab==1.0\n"
    packages, _ = parse_freeze(text, "freeze.txt")
    target = Target(python=python, platform="linux/amd64", glibc="2.35")
    offers: Any = Offers()
    works: Any = options.pop("works", None) or Works(tmp_path)
    debian: Any = SmallDebian()
    first = match_packages(packages, index=offers, target=target)
    found = build_missing(first, index=offers, target=target, debian=debian, workshop=works, **options)
    return found, works


def test_what_builds_is_matched(tmp_path: Path) -> None:
    found, works = run(tmp_path)
    (good,) = [match for match in found.found if match.package.name == "good"]
    assert (good.requirement, good.reason) == ("good==1.0", None)
    assert good.detail == "the index has only sources: built from good-1.0.tar.gz"
    assert works.pins == ("numpy==2.0",)
    assert [match.package.name for match in found.matches] == [
        "good", "stub", "broken", "other", "numpy", "google-colab",
    ]  # fmt: skip


def test_what_does_not_says_why(tmp_path: Path) -> None:
    found, _ = run(tmp_path)
    why = {match.package.name: match.detail.rpartition("; ")[2] for match in found.missing}
    assert why["stub"] == "not built from them: its build asks the network, which it does not get"
    assert why["broken"] == "not built from them: SyntaxError: 2"
    assert why["other"] == "not built from them: other says no"
    assert why["google-colab"] == "Google's own package, published nowhere"


def test_a_python_that_is_not_here_builds_nothing(tmp_path: Path) -> None:
    found, works = run(tmp_path, python="3.14")
    assert [match.package.name for match in found.found] == ["numpy"]
    assert works.pins == ()
    (stub,) = [match for match in found.missing if match.package.name == "stub"]
    assert "not built from them: there is no Python 3.14 here" in stub.detail


def test_a_standalone_python_builds(tmp_path: Path) -> None:
    python = StandalonePython(version="3.12.13", build="20260807", file="c.tar.gz", sha256="c" * 64, size=1)
    found, works = run(tmp_path, python="3.12", interpreter=python)
    assert [match.package.name for match in found.found] == ["good", "numpy"]
    assert works.system == BuildRoot(base=replace(SYSTEM, suite="trixie"), interpreter=python)


class Slow(Works):
    """Builds until somebody says that it is enough; a minute at most."""

    def lock(self, sdist: Sdist, **options: Any) -> LocalWheel:
        if sdist.name != "good":
            self.stopped = self.cancel.wait(60)
            raise CancelledError(f"building {sdist.file} was not finished")
        return super().lock(sdist, **options)


def test_ctrl_c_ends_the_builds_that_run(tmp_path: Path) -> None:
    slow = Slow(tmp_path)

    def progress(*_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, works=slow, progress=progress)
    assert slow.stopped
