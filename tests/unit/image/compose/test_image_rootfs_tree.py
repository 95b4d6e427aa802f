"""Layers unpacked as far as the recipe's steps look: whole sources, skeletons of libraries."""

from __future__ import annotations

import gzip
import io
import os
import resource
import shutil
import subprocess
import tarfile
import threading
from typing import TYPE_CHECKING

import pytest
import zstandard

from builder.core.errors import CancelledError, CellError, CommandError, MissingToolError
from builder.image.compose.run_steps import RootfsTree
from builder.image.layers.store import MEDIA_TYPES
from builder.image.sandbox import require, run_script

if TYPE_CHECKING:
    from pathlib import Path

ZSTD = MEDIA_TYPES["zstd"]


def layer(folder: Path, *members: tuple[str, bytes] | tarfile.TarInfo, name: str = "layer") -> Path:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        for member in members:
            if isinstance(member, tarfile.TarInfo):
                archive.addfile(member)
            else:
                info = tarfile.TarInfo(member[0])
                info.size, info.mode = len(member[1]), 0o644
                archive.addfile(info, io.BytesIO(member[1]))
    path = folder / name
    path.write_bytes(zstandard.compress(content.getvalue()))
    return path


def link(name: str, target: str, kind: bytes = tarfile.SYMTYPE) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


@pytest.fixture
def scratch(tmp_path: Path) -> RootfsTree:
    return RootfsTree(tmp_path / "root", threading.Event())


def test_what_no_step_reads_stays_away(tmp_path: Path, scratch: RootfsTree) -> None:
    path = layer(
        tmp_path, ("./usr/share/doc/a", b"1"), ("./usr/lib/a", b"2"), ("./var/lib/dpkg/status", b"3"),
        link("./usr/share/b", "usr/share/doc/a", tarfile.LNKTYPE),
        link("./usr/lib/c", "./usr/share/doc/a", tarfile.LNKTYPE),
    )  # fmt: skip
    scratch.unpack(path, ZSTD)
    assert {one.name for one in scratch.root.rglob("*") if one.is_file()} == {"a"}
    assert (scratch.root / "usr/lib/a").read_bytes() == b"2"


def test_headers_of_every_kind(tmp_path: Path, scratch: RootfsTree) -> None:
    """Each form in which archives hold long names, and numbers that do not fit."""
    deep = "d" * 90 + "/" + "e" * 90 + "/" + "ü" * 40
    for number, kind in enumerate((tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT)):
        content = io.BytesIO()
        name = f"{number}/" + ("d" * 90 + "/" + "e" * 90 if kind == tarfile.USTAR_FORMAT else deep)
        with tarfile.open(fileobj=content, mode="w", format=kind) as archive:
            info = tarfile.TarInfo(name)
            info.size, info.uid = 3, (1 << 22 if kind != tarfile.USTAR_FORMAT else 0)
            archive.addfile(info, io.BytesIO(b"abc"))
            if kind != tarfile.USTAR_FORMAT:
                archive.addfile(link(f"{number}/link", "x" * 300))
        path = tmp_path / f"{number}.gz"
        path.write_bytes(gzip.compress(content.getvalue()))
        scratch.unpack(path, MEDIA_TYPES["gzip"])
        assert (scratch.root / name).read_bytes() == b"abc"
        if kind != tarfile.USTAR_FORMAT:
            assert str((scratch.root / str(number) / "link").readlink()) == "x" * 300


def test_no_tar_stream_is_an_error(tmp_path: Path, scratch: RootfsTree) -> None:
    for damage in (b"x" * 512, b"", b"\1" * 1024):
        (tmp_path / "layer").write_bytes(zstandard.compress(damage))
        with pytest.raises(CellError, match="cannot be unpacked"):
            scratch.unpack(tmp_path / "layer", ZSTD)
    sparse = tarfile.TarInfo("./a")
    sparse.type = tarfile.GNUTYPE_SPARSE
    with pytest.raises(CellError, match="no layer needs"):
        scratch.unpack(layer(tmp_path, sparse), ZSTD)


def test_links_whiteouts_and_modes(tmp_path: Path, scratch: RootfsTree) -> None:
    folder = tarfile.TarInfo("./etc")
    folder.type, folder.mode = tarfile.DIRTYPE, 0o700
    scratch.unpack(layer(tmp_path, folder, ("./etc/a", b"a"), link("./usr/b", "../etc/a")), ZSTD)
    assert (scratch.root / "usr/b").read_text() == "a"
    upper = layer(
        tmp_path, ("./etc/.wh.a", b""), ("./etc/c", b"c"), link("./etc/d", "./etc/c", tarfile.LNKTYPE)
    )
    scratch.unpack(upper, ZSTD)
    assert sorted(path.name for path in (scratch.root / "etc").iterdir()) == ["c", "d"]
    assert (scratch.root / "etc/d").read_text() == "c"


