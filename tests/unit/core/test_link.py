"""What the loader will do, worked out: rule by rule on files that are facts, and beside the real one."""

from __future__ import annotations

import random
import shutil
import struct
import sys
import time
from pathlib import Path

import pytest
from link_oracle import ask_loader, differences, work_out
from small_libraries import lay_out, make_builds

from builder.core import elf
from builder.core.elf import NO_LIBRARY, ElfFile, Symbols, elf_file, file_reader, reader_of
from builder.core.link import (
    DiskView,
    LinkProcess,
    ListedView,
    Opened,
    Search,
    default_folders,
    import_framework,
    search_here,
)
from builder.core.link_set import LinkFile, WheelLinks, link_file, other_forms, prove, stem

NOTHING = Search([], {}, ["/lib"], [], "lib64", {}, True)
SITE = "/venv/site-packages"


GLIBC_2_36 = {"GLIBC_2.2.5", *(f"GLIBC_2.{minor}" for minor in range(3, 37))}
"""The versions that the libc of Debian 12 offers."""


def system_library(soname: str, versions: set[str]) -> ElfFile:
    return NO_LIBRARY._replace(kind=3, soname=soname, needed=[], asked=list, offered=lambda: versions)


def library(
    soname: str | None = None,
    *needed: str,
    asked: tuple[tuple[str, str, bool], ...] = (),
    offered: list[str] | None = None,
    **fields: object,
) -> ElfFile:
    """A library that neither lacks a symbol nor has one."""
    return NO_LIBRARY._replace(
        kind=3, soname=soname, needed=list(needed), asked=lambda: list(asked), offered=lambda: offered,
        symbols=lambda: Symbols({}, {}, lambda lazy: set()), **fields,
    )  # fmt: skip


def opened(
    files: dict[str, ElfFile], *names: str, search: Search = NOTHING, symbols: bool = True
) -> list[Opened]:
    process = LinkProcess(ListedView(files), search, symbols)
    return [process.open(name) for name in names]


def got(answer: Opened) -> dict[str, str | None]:
    return {row.name: row.path for row in answer.rows}


def test_rpath_beats_the_variable_which_beats_runpath_which_beats_the_cache() -> None:
    places = {f"/{place}/libx.so": library("libx.so") for place in ("r", "v", "c", "lib")}
    search = NOTHING._replace(library_path=["/v"], cache={"libx.so": "/c/libx.so"})
    by_rpath, by_runpath = library(None, "libx.so", rpath="/r"), library(None, "libx.so", runpath="/r")

    def step(files: dict[str, ElfFile], search: Search) -> str:
        (answer,) = opened({**places, **files}, "/p/libp.so", search=search)
        return answer.rows[1].step

    assert step({"/p/libp.so": by_rpath}, search) == "DT_RPATH"
    assert step({"/p/libp.so": by_runpath}, search) == "LD_LIBRARY_PATH"
    assert step({"/p/libp.so": by_runpath}, search._replace(library_path=[])) == "DT_RUNPATH"
    assert step({"/p/libp.so": library(None, "libx.so")}, search._replace(library_path=[])) == "ld.so.cache"
    assert step({"/p/libp.so": library(None, "libx.so")}, NOTHING) == "default folder"
    both = library(None, "libx.so", rpath="/r", runpath="/nowhere")
    assert step({"/p/libp.so": both}, search) == "LD_LIBRARY_PATH"


def test_rpath_is_handed_down_and_runpath_is_not() -> None:
    """PyTorch's libraries have the first, TensorFlow's and cuDNN's the second."""
    deep = {"/p/libmid.so": library("libmid.so", "libx.so"), "/q/libx.so": library("libx.so")}
    handed = {**deep, "/p/libp.so": library(None, "libmid.so", rpath="$ORIGIN:$ORIGIN/../q")}
    assert got(*opened(handed, "/p/libp.so"))["libx.so"] == "/p/../q/libx.so"
    own = {**deep, "/p/libp.so": library(None, "libmid.so", runpath="$ORIGIN:/q")}
    (answer,) = opened(own, "/p/libp.so")
    assert (answer.loads, answer.kind, answer.library, answer.by) == (
        False,
        "absent",
        "libx.so",
        "/p/libmid.so",
    )
    other = {**handed, "/p/libmid.so": library("libmid.so", "libx.so", runpath="/nowhere")}
    assert opened(other, "/p/libp.so")[0].loads is False, "one with DT_RUNPATH is handed none"


