"""Packages of which an index has only sources: named from-source with a reason, and never run."""

from __future__ import annotations

import hashlib
import io
import tarfile
import zipfile
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from packaging.requirements import Requirement

from builder.core.errors import NoSolutionError, PackageIndexError
from builder.core.model import Base, Cell, Cuda, Wheel
from builder.plan.facts.rules import Outcome
from builder.plan.resolve.resolver import asked_by_sources, untried, with_sources
from builder.sources.index.archives import SdistContents, sdist_contents
from builder.sources.index.simple_api import IndexFile
from builder.sources.index.target import Target

if TYPE_CHECKING:
    from pathlib import Path

TARGET = Target(python="3.8", platform="linux/amd64", glibc="2.31")
OPTIONAL = "from setuptools import setup\nclass BuildFailed(Exception): pass\nraise SystemExit('it ran')\n"


def archive(folder: Path, name: str, files: dict[str, str]) -> Path:
    path = folder / f"{name}.tar.gz"
    with tarfile.open(path, "w:gz") as out:
        for file, text in files.items():
            info = tarfile.TarInfo(f"{name}/{file}")
            info.size = len(text.encode())
            out.addfile(info, io.BytesIO(text.encode()))
    return path


class SourcesOnly:
    """An index that has these archives and no wheel."""

    def __init__(self, *paths: Path) -> None:
        self.paths = {path.name: path for path in paths}

    def offers(self, name: str) -> list[IndexFile]:
        return [
            IndexFile(
                name=file,
                url=f"https://index.example/{file}",
                sha256=hashlib.sha256(path.read_bytes()).hexdigest(),
                requires_python=None,
                yanked=None,
                size=path.stat().st_size,
            )
            for file, path in self.paths.items()
            if file.startswith(f"{name}-")
        ]

    def fetch(self, sdist, *, cache: Path) -> Path:
        return self.paths[sdist.file]


def cell(*pip: str, base: str = "debian/bullseye") -> Cell:
    return Cell(
        id="c",
        matrix="m",
        frameworks=("tensorflow==2.4.1",),
        python="3.8",
        base=Base(kind="rootfs" if base.startswith("debian/") else "registry", name=base),
        cuda=Cuda(provider="none"),
        pip=pip,
    )


def solver(*steps: str):
    """A resolver that fails with each of these words in turn, until enough wheels are given to it."""

    def solve(tried: Cell, built) -> list[Wheel]:
        for one in built:
            with zipfile.ZipFile(one.path) as wheel:
                assert not [name for name in wheel.namelist() if ".dist-info/" not in name]
        if len(built) < len(steps):
            raise NoSolutionError(f"no set of wheels\n  {steps[len(built)]}")
        return [one.wheel for one in built]

    return solve


TERMCOLOR = (
    "Because termcolor==1.1.0 has no usable wheels and only the following versions of termcolor are "
    "available:\n termcolor<=1.1.0\n termcolor>1.2.dev0\n And because tensorflow==2.4.1 depends on "
    "termcolor>=1.1.0,<1.2.dev0 and you require tensorflow==2.4.1, your requirements are unsatisfiable."
)


def test_what_has_only_sources_is_named_with_its_reason(tmp_path: Path) -> None:
    index = SourcesOnly(
        archive(tmp_path, "termcolor-1.1.0", {"setup.py": "raise SystemExit('it ran')"}),
        archive(tmp_path, "termcolor-2.4.0", {"setup.py": ""}),
        archive(tmp_path, "wrapt-1.12.1", {"setup.py": OPTIONAL, "src/wrapt/_wrappers.c": "int a;"}),
    )
    wrapt = "wrapt==1.12.1 has no usable wheels\nhint: Wheels are required for `wrapt` because …"
    found, wheels, reasons = with_sources(
        cell(), ["tensorflow==2.4.1"], TARGET, index, solver(TERMCOLOR, wrapt)
    )
    assert found.from_source == ("termcolor", "wrapt")
    assert found.pip == ("termcolor==1.1.0", "wrapt==1.12.1")  # not the newer one that others do not take
    assert found.compiled == ()  # its setup.py goes on without its compiled half
    assert {wheel.name for wheel in wheels} == {"termcolor", "wrapt"}
    assert [reason.partition(":")[0] for reason in reasons] == ["termcolor 1.1.0", "wrapt 1.12.1"]


def test_a_requirement_of_the_matrix_is_not_named_twice(tmp_path: Path) -> None:
    index = SourcesOnly(archive(tmp_path, "jieba-0.42.1", {"setup.py": ""}))
    said = "Because all versions of jieba have no usable wheels and you require jieba"
    found, _, _ = with_sources(cell("jieba"), ["jieba"], TARGET, index, solver(said))
    assert (found.pip, found.from_source) == (("jieba",), ("jieba",))


