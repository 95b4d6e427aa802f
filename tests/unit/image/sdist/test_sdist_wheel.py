"""A built wheel is looked at, and becomes the same bytes whatever wrote it."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import zipfile
from typing import TYPE_CHECKING

import pytest

from builder.core.errors import CellError
from builder.core.model import Sdist
from builder.image.sdist.wheel import differing, members, normalised, refuse_other

if TYPE_CHECKING:
    from pathlib import Path

MOST = 1 << 20
TINY = Sdist(name="tiny", version="1.0", file="tiny-1.0.tar.gz", sha256="0" * 64, size=1)
METADATA = "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n"


def wheel(folder: Path, file: str = "tiny-1.0-py3-none-any.whl", metadata: str = METADATA) -> Path:
    with zipfile.ZipFile(folder / file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("tiny-1.0.dist-info/RECORD", "wrong,,\n")
        archive.writestr("tiny-1.0.dist-info/METADATA", metadata)
        archive.writestr("tiny-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\n")
        archive.writestr("tiny.py", "x = 1\n")
    return folder / file


def test_order_times_and_compression_do_not_count(tmp_path: Path) -> None:
    content = members(wheel(tmp_path), MOST)
    data = normalised(content)
    assert data == normalised(dict(reversed(content.items())))
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        rows = list(csv.reader(archive.read("tiny-1.0.dist-info/RECORD").decode().splitlines()))
        assert archive.namelist()[0] == "tiny.py"
        assert archive.namelist()[-1] == rows[-1][0] == "tiny-1.0.dist-info/RECORD"
        assert {entry.date_time for entry in archive.infolist()} == {(1980, 1, 2, 0, 0, 0)}
        for name, digest, size in rows[:-1]:
            found = archive.read(name)
            wanted = base64.urlsafe_b64encode(hashlib.sha256(found).digest()).rstrip(b"=").decode()
            assert (digest, int(size)) == (f"sha256={wanted}", len(found))


def test_the_bytes_are_those_of_any_machine(tmp_path: Path) -> None:
    found = hashlib.sha256(normalised(members(wheel(tmp_path), MOST))).hexdigest()
    assert found == "189147fa545fe82c976893bdbe184bfe210811f75814916ba01cbca4cac508b8"


def test_what_was_asked_for_is_taken(tmp_path: Path) -> None:
    path = wheel(tmp_path, metadata=METADATA + "Requires-Python: >=3.8\n")
    refuse_other(path, members(path, MOST), TINY, "3.11")


@pytest.mark.parametrize(
    ("file", "metadata", "said"),
    [
        ("tiny-1.0-cp311-cp311-linux_x86_64.whl", METADATA, "holds compiled code"),
        ("tiny-1.0-py2-none-any.whl", METADATA, "holds compiled code"),
        ("other-1.0-py3-none-any.whl", METADATA, "says other 1.0, not tiny 1.0"),
        ("tiny-0.0.0-py3-none-any.whl", METADATA, "says tiny 0.0.0, not tiny 1.0"),
        ("tiny-1.0-py3-none-any.whl", METADATA.replace("tiny", "evil"), "METADATA says evil"),
        ("tiny-1.0-py3-none-any.whl", METADATA.replace("tiny", "tin\xff"), "METADATA says"),
        ("tiny-1.0-py3-none-any.whl", METADATA + "Requires-Python: >=3.12\n", "needs Python >=3.12"),
        ("tiny.whl", METADATA, "no name of a wheel"),
    ],
)
def test_anything_else_is_refused(tmp_path: Path, file: str, metadata: str, said: str) -> None:
    path = wheel(tmp_path, file, metadata)
    with pytest.raises(CellError, match=said):
        refuse_other(path, members(path, MOST), TINY, "3.11")


def test_a_version_out_of_git_is_explained(tmp_path: Path) -> None:
    path = wheel(tmp_path, "tiny-0.0.0-py3-none-any.whl")
    with pytest.raises(CellError, match="comes from git"):
        refuse_other(path, members(path, MOST), TINY, "3.11")


def test_files_that_differ_are_named(tmp_path: Path) -> None:
    one = members(wheel(tmp_path), MOST)
    other = {**one, "tiny.py": (b"x = 2\n", False), "new.py": (b"", False)}
    assert differing(("a.whl", one), ("a.whl", one)) == ""
    assert differing(("a.whl", one), ("a.whl", other)) == "new.py, tiny.py"
    assert differing(("a.whl", one), ("b.whl", one)) == "a.whl and b.whl"
    many = {**one, **{f"{n}.py": (b"", False) for n in range(10)}}
    assert differing(("a.whl", one), ("a.whl", many)).endswith("7.py and 2 more")
