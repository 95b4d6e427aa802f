"""Reading releases: each once, again where something differs, never a value that nothing said."""

from __future__ import annotations

import json
import struct

import pytest
from facts_shelf import LINUX, Shelf, fatbin, jax, metadata, packed, torch, torch_python

from builder.plan.facts.reading import binary
from builder.plan.facts.reading.release_survey import Budget, ReleaseTable, load_table, survey, table_text
from builder.plan.facts.reading.row_sources import total


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "releases").mkdir()
    return tmp_path


def read(folder, shelf, stem="torch", **options):
    """Survey one family and write what came of it."""
    options.setdefault("cache", folder / "cache")
    found = survey(folder, shelf, only=(stem,), **options)
    (folder / "releases" / f"{stem}.json").write_text(table_text(found.tables[stem]))
    return found


def rows(folder, stem="torch"):
    return {row["version"]: row for row in load_table(folder, stem).rows}


def alter(folder, stem, version, **values):
    """Change a row by hand, as somebody would who does not know of its check sum."""
    table = load_table(folder, stem)
    for row in table.rows:
        if row["version"] == version:
            row.update(values)
    (folder / "releases" / f"{stem}.json").write_text(table_text(table))


def test_a_release_becomes_a_row_with_the_origin_of_each_value(folder) -> None:
    read(folder, Shelf(torch("2.9.1") | torch("2.9.1", python="313")))
    row = rows(folder)["2.9.1"]
    assert (row["cuda"], row["cudnn"], row["variant"], row["brings"]) == (
        "12.8",
        "9.10.2.21",
        "cu128",
        "pins",
    )
    assert (row["python"], row["glibc"], row["platforms"]) == (["3.12", "3.13"], "2.28", ["linux/amd64"])
    assert (row["architectures"], row["numpy_abi"]) == (["sm_75", "sm_120"], "2")
    assert row["requires"] == ["filelock"]
    assert row["extras"] == {"": ["nvidia-cudnn-cu12==9.10.2.21"]}
    assert row["read"]["cuda"] == "torch/version.py"
    assert row["read"]["cudnn"] == "METADATA"
    assert row["read"]["architectures"] == "torch/lib/libtorch_python.so"


def test_what_stands_is_not_read_again(folder) -> None:
    shelf = Shelf(torch("2.9.1") | torch("2.9.0"))
    read(folder, shelf)
    shelf.asked.clear()
    again = read(folder, shelf, cache=folder / "another cache")
    assert (again.changes, again.wheels, shelf.asked) == ([], 0, [])


def test_a_new_release_a_new_file_and_a_yank_are_read(folder) -> None:
    read(folder, Shelf(torch("2.9.0")))
    shelf = Shelf(torch("2.9.0") | torch("2.9.0", python="313") | torch("2.9.1"))
    assert set(read(folder, shelf).changes) >= {
        "torch torch 2.9.0: python 3.12 -> 3.12 3.13",
        "torch torch 2.9.1: is new",
    }
    shelf.yanked = {file: "broken" for file in shelf.content if "2.9.1" in file}
    assert "torch torch 2.9.1: yanked nothing -> broken" in read(folder, shelf).changes
    assert (
        "torch torch 2.9.1: is no longer on the package index" in read(folder, Shelf(torch("2.9.0"))).changes
    )
    assert list(rows(folder)) == ["2.9.0"]


@pytest.mark.parametrize(
    ("name", "wrong"),
    [("architectures", ["sm_50"]), ("glibc", "2.17"), ("cudnn", "9.1.0"), ("python", ["3.1"])],
)
def test_a_value_altered_by_hand_is_seen_and_put_right(folder, name, wrong) -> None:
    shelf = Shelf(torch("2.9.1"))
    read(folder, shelf)
    right = rows(folder)["2.9.1"]
    alter(folder, "torch", "2.9.1", **{name: wrong})
    found = read(folder, shelf)
    assert [change.partition(" -> ")[0].split(": ")[1].split()[0] for change in found.changes] == [name]
    assert rows(folder)["2.9.1"] == right


def test_a_row_removed_from_the_middle_is_seen(folder) -> None:
    shelf = Shelf(torch("2.9.0") | torch("2.9.1") | torch("2.10.0"))
    read(folder, shelf)
    table = load_table(folder, "torch")
    gone = ReleaseTable(rows=[row for row in table.rows if row["version"] != "2.9.1"], date=table.date)
    (folder / "releases" / "torch.json").write_text(table_text(gone))
    assert read(folder, shelf).changes == ["torch torch 2.9.1: is new"]
    assert list(rows(folder)) == ["2.9.0", "2.9.1", "2.10.0"]