def test_compiled_code_needs_a_debian_release(tmp_path: Path) -> None:
    index = SourcesOnly(archive(tmp_path, "psycopg2-2.9.10", {"setup.py": "", "psycopg/pq.c": "int a;"}))
    said = "Because psycopg2==2.9.10 has no usable wheels and you require psycopg2==2.9.10"
    asked = ["psycopg2==2.9.10"]
    found, _, reasons = with_sources(cell(*asked), asked, TARGET, index, solver(said))
    assert found.compiled == (("psycopg2", ("libpq-dev",)),)
    assert "compiled" in reasons[0]
    elsewhere = cell(*asked, base="nvidia/cuda:11.0.3-cudnn8-runtime-ubuntu20.04")
    with pytest.raises(NoSolutionError):
        with_sources(elsewhere, asked, TARGET, index, solver(said))


def test_what_nobody_read_how_to_compile_is_compiled_only_boldly_and_is_unknown(tmp_path: Path) -> None:
    setup = "from setuptools import Extension, setup"
    index = SourcesOnly(archive(tmp_path, "webrtcvad-2.0.10", {"setup.py": setup, "cbits/a.c": "int a;"}))
    said = "Because all versions of webrtcvad have no usable wheels and you require webrtcvad"
    asked = (cell("webrtcvad"), ["webrtcvad"], TARGET, index)
    with pytest.raises(NoSolutionError):
        with_sources(*asked, solver(said))
    found, _, (reason,) = with_sources(*asked, solver(said), boldly={"webrtcvad"})
    assert found.compiled == (("webrtcvad", ()),)
    assert reason.endswith("compiled from them with a compiler alone")
    assert [one.outcome for one in untried(found)] == [Outcome.UNKNOWN]
    assert not [*untried(replace(found, compiled=(("psycopg2", ("libpq-dev",)),)))]


def test_c_that_no_setup_compiles_needs_no_compiler(tmp_path: Path) -> None:
    theano = archive(tmp_path, "theano-1", {"setup.py": "setup(name='Theano')", "theano/op.c": "int a;"})
    assert not sdist_contents(theano).compiled
    backend = "[build-system]\nbuild-backend = 'mesonpy'\n"
    meson = archive(tmp_path, "m-1", {"setup.py": "setup()", "pyproject.toml": backend, "m/a.c": "int a;"})
    assert sdist_contents(meson).compiled


def test_the_older_release_without_a_wheel_is_built_where_the_newer_one_does_not_go(tmp_path: Path) -> None:
    class Both(SourcesOnly):
        def offers(self, name: str) -> list[IndexFile]:
            file = "circle_fit-0.2.1-py3-none-any.whl"
            return [*super().offers(name), IndexFile(name=file, url="https://index.example/", sha256="0")]

    index = Both(archive(tmp_path, "circle-fit-0.1.3", {"setup.py": ""}))
    said = "circle-fit>=0.2.0 depends on numpy>=1.21.0 And because circle-fit==0.1.3 has no usable wheels"
    asked = ["circle-fit>=0.1.3"]
    found, _, _ = with_sources(cell(*asked), asked, TARGET, index, solver(said))
    assert (found.pip, found.from_source) == (("circle-fit==0.1.3",), ("circle-fit",))


def test_without_sources_the_resolvers_own_words_stand(tmp_path: Path) -> None:
    with pytest.raises(NoSolutionError, match="depends on"):
        with_sources(cell(), ["tensorflow==2.4.1"], TARGET, SourcesOnly(), solver(TERMCOLOR))
    with pytest.raises(NoSolutionError, match="ABI tag"):
        with_sources(cell(), ["numpy"], TARGET, SourcesOnly(), solver("numpy has no matching ABI tag"))


def test_the_dependencies_are_those_of_the_archive(tmp_path: Path) -> None:
    info = "Metadata-Version: 1.1\nName: visdom\n\nRequires-Dist: not a header\n"
    listed = "numpy>=1.8\n\n[gpu]\ncupy\n\n[:python_version < '3.8']\ntyping\nno requirement at all !\n"
    path = archive(
        tmp_path,
        "visdom-0.2.4",
        {"PKG-INFO": info, "py/visdom.egg-info/requires.txt": listed, "test/a.c": ""},
    )
    found = sdist_contents(path)
    assert not found.compiled
    parsed = [Requirement(text) for text in found.requires]
    assert [one.name for one in parsed] == ["numpy", "cupy", "typing"]
    assert [str(one.marker) for one in parsed[1:]] == ['extra == "gpu"', 'python_version < "3.8"']
    modern = archive(tmp_path, "new-1", {"PKG-INFO": "Metadata-Version: 2.2\nRequires-Dist: six>1\n"})
    assert sdist_contents(modern).requires == ("six>1",)


def test_what_is_no_archive_is_refused(tmp_path: Path) -> None:
    for name in ("a-1.tar.gz", "a-1.zip"):
        path = tmp_path / name
        path.write_bytes(b"<html>")
        with pytest.raises(PackageIndexError, match="cannot be read"):
            sdist_contents(path)


