"""Wheels that would fill memory, or end the run for other cells, are refused before that."""

from __future__ import annotations

import resource
import struct
import zlib
from typing import TYPE_CHECKING

import pytest
from layer_wheels import Builder, Content

from builder.core.errors import CellError
from builder.image.layers.wheel import Archive, Tree, style

if TYPE_CHECKING:
    from pathlib import Path

    from layer_wheels import Made

INFO = "evil-1.0.dist-info"
ROWS = b"".join(b"f%d,,\n" % number for number in range(200_000))
POINTS = "[console_scripts]\n" + "".join(f"e{number} = a:b\n" for number in range(50_000))


def installed(made: Made) -> None:
    Tree(made.path, made.wheel, python="3.11", style=style("26.0.1"), slim=True).close()


def zeros(size: int) -> bytes:
    """So many bytes of zeros, deflated: a block that a full flush ends can be repeated."""
    deflate = zlib.compressobj(9, zlib.DEFLATED, -15)
    block = deflate.compress(bytes(1 << 20)) + deflate.flush(zlib.Z_FULL_FLUSH)
    return block * (size >> 20) + deflate.flush()


def archive_of(
    path: Path,
    entries: int,
    *,
    size: int = 0,
    data: bytes = b"",
    offset: int | None = None,
    name: bytes = b"%08d",
) -> Path:
    """A zip file whose entries say ``size`` and hold ``data``, at a place of 64 bits if one is given."""
    local, table = bytearray(), bytearray()
    for number in range(entries):
        at, name = len(local), name and b"%08d" % number
        extra = b"" if offset is None else struct.pack("<HHQ", 1, 8, offset)
        fields = struct.pack("<HHHHIIIHH", 0, 8 if data else 0, 0, 33, 0, len(data), size, len(name), 0)
        local += b"PK\x03\x04" + struct.pack("<H", 20) + fields + name + data
        fields = fields[:-2] + struct.pack("<H", len(extra))
        place = at if offset is None else 0xFFFFFFFF
        table += b"PK\x01\x02" + struct.pack("<HH", 0x314, 20) + fields
        table += struct.pack("<HHHII", 0, 0, 0, 0, place) + name + extra
    end = struct.pack("<HHHHIIH", 0, 0, entries & 0xFFFF, entries & 0xFFFF, len(table), len(local), 0)
    path.write_bytes(local + table + b"PK\x05\x06" + end)
    return path


def refused(path: Path, match: str) -> None:
    with pytest.raises(CellError, match=match):
        Archive(path)


def test_more_files_than_memory_takes(tmp_path: Path) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    path = archive_of(tmp_path / "evil.whl", 300_000)
    refused(path, "table of contents is too large")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300 << 10


def test_a_file_without_a_name(tmp_path: Path) -> None:
    refused(archive_of(tmp_path / "evil.whl", 1, name=b""), "has no name")


def test_a_file_beyond_what_a_disk_can_address(tmp_path: Path) -> None:
    for offset in (1 << 40, (1 << 63) + 1, (1 << 64) - 1):
        refused(archive_of(tmp_path / "evil.whl", 1, offset=offset), "begins behind the files")


def test_a_wheel_that_expands_without_measure(tmp_path: Path) -> None:
    """Each member declares what it holds; deflate allows a thousandfold."""
    size = 512 << 20
    path = archive_of(tmp_path / "evil.whl", 1, size=size, data=zeros(size))
    refused(path, "declares 512 MiB of files in 0 MiB")


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        (f"{INFO}/METADATA", b"Name: evil\nVersion: 1.0\n" + b"X: y\n" * 1_000_000, "METADATA has"),
        (f"{INFO}/WHEEL", b"Wheel-Version: 1.0\n" + bytes(8 << 20), "WHEEL has"),
        (f"{INFO}/WHEEL", b"Wheel-Version: \xff\n", "is in wheel format"),
        (f"{INFO}/RECORD", ROWS, "RECORD names more files than"),
        (f"{INFO}/RECORD", bytes(17 << 20), "RECORD has"),
        (f"{INFO}/entry_points.txt", POINTS.encode(), "entry_points.txt has"),
        ("evil-1.0.data/scripts/x", b"#!python\n" + bytes(65 << 20), "scripts/x has"),
    ],
    ids=["headers", "wheel", "letters", "rows", "record", "points", "script"],
)
def test_metadata_without_measure(builder: Builder, name: str, data: bytes, said: str) -> None:
    made = builder.wheel("evil", {name: data})
    with pytest.raises(CellError, match=said):
        installed(made)


def test_a_large_script_that_is_a_program_is_not_read_whole(
    builder: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = builder.wheel("evil", {"evil-1.0.data/scripts/x": b"\x7fELF" + bytes(65 << 20)})
    asked: list[str] = []
    read = Archive.read

    def noted(self: Archive, name: str, **options: int) -> bytes:
        asked.append(name)
        return read(self, name, **options)

    monkeypatch.setattr(Archive, "read", noted)
    installed(made)
    assert "evil-1.0.data/scripts/x" not in asked


@pytest.mark.parametrize("name", ["x" * 300, "\x1b[2Jx", "\u202ex", "ü" * 150])
def test_a_script_that_no_file_can_be_named_after(builder: Builder, name: str) -> None:
    made = builder.wheel("evil", {}, entry_points=f"[console_scripts]\n{name} = a:b\n")
    with pytest.raises(CellError, match="is no file name"):
        installed(made)


@pytest.mark.parametrize(
    "name", [".wh.other.py", "evil/.wh..wh..opq", ".wh.other/x.py", "evil-1.0.data/data/.wh.bin", "script"]
)
def test_a_file_that_removes_those_of_other_packages(builder: Builder, name: str) -> None:
    """In a layer a file of such a name hides one of the layers below."""
    points = {"entry_points": "[console_scripts]\n.wh.python = a:b\n"} if name == "script" else {}
    with pytest.raises(CellError, match="would remove files of other packages"):
        installed(builder.wheel("evil", {name: b""}, **points))


def test_a_hash_of_512_bits_is_checked_piece_by_piece(builder: Builder) -> None:
    made = builder.wheel("evil", {"a": Content(data=bytes(5 << 20), recorded="sha512=AAAA")})
    with pytest.raises(CellError, match="hash differs"):
        installed(made)