def test_jax_is_read_from_its_plug_ins(folder) -> None:
    shelf = Shelf(jax("0.9.1"))
    read(folder, shelf, "jax")
    row, other = load_table(folder, "jax").rows
    assert (row["cuda"], row["cudnn"]) == ("12.9", "9.8.0")
    assert (other["variant"], other["cuda"], other["cudnn"]) == ("cuda13", "13.0", "9.12.0")
    assert row["architectures"] == ["sm_50", "sm_90", "compute_90"]
    pins = ["nvidia-cudnn-cu12>=9.8,<10.0", "nvidia-cuda-runtime-cu12>=12.1.105"]
    assert row["extras"]["cuda12"] == pins
    assert row["read"]["cudnn"] == "jax-cuda12-plugin 0.9.1: jax_cuda12_plugin/_versions.so"
    assert (row["python"], row["glibc"]) == (["3.12"], "2.28")
    assert read(folder, shelf, "jax", cache=folder / "another cache").wheels == 0


def test_one_of_two_rows_of_a_release_altered_by_hand_is_seen(folder) -> None:
    shelf = Shelf(jax("0.9.1") | jax("0.9.2"))
    read(folder, shelf, "jax")
    table = load_table(folder, "jax")
    before = [dict(row) for row in table.rows]
    table.rows[0]["cudnn"] = "9.1.0"
    (folder / "releases" / "jax.json").write_text(table_text(table))
    found = read(folder, shelf, "jax", cache=folder / "another cache")
    assert found.changes == ["jax jax 0.9.1 cuda12: cudnn 9.1.0 -> 9.8.0"]
    assert load_table(folder, "jax").rows == before


def test_what_was_read_before_an_interruption_is_not_read_again(folder) -> None:
    shelf = Shelf(torch("2.9.0") | torch("2.9.1") | torch("2.10.0"))

    def stop(done: int, of: int, size: int) -> None:
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        read(folder, shelf, say=stop)
    first = set(shelf.asked)
    shelf.asked.clear()
    read(folder, shelf)
    assert len(rows(folder)) == 3
    assert len(first) >= 2
    assert not first & set(shelf.asked)


def test_a_budget_leaves_the_rest_to_the_next_time(folder) -> None:
    shelf = Shelf(torch("2.9.0") | torch("2.9.1") | torch("2.10.0"))
    found = read(folder, shelf, budget=Budget(bytes=10**9, seconds=-1))
    assert (found.left, rows(folder)) == (3, {})
    assert len(read(folder, shelf).tables["torch"].rows) == 3


def test_an_index_that_is_down_changes_nothing(folder) -> None:
    read(folder, Shelf(torch("2.9.1")))
    before = rows(folder)
    found = read(folder, Shelf({}, down=True))
    assert found.changes == []
    assert found.notes == ["torch was not read: package index: connection refused"]
    assert rows(folder) == before


def test_a_wheel_that_is_cut_or_no_zip_is_named_and_makes_no_row(folder) -> None:
    shelf = Shelf(torch("2.9.0") | torch("2.9.1"))
    file = next(file for file in shelf.content if "2.9.1" in file)
    shelf.content[file] = shelf.content[file][:-40]
    found = read(folder, shelf)
    assert list(rows(folder)) == ["2.9.0"]
    assert any(file in note for note in found.notes)


