"""Whether the libraries of a lock load: read out of wheels on an index, kept, judged."""

from __future__ import annotations

import copy
import json
import random
import subprocess
import time
import tracemalloc
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from facts_shelf import Shelf, library

from builder.core.errors import CellError
from builder.core.link_set import CudaSymbols, LinkFile, WheelLinks, number_of
from builder.core.model import Cell, Pinned, RootfsBase
from builder.pipeline import stages
from builder.plan.facts.reading import remote_library, torch_symbols, wheel_links_read
from builder.plan.facts.reading.binary import numpy_api
from builder.plan.facts.reading.cache import ReadingCache, links_of
from builder.plan.facts.reading.observed import LINKS, Truth, WheelTruth, bare_debs, reading_path
from builder.plan.facts.reading.wheel_links_read import read_links, read_loaded
from builder.plan.facts.rules.checking import check
from builder.plan.facts.rules.finding import Outcome
from builder.sources.index import RemoteZip, UnknownError, archives

TAIL = "cp312-cp312-manylinux_2_28_x86_64.whl"
RPATH = "$ORIGIN/../../nvidia/cu13/lib"


def wheel(name: str, version: str, members: dict[str, bytes | str], *asks: str) -> dict[str, dict]:
    metadata = "".join(["Metadata-Version: 2.1\n", *(f"Requires-Dist: {text}\n" for text in asks)])
    stem = f"{name}-{version}"
    return {f"{stem}-{TAIL}": {f"{stem}.dist-info/METADATA": metadata, **members}}


RUNTIME = wheel("nvidia_cuda_runtime", "13.0.96", {"nvidia/cu13/lib/libcudart.so.13": library("libc.so.6")})
TORCH = wheel(
    "torch",
    "2.11.0",
    {
        "torch/lib/libtorch_global_deps.so": library("libcudart.so.13", "libc.so.6", paths=RPATH),
        "torch/lib/libtorch_python.so": library("libc10.so", paths="$ORIGIN"),
        "torch/lib/libc10.so": library("libc.so.6"),
    },
    "nvidia-cuda-runtime",
)


def extension(*needed: str, name: str = "kernels", path: str = "kernels/_C.so") -> dict[str, dict]:
    return wheel(name, "1.0", {path: library("libc10.so", "libc.so.6", *needed)}, "torch")


@pytest.fixture
def cell(make):
    return make(
        "torch==2.11.0", python="3.12", base="rootfs:debian/bookworm", cuda="wheels", pip=("kernels",)
    )


def judged(cell: Cell, folder: Path, *wheels: dict[str, dict]) -> list[tuple[str, str]]:
    """What the rule says of a lock of these wheels, read from an index."""
    shelf = Shelf({file: members for one in wheels for file, members in one.items()})
    readings = ReadingCache(cache=folder)
    read_links(shelf.wheels(), shelf, cache=readings.wheel_folder)  # type: ignore[arg-type]
    locked = Pinned(
        cell=cell, base=RootfsBase(suite="bookworm", debs=(), epoch=0), wheels=shelf.wheels(), epoch=0
    )
    truth = readings.truth(cell, locked, links=True)
    return [(one.outcome.value, one.message) for one in check(cell, truth, only=("links",))]


def test_an_extension_for_another_cuda_is_refused_with_who_disagrees_and_what_mends_it(
    cell, tmp_path
) -> None:
    assert judged(cell, tmp_path, TORCH, RUNTIME, extension("libcudart.so.13")) == []
    ((outcome, text),) = judged(cell, tmp_path, TORCH, RUNTIME, extension("libcudart.so.12"))
    assert outcome == "impossible"
    assert text.startswith(
        "kernels 1.0 is linked with libcudart.so.12 (kernels/_C.so), which nothing in the lock brings; "
        "nvidia-cuda-runtime 13.0.96 brings libcudart.so.13: it does not load; take a build of kernels for "
        "CUDA 13; or PyTorch 2."
    )
    assert text.endswith("is for CUDA 12.6")


def test_what_the_base_may_have_is_no_reason(cell, make, tmp_path) -> None:
    ((outcome, text),) = judged(cell, tmp_path, TORCH, RUNTIME, extension("libGL.so.1"))
    assert outcome == "unknown"
    assert text == (
        "kernels 1.0 is linked with libGL.so.1 (kernels/_C.so), which nothing in the lock brings: whether "
        "the base has it is not known; Debian has it in libgl1: write that into `apt`"
    )
    assert judged(replace(cell, apt=("libgl1",)), tmp_path, TORCH, RUNTIME, extension("libGL.so.1")) == []
    based = make("torch==2.11.0", python="3.12", base="example.org/any:1", cuda="wheels")
    asked = judged(based, tmp_path, TORCH, RUNTIME, extension("libcudart.so.12"))
    assert [one for one, _ in asked] == ["unknown"]
    nvidia = make("torch==2.11.0", python="3.12", base="nvidia/cuda:12.6.3-cudnn-runtime-ubuntu22.04")
    assert judged(nvidia, tmp_path, TORCH, RUNTIME, extension("libcudart.so.12")) == []
    other = make("torch==2.11.0", python="3.12", base="nvidia/cuda:11.8.0-cudnn8-runtime-ubuntu22.04")
    assert [one for one, _ in judged(other, tmp_path, TORCH, RUNTIME, extension("libcudart.so.12"))] == [
        "impossible"
    ]


def test_a_library_that_the_set_has_in_another_place_is_no_reason(cell, tmp_path) -> None:
    """Whoever is imported before may have loaded it from there."""
    elsewhere = wheel(
        "other", "1.0", {"other/deep/libx.so.1": library(), "other/_o.so": library("libc.so.6")}
    )
    assert judged(cell, tmp_path, TORCH, RUNTIME, elsewhere, extension("libx.so.1")) == []


def test_of_a_wheel_that_was_not_read_nothing_is_said(cell, tmp_path) -> None:
    """It may bring what another lacks."""
    shelf = Shelf({**TORCH, **extension("libcudart.so.12")})
    readings = ReadingCache(cache=tmp_path)
    read_links(shelf.wheels(), shelf, cache=readings.wheel_folder)  # type: ignore[arg-type]
    more = Shelf(RUNTIME).wheels()
    locked = Pinned(
        cell=cell,
        base=RootfsBase(suite="bookworm", debs=(), epoch=0),
        wheels=(*shelf.wheels(), *more),
        epoch=0,
    )
    assert check(cell, readings.truth(cell, locked, links=True), only=("links",)) == ()
    without = replace(locked, wheels=shelf.wheels())
    assert (
        Outcome.of(check(cell, readings.truth(cell, without, links=True), only=("links",)))
        is Outcome.IMPOSSIBLE
    )
    assert check(cell, readings.truth(cell, without), only=("links",)) == (), "a build asks for no proof"