def test_whoever_comes_first_decides_for_its_soname() -> None:
    """NVIDIA's NCCL of CUDA 12 and 13 have one soname: the first in the process is everybody's."""
    files = {
        "/a/libnccl.so.2": library("libnccl.so.2"),
        "/b/libnccl.so.2": library("libnccl.so.2"),
        "/b/libtorch.so": library(None, "libnccl.so.2", rpath="$ORIGIN"),
    }
    assert got(opened(files, "/b/libtorch.so")[0])["libnccl.so.2"] == "/b/libnccl.so.2"
    second = opened(files, "/a/libnccl.so.2", "/b/libtorch.so")[1]
    assert got(second) == {"/b/libtorch.so": "/b/libtorch.so"}


def test_a_library_found_under_another_name_is_another_one_until_its_soname_is_asked_for() -> None:
    """libcudart-9335f6a2.so.12, as packagers rename it, does not serve libcudart.so.12."""
    renamed = {
        "/p/libcudart-9335f6a2.so.12": library("libcudart-9335f6a2.so.12"),
        "/p/libq.so": library(None, "libcudart.so.12"),
    }
    assert opened(renamed, "/p/libcudart-9335f6a2.so.12", "/p/libq.so")[1].kind == "absent"
    kept = {**renamed, "/p/libcudart-9335f6a2.so.12": library("libcudart.so.12")}
    assert opened(kept, "/p/libcudart-9335f6a2.so.12", "/p/libq.so")[1].loads


def test_a_call_that_fails_takes_back_what_it_loaded() -> None:
    files = {
        "/p/libbad.so": library(None, "libx.so", "libnone.so", rpath="/p"),
        "/p/libx.so": library("libx.so"),
        "/q/libgood.so": library(None, "libx.so"),
    }
    assert [answer.loads for answer in opened(files, "/p/libbad.so", "/q/libgood.so")] == [False, False]


def test_a_version_has_to_be_there_and_a_weak_one_need_not() -> None:
    def with_(offered: list[str] | None, *, weak: bool = False) -> Opened:
        asks = library(None, "libnccl.so.2", asked=(("libnccl.so.2", "V_2.27", weak),), rpath="/n")
        return opened(
            {"/p/lib.so": asks, "/n/libnccl.so.2": library("libnccl.so.2", offered=offered)}, "/p/lib.so"
        )[0]

    old = with_(["V_2.14"])
    assert (old.kind, old.library, old.by) == ("version", "/n/libnccl.so.2", "/p/lib.so")
    assert [with_(["V_2.27"]).loads, with_(["V_2.14"], weak=True).loads, with_(None).loads] == [
        True,
        True,
        True,
    ]


@pytest.mark.parametrize(
    ("glibc", "loads", "kind"),
    [(["GLIBC_2.36"], False, "version"), (["GLIBC_2.36", "GLIBC_2.41"], True, None), (None, None, "doubt")],
)
def test_a_symbol_without_versions_is_taken_from_the_file_that_is_named_from_glibc_2_41_on(
    glibc: list[str] | None, *, loads: bool | None, kind: str | None
) -> None:
    """bdaf5003 of glibc removed the assertion in check_match: Debian 13 loads what Debian 12 does not."""
    need = Symbols({1: (b"f", "V6_2", "libg.so.1")}, {}, lambda lazy: {1})
    has = Symbols({}, {b"f": [(None, False)]}, lambda lazy: set())
    asks = library(None, "libg.so.1", "libc.so.6", asked=(("libg.so.1", "V6_2", False),))
    files = {
        "/p/lib.so": asks._replace(symbols=lambda: need),
        "/lib/libg.so.1": library("libg.so.1")._replace(symbols=lambda: has),
        "/lib/libc.so.6": library("libc.so.6", offered=glibc),
    }
    (answer,) = opened(files, "/p/lib.so")
    assert (answer.loads, answer.kind) == (loads, kind)
    assert ("nobody read" in (answer.text or "")) == (glibc is None)