def test_of_a_zip_only_what_is_wanted_is_unpacked(tmp_path: Path) -> None:
    path = tmp_path / "a-1.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as made:
        made.writestr("a-1/a.c", "int large;" * 1000)
        made.writestr("a-1/PKG-INFO", "Metadata-Version: 2.2\nRequires-Dist: six>1\n")
        places = [info.header_offset + 30 + len(info.filename) for info in made.infolist()]
    whole = path.read_bytes()
    for place, readable in zip(places, (True, False), strict=True):
        path.write_bytes(whole[:place] + b"\xff" * 8 + whole[place + 8 :])  # no deflated data
        if readable:
            assert sdist_contents(path) == SdistContents(requires=("six>1",), compiled=True)
        else:
            with pytest.raises(PackageIndexError, match="cannot be read"):
                sdist_contents(path)


def test_what_sources_ask_for_is_read(tmp_path: Path) -> None:
    """openai-whisper has no wheel, and brings PyTorch."""
    metadata = (
        "Metadata-Version: 2.1\nName: spoken\nVersion: 1\nRequires-Dist: torch\nRequires-Dist: tqdm>=4\n"
    )
    index = SourcesOnly(archive(tmp_path, "spoken-1", {"PKG-INFO": metadata, "setup.py": OPTIONAL}))
    words = "Because all versions of spoken have no usable wheels and you require spoken"
    assert {*asked_by_sources(words, ["spoken"], TARGET, index)} == {"torch", "tqdm"}
    assert not [*asked_by_sources("Because spoken clashes", ["spoken"], TARGET, index)]


def test_what_was_found_without_a_wheel_is_not_found_out_again(tmp_path: Path) -> None:
    files = {"PKG-INFO": "Name: jieba\n", "setup.py": "", "jieba/__init__.py": "cut = 1\n"}
    index = SourcesOnly(archive(tmp_path, "jieba-0.42.1", files))
    said, asked = "Because jieba has no usable wheels and you require jieba, nothing can be done.", ["jieba"]
    given: list[int] = []

    def solve(_tried: Cell, built) -> list[Wheel]:
        given.append(len(built))
        if not built:
            raise NoSolutionError(said)
        return [one.wheel for one in built]

    for _ in range(2):
        tried, _, reasons = with_sources(cell("jieba"), asked, TARGET, index, solve)
        assert (tried.from_source, len(reasons)) == (("jieba",), 1)
    assert given == [0, 1, 1]


INFO = {"PKG-INFO": "Metadata-Version: 2.1\nName: one\n", "README.md": "Install it from elsewhere."}


@pytest.mark.parametrize(
    "files",
    [
        # tritonserver 0.0.1.dev0: an empty module, and a setup.py that raises
        {"setup.py": "raise RuntimeError", "one/__init__.py": "", "one.egg-info/top_level.txt": "one\n"},
        # nvidia-dali 0.0.1.dev5: a helper of setup.py, named among no modules
        {
            "setup.py": "import info",
            "info.py": "x = 1",
            "ERROR.txt": "no",
            "one.egg-info/top_level.txt": "\n",
        },
        # pytorch 1.0.2: a setup.py alone
        {"setup.py": "raise Exception('is named torch')"},
    ],
)
def test_the_placeholder_of_a_name_is_built_for_nobody(tmp_path: Path, files) -> None:
    """As the default index has them: https://github.com/pytorch/pytorch/issues/939"""
    path = archive(tmp_path, "one-0.0.1", INFO | files)
    assert sdist_contents(path).empty
    said = "Because one==0.0.1 has no usable wheels and you require one, nothing can be done."
    with pytest.raises(NoSolutionError, match="no usable wheels"):
        with_sources(cell("one"), ["one"], TARGET, SourcesOnly(path), solver(said))


@pytest.mark.parametrize(
    "files",
    [
        {"setup.py": "", "one.py": "x = 1"},
        {"setup.py": "", "one.py": "x = 1", "one.egg-info/top_level.txt": "one\n"},
        {"setup.py": "", "src/one/__init__.py": "x = 1"},
        {"setup.py": "", "one/data.json": "{}"},
        {"pyproject.toml": "", "src/lib.rs": "fn a() {}"},
        # one that is there to bring others: sklearn 0.0
        {"setup.py": "", "one.egg-info/requires.txt": "scikit-learn\n"},
    ],
)
def test_what_has_a_module_or_brings_another_package_is_no_placeholder(tmp_path: Path, files) -> None:
    assert not sdist_contents(archive(tmp_path, "one-1", INFO | files)).empty


def test_an_archive_whose_build_downloads_the_wheel_is_no_source(tmp_path: Path) -> None:
    """https://github.com/NVIDIA/wheel-stub"""
    project = '[build-system]\nbuild-backend = "wheel_stub.buildapi"\n[tool.wheel_stub]\nindex_url = "%s"\n'
    files = {"pyproject.toml": project % "https://wheels.example/"}
    path = archive(tmp_path, "one-1", INFO | files)
    assert sdist_contents(path).elsewhere == "https://wheels.example/"
    said = "Because one==1 has no usable wheels and you require one, nothing can be done."
    with pytest.raises(NoSolutionError):
        with_sources(cell("one"), ["one"], TARGET, SourcesOnly(path), solver(said))