def test_a_part_that_does_not_load_makes_it_unknown(cell, tmp_path) -> None:
    both = {"kernels/_C.so": library("libc.so.6"), "kernels/_extra.so": library("libcublas.so.12")}
    ((outcome, text),) = judged(cell, tmp_path, TORCH, RUNTIME, wheel("kernels", "1.0", both, "torch"))
    assert outcome == "unknown"
    assert "libcublas.so.12 (kernels/_extra.so)" in text
    assert "whether it does without this file is not known" in text
    deeper = {"kernels/_C.so": library("libc.so.6"), "kernels/x/_extra.so": library("libcutensor.so.2")}
    ((outcome, _),) = judged(cell, tmp_path, TORCH, RUNTIME, wheel("kernels", "1.0", deeper, "torch"))
    assert outcome == "possible"
    either = {"kernels/lib_cuda12.so": library("libcublas.so.12"), "kernels/lib_cuda13.so": library()}
    assert judged(cell, tmp_path, TORCH, RUNTIME, wheel("kernels", "1.0", either, "torch")) == []


def test_one_library_of_two_wheels_is_refused(cell, tmp_path) -> None:
    one = wheel("kernels", "1.0", {"shared/_C.so": library("libc.so.6")})
    two = wheel("kernels_gpu", "1.0", {"shared/_C.so": library("libc.so.6", "libm.so.6")})
    ((outcome, text),) = judged(cell, tmp_path, one, two)
    assert (outcome, text.partition(",")[0]) == (
        "impossible", "kernels 1.0 and kernels-gpu 1.0 both bring shared/_C.so"
    )  # fmt: skip
    listed = replace(cell, dependencies="listed")
    assert [outcome for outcome, _ in judged(listed, tmp_path, one, two)] == ["warns"]
    same = wheel("kernels_gpu", "1.0", {"shared/_C.so": library("libc.so.6")})
    assert judged(cell, tmp_path, one, same) == []


def test_two_runtimes_in_one_process_are_a_reservation(cell, tmp_path) -> None:
    older = wheel(
        "nvidia_cuda_runtime_cu12", "12.8.90", {"nvidia/cuda_runtime/lib/libcudart.so.12": library()}
    )
    ((outcome, text),) = judged(cell, tmp_path, TORCH, RUNTIME, older, extension("libcudart.so.12"))
    assert outcome == "warns", "PyTorch 2.10 and later open what lies in nvidia/cuda_runtime themselves"
    assert "imports torch 2.11.0 has the runtimes of CUDA 12 and CUDA 13" in text


def test_what_was_read_is_kept_and_bounded(tmp_path) -> None:
    many = {f"kernels/deep/_{n}.so": library("libc10.so") for n in range(120)}
    shelf = Shelf(wheel("kernels", "1.0", {**many, "kernels/_C.so": b"\x7fELF" + bytes(80)}, "torch"))
    (one,) = shelf.wheels()
    assert read_links([one], shelf, cache=tmp_path) > 0  # type: ignore[arg-type]
    found = links_of(one, tmp_path)
    assert found is not None
    assert len(found.files) == 121
    assert {"kernels/_C.so"} < found.unread, "what makes no sense, and what is beyond 96 libraries"
    asked = len(shelf.asked)
    assert asked < 120
    assert read_links([one], shelf, cache=tmp_path) == 0  # type: ignore[arg-type]
    assert len(shelf.asked) == asked


def test_a_library_that_unpacks_without_an_end_takes_bounded_memory(tmp_path, monkeypatch) -> None:
    """64 MiB of zeros are 64 KiB in a wheel: what is beyond the bound is unread, and no yes."""
    monkeypatch.setattr(archives, "UNPACKED", 4 << 20)
    monkeypatch.setattr(remote_library, "_UNPACKED", 4 << 20)
    shelf = Shelf(wheel("kernels", "1.0", {"kernels/_C.so": library("libc10.so") + bytes(1 << 26)}, "torch"))
    (one,) = shelf.wheels()
    tracemalloc.start()
    try:
        read_links([one], shelf, cache=tmp_path)  # type: ignore[arg-type]
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 24 << 20
    found = links_of(one, tmp_path)
    assert found is not None
    assert found.unread == {"kernels/_C.so"}


def test_an_index_that_is_down_and_a_damaged_cache_are_unknown(tmp_path) -> None:
    shelf = Shelf(RUNTIME)
    (one,) = shelf.wheels()
    shelf.content.clear()
    assert read_links([one], shelf, cache=tmp_path) == 0  # type: ignore[arg-type]
    assert links_of(one, tmp_path) is None
    place = reading_path(one.sha256, LINKS, tmp_path)
    assert place is not None
    place.parent.mkdir(parents=True, exist_ok=True)
    for values in (
        {},
        {"libraries": 3, "partly": [], "asks": [], "digests": {}},
        {"libraries": {"a.so": {}}},
    ):
        place.write_text(json.dumps({"schema": 1, "file": one.file, "values": values}))
        assert links_of(one, tmp_path) is None


def test_lock_refuses_a_set_that_cannot_load(cell, tmp_path) -> None:
    shelf = Shelf({**TORCH, **RUNTIME, **extension("libcudart.so.12")})
    locked = Pinned(
        cell=cell, base=RootfsBase(suite="bookworm", debs=(), epoch=0), wheels=shelf.wheels(), epoch=0
    )
    sources, stores = SimpleNamespace(mirrors={}, index=shelf), SimpleNamespace(cache=tmp_path)
    context, notes = SimpleNamespace(sources=sources, stores=stores), list[str]()

    def note(text: str, *, warning: bool) -> None:
        notes.append(text)

    run = SimpleNamespace(progress=lambda *_, **__: None, note=note, go_on=lambda: None, cell=cell)
    found = stages.judge_set(run, context, locked)  # type: ignore[arg-type]
    with pytest.raises(
        CellError, match=r"the wheels that were resolved cannot work together \(links: kernels"
    ):
        stages.tell_set(run, context, found, refuse=True)  # type: ignore[arg-type]
    assert notes == []
    stages.tell_set(run, context, found, refuse=False)  # type: ignore[arg-type]
    assert len(notes) == 1