def test_symbols_are_looked_for_with_all_that_everybody_sees() -> None:
    """torchvision's _C, which finds PyTorch's symbols in the library that PyTorch has loaded for all."""
    need = Symbols({1: (b"_ZN3c10E", None, None)}, {}, lambda lazy: {1})
    has = Symbols({}, {b"_ZN3c10E": [(None, False)]}, lambda lazy: set())
    files = {
        "/t/libc10.so": library("libc10.so")._replace(symbols=lambda: has),
        "/v/_C.so": library()._replace(symbols=lambda: need),
    }
    (alone,) = opened(files, "/v/_C.so")
    assert (alone.kind, alone.text, alone.library) == ("symbol", "undefined symbol: _ZN3c10E", "/v/_C.so")
    process = LinkProcess(ListedView(files), NOTHING)
    assert process.open("/t/libc10.so", everywhere=True).loads
    assert process.open("/v/_C.so").loads
    unused = files["/v/_C.so"]._replace(symbols=lambda: need._replace(used=lambda lazy: set()))
    assert opened({**files, "/v/_C.so": unused}, "/v/_C.so")[0].loads, "no relocation asks for it"


def test_what_nobody_read_is_no_yes() -> None:
    unread = {"/p/lib.so": library()._replace(symbols=None)}
    assert (opened(unread, "/p/lib.so")[0].loads, opened(unread, "/p/lib.so")[0].kind) == (None, "doubt")
    assert opened(unread, "/p/lib.so", symbols=False)[0].loads, "symbols were not asked about"
    needs = {"/p/lib.so": library(None, "libGL.so.1")}
    partly = NOTHING._replace(complete=False)
    assert opened(needs, "/p/lib.so", search=partly)[0].loads is None
    assert opened(needs, "/p/lib.so")[0].loads is False
    token = {
        "/p/lib.so": library(None, "libx.so", runpath="/opt/$PLATFORM:/x"),
        "/x/libx.so": library("libx.so"),
    }
    assert opened(token, "/p/lib.so")[0].loads is None
    levels = {**token, "/p/lib.so": library(None, "libx.so", runpath="/x"), "/x/glibc-hwcaps": library()}
    assert opened(levels, "/p/lib.so", search=NOTHING._replace(hwcaps=None))[0].loads is None


def test_the_driver_brings_its_own_libraries() -> None:
    search = NOTHING._replace(given={"libcuda.so.1": "cu[A-Z]"})
    calls = Symbols({1: (b"cuInit", None, None)}, {}, lambda lazy: {1})
    files = {"/p/lib.so": library(None, "libcuda.so.1")._replace(symbols=lambda: calls)}
    assert opened(files, "/p/lib.so", search=search)[0].loads
    other = Symbols({1: (b"nvrtcCompile", None, None)}, {}, lambda lazy: {1})
    files = {"/p/lib.so": library(None, "libcuda.so.1")._replace(symbols=lambda: other)}
    assert opened(files, "/p/lib.so", search=search)[0].kind == "symbol"
    assert opened(files, "/p/lib.so")[0].kind == "absent"


def test_the_floors_of_a_base() -> None:
    base = {"/lib/libc.so.6": system_library("libc.so.6", GLIBC_2_36)}

    def asking(version: str) -> bool | None:
        asks = library(None, "libc.so.6", asked=(("libc.so.6", version, False),))
        return opened({**base, "/p/lib.so": asks}, "/p/lib.so", symbols=False)[0].loads

    assert [asking(v) for v in ("GLIBC_2.2.5", "GLIBC_2.36", "GLIBC_2.38", "GLIBCXX_3.4")] == [
        True,
        True,
        False,
        False,
    ]


def test_loops_and_absurd_run_paths_end() -> None:
    circle = {
        f"/p/lib{n}.so": library(f"lib{n}.so", f"lib{(n + 1) % 9}.so", rpath="$ORIGIN") for n in range(9)
    }
    assert len(opened(circle, "/p/lib0.so")[0].rows) == 9
    folders = ":".join(f"/nowhere/{n}" for n in range(20_000))
    wide = {"/p/lib.so": library(None, *(f"lib{n}.so" for n in range(1000)), runpath=folders)}
    wide |= {f"/lib/lib{n}.so": library(f"lib{n}.so") for n in range(1000)}
    start = time.process_time()
    assert len(opened(wide, "/p/lib.so")[0].rows) == 1001
    absurd = {f"/p/lib{n}.so": library(f"lib{n}.so", f"libx{n}.so", runpath=folders) for n in range(100)}
    absurd |= {f"/lib/libx{n}.so": library(f"libx{n}.so") for n in range(100)}
    absurd["/p/lib.so"] = library(None, *(f"lib{n}.so" for n in range(100)), runpath="/p")
    (answer,) = opened(absurd, "/p/lib.so")
    assert (answer.loads, answer.kind) == (None, "doubt")
    assert time.process_time() - start < 10
    long = {f"/lib/lib{n}.so": library(f"lib{n}.so", f"lib{n + 1}.so") for n in range(5000)}
    assert opened(long, "/lib/lib0.so")[0].text == "more than 4096 libraries"


