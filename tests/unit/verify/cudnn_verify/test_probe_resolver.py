"""The loader's search order, worked out; and the cache that it reads."""

import struct

from probe_elf import write_elf

from builder.core.link import read_cache
from builder.verify.cudnn_verify.measure.files import choose_candidates, find_consumers
from builder.verify.cudnn_verify.measure.library_files import Loader


def loader(library_path="", cache=(), defaults=()):
    return Loader(library_path=str(library_path), cache=list(cache), defaults=[str(d) for d in defaults])


def test_rpath_beats_the_variable_and_runpath_loses_to_it(tmp_path):
    own = write_elf(tmp_path / "own/libcudnn.so.9")
    other = write_elf(tmp_path / "other/libcudnn.so.9")
    by_rpath = write_elf(tmp_path / "torch/libtorch_cuda.so", rpath="$ORIGIN/../own")
    by_runpath = write_elf(tmp_path / "tensorflow/libtensorflow_cc.so.2", runpath="${ORIGIN}/../own")
    here = loader(library_path=tmp_path / "other")
    torch = here.resolve("libcudnn.so.9", str(by_rpath))
    assert torch["by"] == "DT_RPATH"
    assert torch["path"].endswith("torch/../own/libcudnn.so.9") or torch["path"] == str(own)
    assert here.resolve("libcudnn.so.9", str(by_runpath))["path"] == str(other)
    assert loader().resolve("libcudnn.so.9", str(by_runpath))["by"] == "DT_RUNPATH"


def test_origin_is_the_folder_of_the_link_that_was_opened(tmp_path):
    """Seen with glibc: a library behind a link finds its neighbours beside the link, and no others."""
    real = write_elf(tmp_path / "opt/libp.so", runpath="$ORIGIN")
    beside_link = write_elf(tmp_path / "site/libx.so")
    (tmp_path / "site/libp.so").symlink_to(real)
    assert loader().resolve("libx.so", str(tmp_path / "site/libp.so"))["path"] == str(beside_link)
    assert loader().resolve("libx.so", str(real))["path"] is None
    write_elf(tmp_path / "opt/liby.so")
    assert loader().resolve("liby.so", str(tmp_path / "site/libp.so"))["path"] is None


def test_the_run_path_of_the_interpreter_counts(tmp_path, monkeypatch):
    """conda's Python has the DT_RPATH $ORIGIN/../lib, which serves whatever has no DT_RUNPATH."""
    python = write_elf(tmp_path / "bin/python3", rpath="$ORIGIN/../lib")
    shim = write_elf(tmp_path / "lib/libcudnn.so.8")
    other = write_elf(tmp_path / "site/libp.so", runpath="/nowhere")
    monkeypatch.setattr("sys.executable", str(python))
    found = loader().resolve("libcudnn.so.8")
    assert (found["by"], found["path"]) == ("DT_RPATH of the program", f"{tmp_path}/bin/../lib/libcudnn.so.8")
    assert shim.samefile(found["path"])
    assert loader().resolve("libcudnn.so.8", str(other))["path"] is None


def test_rpath_counts_for_nothing_beside_a_runpath(tmp_path):
    write_elf(tmp_path / "a/libx.so")
    write_elf(tmp_path / "b/libx.so")
    both = write_elf(tmp_path / "p/libp.so", rpath=str(tmp_path / "a"), runpath=str(tmp_path / "b"))
    assert loader().resolve("libx.so", str(both))["path"] == str(tmp_path / "b/libx.so")


def test_cache_and_default_folders_come_last(tmp_path):
    cached = write_elf(tmp_path / "cached/libx.so")
    default = write_elf(tmp_path / "default/libx.so")
    assert loader(cache=[("libx.so", str(cached))], defaults=[default.parent]).resolve("libx.so")[
        "path"
    ] == str(cached)
    assert loader(defaults=[default.parent]).resolve("libx.so")["by"] == "default folder"
    assert loader().resolve("libx.so")["path"] is None