def test_a_lock_of_700_wheels_is_judged_in_three_seconds(cell, tmp_path) -> None:
    shelf = Shelf({**TORCH, **RUNTIME})
    for wheel_ in shelf.wheels():
        read_links([wheel_], shelf, cache=tmp_path / "wheelfacts")  # type: ignore[arg-type]
    readings = ReadingCache(cache=tmp_path)
    truth = readings.truth(
        cell,
        Pinned(
            cell=cell, base=RootfsBase(suite="bookworm", debs=(), epoch=0), wheels=shelf.wheels(), epoch=0
        ),
        links=True,
    )
    file = LinkFile(
        needed=("libc10.so", "libcudart.so.13", "libc.so.6"), asked=(("libc.so.6", "X", False),) * 9
    )
    many = tuple(
        WheelLinks(name=f"p{n}", files={f"p{n}/_{m}.so": file for m in range(8)}, asks=frozenset({"torch"}))
        for n in range(700)
    )
    start = time.process_time()
    assert check(cell, replace(truth, links=(*truth.links, *many)), only=("links",)) == ()
    assert time.process_time() - start < 3


FOR_NUMPY_1_23 = (
    b"numpy.core.multiarray\0_ARRAY_API\0"
    b"\xff\x90\x98\x06\0\0\x83\xf8\x0f\x48\x8b\x05\x11\x22\x00\x00\x0f\x86\x3d\x01\x00\x00"
)
"""It compares the number with 15, and ends if it is not above that."""


@pytest.mark.parametrize(
    ("text", "numpy", "outcomes"),
    [
        (b"numpy.core.multiarray\0_ARRAY_API\0", "2.1.0", ["impossible"]),
        (b"numpy.core.multiarray\0_ARRAY_API\0", "1.26.4", []),
        (b"numpy._core.multiarray\0numpy.core\0_ARRAY_API\0", "2.1.0", []),
        (b"size changed, may indicate\0dtype\0flatiter\0numpy.core.multi", "2.0.0", ["impossible"]),
        (b"size changed, may indicate\0dtype\0flatiter\0numpy.core.multi", "1.26.4", []),
        (b"size changed, may indicate\0dtype\0flatiter\0numpy._core.multi", "2.0.0", []),
        (b"size changed, may indicate\0dtype\0flattened\0numpy.core.multi", "2.0.0", []),
        (b"numpy.core.multiarray\0", "2.1.0", []),
        (FOR_NUMPY_1_23, "1.22.4", ["impossible"]),
        (FOR_NUMPY_1_23, "1.23.0", []),
        (FOR_NUMPY_1_23 + FOR_NUMPY_1_23.replace(b"\x83\xf8\x0f", b"\x83\xf8\x0d"), "1.19.5", []),
        (FOR_NUMPY_1_23.replace(b"\x0f\x86", b"\x72\x2e"), "1.22.4", []),
        (FOR_NUMPY_1_23.replace(b"\x0f\x86", b"\x90\x90"), "1.19.5", []),
    ],
)
def test_a_wheel_on_no_record_that_was_compiled_for_numpy_1_is_refused(
    cell, tmp_path, text, numpy, outcomes
) -> None:
    shelf = Shelf(
        {
            **wheel("kernels", "1.0", {"kernels/_C.so": library("libc.so.6") + text}, "numpy"),
            **wheel("numpy", numpy, {"numpy/__init__.py": ""}),
        }
    )
    readings = ReadingCache(cache=tmp_path)
    read_links(shelf.wheels(), shelf, cache=readings.wheel_folder)  # type: ignore[arg-type]
    base = RootfsBase(suite="bookworm", debs=(), epoch=0)
    locked = Pinned(cell=cell, base=base, wheels=shelf.wheels(), epoch=0)
    found = check(cell, readings.truth(cell, locked, links=True), only=("package-numpy",))
    assert [one.outcome.value for one in found] == outcomes
    assert all("kernels 1.0 was compiled for NumPy 1" in one.message for one in found)
    named = replace(cell, frameworks=("kernels==1.0",))  # no framework of the tables
    assert check(named, readings.truth(named, locked, links=True), only=("package-numpy",)) == found


@pytest.mark.parametrize(
    ("name", "loaded", "outcomes"),
    [
        ("kernels", {"kernels.large"}, ["unknown"]),
        ("kernels", {"kernels.large", "kernels.tpu"}, ["impossible"]),
        ("kernels", (), ["impossible"]),
        ("jaxlib", (), []),
    ],
)
def test_the_numpy_of_a_wheel_is_that_of_the_modules_which_an_import_loads(
    cell, name, loaded, outcomes
) -> None:
    """jaxlib 0.4.26 has a module for TPUs that is compiled for NumPy 1, and 188 MB that are not read."""
    files = {f"{name}/{one}.so": LinkFile(soname=f"{one}.so") for one in ("large", "tpu")}
    one = WheelLinks(
        name=name,
        version="0.4.26",
        files=files,
        numpy={f"{name}/tpu.so": "1"},
        unread=frozenset({f"{name}/large.so"}),
    )
    wheels = [
        WheelTruth(name=each, version=version, file="")
        for each, version in ((name, "0.4.26"), ("numpy", "2.2.6"))
    ]
    truth = Truth(wheels=tuple(wheels), base=None, locked=True, links=(one,), loaded=frozenset(loaded))
    found = check(replace(cell, frameworks=("other==1.0",)), truth, only=("package-numpy",))
    assert [finding.outcome.value for finding in found] == outcomes


def test_the_numpy_that_a_module_was_compiled_for_stands_in_its_code() -> None:
    """GCC's code of a module with ``import_array()`` alone, for NumPy 1.23.5 and 2.0.2."""
    assert numpy_api(FOR_NUMPY_1_23) == 16
    assert numpy_api(b"\xff\x90\x98\x06\0\0\x83\xf8\x0c\x7f\x1f") == 13
    assert numpy_api(b"\xff\x90\x98\x06\0\0\x83\xf8\x0d\x72\x1f") == 13
    assert numpy_api(b"\xff\x90\x98\x06\0\0\x89\xc6\x83\xf8\x0d") is None


@pytest.mark.parametrize(
    ("name", "asked", "outcome", "says"),
    [
        ("torchaudio", "_ZN3c106detail14torchCheckFailEPKcRKNSt7__cxx1112basic_stringE", "possible", ""),
        ("torchaudio", "_ZN3c106detail14torchCheckFailEPKcRKSs", "impossible", "audio/_C.so does not load"),
        ("torchrl", "_ZN3c106detail14torchCheckFailEPKcRKSs", "unknown", "whether torchrl does without it"),
        ("torchrl", "_ZN3c104moreEv", "possible", ""),
    ],
)
def test_an_extension_of_another_pytorch_asks_for_functions_in_another_form(
    cell, name, asked, outcome, says
) -> None:
    """torchaudio 2.4.1 and torchrl 0.5.0 beside PyTorch 2.9: before 2.7 it had the older ABI of strings."""
    there = frozenset({"_ZN3c106detail14torchCheckFailEPKcRKNSt7__cxx1112basic_stringE"})
    links = (
        WheelLinks(name="torch", version="2.9.0", files={}, torch={"torch/lib/libc10.so": there}),
        WheelLinks(name=name, version="1.0", files={}, torch={"audio/_C.so": frozenset({asked})}),
    )
    wheels = tuple(WheelTruth(name=one.name, version=one.version, file="f") for one in links)
    found = check(cell, Truth(wheels=wheels, locked=True, links=links), only=("links",))
    assert Outcome.of(found).value == outcome
    assert says in "".join(one.message for one in found)
    loaded = Truth(wheels=wheels, locked=True, links=links, loaded=frozenset({"audio._C"}))
    known = "impossible" if outcome == "unknown" else outcome  # an import comes to it
    assert Outcome.of(check(cell, loaded, only=("links",))).value == known


