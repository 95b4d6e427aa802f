"""Compiled packages: what the beginning of their libraries says, and the rows that are made of it."""

from __future__ import annotations

import gzip
import io
import struct
import sysconfig
import tarfile
from pathlib import Path

import pytest
from facts_shelf import LINUX, Shelf, fatbin, metadata

from builder.plan.facts.reading.binary import library_of, needs_of
from builder.plan.facts.reading.package_wheel import source_values
from builder.plan.facts.reading.release_survey import load_table, survey, table_text


def beginning(*needed: str, asks: tuple[str, ...] = (), defines: tuple[str, ...] = ()) -> bytes:
    """A library up to its texts, without the dynamic section, which lies near the end."""
    texts, rows = b"\0", bytes(24)
    for name, section in [(one, 0) for one in asks] + [(one, 7) for one in defines]:
        rows += struct.pack("<IBBHQQ", len(texts), 0x12, 0, section, 0, 0)
        texts += name.encode() + b"\0"
    for name in ("__gmon_start__", "GLIBC_2.17", "GLIBC_2.4", *needed):
        texts += name.encode() + b"\0"
    body = rows + texts + bytes(16)
    header = b"\x7fELF\x02\x01\x01" + bytes(9)
    header += struct.pack("<HHIQQQIHHHHHH", 3, 62, 1, 0, 64, 0, 0, 64, 56, 2, 0, 0, 0)
    load = struct.pack("<IIQQQQQQ", 1, 4, 0, 0, 0, 176 + len(body), 176 + len(body), 4096)
    dynamic = struct.pack("<IIQQQQQQ", 2, 6, 1 << 30, 1 << 30, 1 << 30, 256, 256, 8)
    return header + load + dynamic + body


def test_names_and_symbols_are_read_without_the_end_of_the_file() -> None:
    content = beginning(
        "libcudart.so.12", "libthing.so.1", asks=("_ZN3c105ErrorE",), defines=("PyInit_thing",)
    )
    found = library_of(content, "libthing.so", whole=False)
    assert found is not None
    assert (found.needed, found.glibc) == (("libcudart.so.12",), "2.17")
    assert (found.undefined, found.defined) == ({"_ZN3c105ErrorE"}, {"PyInit_thing"})


@pytest.mark.parametrize("content", [b"", b"\x7fELF", b"PK\x03\x04", beginning()[:200], beginning()[:150]])
def test_a_beginning_without_names_says_nothing(content) -> None:
    assert library_of(content, "libthing.so", whole=False) is None


def test_the_beginning_of_real_libraries_says_what_their_dynamic_sections_say() -> None:
    folder = Path(sysconfig.get_config_var("DESTSHARED") or "/nowhere")
    compared = 0
    for path in sorted(folder.glob("*.so"))[:40]:
        content = path.read_bytes()
        found, exact = library_of(content, path.name, whole=False), needs_of(content)
        if found is None or exact is None:
            continue  # texts that were moved to the end of the file
        compared += 1
        assert set(found.needed) == set(exact.libraries)
        whole = library_of(content, path.name, whole=True)
        assert whole is not None
        assert (whole.undefined, whole.defined) == (found.undefined, found.defined)
    assert compared or not folder.is_dir()


def torch_wheel(version: str, *symbols: str) -> dict[str, dict[str, bytes | str]]:
    """A PyTorch whose small libraries define these symbols, as a reader of whole files sees them."""
    named = {"libc10": symbols, "libc10_cuda": ("c10_cuda",), "libtorch_python": ("python",)}
    members: dict[str, bytes | str] = {
        f"torch/lib/{name}.so": beginning(defines=of_it) for name, of_it in named.items()
    }
    return {f"torch-{version}-cp312-cp312-{LINUX}.whl": members | dict(metadata("torch", version))}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "releases" / "packages").mkdir(parents=True)
    (tmp_path / "packages.toml").write_text(
        'rows = [{ name = "thing", since = "1.0", compiled = "1.1", sources = ["index"] }]\n'
        '[sources.index]\nreference = "the index"\ndate = "2026-01-01"\n'
    )
    return tmp_path


def row_of(folder: Path, shelf: Shelf, version: str) -> dict:
    found = survey(folder, shelf, only=("thing",), cache=folder / "cache")
    table = found.tables["packages/thing"]
    (folder / "releases" / "packages" / "thing.json").write_text(table_text(table))
    return {row["version"]: row for row in load_table(folder, "packages/thing").rows}[version]


def thing(version: str, members: dict[str, bytes | str], *requires: str) -> dict[str, dict[str, bytes | str]]:
    about = {
        "thing/__init__.py": "",
        "tests/__init__.py": "",
        **members,
        **metadata("thing", version, *requires),
    }
    return {f"thing-{version}-cp39-abi3-{LINUX}.whl": about}


def test_a_wheel_becomes_a_row(folder: Path) -> None:
    extension = beginning("libcudart.so.12", "libc10.so", asks=("_ZN3c103oldEv",)) + fatbin(
        "sm_80", "compute_90"
    )
    shelf = Shelf(
        thing(
            "1.2.0",
            {"thing/_C.abi3.so": extension, "thing/_amd_hip.so": beginning("libamdhip64.so")},
            "torch",
        )
        | torch_wheel("2.8.0", "_ZN3c103oldEv")
        | torch_wheel("2.9.0", "_ZN3c103newEv")
    )
    row = row_of(folder, shelf, "1.2.0")
    assert (row["needed"], row["abi"], row["torch"]) == (["libc10.so", "libcudart.so.12"], "c++", ["2.8"])
    assert (row["architectures"], row["modules"]) == (["sm_80", "compute_90"], ["thing/__init__.py"])
    assert (row["cuda"], row["requires"], row["python"][0]) == ("12", ["torch"], "3.9")
    shelf.asked.clear()
    assert row_of(folder, shelf, "1.2.0") == row
    assert shelf.asked == []