def test_a_foreign_library_is_passed_over_and_a_damaged_one_is_not(tmp_path):
    write_elf(tmp_path / "foreign/libx.so", machine=40)
    good = write_elf(tmp_path / "good/libx.so")
    damaged = tmp_path / "damaged/libx.so"
    damaged.parent.mkdir()
    damaged.write_text("hello")
    found = loader(library_path=f"{tmp_path}/foreign:{tmp_path}/good").resolve("libx.so")
    assert found["path"] == str(good)
    assert [row["problem"] for row in found["passed"]] == ["for another machine (ELF machine 40)"]
    stuck = loader(library_path=f"{tmp_path}/damaged:{tmp_path}/good").resolve("libx.so")
    assert (stuck["path"], stuck["problem"]) == (str(damaged), "not an ELF file")


def test_the_cache_file_is_read_in_both_forms(tmp_path):
    names = b"libx.so.1\0/lib/libx.so.1\0"
    place = 48 + 24
    new = b"glibc-ld.so.cache1.1" + struct.pack("<II", 1, len(names)) + bytes(20)
    new += struct.pack("<iIIIQ", 0x0303, place, place + 10, 0, 0) + names
    alone = tmp_path / "new.cache"
    alone.write_bytes(new)
    old = b"ld.so-1.7.0\0" + struct.pack("<I", 1) + bytes(12)
    old += bytes(-len(old) % 8)
    joined = tmp_path / "joined.cache"
    joined.write_bytes(old + new)
    assert read_cache(str(alone)) == read_cache(str(joined))
    assert read_cache(str(alone)) in ([("libx.so.1", "/lib/libx.so.1")], [])


def test_a_cache_that_is_none_or_broken_is_empty(tmp_path):
    broken = tmp_path / "cache"
    broken.write_bytes(b"glibc-ld.so.cache1.1" + struct.pack("<I", 9))
    assert read_cache(str(broken)) == []
    assert read_cache(str(tmp_path / "none")) == []


def test_this_machine_has_a_cache_with_its_c_library():
    assert any(name.startswith("libc.so") for name, _ in read_cache())


def test_the_major_that_a_framework_asks_for_is_its_floor_and_not_its_ceiling(tmp_path):
    plugin = write_elf(tmp_path / "jax_plugins/xla_cuda12/xla_cuda_plugin.so")
    shim = write_elf(tmp_path / "nvidia/cudnn/lib/libcudnn.so.9")
    requires = ["nvidia-cudnn-cu12<10.0,!=9.10.0,>=9.8; extra == 'with-cuda'"]
    distributions = {"jax-cuda12-plugin": {"requires": requires}}
    rows = find_consumers([str(tmp_path)], distributions, loader(), [str(shim.parent)])
    assert [(r["framework"], r["name"], r["path"], r["cuda"]) for r in rows] == [
        ("jax", "libcudnn.so.9", str(shim), "12")
    ]
    assert rows[0]["requester"] == str(plugin)


def test_onnxruntime_that_preloads_says_so_itself_without_its_metadata(tmp_path):
    write_elf(tmp_path / "onnxruntime/capi/libonnxruntime_providers_cuda.so", needed=["libcudnn.so.9"])
    write_elf(tmp_path / "nvidia/cudnn/lib/libcudnn.so.9")
    folders = [str(tmp_path / "nvidia/cudnn/lib")]
    for text, found in (("def preload_dlls(): ...", folders[0] + "/libcudnn.so.9"), ("", None)):
        (tmp_path / "onnxruntime/__init__.py").write_text(text)
        (row,) = find_consumers([str(tmp_path)], {}, loader(), folders)
        assert row["path"] == found


def test_of_two_plugins_of_jax_that_for_cuda_13_opens_cudnn(tmp_path):
    for major in (12, 13):
        write_elf(tmp_path / f"jax_plugins/xla_cuda{major}/xla_cuda_plugin.so", needed=["libcudnn.so.9"])
    rows = find_consumers([str(tmp_path)], {}, loader(), [])
    assert [row["cuda"] for row in rows] == ["13"]


def test_an_optional_user_that_finds_none_leaves_the_wheels_copy_to_be_tested():
    copy = {"shim": "/s/nvidia/cudnn/lib/libcudnn.so.9", "kind": "wheel"}
    cupy = {"framework": "cupy", "path": None, "optional": True}
    assert [row["path"] for row in choose_candidates([cupy], [copy], loader())] == [copy["shim"]]
    torch = {"framework": "torch", "path": None, "optional": False}
    assert choose_candidates([torch], [copy], loader()) == []