@pytest.mark.parametrize(
    ("asked", "large", "outcomes"),
    [
        ("_ZN5torch8autograd4infoEv", False, ["impossible"]),
        ("_ZN5torch8autograd4infoEv", True, ["impossible"]),
        ("_ZN2at4_ops3addEv", True, []),
        ("_ZN2at3ownEv", True, []),
        ("other_symbol", True, []),
    ],
)
def test_symbols_of_pytorch_that_it_lacks_are_named(
    cell, tmp_path, monkeypatch, asked, large, outcomes
) -> None:
    """torchrl 0.6.0 beside PyTorch 2.6: its import gets over an extension that does not load, and its first
    use ends; fbgemm-gpu-cpu 1.0.0 opens its own by ``torch.ops.load_library`` within ``try``.
    """
    folder = tmp_path / "made"
    folder.mkdir()
    noise = 300 << 10 if large else 0
    if large:
        monkeypatch.setattr(wheel_links_read, "_WHOLE", 100)
        monkeypatch.setattr(wheel_links_read, "_BEGINNING", 100)
        monkeypatch.setattr(torch_symbols, "_EDGES", ((64 << 10, 192 << 10),))
    compiled(folder, "libtorch_cpu.so", "void _ZN2at4_ops3addEv(void) {}", noise=noise)
    compiled(folder, "libmine.so", "void _ZN2at3ownEv(void) {}")
    linked = (folder / "libtorch_cpu.so", folder / "libmine.so")
    names = dict.fromkeys((asked, "_ZN2at4_ops3addEv", "_ZN2at3ownEv"))
    source = "".join(f"void {one}(void); void f{n}(void) {{ {one}(); }}" for n, one in enumerate(names))
    compiled(folder, "_C.so", source, *linked)
    torch = {f"torch/lib/{name}": (folder / "libtorch_cpu.so").read_bytes() for name in ("libtorch_cpu.so",)}
    addon = {f"addon/{name}": (folder / name).read_bytes() for name in ("_C.so", "libmine.so")}
    shelf = Shelf({**wheel("torch", "2.6.0", torch), **wheel("addon", "0.6.0", addon, "torch")})
    read_links(shelf.wheels(), shelf, cache=tmp_path)  # type: ignore[arg-type]
    links = [found for one in shelf.wheels() if (found := links_of(one, tmp_path)) is not None]
    assert links[0].torch_defined == {number_of("_ZN2at4_ops3addEv")}
    truth = replace(Truth.of_lock(shelf.wheels(), None), links=tuple(links))
    found = [one for one in check(cell, truth, only=("links",)) if "PyTorch" in one.message]
    assert [one.outcome.value for one in found] == outcomes
    assert all(
        one.message == "addon 0.6.0 was compiled for another PyTorch than torch 2.6.0, which has no "
        f"{asked}: addon/_C.so does not load"
        for one in found
    )
    unread = replace(truth, links=(replace(links[0], torch_defined=None), links[1]))
    assert not [one for one in check(cell, unread, only=("links",)) if "PyTorch" in one.message]


def test_of_files_for_several_pytorches_one_is_opened(cell) -> None:
    """torch-c-dlpack-ext has a library for each minor release, and opens that of its PyTorch."""
    there = "_ZN3c106detail14torchCheckFailEPKcRKNSt7__cxx1112basic_stringE"
    asked = {"addon_torch25-cpu.so": "_ZN3c106detail14torchCheckFailEPKcRKSs", "addon_torch29-cpu.so": there}
    links = (
        WheelLinks(
            name="torch", version="2.9.0", files={}, torch={"torch/lib/libc10.so": frozenset({there})}
        ),
        WheelLinks(name="ext", version="1.0", files={}, torch={p: frozenset({a}) for p, a in asked.items()}),
    )
    wheels = tuple(WheelTruth(name=one.name, version=one.version, file="f") for one in links)
    assert not check(cell, Truth(wheels=wheels, locked=True, links=links), only=("links",))


def test_the_older_abi_of_strings_is_named(cell) -> None:
    old, new = "_ZNK3c106Device3strEv", "_ZNK3c106Device3strB5cxx11Ev"
    links = (
        WheelLinks(name="torch", version="2.1.0", files={}, torch={"torch/lib/libc10.so": frozenset({old})}),
        WheelLinks(name="torchtext", version="1.0", files={}, torch={"_C.so": frozenset({new})}),
    )
    wheels = tuple(WheelTruth(name=one.name, version=one.version, file="f") for one in links)
    (found,) = check(cell, Truth(wheels=wheels, locked=True, links=links), only=("links",))
    assert "another PyTorch than torch 2.1.0, and for the other of its C++ ABIs" in found.message


def cuda_set(asked: str, offered: tuple[str, ...], *, read: bool = True) -> tuple[WheelLinks, ...]:
    """cuSPARSE beside an nvJitLink that has these symbols."""
    sparse, jit = "nvidia/cusparse/lib/libcusparse.so.12", "nvidia/nvjitlink/lib/libnvJitLink.so.12"
    asks = CudaSymbols(asked={"libnvJitLink.so.12": frozenset({asked})}, offered=frozenset())
    has = CudaSymbols(asked={}, offered=frozenset(offered))
    return (
        WheelLinks(
            name="nvidia-cusparse-cu12", version="12.1", files={sparse: LinkFile()}, cuda={sparse: asks}
        ),
        WheelLinks(
            name="nvidia-nvjitlink-cu12",
            version="12.0",
            files={jit: LinkFile()},
            cuda={jit: has} if read else {},
        ),
    )