def test_a_library_too_large_to_read_leaves_its_values_out(folder) -> None:
    wheels = torch("2.9.1")
    (file,) = wheels
    noise = bytes((n * 7919 + n // 251) % 251 for n in range(1 << 20))
    wheels[file]["torch/lib/libtorch_python.so"] = torch_python("sm_75", "sm_80")
    shelf = Shelf(wheels)
    archive = {
        name: content for name, content in wheels[file].items() if name != "torch/lib/libtorch_python.so"
    }
    shelf.content[file] = packed(archive | {"torch/lib/other.so": noise})
    read(folder, shelf)
    row = rows(folder)["2.9.1"]
    assert "architectures" not in row
    assert row["cuda"] == "12.8"


def test_a_build_on_an_index_of_its_makers_is_a_variant(folder) -> None:
    shelf = Shelf(torch("2.1.2", cuda="12.1") | torch("2.1.2+cu118", cuda="11.8", cudnn="8.7.0.84"))
    read(folder, shelf)
    both = [
        (row["variant"], row.get("default", True), row["cuda"]) for row in load_table(folder, "torch").rows
    ]
    assert sorted(both) == [("cu118", False, "11.8"), ("cu121", True, "12.1")]
    # who has no such index does not lose them
    assert read(folder, Shelf(torch("2.1.2", cuda="12.1"))).changes == []
    assert len(load_table(folder, "torch").rows) == 2


def test_wheels_without_cuda_say_so(folder) -> None:
    arm = "manylinux_2_17_aarch64"
    info = "tensorflow/python/platform/build_info.py"
    build = {"cuda_version": "12.5.1", "cudnn_version": "9", "is_cuda_build": True}
    build["cuda_compute_capabilities"] = ["sm_60", "compute_90"]
    shelf = Shelf(
        {
            f"tensorflow-2.20.0-cp312-cp312-{LINUX}.whl": {
                info: f"build_info = {build}",
                **metadata(
                    "tensorflow",
                    "2.20.0",
                    "nvidia-cudnn-cu12<10,>=9.3; extra == 'and-cuda'",
                    extras=("and-cuda",),
                ),
            },
            f"tensorflow-2.20.0-cp312-cp312-{arm}.whl": {
                info: "build_info = {'is_cuda_build': False}",
                **metadata("tensorflow", "2.20.0"),
            },
            f"tensorflow-2.13.0-cp310-cp310-{arm}.whl": metadata(
                "tensorflow", "2.13.0", "tensorflow-cpu-aws==2.13.0; platform_machine == 'aarch64'"
            ),
        }
    )
    read(folder, shelf, "tensorflow")
    found = rows(folder, "tensorflow")
    assert found["2.20.0"]["cpu_only"] == ["linux/arm64"]
    assert found["2.20.0"]["architectures"] == ["sm_60", "sm_90", "compute_90"]
    assert (found["2.20.0"]["brings"], found["2.20.0"]["cudnn"]) == ("extra", "9")
    assert (found["2.13.0"]["platforms"], found["2.13.0"]["cpu_only"]) == (["linux/arm64"], ["linux/arm64"])


def test_a_table_is_one_row_a_line_and_reads_back(folder) -> None:
    read(folder, Shelf(torch("2.9.0") | torch("2.9.1")))
    text = (folder / "releases" / "torch.json").read_text()
    assert len(text.splitlines()) == 4
    assert all(row["sum"] == total(row) for row in json.loads(text)["rows"])


def test_fatbins_say_what_most_of_a_library_was_compiled_for() -> None:
    usual, attention = fatbin("sm_70", "sm_80", "compute_80"), fatbin("sm_80")
    whole = b"\x7fELF" + usual + attention + usual
    assert binary.fatbin_architectures(whole) == ("sm_70", "sm_80", "compute_80")
    assert binary.fatbin_architectures(usual[:-1]) is None
    assert binary.fatbin_architectures(b"\x50\xed\x55\xba" + b"\xff" * 64) is None


def test_constants_in_compiled_code() -> None:
    assert binary.torch_cudnn(torch_python("sm_37", cudnn=(7, 6, 5))) == "7.6.5"
    assert binary.torch_cudnn(torch_python("sm_37", cudnn=(7, 6, 5)) + torch_python(cudnn=(8, 0, 5))) is None
    assert binary.arch_flags(b"ipc_hsm_70 sm_75\0") == ("sm_70", "sm_75")
    assert binary.arch_flags(b"sm_70 sm_75\0sm_80 sm_90\0") is None
    assert binary.numpy_abi(b"numpy.core._multiarray_umath") == "1"
    assert binary.numpy_abi(b"nothing") is None
    rust = b"numpy.core.multiarray_ARRAY_API _RUST_NUMPY_BORROW_CHECKING_API"  # asks when an array comes
    assert (binary.numpy_abi(rust), binary.numpy_interface(rust)) == (None, None)
    assert binary.numpy_interface(b"numpy.core.multiarray _ARRAY_API") == "1"
    assert [binary.cudnn_text(number) for number in (7605, 8902, 90101, 91002)] == [
        "7.6.5",
        "8.9.2",
        "9.1.1",
        "9.10.2",
    ]


def message(code: bytes) -> bytes:
    """A library whose code ends in loading the message that TensorFlow has for an older cuDNN."""
    text, place = b"but source was compiled with: \0", 120
    load = b"\x48\x8d\x35" + struct.pack("<i", 0)
    start = place + len(code) + len(load) + 1
    load = b"\x48\x8d\x35" + struct.pack("<i", start - (place + len(code) + len(load)))
    size = start + len(text)
    header = (
        b"\x7fELF\x02\x01".ljust(32, b"\0") + struct.pack("<Q", 64) + bytes(14) + struct.pack("<HH", 56, 1)
    )
    program = struct.pack("<IIQQQQQQ", 1, 5, 0, 0, 0, size, size, 1)
    return (header.ljust(64, b"\0") + program).ljust(place, b"\0") + code + load + b"\0" + text


@pytest.mark.parametrize(
    ("code", "version"),
    [
        (b"\x48\xb8" + struct.pack("<II", 7, 6) + b"\xc7\x85" + struct.pack("<iI", -8, 5), "7.6"),
        (b"".join(b"\xc7\x85" + struct.pack("<iI", 4 * n, v) for n, v in enumerate((7, 3, 1))), "7.3"),
        (b"\x48\xc7\x85" + struct.pack("<iI", -16, 8) + b"\xc7\x85" + struct.pack("<iI", -8, 4), "8.0"),
        (b"".join(b"\xbf" + struct.pack("<I", v) + b"\x90\x90" for v in (8, 9, 4)), "8.9"),
        (b"\x48\xb8" + struct.pack("<II", 7, 6) + b"\x48\xb9" + struct.pack("<II", 8, 1), None),
        (b"\x90" * 20, None),
    ],
)
def test_what_tensorflow_would_say_it_was_compiled_with(code, version) -> None:
    assert binary.tensorflow_cudnn(message(code)) == version


def test_a_library_without_the_message_says_nothing() -> None:
    assert binary.tensorflow_cudnn(b"\x7fELF") is None
    assert binary.tensorflow_cudnn(b"but source was compiled with: \0") is None
