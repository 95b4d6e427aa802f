"""Whose libraries compiled files load, asked of a small system."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from elf_files import library

from builder.core.errors import CellError
from builder.image.sdist.wheel import loaded

if TYPE_CHECKING:
    from pathlib import Path

LIBRARIES = "usr/lib/x86_64-linux-gnu"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """As Debian lays it: /lib is /usr/lib, a soname is a link, and an alternative is two more."""
    info, lib = tmp_path / "var/lib/dpkg/info", tmp_path / LIBRARIES
    for folder in (info, lib / "blas", tmp_path / "usr/lib/R/lib", tmp_path / "etc/alternatives"):
        folder.mkdir(parents=True)
    (tmp_path / "lib").symlink_to("usr/lib")
    for name in ("libc.so.6", "libpq.so.5.15", "blas/libblas.so.3", "stray.so"):
        (lib / name).touch()
    (tmp_path / "usr/lib/R/lib/libR.so").touch()
    (lib / "libpq.so.5").symlink_to("libpq.so.5.15")
    (lib / "libblas.so.3").symlink_to("/etc/alternatives/libblas")
    (tmp_path / "etc/alternatives/libblas").symlink_to(f"/{LIBRARIES}/blas/libblas.so.3")
    for package, file in {
        "libc6:amd64": "/lib/x86_64-linux-gnu/libc.so.6",
        "libpq5:amd64": f"/{LIBRARIES}/libpq.so.5.15",
        "libblas3:amd64": f"/{LIBRARIES}/blas/libblas.so.3",
        "r-base-core": "/usr/lib/R/lib/libR.so",
    }.items():
        (info / f"{package}.list").write_text(f"/.\n{file}\n")
    return tmp_path


def run(root: Path, **files: bytes) -> tuple[str, ...]:
    content = {f"tiny/{name}.so": (data, False) for name, data in files.items()}
    content["tiny/__init__.py"] = (b"", False)
    return loaded(content, root, machine="x86_64", what="tiny-1.0.tar.gz")


def test_the_packages_that_have_them(root: Path) -> None:
    files = {"a": library("libpq.so.5", "libc.so.6"), "b": library("libblas.so.3", "libc.so.6")}
    assert run(root, **files) == ("libblas3", "libc6", "libpq5")


def test_the_wheels_own_are_nobody_elses(root: Path) -> None:
    assert run(root, a=library("b.so", "libc.so.6"), b=library()) == ("libc6",)


def test_a_folder_that_the_file_itself_names(root: Path) -> None:
    assert run(root, a=library("libR.so", paths="$ORIGIN:/usr/lib/R/lib")) == ("r-base-core",)


def test_a_library_of_the_standalone_python_is_in_the_image_too(root: Path) -> None:
    (root / "opt/python/lib").mkdir(parents=True)
    (root / "opt/python/lib/libffi.so.8").touch()
    assert run(root, a=library("libffi.so.8", "libc.so.6", paths="/opt/python/lib")) == ("libc6",)
    with pytest.raises(CellError, match=r"has libffi\.so\.8, which tiny/a\.so"):
        run(root, a=library("libffi.so.8"))


def test_pure_python_loads_nothing(root: Path) -> None:
    assert run(root) == ()


@pytest.mark.parametrize("name", ["libmissing.so.1", "stray.so"])
def test_a_library_that_no_package_has(root: Path, name: str) -> None:
    with pytest.raises(
        CellError, match=f"neither the wheel nor a Debian package has {name}, which tiny/a.so"
    ):
        run(root, a=library(name))


@pytest.mark.parametrize(("name", "paths"), [("x" * 5000, None), ("x", "/" + "y/" * 5000), ("\x1b[2J", None)])
def test_names_that_no_system_takes(root: Path, name: str, paths: str | None) -> None:
    with pytest.raises(CellError, match=r"neither the wheel nor a Debian package has (x|\uFFFD)"):
        run(root, a=library(name, paths=paths))


@pytest.mark.parametrize("data", [library(machine=183), b"\x7fELF\x01\x01\x01" + bytes(60)])
def test_code_of_another_machine(root: Path, data: bytes) -> None:
    with pytest.raises(CellError, match=r"tiny/a\.so is code of another machine than x86_64"):
        run(root, a=data)