def test_a_table_that_lies_is_a_doubt(tmp_path: Path) -> None:
    def lie() -> list[str]:
        raise ValueError("versions without an end")

    files = {"/p/lib.so": library()._replace(asked=lie)}
    assert (opened(files, "/p/lib.so")[0].loads, opened(files, "/p/lib.so")[0].kind) == (None, "doubt")
    strange = {"/p/lib.so": library(None, asked=(("libghost.so", "V_1", False),))}
    assert opened(strange, "/p/lib.so")[0].kind == "unusable", "glibc ends the process"


def test_this_machines_search() -> None:
    here = search_here("/a:;/b")
    assert here.library_path == ["/a", ".", "/b"]
    assert any(name.startswith("libc.so") for name in here.cache)
    assert "/usr/lib" in default_folders() or "/usr/lib64" in default_folders()


@pytest.mark.skipif(shutil.which("gcc") is None, reason="no C compiler")
def test_small_libraries_load_as_the_loader_loads_them(tmp_path: Path) -> None:
    chance = random.Random(26)
    builds = make_builds(tmp_path, chance, each=1)
    calls = loads = 0
    for number in range(8):
        layout = lay_out(tmp_path / f"layout{number}", builds, chance)
        run = ask_loader(sys.executable, layout.calls, layout.variables)
        start, answers = work_out(sys.executable, run, layout.calls, layout.variables, DiskView())
        assert start.loads is bool(run.caller), layout
        assert differences(layout.calls, run, answers) == []
        calls, loads = calls + len(run.answers), loads + sum(answer.loads is True for answer in run.answers)
    assert calls > loads > 0


RUN_PATH = "$ORIGIN:$ORIGIN/../../nvidia/cu13/lib:$ORIGIN/../../nvidia/nccl/lib"
DEPS = LinkFile(needed=("libcudart.so.13", "libnccl.so.2"), rpath=RUN_PATH)
PYTHON = LinkFile(
    soname="libtorch_python.so", needed=("libnccl.so.2",), asked=(("libnccl.so.2", "V_29", False),)
)
TORCH = WheelLinks(
    name="torch",
    files={"torch/lib/libtorch_global_deps.so": DEPS, "torch/lib/libtorch_python.so": PYTHON},
)


def runtime(name: str, path: str) -> WheelLinks:
    return WheelLinks(name=name, files={path: LinkFile(soname=Path(path).name)})


CUDART = runtime("nvidia-cuda-runtime", "nvidia/cu13/lib/libcudart.so.13")


def nccl(name: str, *versions: str) -> WheelLinks:
    path = "nvidia/nccl/lib/libnccl.so.2"
    file = LinkFile(soname="libnccl.so.2", offered=versions)
    return WheelLinks(name=name, files={path: file}, digests={path: name})


def test_the_proof_of_a_set_of_wheels() -> None:
    """https://github.com/pytorch/pytorch/issues/186591: whichever NCCL is installed last has the file."""
    new, old = nccl("nvidia-nccl-cu13", "V_27", "V_29"), nccl("nvidia-nccl-cu12", "V_27")
    sound = prove([TORCH, CUDART, new])
    assert (sound.loads("torch"), sound.shared) == (True, ())
    both = prove([TORCH, CUDART, new, old])
    assert both.loads("torch") is True, "libtorch_global_deps.so asks for no version"
    python = next(proof.opened for proof in both.files if proof.file.endswith("libtorch_python.so"))
    assert (python.kind, Path(python.library).name) == ("version", "libnccl.so.2")
    assert [(row.path, row.owners) for row in both.shared] == [
        ("nvidia/nccl/lib/libnccl.so.2", ("nvidia-nccl-cu13", "nvidia-nccl-cu12"))
    ]
    same = WheelLinks(name="other", files=new.files, digests=new.digests)
    assert prove([new, same]).shared == ()


