"""The installed form of a wheel, and what is refused."""

from __future__ import annotations

import csv
import hashlib
import io
import re
import struct
import zipfile
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from layer_wheels import PROGRAM, Builder, Content, Made, pinned, record_hash, tricky

from builder.core.errors import CellError
from builder.image.layers.convert import Excerpt, write_layer
from builder.image.layers.wheel import (
    SITE,
    Archive,
    EntryPointError,
    Tree,
    check_python,
    check_tags,
    entry_points,
    scripts,
    style,
)
from builder.sources.index.target import takes

if TYPE_CHECKING:
    from pathlib import Path


def installed(made: Made, *, python: str = "3.11", pip: str = "26.0.1", slim: bool = True) -> Tree:
    with Tree(made.path, made.wheel, python=python, style=style(pip), slim=slim) as tree:
        return tree


def recorded(tree: Tree) -> str:
    (content,) = (file.content for file in tree.files if file.path.endswith("/RECORD"))
    assert isinstance(content, bytes)
    return content.decode()


def convert(made: Made) -> bytes:
    target = io.BytesIO()
    with Tree(made.path, made.wheel, python="3.11", style="removesuffix", slim=True) as found:
        write_layer([found], target, "title", "zstd", lambda _: None, as_listed=False, excerpt=Excerpt())
    return target.getvalue()


def test_files_land_where_pip_puts_them(builder: Builder) -> None:
    modes = {
        file.path.removeprefix("opt/runtime/"): file.mode for file in installed(tricky(builder)[0]).files
    }
    site = "lib/python/site-packages"
    assert modes["bin/tricky-main"] == 0o755
    assert modes["bin/tricky-python"] == 0o755
    assert modes["bin/tricky-plain"] == 0o644
    assert modes[f"{site}/tricky_all/helper.sh"] == 0o755
    assert modes[f"{site}/tricky_all/group.txt"] == 0o644
    assert {
        "share/tricky/read me.txt",
        "etc/tricky.conf",
        f"{site}/tricky_pure.py",
        f"{site}/tricky_plat.py",
    } <= set(modes)
    assert "bin/tricky-gui-script.py" not in modes
    assert f"{site}/tricky_all-1.0.dist-info/REQUESTED" in modes


@pytest.mark.parametrize(
    "name",
    [
        "pkg/" + "d/" * 3000 + "x.py",
        "pkg/" + "d" * 300 + ".py",
        "pkg/" + "d" * 200 + "/" + "e/" * 30 + "f" * 900,
    ],
    ids=["deep", "long-name", "long"],
)
def test_a_path_that_no_file_system_takes_fails_its_cell(builder: Builder, name: str) -> None:
    """3,000 folders in one another ended every later build, too: no call removed them."""
    with pytest.raises(CellError, match=r"it has a path of \d+ folders"):
        installed(builder.wheel("pkg", {name: b""}))


def test_a_record_with_a_field_without_an_end(builder: Builder) -> None:
    made = builder.wheel("pkg", {"pkg/x.py": Content(data=b"", recorded="a" * 200_000)})
    with pytest.raises(CellError, match="its RECORD cannot be read: field larger than field limit"):
        installed(made)


def test_headers_have_a_folder_without_the_version_of_python(builder: Builder) -> None:
    found = {file.path for file in installed(tricky(builder)[2]).files}
    assert "opt/runtime/include/site/python/tricky-headers/sub/more.h" in found


def test_record_is_rewritten_as_pip_does(builder: Builder) -> None:
    files = {file.path: file for file in installed(tricky(builder)[0]).files}
    record = files[f"{SITE}/tricky_all-1.0.dist-info/RECORD"].content
    assert isinstance(record, bytes)
    assert record.count(b"\r\n") == record.count(b"\n")
    rows = list(csv.reader(record.decode().splitlines()))
    assert rows == sorted(rows)
    by_path = {row[0]: row[1:] for row in rows}
    assert by_path["tricky_all/unrecorded.txt"] == ["", ""]
    assert by_path["tricky_all-1.0.dist-info/RECORD"] == ["", ""]
    assert by_path["tricky_all-1.0.dist-info/INSTALLER"] == [record_hash(b"pip\n"), "4"]
    changed = files["opt/runtime/bin/tricky-options"].content
    assert changed == b"#!/opt/runtime/bin/python\nprint('options')\n"
    assert by_path["../../../bin/tricky-options"] == [record_hash(changed), str(len(changed))]