@pytest.mark.parametrize(("own", "read"), [("2.8.0", ["2.8"]), ("1.10.0", None), ("1.10.0+cu102", None)])
def test_symbols_tell_nothing_of_a_pytorch_that_was_not_compared(folder, own, read) -> None:
    """torchvision 0.11 is made for PyTorch 1.10, whose symbols nobody reads: it is none for 2.0."""
    members = {"thing/_C.so": beginning("libc10.so", asks=("_ZN3c103oldEv",))}
    shelf = Shelf(thing("1.2.0", members, f"torch=={own}") | torch_wheel("2.8.0", "_ZN3c103oldEv"))
    row = row_of(folder, shelf, "1.2.0")
    assert (row["abi"], row.get("torch")) == ("c++", read)


def test_of_libraries_that_differ_in_a_number_one_is_loaded(folder: Path) -> None:
    members: dict[str, bytes | str] = {
        "thing/lib_cuda118.so": beginning("libcudart.so.11.0", "libz.so.1") + fatbin("sm_60"),
        "thing/lib_cuda124.so": beginning("libcudart.so.12", "libz.so.1") + fatbin("sm_60", "sm_90"),
    }
    row = row_of(folder, Shelf(thing("1.2.0", members)), "1.2.0")
    assert (row["needed"], row["either"]) == (["libz.so.1"], ["libcudart.so.11.0", "libcudart.so.12"])
    assert row["by_cuda"] == {"11.8": ["sm_60"], "12.4": ["sm_60", "sm_90"]}
    assert "cuda" not in row


def test_of_an_older_release_the_requirements_alone_are_read(folder: Path) -> None:
    shelf = Shelf(thing("1.0.0", {"thing/_C.so": beginning("libcudart.so.12")}, "torch==2.1.0"))
    row = row_of(folder, shelf, "1.0.0")
    assert row["requires"] == ["torch==2.1.0"]
    assert "needed" not in row


def source_archive(version: str, **files: str) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, text in files.items():
            member = tarfile.TarInfo(f"thing-{version}/{name}")
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text.encode()))
    return gzip.compress(out.getvalue())


def test_a_source_archive_without_pkg_info_is_on_record(folder: Path) -> None:
    """cudf-cu12 24.4 to 24.10: without a row, `check` said that there is no such release."""
    shelf = Shelf({})
    shelf.content["thing-1.3.tar.gz"] = source_archive("1.3", **{"setup.py": "import wheel_stub\n"})
    row = row_of(folder, shelf, "1.3")
    assert (row["archive"], row["unread"]["requires"]) == ("source", "its archive holds no PKG-INFO")
    assert not row.get("requires")


def test_a_release_with_sources_alone_says_what_it_is_compiled_with(folder: Path) -> None:
    setup = (
        "from torch.utils.cpp_extension import CUDAExtension\n"
        "raise RuntimeError('thing needs CUDA 11.7 and above')\n"
        "flags = ['-gencode', 'arch=compute_80,code=sm_80']\n"
    )
    files = {"PKG-INFO": metadata("thing", "1.3", "torch", "einops"), "setup.py": {"": setup}}
    shelf = Shelf({})
    texts = {name: next(iter(text.values())) for name, text in files.items()}
    shelf.content["thing-1.3.tar.gz"] = source_archive("1.3", **texts)
    row = row_of(folder, shelf, "1.3")
    assert (row["archive"], row["compiles"], row["cuda"]) == ("source", ["torch", "nvcc"], "11.7")
    assert (row["requires"], row["architectures"]) == (["torch", "einops"], ["sm_80"])


@pytest.mark.parametrize(
    "project", [b"[build-system", b"build-system = 3", b"[build-system]\nrequires = 7", b"\xff"]
)
def test_a_project_file_that_makes_no_sense_says_nothing(project) -> None:
    assert source_values({"pyproject.toml": project}) == {}


def test_a_source_archive_that_is_none_is_a_note(folder: Path) -> None:
    shelf = Shelf({})
    shelf.content["thing-1.3.tar.gz"] = b"<html>"
    found = survey(folder, shelf, only=("thing",), cache=folder / "cache")
    assert found.notes == ["thing-1.3.tar.gz: it is no source archive that can be read"]
    assert found.tables["packages/thing"].rows == []


def test_releases_before_the_first_on_record_are_counted(folder: Path) -> None:
    old = thing("0.1.0", {}) | thing("0.2.0", {}) | thing("0.3.0rc1", {})
    shelf = Shelf(old | thing("1.2.0", {"thing/_C.abi3.so": beginning("libc10.so")}, "torch"))
    found = survey(folder, shelf, only=("thing",), cache=folder / "cache")
    table = found.tables["packages/thing"]
    assert (table.older, [row["version"] for row in table.rows]) == (2, ["1.2.0"])
    (folder / "releases" / "packages" / "thing.json").write_text(table_text(table))
    assert load_table(folder, "packages/thing").older == 2
    assert survey(folder, shelf, only=("thing",), cache=folder / "cache").changes == []
