from __future__ import annotations

import hashlib
import io
import tarfile

import pytest
import zstandard

from builder.image.layers import tar
from builder.image.layers.store import Layer
from builder.image.layers.tar import CHUNK, BlobWriter, TarReader


def archive(*entries: tuple[str, bytes]) -> bytes:
    return (
        b"".join(tar.file_header(p, mode=0o644, size=len(c)) + c + tar.padding(len(c)) for p, c in entries)
        + tar.END
    )


@pytest.mark.parametrize(
    "path",
    [
        "a",
        "opt/runtime/file.py",
        "x" * 100,
        "p" * 155 + "/" + "n" * 100,
        "p" * 156 + "/" + "n" * 100,
        "x" * 101,
        "/".join(["d" * 30] * 20),
        "\u00fcml\u00e4ut/na\u00efve \u2713",
        "\u2713" * 60,
    ],
)
def test_other_readers_find_what_was_written(path: str) -> None:
    stream = tar.directory_header("opt") + archive((path, b"content"))
    with tarfile.open(fileobj=io.BytesIO(stream)) as found:
        folder, file = found.getmembers()
        assert (folder.name, folder.isdir(), folder.mode) == ("opt", True, 0o755)
        assert (file.name, file.mode, file.uid, file.gid, file.uname, file.mtime) == (
            path,
            0o644,
            0,
            0,
            "",
            tar.MTIME,
        )
        content = found.extractfile(file)
        assert content is not None
        assert content.read() == b"content"


@pytest.mark.parametrize("path", ["d" * 99, "d" * 100, "p" * 150 + "/" + "d" * 99, "e/" * 100 + "f"])
def test_folders_of_any_length(path: str) -> None:
    with tarfile.open(fileobj=io.BytesIO(tar.directory_header(path) + tar.END)) as found:
        assert [(m.name, m.isdir()) for m in found] == [(path, True)]


def test_a_file_beyond_eight_gibibytes() -> None:
    header = tar.file_header("big", mode=0o644, size=9 << 30)
    assert tarfile.TarInfo.frombuf(header[:512], "utf-8", "strict").type == tarfile.XHDTYPE
    assert b" size=9663676416\n" in header


@pytest.mark.parametrize("size", [0, 1, 511, 512, 513])
def test_padding_fills_the_block(size: int) -> None:
    assert (size + len(tar.padding(size))) % 512 == 0


def test_a_blob_does_not_show_the_pieces_in_which_it_came() -> None:
    stream = bytes(range(256)) * (3 * CHUNK // 256) + b"end"

    def written(length: int) -> tuple[Layer, bytes]:
        target = io.BytesIO()
        with BlobWriter(target, "title", "zstd", len(stream)) as writer:
            for start in range(0, len(stream), length):
                writer.write(stream[start : start + length])
            return writer.finish(), target.getvalue()

    first = written(len(stream))
    assert zstandard.ZstdDecompressor().stream_reader(first[1]).read() == stream
    assert first[0].unpacked == len(stream)
    assert first[0].diff_id == "sha256:" + hashlib.sha256(stream).hexdigest()
    for length in (999, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK + 5):
        assert written(length) == first


def test_a_name_that_is_empty_below_a_prefix_is_a_folder() -> None:
    header = tar._block(b"", b"etc", b"0", 0o644, 0)
    (entry,) = TarReader(io.BytesIO(header + tar.END), "x")
    assert (entry.name, entry.kind) == ("etc", "folder")