def test_a_layer_does_not_depend_on_how_the_archive_is_ordered_or_compressed(
    builder: Builder, tmp_path: Path
) -> None:
    files = {"pkg/a.py": b"a" * 5000, "pkg/b.py": b"b" * 5000, "pkg-1.0.dist-info/RECORD": b""}
    one = builder.wheel("pkg", files)
    other = Builder(tmp_path)
    two = other.wheel("pkg", dict(reversed(files.items())), method=zipfile.ZIP_STORED)
    assert one.path.read_bytes() != two.path.read_bytes()
    assert convert(one) == convert(two)


@pytest.mark.parametrize(
    ("pip", "expected"),
    [
        ("20.0.2", "re"),
        ("25.1.1", "re"),
        ("25.2", "endswith"),
        ("25.3", "endswith"),
        ("26.0.1", "removesuffix"),
    ],
)
def test_each_pip_has_its_own_script(pip: str, expected: str) -> None:
    assert style(pip) == expected


def test_a_script_as_pip_26_writes_it() -> None:
    [(name, content)] = scripts(
        {"tool": "pkg.mod:Class.run [extra]"},
        interpreter="/opt/runtime/bin/python",
        python="3.11",
        style="removesuffix",
    )
    assert name == "tool"
    assert content.decode() == (
        "#!/opt/runtime/bin/python\nimport sys\nfrom pkg.mod import Class\nif __name__ == '__main__':\n"
        "    sys.argv[0] = sys.argv[0].removesuffix('.exe')\n    sys.exit(Class.run())\n"
    )


def test_pip_names_its_scripts_after_the_python() -> None:
    points = entry_points(
        "[console_scripts]\npip = pip:main\npip3 = pip:main\npip3.99 = pip:main\nother = pip:main\n"
    )
    named = [name for name, _ in scripts(points, interpreter="/p", python="3.9", style="re")]
    assert named == ["pip", "pip3", "pip3.9", "other"]


@pytest.mark.parametrize(
    "text", ["../evil = a:b", "a/b = a:b", "x = module.without.callable", "x = a : b", "x = os:system; evil"]
)
def test_entry_points_that_make_no_script(text: str) -> None:
    with pytest.raises(EntryPointError):
        list(
            scripts(entry_points(f"[console_scripts]\n{text}\n"), interpreter="/p", python="3.9", style="re")
        )


@pytest.mark.parametrize(
    "name", ["/etc/passwd", "../../evil", "pkg/../../evil", "pkg//x", "./x", "pkg\\x", "pkg/new\nline"]
)
def test_paths_that_leave_the_archive(builder: Builder, name: str) -> None:
    with pytest.raises(CellError, match="no plain path"):
        installed(builder.wheel("pkg", {name: b"evil"}))


@pytest.mark.parametrize("mode", [0o120777, 0o010644, 0o060644])
def test_links_and_devices(builder: Builder, mode: int) -> None:
    with pytest.raises(CellError, match=r"pkg/x is a link or a device"):
        installed(builder.wheel("pkg", {"pkg/x": Content(data=b"/etc/passwd", mode=mode)}))


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_name_that_stands_in_it_twice(builder: Builder) -> None:
    made = builder.wheel("pkg", {"pkg/x": b"one"})
    with zipfile.ZipFile(made.path, "a") as archive:
        archive.writestr("pkg/x", b"two")
    with pytest.raises(CellError, match="twice"):
        installed(made)


def test_a_file_that_is_not_what_record_says_is_named(builder: Builder) -> None:
    made = builder.wheel(
        "pkg", {"pkg/good.py": b"good", "pkg/bad.py": Content(data=b"evil", recorded=record_hash(b"good"))}
    )
    with pytest.raises(CellError, match=r"pkg-1\.0.*/pkg/bad\.py is not what its RECORD says"):
        convert(made)