@pytest.mark.parametrize(
    ("offered", "read", "by", "outcome"),
    [
        ("__nvJitLinkAddData_12_0", True, "nvidia-cusparse-cu12", "impossible"),
        ("__nvJitLinkAddData_12_0", True, "nothing", "unknown"),
        ("__nvJitLinkAddData_12_0", False, "nvidia-cusparse-cu12", "possible"),
        ("__nvJitLinkAddData_12_1", True, "nvidia-cusparse-cu12", "possible"),
    ],
)
def test_nvidias_libraries_ask_each_other_for_symbols(cell, make, offered, read, by, outcome) -> None:
    """nvJitLink 12.0.140 beside cuSPARSE 12.1.0.106: the loader refuses the latter."""
    torch = WheelLinks(name="torch", version="2.1.2", files={}, asks=frozenset({by}))
    links = (torch, *cuda_set("__nvJitLinkAddData_12_1", (offered,), read=read))
    wheels = tuple(WheelTruth(name=one.name, version=one.version, file="f") for one in links)
    truth = Truth(wheels=wheels, locked=True, links=links)
    found = check(cell, truth, only=("links",))
    assert Outcome.of(found).value == outcome
    assert all(
        "of libnvJitLink.so.12, which that of nvidia-nvjitlink-cu12 12.0" in one.message for one in found
    )
    nvidia = make("torch==2.1.2", python="3.11", base="nvidia/cuda:12.6.3-cudnn-runtime-ubuntu22.04")
    assert Outcome.of(check(nvidia, truth, only=("links",))) is not Outcome.IMPOSSIBLE, (
        "its own may be loaded"
    )


def test_symbols_of_nvidias_libraries_are_read_from_both_ends(tmp_path, monkeypatch) -> None:
    """Their texts lie at the end, of which no checksum is at hand, and their middle is not read."""
    monkeypatch.setattr(wheel_links_read, "_EDGE", 128 << 10)
    jit = compiled(tmp_path, "libnvJitLink.so.12", "void jit_12_1(void) {}", version="{ global: jit*; };")
    asks = "extern void jit_12_1(void); void sparse(void) { jit_12_1(); }"
    sparse = compiled(tmp_path, "libcusparse.so.12", asks, jit, noise=3 << 20)
    folder = "nvidia/all/lib/"
    shelf = Shelf(wheel("nvidia_all", "1", {folder + path.name: path.read_bytes() for path in (jit, sparse)}))
    (one,) = shelf.wheels()
    assert 0 < read_links([one], shelf, cache=tmp_path) < 1 << 20  # type: ignore[arg-type]
    found = links_of(one, tmp_path)
    assert found is not None
    assert found.cuda[folder + sparse.name].asked == {"libnvJitLink.so.12": frozenset({"jit_12_1"})}
    assert "sparse" in found.cuda[folder + sparse.name].offered
    assert "jit_12_1" in found.cuda[folder + jit.name].offered


def compiled(folder: Path, name: str, source: str, *linked: Path, noise: int = 0, version: str = "") -> Path:
    """A shared library by this machine's compiler, with bytes in its middle that do not compress."""
    (folder / "a.c").write_text(source)
    (folder / "noise.bin").write_bytes(random.Random(3).randbytes(noise))
    asm = r'__asm__(".pushsection .rodata\n.incbin \"noise.bin\"\n.popsection");'
    (folder / "b.c").write_text(asm if noise else "")
    (folder / "a.map").write_text(f"{name} {version or '{ global: *; };'}")
    command = [
        "cc",
        "-shared",
        "-fPIC",
        "-o",
        name,
        "a.c",
        "b.c",
        f"-Wl,-soname,{name},--version-script=a.map",
    ]
    subprocess.run([*command, *(f"./{path.name}" for path in linked)], check=True, cwd=folder)
    return folder / name


def test_the_end_of_a_member_is_what_its_last_bytes_tell() -> None:
    """What a block copies from before is left out; of noise that says nothing, there is nothing."""
    chance = random.Random(4)
    content = bytes(byte & 127 for byte in chance.randbytes(1 << 20))
    shelf = Shelf({"big-1.0-py3-none-any.whl": {"a": b"x", "b": content, "c": b""}})
    archive = RemoteZip("http://index.invalid/big-1.0-py3-none-any.whl", shelf, None, limit=4 << 20)  # type: ignore[arg-type]
    entries = {one.filename: one for one in archive.entries()}
    end = archive.ending(entries["b"], 200 << 10)
    assert len(end) > 20_000
    assert content.endswith(end)
    assert archive.ending(entries["b"], 100) == b""
    assert archive.ending(entries["a"], 100) in (b"x", b"")


def on_debian(cell: Cell, *links: WheelLinks, debs: tuple[str, ...] = ("libc6", "libstdc++6")) -> list:
    """What the rule says of a lock on a base of these Debian packages."""
    wheels = tuple(WheelTruth(name=one.name, version=one.version, file="f") for one in links)
    truth = Truth(wheels=wheels, locked=True, links=links, debs=frozenset(debs))
    return [(one.outcome.value, one.message) for one in check(cell, truth, only=("links",))]


def test_a_library_of_the_system_is_there_by_one_of_debians_packages(cell, make, tmp_path) -> None:
    """LightGBM's one library is linked with libgomp, and its wheel has none."""
    gomp = LinkFile(needed=("libgomp.so.1", "libc.so.6"))
    boost = WheelLinks(name="lightgbm", version="4.5.0", files={"lightgbm/lib/lib_lightgbm.so": gomp})
    ((outcome, text),) = on_debian(cell, boost)
    assert outcome == "impossible"
    assert text == (
        "lightgbm 4.5.0 is linked with libgomp.so.1 (lightgbm/lib/lib_lightgbm.so), which nothing in the "
        "lock brings: it does not load; write libgomp1 into `apt`"
    )
    assert on_debian(cell, boost, debs=("libc6", "libgomp1")) == []
    own = WheelLinks(name="other", files={"other.libs/libgomp.so.1": LinkFile(soname="libgomp.so.1")})
    assert on_debian(cell, boost, own) == [], "whoever is imported before may have loaded it"
    unknown = WheelLinks(name="a", version="1", files={"a/_a.so": LinkFile(needed=("libnobody.so.3",))})
    ((outcome, text),) = on_debian(cell, unknown)
    assert (outcome, "Debian" in text) == ("unknown", False), "a library that no table has"
    other = make("torch==2.11.0", python="3.12", base="nvidia/cuda:12.6.3-cudnn-runtime-ubuntu22.04")
    truth = Truth(
        wheels=(WheelTruth(name="lightgbm", version="4.5.0", file="f"),), locked=True, links=(boost,)
    )
    (found,) = check(other, truth, only=("links",))
    assert (found.outcome.value, "libgomp1" in found.message) == ("unknown", True), "nobody read that base"
    assert check(replace(other, apt=("libgomp1",)), truth, only=("links",)) == ()


