"""What of a runtime has to be compiled: tried a second time, and put on the Debian cell alone."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from builder.core.errors import CommandError
from builder.core.model import Compilation, RootfsBase, Sdist, Wheel, WheelSource
from builder.plan.matrix import load
from builder.release.colab.diff import listed
from builder.release.colab.imports import Imported, choose_bases, matrix_text, record_text
from builder.release.colab.match import Matching, build_missing, match_packages
from builder.release.colab.runtimes import read_runtime
from builder.sources.index.client import LocalWheel
from builder.sources.index.simple_api import IndexFile
from builder.sources.index.target import Target

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from builder.release.colab.runtimes import Runtime

TARGET = Target(python="3.11", platform="linux/amd64", glibc="2.35")
LISTED = (
    "tensorflow==2.18.0\nnumpy==2.0.2\ndlib==19.24.6\nGDAL==3.8.4\nplain==1.0\npsycopg2==2.9.10\n"
    "failing==1.0\n"
)


class Offers:
    """An index in memory, in the place of the network: wheels of TensorFlow and NumPy, and sources."""

    def offers(self, name: str) -> tuple[IndexFile, ...]:
        versions = dict(line.split("==") for line in LISTED.split())
        end = "-py3-none-any.whl" if name in ("tensorflow", "numpy") else ".tar.gz"
        file = f"{name}-{versions[name]}{end}"
        return (IndexFile(name=file, url=f"https://index.invalid/{file}", sha256="a" * 64),)


class SmallDebian:
    def __init__(self) -> None:
        self.resolved: list[Sequence[str]] = []

    def resolve(
        self, suite: str, *, platform: str, packages: Sequence[str] = (), python: bool = True
    ) -> RootfsBase:
        assert (suite, platform) == ("bookworm", "linux/amd64")
        self.resolved.append(packages)
        return RootfsBase(suite=suite, debs=(), epoch=0)


class Works:
    """Compiles ``dlib``, ``psycopg2`` and ``plain``; builds nothing without a compiler."""

    def __init__(self) -> None:
        self.glibc: set[str] = set()

    def lock(
        self, sdist: Sdist, *, needs: Sequence[str] | None = None, target: Target, **given: Any
    ) -> LocalWheel:
        if sdist.name == "failing":
            raise _failure("SyntaxError: 2", "pin another version")
        if needs is None:
            raise _failure("gcc: not found", "it is compiled: say so in 'from-source'")
        self.glibc.add(target.glibc)
        if sdist.name == "gdal":
            raise _failure("Exception: Python bindings of GDAL 3.8.4 require at least libgdal 3.8.4", "pin")
        libraries = ("libc6", "libpq5") if sdist.name == "psycopg2" else ("libc6",)
        compiled = Compilation(needs=tuple(needs), libraries=libraries)
        source = WheelSource(
            sdist=sdist, requires=(), system=given["system"].base, python="3.11", compiled=compiled
        )
        wheel = Wheel(name=sdist.name, version="1", file="w.whl", sha256="b" * 64, size=1, source=source)
        return LocalWheel(wheel=wheel, path=given["index"])


def _failure(last: str, hint: str) -> CommandError:
    return CommandError("failed", command=(), returncode=1, tail=(last,), hint=hint)


@pytest.fixture
def runtime(tmp_path: Path) -> Runtime:
    (tmp_path / "pip-freeze.txt").write_text(LISTED)
    (tmp_path / "apt-list.txt").write_text("cuda-libraries-12-5/unknown,now 12.5.1-1 amd64 [installed]\n")
    (tmp_path / "os-info.txt").write_text("Ubuntu 22.04.4 LTS\nPython 3.11.13\n")
    return read_runtime(tmp_path, name="2025.07")


def run(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch, here: str = "linux/amd64"
) -> tuple[Matching, Works]:
    monkeypatch.setattr("builder.release.colab.match.host_platform", lambda: here)
    monkeypatch.setattr("builder.plan.lock.pinning.host_platform", lambda: "linux/amd64")
    offers: Any = Offers()
    works, debian = Works(), SmallDebian()
    outside: Any = {"debian": debian, "workshop": works}
    first = match_packages(runtime.packages, index=offers, target=TARGET)
    found = build_missing(first, index=offers, target=TARGET, **outside)
    return found, works


def test_what_a_compiler_builds_is_matched(runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    found, works = run(runtime, monkeypatch)
    compiled = {match.package.name: match.compiled for match in found.found if match.compiled}
    assert {name: one.needs for name, one in compiled.items()} == {
        "dlib": ("cmake",),
        "psycopg2": ("libpq-dev",),
        "plain": (),
    }
    assert works.glibc == {"2.36"}
    why = {match.package.name: match.detail.rpartition("; ")[2] for match in found.missing}
    assert why["GDAL"] == (
        "not built from them: Exception: Python bindings of GDAL 3.8.4 require at least libgdal 3.8.4"
    )
    assert why["failing"] == "not built from them: SyntaxError: 2"


def test_a_build_that_was_stopped_says_that(runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    message = "building dlib-19.24.6.tar.gz was not done after 3600 s, and was stopped"
    stopped = CommandError(
        message, command=(), returncode=-9, tail=("[ 40%] Building CXX object",), hint="pin"
    )

    def lock(_works: Works, *_: Any, **__: Any) -> LocalWheel:
        raise stopped

    monkeypatch.setattr(Works, "lock", lock)
    found, _ = run(runtime, monkeypatch)
    why = {match.package.name: match.detail for match in found.missing}
    assert why["dlib"].endswith(f"; not built from them: {message}")


def test_another_kind_of_machine_compiles_nothing(runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    found, works = run(runtime, monkeypatch, here="linux/arm64")
    assert [match.package.name for match in found.found] == ["tensorflow", "numpy"]
    assert works.glibc == set()
    assert all("; not built from them: " in match.detail for match in found.missing)


def test_only_the_debian_cell_has_it(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    matching, _ = run(runtime, monkeypatch)
    choices, no_base = choose_bases(runtime, any_python=False)
    imported = Imported(
        runtime=runtime, choices=choices, no_base=no_base, matching=matching,
        apt=("git",), runtime_apt=("libpq5",), profile="plain",
    )  # fmt: skip
    path = tmp_path / "colab-2025.07.yaml"
    path.write_text(matrix_text(imported))
    registry, rootfs = load(path).cells
    assert (registry.compiled, registry.pip, registry.apt) == ((), ("numpy==2.0.2",), ("git",))
    assert rootfs.compiled == (("dlib", ("cmake",)), ("plain", ()), ("psycopg2", ("libpq-dev",)))
    assert rootfs.pip == ("numpy==2.0.2", "dlib==19.24.6", "plain==1.0", "psycopg2==2.9.10")
    assert rootfs.apt == ("git", "libpq5")
    record = tmp_path / "colab-2025.07.runtime.json"
    record.write_text(record_text(imported))
    assert json.loads(record.read_text())["compiled"]["psycopg2"] == {
        "needs": ["libpq-dev"],
        "libraries": ["libc6", "libpq5"],
    }
    reasons = listed(str(record)).reasons
    assert reasons["dlib"].startswith("compiled with the libraries of a Debian release")
    assert set(reasons) == {"dlib", "plain", "psycopg2", "GDAL", "failing"}
