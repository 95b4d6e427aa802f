"""Two images that differ in one respect each: the file is named, and the reason is the right one."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from typing import TYPE_CHECKING, Any

import pytest
import zstandard

from builder.core.errors import CellError
from builder.image.engine.build import SavedImage
from builder.pipeline.reproduce import ImageDifference, compare, reason_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

Files = dict[str, dict[str, Any]]
BASE: Files = {
    "etc": {"type": tarfile.DIRTYPE, "mode": 0o755},
    "etc/hello": {"content": b"hello\n"},
    "etc/link": {"type": tarfile.SYMTYPE, "linkname": "hello"},
}


def layer(files: Files) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for path, entry in files.items():
            member = tarfile.TarInfo(path)
            content = entry.get("content", b"")
            member.size, member.mode, member.mtime = len(content), 0o644, 1000
            for name, value in entry.items():
                if name != "content":
                    setattr(member, name, value)
            tar.addfile(member, io.BytesIO(content))
    return stream.getvalue()


def saved(
    path: Path, layers: list[bytes], pack: Callable[[bytes], bytes] = lambda raw: raw, **config: Any
) -> SavedImage:
    diff_ids = ["sha256:" + hashlib.sha256(raw).hexdigest() for raw in layers]
    document = {"config": {"Env": ["A=1"]}, "rootfs": {"type": "layers", "diff_ids": diff_ids}} | config
    names = [f"blobs/sha256/{number}" for number in range(len(layers))]
    entries = {
        "manifest.json": json.dumps([{"Config": "config.json", "Layers": names}]).encode(),
        "config.json": json.dumps(document).encode(),
        **{name: pack(raw) for name, raw in zip(names, layers, strict=True)},
    }
    with tarfile.open(path, "w") as tar:
        for name, content in entries.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return SavedImage(path)


def difference(tmp_path: Path, first: Files, second: Files) -> ImageDifference:
    with (
        saved(tmp_path / "first.tar", [layer(BASE), layer(first)]) as one,
        saved(tmp_path / "second.tar", [layer(BASE), layer(second)]) as other,
    ):
        return compare(one, other)


@pytest.mark.parametrize("pack", [bytes, gzip.compress, zstandard.ZstdCompressor().compress])
def test_the_same_image_has_no_difference(tmp_path: Path, pack: Callable[[bytes], bytes]) -> None:
    with (
        saved(tmp_path / "first.tar", [layer(BASE)], pack) as one,
        saved(tmp_path / "second.tar", [layer(BASE)], pack) as other,
    ):
        assert compare(one, other) == ImageDifference(layers=(), config=())


@pytest.mark.parametrize("pack", [bytes, gzip.compress, zstandard.ZstdCompressor().compress])
def test_a_difference_is_found_in_every_compression(tmp_path: Path, pack: Callable[[bytes], bytes]) -> None:
    changed = BASE | {"etc/hello": {"content": b"HELLO\n"}}
    with (
        saved(tmp_path / "first.tar", [layer(BASE)], pack) as one,
        saved(tmp_path / "second.tar", [layer(changed)], pack) as other,
    ):
        assert [file.path for file in compare(one, other).files] == ["/etc/hello"]


@pytest.mark.parametrize(
    ("path", "first", "second", "what", "reason"),
    [
        ("etc/stamp", b"Sat 21 06:15:25\n", b"Sat 21 06:16:01\n", "content", "time of the"),
        ("etc/stamp", b"built 1795240000\n", b"built 1795240093\n", "content", "time of the"),
        ("etc/list", b"a\nb\nc\n", b"c\na\nb\n", "content", "another order"),
        ("etc/id", b"3f2a9c01bb7d4e55\n", b"90cc12ef00ab34dd\n", "content", "identifier"),
        ("usr/lib/a.cpython-39.pyc", b"\x61\r\r\n1", b"\x61\r\r\n2", "content", "compiled Python"),
        ("etc/ld.so.cache", b"1", b"2", "content", "loader's cache"),
        ("var/cache/ldconfig/aux-cache", b"1", b"2", "content", "ldconfig's own"),
        ("var/log/dpkg.log", b"1", b"2", "content", "log or cache of apt"),
        ("opt/x/a.dist-info/direct_url.json", b"1", b"2", "content", "came from"),
        ("etc/thing", b"left", b"right", "content", "outside of the recipe"),
    ],
)  # fmt: skip
def test_content_and_its_likely_reason(
    tmp_path: Path, path: str, first: bytes, second: bytes, what: str, reason: str
) -> None:
    found = difference(tmp_path, {path: {"content": first}}, {path: {"content": second}})
    (file,) = found.files
    assert (file.path, file.what) == (f"/{path}", (what,))
    assert reason in file.reason
    assert [entry.number for entry in found.layers] == [2]


@pytest.mark.parametrize(
    ("change", "what", "reason"),
    [
        ({"mtime": 2000}, "time", "SOURCE_DATE_EPOCH"),
        ({"mode": 0o600}, "mode", "umask"),
        ({"uid": 1000}, "owner", "copied from the machine"),
        ({"type": tarfile.SYMTYPE, "linkname": "x"}, "kind", "outside"),
    ],
)
def test_attributes(tmp_path: Path, change: dict[str, Any], what: str, reason: str) -> None:
    found = difference(tmp_path, {"etc/file": {}}, {"etc/file": change})
    (file,) = found.files
    assert file.what[0] == what
    assert reason in file.reason


def test_a_file_that_one_build_alone_has(tmp_path: Path) -> None:
    (file,) = difference(tmp_path, {}, {"root/.wget-hsts": {"content": b"x"}}).files
    assert (file.path, file.what, file.first, file.second) == (
        "/root/.wget-hsts",
        ("missing",),
        "not there",
        "there",
    )


def test_the_same_files_in_another_order(tmp_path: Path) -> None:
    found = difference(tmp_path, {"a": {}, "b": {}}, {"b": {}, "a": {}})
    assert [(entry.order, entry.files) for entry in found.layers] == [(True, ())]


def test_a_layer_more(tmp_path: Path) -> None:
    with (
        saved(tmp_path / "first.tar", [layer(BASE)]) as one,
        saved(tmp_path / "second.tar", [layer(BASE), layer({"new": {"content": b"1"}})]) as other,
    ):
        assert [(file.path, file.first) for file in compare(one, other).files] == [("/new", "not there")]


def test_only_the_compression_differs(tmp_path: Path) -> None:
    with (
        saved(tmp_path / "first.tar", [layer(BASE)], gzip.compress) as one,
        saved(tmp_path / "second.tar", [layer(BASE)]) as other,
    ):
        other.layers = ("other", *other.layers[1:])
        other.size = lambda _: 1  # type: ignore[method-assign]
        assert [entry.stream for entry in compare(one, other).layers] == [False]


def test_config(tmp_path: Path) -> None:
    with (
        saved(tmp_path / "first.tar", [layer(BASE)], created="2026-01-01T00:00:00Z") as one,
        saved(tmp_path / "second.tar", [layer(BASE)], config={"Env": ["A=2"]}) as other,
    ):
        assert compare(one, other).config == (
            ("config.Env[0]", '"A=1"', '"A=2"'),
            ("created", '"2026-01-01T00:00:00Z"', "null"),
        )


def test_something_else_than_an_image(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "not.tar", "w"):
        pass
    with pytest.raises(CellError, match="no image as docker save writes it"):
        SavedImage(tmp_path / "not.tar")


def test_every_reason_says_something() -> None:
    for what in (("missing",), ("content",), ("time",), ("mode",), ("owner",), ("link",)):
        assert len(reason_of("some/path", what, b"a", b"b")) > 20