@pytest.mark.parametrize(
    ("base", "debs", "needed", "outcomes"),
    [
        ("rootfs:debian/bookworm", ("libc6", "libcurl4"), "libcurl.so.4", []),
        ("rootfs:debian/bookworm", ("libc6",), "libcurl.so.4", ["impossible"]),
        ("rootfs:debian/bookworm", ("libc6", "libssl3"), "libssl.so.1.1", ["impossible"]),
        ("rootfs:debian/bullseye", ("libc6", "libssl1.1"), "libssl.so.1.1", []),
        ("rootfs:debian/bookworm", ("libc6",), "libmpi.so.40", ["impossible"]),
        ("rootfs:debian/trixie", ("libc6",), "libmpi.so.40", ["unknown"]),
        ("rootfs:debian/bookworm", ("libc6",), "libmpi.so.12", ["unknown"]),
        ("rootfs:debian/bookworm", ("libc6", "libopenblas0-serial"), "libblas.so.3", []),
        ("nvidia/cuda:12.6.3-cudnn-runtime-ubuntu22.04", None, "libz.so.1", []),
        ("nvidia/cuda:12.6.3-cudnn-runtime-ubuntu22.04", None, "libssl.so.3", []),
        ("nvidia/cuda:12.6.3-cudnn-runtime-ubuntu20.04", None, "libssl.so.3", ["unknown"]),
        ("example.org/any:1", None, "libz.so.1", ["unknown"]),
        ("example.org/any:1", None, "libstdc++.so.6", []),
        ("example.org/any:1", None, "libcuda.so.1", []),
        ("example.org/any:1", None, "libcufft.so.11", ["unknown"]),
        ("nvidia/cuda:12.6.3-base-ubuntu22.04", None, "libcudart.so.12", []),
        ("nvidia/cuda:12.6.3-base-ubuntu22.04", None, "libcufft.so.11", ["impossible"]),
        ("nvidia/cuda:12.6.3-base-ubuntu22.04", None, "libcudnn.so.9", ["impossible"]),
        ("nvidia/cuda:12.6.3-runtime-ubuntu22.04", None, "libcufft.so.11", []),
        ("nvidia/cuda:12.6.3-runtime-ubuntu22.04", None, "libnvrtc.so.11", ["impossible"]),
        ("nvidia/cuda:12.6.3-runtime-ubuntu22.04", None, "libcupti.so.12", ["impossible"]),
        ("nvidia/cuda:12.6.3-devel-ubuntu22.04", None, "libcupti.so.12", []),
        ("nvidia/cuda:12.6.3-devel-ubuntu22.04", None, "libcutensor.so.2", ["impossible"]),
        ("nvidia/cuda:12.6.3-cudnn-runtime-ubuntu22.04", None, "libcudnn.so.9", []),
        ("nvidia/cuda:12.6.3-cudnn-runtime-ubuntu22.04", None, "libcudnn.so.8", ["impossible"]),
    ],
)
def test_a_system_has_what_is_known_of_it(make, base, debs, needed, outcomes) -> None:
    """Of a library that no package which is known has, nobody says yes."""
    cell = make("torch==2.11.0", python="3.11", base=base, cuda="wheels")
    one = WheelLinks(name="a", version="1", files={"a/_a.so": LinkFile(needed=(needed, "libc.so.6"))})
    wheels = (WheelTruth(name="a", version="1", file="f"),)
    truth = Truth(wheels=wheels, locked=True, links=(one,), debs=None if debs is None else frozenset(debs))
    found = check(cell, truth, only=("links",))
    assert [finding.outcome.value for finding in found] == outcomes
    both = replace(one, files={**one.files, "a/deep/_b.so": LinkFile(needed=("libc.so.6",))})
    deeper = replace(both, files={f"a/{path}": file for path, file in both.files.items()})
    found = check(cell, replace(truth, links=(deeper,)), only=("links",))
    assert {finding.outcome.value for finding in found} <= {"possible"}, "a part that may be optional"


def test_what_a_bare_system_has_is_known_of_a_set_without_a_lock(make) -> None:
    bare = bare_debs(make("torch==2.11.0", python="3.11", base="rootfs:debian/bookworm", apt=("libgl1",)))
    assert bare is not None
    assert {"libc6", "libstdc++6", "zlib1g", "libgl1"} <= bare
    assert "libgomp1" not in bare
    assert bare_debs(make("torch==2.11.0", python="3.11", base="example.org/any:1")) is None


def test_a_set_that_was_read_before_stands_on_the_same_system_as_one_that_is_read(cell, tmp_path) -> None:
    """A bare system has zlib: ``resolve`` wrote it into ``apt`` of all proposals but the first."""
    shelf = Shelf({**TORCH, **RUNTIME, **extension("libz.so.1", "libGL.so.1")})
    readings = ReadingCache(cache=tmp_path)
    now = readings.read_set(cell, shelf.wheels(), shelf)  # type: ignore[arg-type]
    before = readings.known_links(cell, shelf.wheels())
    assert (before.debs, before.links) == (now.debs, now.links)
    (found,) = check(cell, before, only=("links",))
    assert found.apt == ("libgl1",)


@pytest.mark.parametrize(("suite", "name"), [("bookworm", "libglib2.0-0"), ("trixie", "libglib2.0-0t64")])
def test_the_package_is_named_as_that_debian_names_it(cell, make, suite, name) -> None:
    based = make("torch==2.11.0", python="3.12", base=f"rootfs:debian/{suite}", cuda="wheels")
    file = LinkFile(needed=("libgthread-2.0.so.0",))
    ((_, text),) = on_debian(based, WheelLinks(name="a", version="1", files={"a/_a.so": file}))
    assert text.endswith(f"write {name} into `apt`")
    assert on_debian(based, WheelLinks(name="a", files={"a/_a.so": file}), debs=(name,)) == []