@pytest.mark.parametrize("upper", [link("./lib", "new"), ("./.wh.lib", b"")], ids=["moved", "whited out"])
def test_what_follows_another_link_goes_where_it_leads(
    tmp_path: Path, scratch: RootfsTree, upper: tuple[str, bytes] | tarfile.TarInfo
) -> None:
    lower = layer(tmp_path, ("./old/a", b"a"), ("./new/a", b"a"), link("./lib", "old"), ("./lib/b", b"b"))
    scratch.unpack(lower, ZSTD)
    scratch.unpack(layer(tmp_path, upper, ("./lib/c", b"c")), ZSTD)
    assert {path.name for path in (scratch.root / "old").iterdir()} == {"a", "b"}
    assert (scratch.root / "lib/c").read_text() == "c"


@pytest.mark.parametrize("name", ["../outside", "./a/../../outside", "./link/outside"])
def test_nothing_is_written_outside(tmp_path: Path, scratch: RootfsTree, name: str) -> None:
    path = layer(tmp_path, link("./link", str(tmp_path)), (name, b"x"))
    with pytest.raises(CellError, match=r"no plain path|leads out of the image"):
        scratch.unpack(path, ZSTD)
    assert not (tmp_path / "outside").exists()


def test_a_damaged_layer_and_a_cancelled_run(tmp_path: Path) -> None:
    path = layer(tmp_path, ("./a", os.urandom(1 << 16)))
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(CellError, match="cannot be unpacked"):
        RootfsTree(tmp_path / "one", threading.Event()).unpack(path, ZSTD)
    cancel = threading.Event()
    cancel.set()
    with pytest.raises(CancelledError):
        RootfsTree(tmp_path / "two", cancel).unpack(layer(tmp_path, ("./a", b"")), ZSTD)


@pytest.fixture
def system(tmp_path: Path) -> Path:
    """A root folder with this machine's shell in it."""
    try:
        require()
    except MissingToolError as problem:
        pytest.skip(str(problem))
    root = tmp_path / "system"
    (root / "bin").mkdir(parents=True)
    shutil.copy("/bin/sh", root / "bin/sh")
    libraries = subprocess.run(["ldd", "/bin/sh"], capture_output=True, text=True, check=True).stdout
    for word in libraries.split():
        if word.startswith("/"):
            (root / word[1:]).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(word, root / word[1:])
    return root


def run(script: str, root: Path, cancel: threading.Event | None = None) -> None:
    run_script(script, root, what="the step", env={"GIVEN": "yes"}, cancel=cancel or threading.Event())


def test_a_script_sees_its_root_and_what_it_is_given(
    system: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET", "hush")
    old = os.umask(0o077)
    try:
        run('echo "$GIVEN $SECRET" > /out; for path in /*; do echo "$path"; done >> /out', system)
    finally:
        os.umask(old)
    words = (system / "out").read_text().split()
    assert words[0] == "yes"
    assert "hush" not in words
    assert "/bin" in words
    assert "/tmp" not in words
    assert (system / "out").stat().st_mode & 0o777 == 0o644


def test_a_script_that_fails_says_how_and_one_that_is_cancelled_ends(system: Path) -> None:
    with pytest.raises(CommandError, match="the step failed") as caught:
        run("echo before the end; exit 7", system)
    assert caught.value.returncode == 7
    assert "before the end" in caught.value.tail
    cancel = threading.Event()
    threading.Timer(0.3, cancel.set).start()
    with pytest.raises(CancelledError):
        run("while :; do :; done", system, cancel)


HOSTILE = {
    "circle": (link("./a", "b"), link("./b", "a"), ("./a/x", b"")),
    "itself": (link("./a", "a"), ("./a/x", b"")),
    "empty link": (link("./a", ""),),
    "long link": (link("./a", "x/" * 4000),),
    "long name": (("./" + "x" * 300, b""),),
    "below a file": (("./a", b""), ("./a/b", b"")),
    "link to a folder": (("./d/x", b""), link("./a", "./d", tarfile.LNKTYPE)),
    "link to itself": (link("./a", "./a", tarfile.LNKTYPE),),
    "whiteout of all": (("./.wh..", b""),),
    "whiteout below a file": (("./a", b""), ("./a/.wh.b", b"")),
    "emptied file": (("./a", b""), ("./a/.wh..wh..opq", b"")),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_layer_that_no_folder_can_hold(tmp_path: Path, scratch: RootfsTree, name: str) -> None:
    """Each of them ended the run for all other cells."""
    with pytest.raises(CellError, match=r"cannot be unpacked|no plain path|not there"):
        scratch.unpack(layer(tmp_path, *HOSTILE[name]), ZSTD)
    assert not list(tmp_path.parent.glob("x"))


def test_a_large_file_is_written_as_it_comes(tmp_path: Path, scratch: RootfsTree) -> None:
    info = tarfile.TarInfo("./a")
    info.size = 400 << 20
    packer = zstandard.ZstdCompressor().compressobj()
    with (tmp_path / "layer").open("wb") as blob:
        for piece in (info.tobuf(), *[bytes(1 << 20)] * 400, bytes(1024)):
            blob.write(packer.compress(piece))
        blob.write(packer.flush())
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    scratch.unpack(tmp_path / "layer", ZSTD)
    assert (scratch.root / "a").stat().st_size == 400 << 20
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100 << 10
