"""Layers unpacked as far as the recipe's steps look: whole sources, skeletons of libraries."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import tarfile
import threading
from pathlib import Path

import pytest
import zstandard

from builder.errors import CancelledError, CellError, CommandError, MissingToolError
from builder.layers.elf import write_skeleton
from builder.layers.sandbox import run_script, way_in
from builder.layers.scratch import Scratch
from builder.layers.types import MEDIA_TYPES

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
def scratch(tmp_path: Path) -> Scratch:
    return Scratch(tmp_path / "root", threading.Event())


@pytest.fixture(scope="module")
def library() -> Path:
    """A large shared library of this machine."""
    for path in sorted(Path("/usr/lib").glob("*-linux-gnu/lib*.so.*")):
        if not path.is_symlink() and 2 << 20 < path.stat().st_size < 20 << 20:
            return path
    pytest.skip("no large shared library here")


def test_sources_are_whole_libraries_are_skeletons_and_the_rest_is_left_out(
    tmp_path: Path, scratch: Scratch
) -> None:
    large = b"#" * (2 << 20)
    path = layer(
        tmp_path, ("./site/big.py", large), ("./site/data.bin", large), ("./site/small.bin", b"1"),
        ("./site/include/x.h", b"1"), ("./site/lib.so.1", large),
    )  # fmt: skip
    scratch.unpack(path, ZSTD, whole=False)
    site = scratch.root / "site"
    assert {one.name for one in site.rglob("*") if one.is_file()} == {"big.py", "small.bin", "lib.so.1"}
    assert (site / "big.py").read_bytes() == large
    assert (site / "lib.so.1").stat().st_size == len(large)
    scratch.unpack(path, ZSTD, whole=True)
    assert (site / "data.bin").read_bytes() == large


@pytest.mark.skipif(shutil.which("ldconfig", path="/sbin:/usr/sbin") is None, reason="has no ldconfig")
def test_ldconfig_sees_no_difference(tmp_path: Path, library: Path) -> None:
    seen = []
    for name in ("whole", "skeleton"):
        folder = tmp_path / name / "lib"
        folder.mkdir(parents=True)
        if name == "whole":
            shutil.copyfile(library, folder / library.name)
        else:
            with library.open("rb") as source, (folder / library.name).open("wb") as target:
                assert write_skeleton(source, library.stat().st_size, target)
        (tmp_path / name / "etc").mkdir()
        (tmp_path / name / "etc/ld.so.conf").write_text("/lib\n")
        command = [shutil.which("ldconfig", path="/sbin:/usr/sbin"), "-X", "-r", tmp_path / name]
        subprocess.run(command, check=True, capture_output=True)
        seen.append((tmp_path / name / "etc/ld.so.cache").read_bytes())
    assert library.name.encode().partition(b".so")[0] in seen[0]
    assert seen[0] == seen[1]
    blocks = (tmp_path / "skeleton" / "lib" / library.name).stat().st_blocks
    assert blocks * 512 < library.stat().st_size


def test_names_far_in_front_take_a_second_reading(
    tmp_path: Path, scratch: Scratch, library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("builder.layers.elf._HEAD", 4096)
    with library.open("rb") as source, (tmp_path / "out").open("wb") as target:
        assert not write_skeleton(source, library.stat().st_size, target)
    scratch.unpack(layer(tmp_path, ("./lib/libx.so.1", library.read_bytes())), ZSTD, whole=False)
    assert (scratch.root / "lib/libx.so.1").read_bytes() == library.read_bytes()


def test_links_whiteouts_and_modes(tmp_path: Path, scratch: Scratch) -> None:
    folder = tarfile.TarInfo("./etc")
    folder.type, folder.mode = tarfile.DIRTYPE, 0o700
    scratch.unpack(layer(tmp_path, folder, ("./etc/a", b"a"), link("./usr/b", "../etc/a")), ZSTD, whole=True)
    assert (scratch.root / "usr/b").read_text() == "a"
    upper = layer(
        tmp_path, ("./etc/.wh.a", b""), ("./etc/c", b"c"), link("./etc/d", "./etc/c", tarfile.LNKTYPE)
    )
    scratch.unpack(upper, ZSTD, whole=True)
    assert sorted(path.name for path in (scratch.root / "etc").iterdir()) == ["c", "d"]
    assert (scratch.root / "etc/d").read_text() == "c"


def test_a_folder_that_another_layers_thread_makes_meanwhile(
    tmp_path: Path, scratch: Scratch, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tarfile.TarInfo("./shared")
    folder.type, folder.mode = tarfile.DIRTYPE, 0o755
    mkdir = Path.mkdir
    racing: list[Path] = []

    def somebody_is_faster(path: Path, *args: object, **options: object) -> None:
        if path == scratch.root / "shared" and not racing:
            racing.append(path)
            mkdir(path)
            (path / "theirs").write_bytes(b"b")
        mkdir(path, *args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(Path, "mkdir", somebody_is_faster)
    scratch.unpack(layer(tmp_path, folder, ("./shared/a", b"a")), ZSTD, whole=True)
    assert racing
    assert sorted(path.name for path in (scratch.root / "shared").iterdir()) == ["a", "theirs"]


@pytest.mark.parametrize("name", ["../outside", "./a/../../outside", "./link/outside"])
def test_nothing_is_written_outside(tmp_path: Path, scratch: Scratch, name: str) -> None:
    path = layer(tmp_path, link("./link", str(tmp_path)), (name, b"x"))
    with pytest.raises(CellError, match=r"no plain path|leads out of the image"):
        scratch.unpack(path, ZSTD, whole=True)
    assert not (tmp_path / "outside").exists()


def test_a_damaged_layer_and_a_cancelled_run(tmp_path: Path) -> None:
    path = layer(tmp_path, ("./a", os.urandom(1 << 16)))
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(CellError, match="cannot be unpacked"):
        Scratch(tmp_path / "one", threading.Event()).unpack(path, ZSTD, whole=True)
    cancel = threading.Event()
    cancel.set()
    with pytest.raises(CancelledError):
        Scratch(tmp_path / "two", cancel).unpack(layer(tmp_path, ("./a", b"")), ZSTD, whole=True)


@pytest.fixture
def system(tmp_path: Path) -> Path:
    """A root folder with this machine's shell in it."""
    try:
        way_in()
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