@pytest.mark.parametrize(
    ("suite", "asked", "outcomes"),
    [
        ("bullseye", ("libc.so.6", "GLIBC_2.34", False), ["impossible"]),
        ("bullseye", ("libc.so.6", "GLIBC_2.34", True), []),
        ("bullseye", ("libc.so.6", "GLIBC_2.31", False), []),
        ("bullseye", ("libc.so.6", "GLIBC_PRIVATE", False), []),
        ("bookworm", ("libc.so.6", "GLIBC_2.34", False), []),
        ("bullseye", ("libstdc++.so.6", "GLIBCXX_3.4.29", False), ["impossible"]),
        ("bullseye", ("libstdc++.so.6", "CXXABI_1.3.15", False), []),
        ("bookworm", ("libstdc++.so.6", "GLIBCXX_3.4.29", False), []),
    ],
)
def test_versions_of_symbols_are_those_that_the_base_has(make, suite, asked, outcomes) -> None:
    """gpt4all's wheel says manylinux1, and its libraries ask for the glibc of Ubuntu 22.04."""
    cell = make("torch==2.11.0", python="3.9", base=f"rootfs:debian/{suite}", cuda="wheels")
    new = LinkFile(needed=("libc.so.6", "libstdc++.so.6"), asked=(asked, ("libc.so.6", "GLIBC_2.2.5", False)))
    old = LinkFile(needed=("libc.so.6",), asked=(("libc.so.6", "GLIBC_2.2.5", False),))
    alone = WheelLinks(name="gpt4all", version="2.8.2", files={"gpt4all/libllmodel.so": new})
    found = on_debian(cell, alone)
    assert [outcome for outcome, _ in found] == outcomes
    assert all(f"{asked[0]} of debian/{suite} has not: version {asked[1]}" in text for _, text in found)
    beside = WheelLinks(name="a", version="1", files={"a/_a.so": old, "a/_b.so": new})
    assert [outcome for outcome, _ in on_debian(cell, beside)] == ["warns"] * len(outcomes)
    large = LinkFile(soname="libcuda-model.so")
    unread = replace(alone, files={"gpt4all/libcuda-model.so": large, **alone.files})
    unread = replace(unread, unread=frozenset({"gpt4all/libcuda-model.so"}))
    assert [outcome for outcome, _ in on_debian(cell, unread)] == ["unknown"] * len(outcomes)


def test_what_the_import_of_opencv_loads_is_named_though_its_extension_is_too_large_to_be_read(cell) -> None:
    def asked(version: str, *debs: str) -> list:
        return on_debian(cell, WheelLinks(name="opencv-python", version=version, files={}), debs=debs)

    ((outcome, text),) = asked("4.10.0.84", "libc6")
    assert outcome == "impossible"
    assert text == (
        "the import of opencv-python 4.10.0.84 loads libGL.so.1 and libgthread-2.0.so.0, which nothing in "
        "the lock brings; write libgl1 and libglib2.0-0 into `apt`"
    )
    ((_, text),) = asked("4.10.0.84", "libgl1")
    assert text.endswith("write libglib2.0-0 into `apt`")
    assert asked("4.10.0.84", "libgl1", "libglib2.0-0") == []
    ((_, text),) = asked("4.2.0.34", "libc6")
    assert text.endswith("write libsm6 and libxext6 and libxrender1 and libglib2.0-0 into `apt`"), "with Qt 4"
    assert asked("3.4.9.31", "libc6") == [], "nobody looked into it"
    headless = WheelLinks(name="opencv-python-headless", version="4.10.0.84", files={})
    assert on_debian(cell, headless) == []


def test_a_library_that_a_wheel_brings_itself_is_not_the_system_s(cell) -> None:
    """soundfile 0.13.1 has wheels with libsndfile, and one for any system without."""
    alone = WheelLinks(name="soundfile", version="0.13.1", files={})
    ((outcome, text),) = on_debian(cell, alone)
    assert (outcome, "write libsndfile1 into `apt`" in text) == ("impossible", True)
    own = {"_soundfile_data/libsndfile_x86_64.so": LinkFile(soname="libsndfile.so.1")}
    assert on_debian(cell, replace(alone, files=own)) == []


@pytest.mark.parametrize(
    ("version", "pip", "debs", "outcomes"),
    [
        ("0.7.0", "torchcodec", (), ["impossible"]),
        ("0.7.0", "kernels", (), ["warns"]),
        ("0.7.0", "torchcodec", ("libavutil57", "libavcodec59"), []),
        ("0.7.0", "torchcodec", ("libavutil57",), ["impossible"]),
        ("0.7.0", "torchcodec", ("libavutil59", "libavcodec61"), ["unknown"]),
        ("0.17.0", "torchcodec", (), []),
    ],
)
def test_a_wheel_that_loads_one_of_several_releases_of_a_library_asks_for_any(
    cell, version, pip, debs, outcomes
) -> None:
    """torchcodec 0.7.0 tries four major releases of FFmpeg in Python; 0.16 goes on without any."""
    names = (("4", "56", "58"), ("5", "57", "59"), ("7", "59", "61"))
    files = {
        f"torchcodec/libtorchcodec_core{number}.so": LinkFile(
            needed=("libtorch.so", f"libavutil.so.{util}", f"libavcodec.so.{codec}", "libc.so.6")
        )
        for number, util, codec in names
    }
    torch = WheelLinks(name="torch", version="2.8.0", files={"torch/lib/libtorch.so": LinkFile()})
    one = WheelLinks(name="torchcodec", version=version, files=files)
    found = on_debian(replace(cell, pip=(pip,)), torch, one, debs=("libc6", "libstdc++6", *debs))
    assert [outcome for outcome, _ in found] == outcomes
    assert all(
        "loads the libraries of FFmpeg" in text and "write ffmpeg into `apt`" in text for _, text in found
    )


def test_a_large_extension_is_read_in_passing_but_no_larger_one_than_the_bound(tmp_path, monkeypatch) -> None:
    """OpenCV's of 25 MiB packed: its tables lie in its beginning and its end."""
    monkeypatch.setattr(wheel_links_read, "_WHOLE", 200)
    monkeypatch.setattr(wheel_links_read, "_BEGINNING", 100)
    monkeypatch.setattr(remote_library, "_KEPT", 64 << 10)
    monkeypatch.setattr(remote_library, "_EDGES", ())
    noise = random.Random(1).randbytes(900 << 10)
    for bound, needed in ((2 << 20, ("libGL.so.1", "libc.so.6")), (512 << 10, None)):
        monkeypatch.setattr(remote_library, "_LARGEST", bound)
        content = library("libGL.so.1", "libc.so.6", glibc=("2.17",)) + noise
        shelf = Shelf(wheel("big", "1.0", {"big/core.abi3.so": content}))
        folder = tmp_path / str(bound)
        read_links(shelf.wheels(), shelf, cache=folder)  # type: ignore[arg-type]
        found = links_of(shelf.wheels()[0], folder)
        assert found is not None
        facts = found.files["big/core.abi3.so"]
        assert (facts.needed or None, bool(found.unread)) == (needed, needed is None)


