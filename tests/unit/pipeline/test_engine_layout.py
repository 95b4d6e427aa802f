"""A layer that an engine made is laid out as it is, and nowhere else."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path

import pytest

from builder.core.errors import CellError
from builder.image.compose.step_runners import _extract

LINK, HARD, DIRECTORY = tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE


def entry(name: str, kind: bytes = tarfile.REGTYPE, link: str = "", mode: int = 0o644) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.mode, info.mtime, info.uid = kind, link, mode, 1_000_000, 12345
    info.size = len(name) if kind == tarfile.REGTYPE else 0
    return info


def laid(folder: Path, *entries: tarfile.TarInfo) -> Path:
    """``folder/root`` with the entries; the content of a file is its name."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for one in entries:
            tar.addfile(one, io.BytesIO(one.name.encode()))
    packed.seek(0)
    root = folder / "root"
    root.mkdir()
    with tarfile.open(fileobj=packed, mode="r|") as tar:
        _extract(tar, root)
    return root


def test_modes_times_and_links_are_those_of_the_layer(tmp_path: Path) -> None:
    root = laid(
        tmp_path,
        entry("out/", DIRECTORY, mode=0o1777),
        entry("out/shut/", DIRECTORY, mode=0o500),
        entry("out/shut/file", mode=0o4755),
        entry("out/same", HARD, "out/shut/file", mode=0o4755),
        entry("out/absolute", LINK, "/usr/lib/libc.so"),
        entry("out/above", LINK, "../../../etc/passwd"),
    )
    found = {path.name: path.lstat() for path in (root / "out").rglob("*")}
    assert (root / "out").stat().st_mode & 0o7777 == 0o1777
    assert found["shut"].st_mode & 0o7777 == 0o500
    assert found["file"].st_mode & 0o7777 == 0o4755
    assert found["same"].st_ino == found["file"].st_ino
    assert (root / "out/shut/file").read_text() == "out/shut/file"
    assert (root / "out/absolute").readlink() == Path("/usr/lib/libc.so")
    assert (root / "out/above").readlink() == Path("../../../etc/passwd")
    assert {row.st_mtime for row in found.values()} == {1_000_000}
    assert {row.st_uid for row in found.values()} == {os.geteuid()}
    (root / "out/shut").chmod(0o700)


@pytest.mark.parametrize(
    "entries",
    [
        [entry("../outside/new")],
        [entry("out/../../outside/new")],
        [entry("TOP/outside/new")],
        [entry("link", LINK, "../outside"), entry("link/new")],
        [entry("link", LINK, "TOP/outside"), entry("link/new")],
        [entry("link", LINK, "../outside"), entry("link/new", DIRECTORY)],
        [entry("link", LINK, "../outside"), entry("link", DIRECTORY, mode=0o777)],
        [entry("link", LINK, "../outside/file"), entry("link")],
        [entry("link", LINK, "../outside/new"), entry("link")],
        [entry("link", HARD, "../outside/file", mode=0o777)],
        [entry("link", HARD, "TOP/outside/file", mode=0o777)],
        [entry("link", LINK, "../outside/file"), entry("hard", HARD, "link", mode=0o777)],
        [entry("a/", DIRECTORY), entry("b", LINK, "a"), entry("b/new")],
        [entry("file"), entry("file")],
        [entry("pipe", tarfile.FIFOTYPE)],
        [entry("device", tarfile.CHRTYPE)],
        [entry("device", tarfile.BLKTYPE)],
    ],
    ids=lambda rows: " ".join(f"{row.name}>{row.linkname}" for row in rows),
)
def test_nothing_is_written_elsewhere(tmp_path: Path, entries: list[tarfile.TarInfo]) -> None:
    outside = tmp_path / "outside"
    outside.mkdir(mode=0o750)
    (outside / "file").write_text("mine")
    (outside / "file").chmod(0o640)
    for one in entries:
        one.name = one.name.replace("TOP", str(tmp_path))
        one.linkname = one.linkname.replace("TOP", str(tmp_path))
        one.size = len(one.name) if one.isreg() else 0
    with pytest.raises(CellError, match="cannot be laid out"):
        laid(tmp_path, *entries)
    assert [path.name for path in outside.iterdir()] == ["file"]
    assert (outside / "file").read_text() == "mine"
    assert outside.stat().st_mode & 0o777 == 0o750
    assert (outside / "file").stat().st_mode & 0o777 == 0o640
    assert (outside / "file").stat().st_nlink == 1