@pytest.mark.parametrize(("content", "sound"), [(b"good", True), (b"evil", False)])
def test_a_record_that_hashes_in_hexadecimal_is_checked_all_the_same(
    builder: Builder, content: bytes, sound: bool
) -> None:
    line = f"pkg/x.py,sha256={hashlib.sha256(b'good').hexdigest()},4"  # as ffmpy 0.6.0 has it
    record = f"{line}\npkg-1.0.dist-info/RECORD,,\n".encode()
    made = builder.wheel("pkg", {"pkg/x.py": content, "pkg-1.0.dist-info/RECORD": record})
    if sound:
        convert(made)
    else:
        with pytest.raises(CellError, match=r"pkg/x\.py is not what its RECORD says"):
            convert(made)


def test_a_file_that_got_another_size_after_record_is_taken_and_recorded_as_it_is(builder: Builder) -> None:
    record = f"pkg/x.py,{record_hash(b'good')},5\npkg-1.0.dist-info/RECORD,,\n".encode()
    tree = installed(builder.wheel("pkg", {"pkg/x.py": b"better", "pkg-1.0.dist-info/RECORD": record}))
    assert f"pkg/x.py,{record_hash(b'better')},6\r\n" in recorded(tree)
    assert hashlib.sha256(b"better").hexdigest() in {file.sha256 for file in tree.files}


def test_metadata_that_was_edited_after_record_is_taken_and_recorded_as_it_is(builder: Builder) -> None:
    name = "pkg-1.0.dist-info/METADATA"
    edited = b"Metadata-Version: 2.1\nName: pkg\nVersion: 1.0\n"  # torchvision 0.10.1: it was 1.0+cu102
    record = f"{name},{record_hash(edited[:-1] + b'+cu102')},{len(edited) + 6}\npkg-1.0.dist-info/RECORD,,\n"
    files = {name: edited, "pkg-1.0.dist-info/RECORD": record.encode()}
    tree = installed(builder.wheel("pkg", files))
    assert f"{name},{record_hash(edited)},{len(edited)}\r\n" in recorded(tree)


@pytest.mark.parametrize("recorded", ["md5=abc", "sha512=abc", "sha256=", "sha256=***"])
def test_hashes_in_record_that_prove_nothing(builder: Builder, recorded: str) -> None:
    with pytest.raises(CellError, match="RECORD"):
        convert(builder.wheel("pkg", {"pkg/x.py": Content(data=b"x", recorded=recorded)}))


@pytest.mark.parametrize("cut", [10, 1000])
def test_a_wheel_cut_short(builder: Builder, cut: int) -> None:
    made = builder.wheel("pkg", {"pkg/x": bytes(range(256)) * 100}, method=zipfile.ZIP_STORED)
    made.path.write_bytes(made.path.read_bytes()[:-cut])
    with pytest.raises(CellError):
        convert(made)


def test_every_damaged_byte_of_the_data_is_noticed(builder: Builder) -> None:
    made = builder.wheel("pkg", {"pkg/x": bytes(range(256)) * 4}, unrecorded=["pkg/x"])
    good = made.path.read_bytes()
    with Archive(made.path) as archive:
        member = archive.members["pkg/x"]
    for offset in range(member.start, member.start + member.compressed, 7):
        made.path.write_bytes(good[:offset] + bytes([good[offset] ^ 0x55]) + good[offset + 1 :])
        with pytest.raises(CellError, match="pkg/x"):
            convert(made)


def patch_directory(path: Path, offset: int, value: bytes) -> None:
    """Change a field of the first entry of the table of contents."""
    content = bytearray(path.read_bytes())
    start = content.index(b"PK\x01\x02") + offset
    content[start : start + len(value)] = value
    path.write_bytes(content)


def test_a_bomb_that_declares_more_than_deflate_can_hold(builder: Builder) -> None:
    made = builder.wheel("pkg", {"pkg/x": b"\0" * 100_000})
    patch_directory(made.path, 24, struct.pack("<I", 2_000_000_000))
    with pytest.raises(CellError, match="declares 2000000000 bytes"):
        installed(made)


def test_a_bomb_that_holds_more_than_it_declares(builder: Builder) -> None:
    made = builder.wheel("pkg", {"pkg/x": b"\0" * 100_000}, unrecorded=["pkg/x"])
    patch_directory(made.path, 24, struct.pack("<I", 1000))
    with pytest.raises(CellError, match="pkg/x holds more than the 1000 bytes"):
        convert(made)


