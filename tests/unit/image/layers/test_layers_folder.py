"""A folder as BuildKit writes it. Real layers of BuildKit are compared in tests/docker/test_noengine.py."""

from __future__ import annotations

import hashlib
import io
import os
import tarfile
from typing import TYPE_CHECKING

import pytest
import zstandard

from builder.core.errors import CellError
from builder.image.layers.tar import go_header, write_folder

if TYPE_CHECKING:
    from pathlib import Path

EPOCH = 1793867599


def stream(folder: Path, compression: str = "zstd") -> bytes:
    blob = io.BytesIO()
    written = write_folder(folder, blob, "title", compression)  # type: ignore[arg-type]
    assert written.size == len(blob.getvalue())
    content = zstandard.ZstdDecompressor().stream_reader(blob.getvalue()).read()
    assert written.diff_id == "sha256:" + hashlib.sha256(content).hexdigest()
    return content


def test_names_go_folder_by_folder_and_not_as_one_text(tmp_path: Path) -> None:
    for name in ("lib/a", "lib-x", "lib.py", "lib/b/c"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    with tarfile.open(fileobj=io.BytesIO(stream(tmp_path))) as archive:
        assert archive.getnames() == ["lib", "lib/a", "lib/b", "lib/b/c", "lib-x", "lib.py"]


def test_modes_times_and_links_are_kept_and_owners_are_not(tmp_path: Path) -> None:
    (tmp_path / "program").write_bytes(b"x" * 513)
    (tmp_path / "program").chmod(0o755)
    (tmp_path / "link").symlink_to("/usr/bin/python3.9")
    os.utime(tmp_path / "program", (EPOCH + 0.9, EPOCH + 0.9))
    with tarfile.open(fileobj=io.BytesIO(stream(tmp_path))) as archive:
        found = {member.name: member for member in archive}
    assert (found["program"].mode, found["program"].mtime, found["program"].size) == (0o755, EPOCH, 513)
    assert (found["link"].linkname, found["link"].mode) == ("/usr/bin/python3.9", 0o777)
    assert {(member.uid, member.gid, member.uname) for member in found.values()} == {(0, 0, "")}


LONG = "/".join(["folder" * 5] * 5) + "/"


@pytest.mark.parametrize(
    "name",
    ["ümläut/naïve ✓.txt", LONG + "n" * 120 + ".txt", LONG + "short.txt", "n" * 101, LONG * 2],
)
def test_names_that_no_header_holds_are_read_back(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.mkdir() if name.endswith("/") else path.write_text("content")
    with tarfile.open(fileobj=io.BytesIO(stream(tmp_path))) as archive:
        assert name.rstrip("/") in archive.getnames()


def test_records_stand_where_go_puts_them() -> None:
    name = LONG.encode() + b"n" * 120
    block = go_header(name, b"0", mode=0o644, size=3, mtime=EPOCH)
    first, records, main = block[:512], block[512:1024], block[1024:]
    assert first[:100] == (LONG.encode() + b"PaxHeaders.0/")[:100]
    assert (first[100:108], first[136:148], first[156:157]) == (b"0000000\0", b"0" * 11 + b"\0", b"x")
    assert first[329:345] == b"\0" * 16, "no device numbers"
    assert records.startswith(b"%d path=%b\n" % (len(name) + len(b"000 path=\n"), name))
    assert main[:100] == name[:100]
    long_link = go_header(b"link", b"2", mode=0o777, size=0, mtime=EPOCH, link=b"/" + b"t" * 200)
    assert b" linkpath=/" + b"t" * 200 + b"\n" in long_link


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(CellError, match="/pipe is no file, folder or link"):
        write_folder(tmp_path, io.BytesIO(), "title", "zstd")
