"""What a file says about itself, before anybody loads it."""

import os
import struct
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from probe_elf import mapped_libc, write_elf

from builder.verify.cudnn_verify.measure.library_files import names_inside, number_in_code, read_elf


def test_a_real_library_is_whole():
    facts = read_elf(str(mapped_libc()))
    assert facts["problem"] is None
    assert facts["soname"].startswith("libc.so")
    assert facts["size"] == mapped_libc().stat().st_size


def test_the_dynamic_section_is_read(tmp_path):
    path = write_elf(
        tmp_path / "liba.so", needed=["libb.so.1", "libc.so.6"], soname="liba.so.1", runpath="$ORIGIN:/opt/x"
    )
    facts = read_elf(str(path))
    assert facts["needed"] == ["libb.so.1", "libc.so.6"]
    assert (facts["soname"], facts["rpath"], facts["runpath"]) == ("liba.so.1", None, "$ORIGIN:/opt/x")


def test_a_run_path_of_many_folders_is_read_and_a_name_without_an_end_is_not(tmp_path):
    """TensorFlow 2.20's libraries have one of 21,537 bytes; a loader has no limit but memory."""
    path = ":".join(f"$ORIGIN/../nvidia/library-{number}/lib" for number in range(4000))
    assert len(path) > 100_000
    facts = read_elf(str(write_elf(tmp_path / "libx.so", runpath=path)))
    assert (facts["problem"], facts["runpath"]) == (None, path)
    facts = read_elf(str(write_elf(tmp_path / "liby.so", rpath=path)))
    assert (facts["problem"], facts["rpath"]) == (None, path)
    for name in ({"needed": ["x" * 100_000]}, {"runpath": "x" * (1 << 21)}):
        assert read_elf(str(write_elf(tmp_path / "libz.so", **name)))["problem"]


@pytest.mark.parametrize(
    ("content", "problem", "skipped"),
    [
        (b"", "empty", False),
        (b"hello\n", "not an ELF file", False),
        (
            b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n",
            "a Git LFS pointer, not the library",
            False,
        ),
        (b"\x7fELF\x02\x01", "truncated within its header", False),
    ],
)
def test_what_is_no_library(tmp_path, content, problem, skipped):
    path = tmp_path / "libcudnn.so.9"
    path.write_bytes(content)
    facts = read_elf(str(path))
    assert (facts["problem"], facts["skipped"]) == (problem, skipped)


def test_a_library_that_ends_early_is_found_before_it_kills(tmp_path):
    whole = mapped_libc().read_bytes()
    path = tmp_path / "libcut.so"
    path.write_bytes(whole[: len(whole) // 2])
    assert read_elf(str(path))["problem"].startswith("truncated: at least")


@pytest.mark.parametrize(
    ("options", "problem"),
    [({"bits": 1}, "a 32-bit library"), ({"machine": 40}, "for another machine (ELF machine 40)")],
)
def test_the_loader_passes_over_foreign_libraries(tmp_path, options, problem):
    facts = read_elf(str(write_elf(tmp_path / "libx.so", **options)))
    assert (facts["problem"], facts["skipped"]) == (problem, True)


def test_a_dangling_link_says_where_it_points(tmp_path):
    link = tmp_path / "libcudnn.so.9"
    link.symlink_to("libcudnn.so.9.10.2")
    facts = read_elf(str(link))
    assert facts["problem"] == "a link to libcudnn.so.9.10.2, which is not there"
    assert facts["skipped"]


def test_no_file_and_a_folder_are_problems(tmp_path):
    assert read_elf(str(tmp_path / "none.so"))["problem"] == "No such file or directory"
    assert read_elf(str(tmp_path))["problem"] == "a folder"


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(junk=st.binary(max_size=600))
def test_no_header_makes_the_reader_fail(tmp_path, junk):
    path = tmp_path / "libjunk.so"
    head = b"\x7fELF\x02\x01\x01" + bytes(9) + struct.pack("<HH", 3, 62)
    path.write_bytes(head + junk)
    assert set(read_elf(str(path))) >= {"problem", "skipped", "needed"}


def test_names_inside_a_file(tmp_path):
    path = tmp_path / "libcudnn_graph.so.9"
    path.write_bytes(b"\0libcudnn_engines_tensor_ir\0x\0libcudnn_ops\0libcudnn_ops\0")
    assert names_inside(str(path), rb"libcudnn_[a-z_]+") == ["libcudnn_engines_tensor_ir", "libcudnn_ops"]
    assert names_inside(str(path), rb"libcudnn_[a-z_]+", limit=4) == []
    assert names_inside(str(tmp_path / "none"), rb"x") == []


def test_a_named_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "libcudnn.so.9")
    assert read_elf(str(tmp_path / "libcudnn.so.9"))["problem"] == "a named pipe or a device"


@pytest.mark.parametrize("kept", [100, 300, 700])
def test_a_library_cut_within_its_table_of_segments_is_truncated(tmp_path, kept):
    path = tmp_path / "libc.so.6"
    path.write_bytes(Path(mapped_libc()).read_bytes()[:kept])
    assert read_elf(str(path))["problem"].startswith("truncated: at least")


@pytest.mark.parametrize(
    ("before", "found"), [(b"\x81\xff", True), (b"\x48\xba", True), (b"\x49\xbf", True), (b"\\\0", False)]
)
def test_a_number_in_code_is_an_operand(tmp_path, before, found):
    """cuDNN 9.1.0's heuristic holds the bytes of 91002 twelve times, and compares with 90100."""
    path = write_elf(tmp_path / "libcudnn_heuristic.so.9", needed=["@@zc\x01\0"])
    path.write_bytes(path.read_bytes().replace(b"@@", before))
    assert number_in_code(path, 91002) is found
    assert number_in_code(path, 90100) is False