def test_a_wheel_of_another_cuda_is_seen_before_a_lock_is_made() -> None:
    def kernel(*needed: str) -> WheelLinks:
        file = LinkFile(needed=(*needed, "libc.so.6"), asked=(("libc.so.6", "GLIBC_2.17", False),))
        files = {"sgl_kernel/common_ops.abi3.so": file}
        return WheelLinks(name="sgl-kernel", files=files, asks=frozenset({"torch"}))

    wheels = [TORCH, CUDART, nccl("nvidia-nccl-cu13", "V_29")]
    right = kernel("libtorch_python.so", "libcudart.so.13")
    assert prove([*wheels, right], given=["libc.so.6"]).loads("sgl-kernel") is True
    assert prove([*wheels, right]).files[-1].opened.library == "libc.so.6"
    wrong = prove([*wheels, kernel("libcudart.so.12")], given=["libc.so.6"])
    assert wrong.loads("sgl-kernel") is False
    assert wrong.files[-1].opened.library == "libcudart.so.12"
    older = runtime("nvidia-cuda-runtime-cu12", "nvidia/cuda_runtime/lib/libcudart.so.12")
    every = [*wheels, older, kernel("libcudart.so.12")]
    two = prove(every, cached=["nvidia/cuda_runtime/lib"], given=["libc.so.6"])
    assert (two.loads("sgl-kernel"), two.runtimes) == (True, {"sgl-kernel": ("12", "13")})


def torch_at(site: str, *needed: str) -> dict[str, ElfFile]:
    return {
        f"{site}/torch/lib/libtorch_global_deps.so": library(None, *needed),
        f"{site}/torch/lib/libtorch_python.so": library("libtorch_python.so"),
    }


def test_pytorch_opens_nvidias_libraries_before_others_ask_for_them() -> None:
    """torch/__init__.py, _preload_cuda_deps: an extension without a run path finds them by their sonames."""
    wheels = {
        f"{SITE}/nvidia/cuda_runtime/lib/libcudart.so.12": library("libcudart.so.12"),
        f"{SITE}/nvidia/cublas/lib/libcublas.so.12": library("libcublas.so.12"),
        f"{SITE}/nvidia/nvjitlink/lib/libnvJitLink.so.12": library("libnvJitLink.so.12"),
        f"{SITE}/ext/cublas.so": library(None, "libcublas.so.12"),
        f"{SITE}/ext/jit.so": library(None, "libnvJitLink.so.12"),
    }
    cached = NOTHING._replace(cache={"libcudart.so.12": f"{SITE}/nvidia/cuda_runtime/lib/libcudart.so.12"})

    def found(version: str, search: Search, *needed: str) -> list[bool | None]:
        files = {**wheels, **torch_at(SITE, *needed)}
        process = LinkProcess(ListedView(files), search, symbols=False)
        answers = import_framework(process, "torch", version, SITE)
        return [answers[0][1].loads, *(process.open(f"{SITE}/ext/{n}.so").loads for n in ("cublas", "jit"))]

    assert found("2.14.1+cu126", cached, "libcudart.so.12") == [True, True, True]
    assert found("2.8.0", cached, "libcudart.so.12") == [True, False, True]
    assert found("2.5.1", cached, "libcudart.so.12") == [True, False, False]
    assert found("2.14.1+cpu", cached) == [True, False, False], "without CUDA it opens none"
    assert found("2.1.2", NOTHING, "libcudart.so.12") == [True, True, True], (
        "what lacks is opened by its path"
    )


def test_pytorch_for_cuda_13_takes_what_is_left_of_cuda_12() -> None:
    """libcusparse.so.12 is the name in both; nvidia/cusparse/lib comes before nvidia/cu13/lib."""
    ours = f"{SITE}/nvidia/cu13/lib/libcusparse.so.12"
    left = f"{SITE}/nvidia/cusparse/lib/libcusparse.so.12"
    files = {
        **torch_at(SITE, "libcudart.so.13"),
        f"{SITE}/nvidia/cu13/lib/libcudart.so.13": library("libcudart.so.13"),
        ours: library("libcusparse.so.12"),
        f"{SITE}/ext/_C.so": library(None, "libcusparse.so.12", runpath="$ORIGIN/../nvidia/cu13/lib"),
    }
    search = NOTHING._replace(cache={"libcudart.so.13": f"{SITE}/nvidia/cu13/lib/libcudart.so.13"})
    for more, path in (({}, ours), ({left: library("libcusparse.so.12")}, left)):
        process = LinkProcess(ListedView({**files, **more}), search, symbols=False)
        import_framework(process, "torch", "2.15.0", SITE)
        process.open(f"{SITE}/ext/_C.so")
        assert [one.path for one in process.loaded if "cusparse" in str(one.path)] == [path]


