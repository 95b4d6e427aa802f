"""A hostile or broken archive of sources is refused, and named; a plain one comes out as it is."""

from __future__ import annotations

import tarfile
import zipfile
from typing import TYPE_CHECKING

import pytest
from sdist_files import sdist

from builder.core.errors import CellError
from builder.image.sdist.bench import build_system, unpack

if TYPE_CHECKING:
    from pathlib import Path


def entry(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    found = tarfile.TarInfo(name)
    found.type, found.linkname = kind, link
    return found


def test_files_come_out(tmp_path: Path) -> None:
    link = entry("tiny-1.0/LICENSE", tarfile.SYMTYPE, "docs/text")
    archive = sdist(tmp_path / "a.tar.gz", {"setup.py": "x", "docs/text": "words"}, others=(link,))
    folder = unpack(archive, tmp_path / "out")
    assert folder.name == "tiny-1.0"
    assert (folder / "setup.py").read_text() == "x"
    assert (folder / "LICENSE").read_text() == "words"
    assert not (folder / "LICENSE").is_symlink()


def test_a_zip_comes_out(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("tiny-1.0/setup.py", "y" * 3_000_000)
    assert (unpack(tmp_path / "a.zip", tmp_path / "out") / "setup.py").stat().st_size == 3_000_000


def test_a_zip_that_no_disk_takes(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        for name in ("a/b", "a/b/c"):  # a file and a folder
            archive.writestr(name, "x")
    with pytest.raises(CellError, match="cannot be read"):
        unpack(tmp_path / "a.zip", tmp_path / "out")


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (entry("tiny-1.0/../../escaped"), "leads out of it"),
        (entry("/etc/escaped"), "does not hold one folder"),
        (entry("tiny-1.0/a\\b"), "no plain path"),
        (entry("tiny-1.0/link", tarfile.SYMTYPE, "../../etc/passwd"), "leads out of it"),
        (entry("tiny-1.0/link", tarfile.SYMTYPE, "/etc/passwd"), "leads out of it"),
        (entry("tiny-1.0/link", tarfile.LNKTYPE, "tiny-1.0/nothing"), "no file of it"),
        (entry("tiny-1.0/link", tarfile.LNKTYPE, "a" * 300), "cannot be read: .*name too long"),
        (entry("tiny-1.0/" + "a" * 300), "cannot be read: .*name too long"),
        (entry("tiny-1.0/pipe", tarfile.FIFOTYPE), "no file, folder or link"),
        (entry("second"), "does not hold one folder"),
    ],
)
def test_what_is_refused(tmp_path: Path, other: tarfile.TarInfo, said: str) -> None:
    archive = sdist(tmp_path / "a.tar.gz", {"setup.py": "x"}, others=(other,))
    with pytest.raises(CellError, match=said):
        unpack(archive, tmp_path / "out")
    assert not (tmp_path / "escaped").exists()


def test_an_archive_cut_short(tmp_path: Path) -> None:
    archive = sdist(tmp_path / "a.tar.gz", {"setup.py": "x" * 100_000})
    archive.write_bytes(archive.read_bytes()[:-60])
    with pytest.raises(CellError, match="cannot be unpacked"):
        unpack(archive, tmp_path / "out")


def test_no_archive_at_all(tmp_path: Path) -> None:
    (tmp_path / "a.tar.gz").write_text("<html>login</html>")
    with pytest.raises(CellError, match=r"a\.tar\.gz cannot be unpacked"):
        unpack(tmp_path / "a.tar.gz", tmp_path / "out")


def test_a_project_that_says_nothing_is_built_by_setuptools(tmp_path: Path) -> None:
    found = build_system(tmp_path, what="a")
    assert found.backend == "setuptools.build_meta:__legacy__"
    assert found.requires == ["setuptools >= 40.8.0"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[build-system", "cannot be read"),
        ("[build-system]\nrequires = =", "pyproject.toml:2:12 cannot be read: it is no TOML: Invalid value"),
        ("[build-system]\nrequires = 7", "PEP 518"),
        ('[build-system]\nrequires = ["x @ https://host.invalid/x.whl"]', "from an address"),
        ('[build-system]\nrequires = ["=="]', "wants '=='"),
        ('[build-system]\nrequires = []\nbackend-path = ["../.."]', "leads out"),
    ],
)
def test_a_build_system_that_cannot_be_followed(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "pyproject.toml").write_text(text)
    with pytest.raises(CellError, match=said):
        build_system(tmp_path, what="tiny-1.0.tar.gz")