def test_names_of_an_extension_that_is_too_large_to_pass_by_are_read_of_one_for_pytorch(
    tmp_path, monkeypatch
) -> None:
    """torch_xla's of 353 MB asks for PyTorch's functions, which its beginning names."""
    monkeypatch.setattr(wheel_links_read, "_WHOLE", 200)
    monkeypatch.setattr(wheel_links_read, "_BEGINNING", 100)
    monkeypatch.setattr(wheel_links_read, "_LARGEST", 300 << 10)
    monkeypatch.setattr(wheel_links_read, "_LONG_BEGINNING", 200 << 10)
    folder = tmp_path / "made"
    folder.mkdir()
    fail = "_ZN3c106detail14torchCheckFailEPKcRKSs"
    own = compiled(folder, "libc10.so", f"void {fail}(void) {{}}")
    content = compiled(
        folder, "_X.so", f"void {fail}(void); void f(void) {{ {fail}(); }}", own, noise=1 << 20
    )
    monkeypatch.setattr(remote_library, "_LARGEST", 300 << 10)
    for edges, name, asked in (
        ((), "torch_x", {"_X.so": frozenset({fail})}),
        ((), "other", {}),
        ((256 << 10,), "torch_x", {"_X.so": frozenset({fail})}),
    ):
        monkeypatch.setattr(remote_library, "_EDGES", edges)
        shelf = Shelf(wheel(name, "1.0", {"_X.so": content.read_bytes()}))
        kept = tmp_path / f"{name}-{len(edges)}"
        read_links(shelf.wheels(), shelf, cache=kept)  # type: ignore[arg-type]
        found = links_of(shelf.wheels()[0], kept)
        assert found is not None
        assert (found.torch, found.unread) == (asked, set() if edges else {"_X.so"})


def repaired(noise: int = 700 << 10) -> dict[str, bytes | str]:
    """A wheel as auditwheel repairs it, of which the extension and a library beside it are large."""
    rest = random.Random(5).randbytes(noise)
    return {
        "big/core.abi3.so": library("libdevice-1.so", "libc.so.6", paths="$ORIGIN/../big.libs") + rest,
        "big/deep/_more.so": library("libother-1.so", paths="$ORIGIN/../../big.libs"),
        "big.libs/libdevice-1.so": library("libxcb.so.1", "libGL.so.1", "libc.so.6") + rest,
        "big.libs/libother-1.so": library("libc.so.6"),
        **{f"big.libs/liba{n}-1.so": library("libc.so.6") for n in range(6)},
    }


def test_what_an_import_opens_is_read_with_all_that_it_is_linked_with_of_the_wheel(cell, tmp_path) -> None:
    """opencv-python 5.0: libavdevice, in opencv_python.libs, is linked with the libxcb of the system, as seen
    in https://github.com/ultralytics/ultralytics/issues/1270.
    """
    shelf = Shelf(wheel("big", "1.0", repaired()))
    read_links(shelf.wheels(), shelf, cache=tmp_path)  # type: ignore[arg-type]
    found = links_of(shelf.wheels()[0], tmp_path)
    assert found is not None
    assert found.unread == {f"big.libs/liba{n}-1.so" for n in range(6)}
    ((outcome, text),) = on_debian(
        cell, replace(found, files={p: f for p, f in found.files.items() if "deep" not in p})
    )
    assert outcome == "impossible"
    assert text == (
        "big 1.0 is linked with libxcb.so.1 through big.libs/libdevice-1.so (big/core.abi3.so), which "
        "nothing in the lock brings: it does not load; write libxcb1 and libgl1 into `apt`"
    )
    ((_, text),) = on_debian(cell, found)
    assert text.endswith(
        "whether it does without this file is not known; write libxcb1 and libgl1 into `apt`"
    )


def test_compiled_modules_that_imports_come_to_are_read_once(tmp_path) -> None:
    shelf = Shelf(wheel("big", "1.0", repaired(0) | {f"big/_{n}.so": library() for n in range(9)}))
    read_links(shelf.wheels(), shelf, cache=tmp_path)  # type: ignore[arg-type]
    deep = {"big/deep/_more.so", "big.libs/libother-1.so"}
    before = links_of(shelf.wheels()[0], tmp_path)
    assert before is not None
    assert deep < before.unread
    loaded = {"big.deep._more", "big.core", "other._more"}
    assert set(read_loaded(shelf.wheels(), shelf, loaded, cache=tmp_path)) == {*shelf.wheels()}  # type: ignore[arg-type]
    after = links_of(shelf.wheels()[0], tmp_path)
    assert after is not None
    assert before.unread - after.unread == deep
    asked = len(shelf.asked)
    assert read_loaded(shelf.wheels(), shelf, loaded, cache=tmp_path) == {}  # type: ignore[arg-type]
    assert len(shelf.asked) == asked


@pytest.mark.parametrize(
    ("source", "outcomes"),
    [
        ("lib = CDLL(path)", ["impossible"]),
        ("def load():\n    return CDLL(path)\nlib = load()", ["impossible"]),
        ("def load():\n    return CDLL(path)", []),
        ("try:\n    lib = CDLL(path)\nexcept OSError:\n    lib = None", []),
    ],
)
def test_a_library_that_a_module_opens_by_its_path_is_linked_with_what_the_system_has(
    cell, tmp_path, source, outcomes
) -> None:
    """gmsh 4.12.2 has libgmsh beside site-packages, in ``.data/data/lib``, and no libGLU."""
    head = (
        "import os\nfrom ctypes import CDLL\nname = 'libmesh.so.4'\npath = os.path.join(os.getcwd(), name)\n"
    )
    shelf = Shelf(
        wheel(
            "mesh",
            "4.0",
            {"mesh.py": head + source, "mesh-4.0.data/data/lib/libmesh.so.4": library("libGLU.so.1")},
        )
    )
    readings = ReadingCache(cache=tmp_path)
    asked = replace(cell, frameworks=("mesh==4.0",), pip=())
    _, imports = readings.read_proofs(asked, shelf.wheels(), None, shelf)  # type: ignore[arg-type]
    truth = replace(Truth.of_lock(shelf.wheels(), None), debs=frozenset({"libc6"}))
    found = check(asked, readings.with_proofs(truth, shelf.wheels(), imports), only=("links",))
    assert [one.outcome.value for one in found] == outcomes
    assert all(one.message.endswith("it does not load; write libglu1-mesa into `apt`") for one in found)


def test_a_member_in_pieces_is_checked_as_a_whole(monkeypatch) -> None:
    monkeypatch.setattr(archives, "PIECE", 1000)
    content = random.Random(2).randbytes(5000) + bytes(20_000)
    shelf = Shelf({"big-1.0-py3-none-any.whl": {"a": b"x", "b": content}})
    archive = RemoteZip("http://index.invalid/big-1.0-py3-none-any.whl", shelf, None, limit=1 << 20)  # type: ignore[arg-type]
    entry = next(one for one in archive.entries() if one.filename == "b")
    every = list(archive.pieces(entry))
    assert b"".join(every) == content
    assert max(map(len, every)) <= 1000
    for name, wrong in (("CRC", 1), ("file_size", 24_000), ("header_offset", 5)):
        damaged = copy.copy(entry)
        setattr(damaged, name, wrong)
        with pytest.raises(UnknownError):
            list(archive.pieces(damaged))