def test_a_lock_of_700_wheels_takes_less_than_three_seconds() -> None:
    wheels = [TORCH, CUDART, nccl("nvidia-nccl-cu13", "V_29")]
    needed = ("libtorch_python.so", "libcudart.so.13", "libc.so.6", "libstdc++.so.6")
    asked = (("libc.so.6", "GLIBC_2.17", False),) * 9
    file = LinkFile(needed=needed, runpath="$ORIGIN/../nvidia/cu13/lib", asked=asked)
    for number in range(700):
        files = {f"p{number}/_{n}.abi3.so": file for n in range(8)}
        wheels.append(WheelLinks(name=f"p{number}", files=files, asks=frozenset({"torch"})))
    start = time.process_time()
    proof = prove(wheels, given=["libc.so.6", "libstdc++.so.6"])
    assert time.process_time() - start < 3
    assert all(proof.loads(wheel.name) for wheel in wheels)


def test_the_facts_of_a_real_library() -> None:
    path = search_here("").cache["libstdc++.so.6"]
    facts = link_file(file_reader(path))
    assert facts is not None
    assert facts.soname == "libstdc++.so.6"
    assert ("libc.so.6", "GLIBC_2.2.5", False) in facts.asked
    assert "GLIBCXX_3.4" in (facts.offered or ())
    assert link_file(reader_of(b"text")) is None


def test_a_library_with_bytes_of_chance_in_it_ends_in_an_answer(tmp_path: Path) -> None:
    content = Path(search_here("").cache["libstdc++.so.6"]).read_bytes()
    head = len(content) // 20
    start = time.process_time()
    for seed in range(60):
        chance, changed = random.Random(seed), bytearray(content)
        for _ in range(chance.randint(1, 30)):
            place = chance.choice([64, 700, head, len(content)])
            changed[chance.randrange(place)] = chance.choice([0, 255, chance.randrange(256)])
        path = tmp_path / "lib.so"
        path.write_bytes(changed)
        assert LinkProcess(DiskView(), search_here("")).open(str(path)).loads in (True, False, None)
    assert time.process_time() - start < 30


@pytest.mark.parametrize("alike", [False, True])
def test_a_hash_table_of_one_chain_is_searched_to_an_end(*, alike: bool) -> None:
    """Names that are asked for times the symbols in the chain; a name that only its hash is like is read."""
    length = 100_000
    number = 5381 * 33 + ord("f")
    chain = struct.pack("<I", number & ~1 if alike else 2) * (length - 1) + struct.pack("<I", 3)
    table = struct.pack("<IIIII", 1, 1, 0, 0, 1) + chain
    read = reader_of(table + bytes(24 * (length + 1)))
    places = {elf._DT_GNU_HASH: 0, elf._DT_SYMTAB: len(table)}
    whole = [elf.Segment(elf.LOAD_SEGMENT, 4, 0, 0, len(table) + 24 * (length + 1))]
    assert elf._defined_of([b"g"], read, whole, places, len(table)) == set()
    with pytest.raises(ValueError, match="without an end"):
        elf._defined_of([b"f"] * 50, read, whole, places, len(table))


def test_a_hash_table_finds_what_the_table_of_symbols_has() -> None:
    path = search_here("").cache["libstdc++.so.6"]
    facts = elf_file(path)
    every = set(facts.symbols().defined)
    some = set(sorted(every)[::7])
    start = time.process_time()
    assert facts.defines({*some, b"nobody_has_it", b""}) == some
    assert time.process_time() - start < 5


@pytest.mark.parametrize(
    ("symbol", "said"),
    [
        ("_ZN3c106detail14torchCheckFailEPKcS2_jRKSs", "_ZN3c106detail14torchCheckFail"),
        ("_ZNK3c106Device3strB5cxx11Ev", "_ZNK3c106Device3str"),
        ("_ZN3c105ErrorC2ENS_14SourceLocationESs", "_ZN3c105ErrorC2"),
        ("_ZN3c10lsERSoNS_10DeviceTypeE", None),
        ("_ZN3c104implIiE1fEv", None),
        ("_ZN2at6Tensor3strEv", None),
        ("_ZN3c10999999999999999999999f", None),
        ("_ZN3c10", None),
        ("", None),
    ],
)
def test_the_name_of_a_function_without_its_arguments(symbol, said) -> None:
    assert stem(symbol) == said


def test_of_a_function_that_is_there_with_other_arguments_the_form_counts() -> None:
    asked = ["_ZN3c101fEi", "_ZN3c101fEv", "_ZN3c101gEv"]
    assert other_forms(asked, ["_ZN3c101fEv"]) == ["_ZN3c101fEi"], "of what is not there at all nobody knows"
    assert other_forms(asked, []) == []