def test_files_that_share_their_data(builder: Builder) -> None:
    made = builder.wheel("pkg", {"pkg/x": b"one", "pkg/y": b"two"}, method=zipfile.ZIP_STORED)
    content = made.path.read_bytes()
    second = [m.start() for m in re.finditer(b"PK\x01\x02", content)][1]
    made.path.write_bytes(content[: second + 42] + b"\0\0\0\0" + content[second + 46 :])
    with pytest.raises(CellError, match=r"overlaps|another name"):
        installed(made)


def test_a_wheel_of_another_project(builder: Builder) -> None:
    made = builder.wheel("other", {"x.py": b""})
    wheel = Made(path=made.path, wheel=builder.wheel("pkg", {}).wheel)
    with pytest.raises(CellError, match="holds other, not pkg"):
        installed(wheel)


def test_a_file_that_is_a_folder_elsewhere(builder: Builder) -> None:
    files = {"pkg/x": b"", "pkg-1.0.data/purelib/pkg/x/y": b""}
    with pytest.raises(CellError, match="a file and a folder"):
        installed(builder.wheel("pkg", files))


def test_an_unknown_scheme(builder: Builder) -> None:
    with pytest.raises(CellError, match="no installation scheme"):
        installed(builder.wheel("pkg", {"pkg-1.0.data/registry/x": b""}))


@pytest.mark.parametrize(
    ("tag", "python", "fits"),
    [
        ("py3-none-any", "3.6", True),
        ("cp39-cp39-manylinux2010_x86_64", "3.9", True),
        ("cp39-cp39-manylinux2010_x86_64", "3.10", False),
        ("cp37-abi3-manylinux_2_28_x86_64", "3.12", True),
        ("py3-none-manylinux2014_aarch64", "3.11", False),
        ("py3-none-win_amd64", "3.11", False),
        ("py3-none-musllinux_1_2_x86_64", "3.11", False),
        ("cp313-cp313t-manylinux_2_28_x86_64", "3.13", False),
        ("cp311-cp311-manylinux_2_17_x86_64.manylinux2014_x86_64", "3.11", True),
    ],
)
def test_tags_against_the_cell(builder: Builder, tag: str, python: str, fits: bool) -> None:
    made = builder.wheel("pkg", {"pkg.py": b""}, tag=tag)
    cell = pinned([made], python=python).cell
    if fits:
        check_tags(made.wheel, cell)
    else:
        with pytest.raises(CellError, match="does not run on Python"):
            check_tags(made.wheel, cell)


@pytest.mark.parametrize(
    ("requires", "fits"),
    [
        (">=3.7", True),
        (">=3.12", False),
        ("!=3.11.0,!=3.11.1,>=3.7", True),
        ("<3.11.5", True),
        (">=3.11.4", True),
        ("<3.11", False),
        ("no version", True),
        (None, True),
    ],
)
def test_requires_python_against_the_cell(builder: Builder, requires: str | None, fits: bool) -> None:
    cell = pinned([builder.pip()], python="3.11").cell
    assert takes(requires, "3.11") is fits
    if fits:
        check_python("pkg", requires, cell)
    else:
        with pytest.raises(CellError, match=re.escape(f"pkg asks for Python {requires}")):
            check_python("pkg", requires, cell)


def test_requires_python_against_a_patch_that_the_matrix_names(builder: Builder) -> None:
    cell = replace(pinned([builder.pip()], python="3.11").cell, python_patch="3.11.9")
    check_python("pkg", ">=3.11.4", cell)
    with pytest.raises(CellError, match=re.escape("pkg asks for Python <3.11.5, the cell has 3.11.9")):
        check_python("pkg", "<3.11.5", cell)


def test_executables_need_to_be_files_in_the_archive(builder: Builder) -> None:
    made = builder.wheel(
        "pkg",
        {"pkg/run": Content(data=b"#!/bin/sh\n", mode=PROGRAM), "pkg/odd": Content(data=b"", mode=0o111)},
    )
    modes = {file.path: file.mode for file in installed(made).files}
    assert modes[f"{SITE}/pkg/run"] == 0o755
    assert modes[f"{SITE}/pkg/odd"] == 0o644
