"""What is read out of a shared library, and the rule that goes by it."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from facts_shelf import library

from builder.plan.facts.reading.binary import Needs, needs_of
from builder.plan.facts.reading.framework_wheel import parts_of
from builder.plan.facts.reading.observed import Truth, WheelReading, WheelTruth
from builder.plan.facts.reading.observed import truth_of as truth_of_reading
from builder.plan.facts.rules.checking import check
from builder.plan.facts.rules.finding import Outcome

ORT = "onnxruntime_gpu-1.99.0-cp312-cp312-manylinux_2_17_x86_64.manylinux2014_x86_64.whl"
LIBRARY = "onnxruntime/capi/libonnxruntime_providers_tensorrt.so"


def test_libraries_by_name_and_the_newest_glibc_that_is_asked_for() -> None:
    content = library("libcudnn.so.9", "libc.so.6", glibc=("2.2.5", "2.27", "2.14"))
    assert needs_of(content) == Needs(libraries=("libcudnn.so.9", "libc.so.6"), glibc="2.27")
    assert needs_of(library("libm.so.6")) == Needs(libraries=("libm.so.6",))


def test_where_it_looks_first() -> None:
    needs = needs_of(library("libR.so", paths="$ORIGIN/../lib:/usr/lib/R/lib"))
    assert needs is not None
    assert needs.paths == ("$ORIGIN/../lib", "/usr/lib/R/lib")


def test_a_real_library() -> None:
    """The C library of the interpreter that runs this."""
    names = (line.split(maxsplit=5)[-1].strip() for line in Path("/proc/self/maps").read_text().splitlines())
    path = next(Path(name) for name in names if Path(name).name.startswith(("libm.so", "libm-")))
    needs = needs_of(path.read_bytes())
    assert needs is not None
    assert "libc.so.6" in needs.libraries
    assert needs.glibc is not None


@pytest.mark.parametrize("length", [0, 5, 40, 64, 150, 200])
def test_a_part_of_a_library_is_none(length: int) -> None:
    content = library("libcudnn.so.9", glibc=("2.27",))
    assert needs_of(content[:length]) is None
    assert needs_of(b"MZ" + content) is None


def truth_of(*needed: str, glibc: tuple[str, ...] = ()) -> WheelTruth:
    (linked,) = (part for part in parts_of(ORT, "small") if re.fullmatch(part.member, LIBRARY))
    told = WheelReading(file=ORT, metadata="Name: x\n", values=linked.read(library(*needed, glibc=glibc)))
    return truth_of_reading(ORT, told, sha256="a" * 64)


def test_a_wheel_tells_what_it_is_linked_with() -> None:
    truth = truth_of("libcudnn.so.9", "libcudart.so.12", "libnvinfer.so.10", "libc.so.6", glibc=("2.28",))
    assert truth.needed == ("libcudart.so.12", "libcudnn.so.9")
    assert (truth.cudnn, truth.glibc) == ("9", "2.28")


@pytest.fixture
def cell(make):
    """A release that no table covers, on a base with CUDA 12 and cuDNN 9."""
    return make("onnxruntime-gpu==1.99.0", python="3.12", base="nvidia/cuda:12.6.3-cudnn-runtime-ubuntu24.04")


def refusals(cell, wheel: WheelTruth) -> dict[str, str]:
    found = check(cell, Truth(wheels=(replace(wheel, cuda="12.2"),), locked=True), suggest=False)
    return {f.rule: f.message for f in found if f.outcome is Outcome.IMPOSSIBLE}


def test_what_is_linked_has_to_be_there_in_its_major_version(cell, make) -> None:
    assert refusals(cell, truth_of("libcudnn.so.9", "libcudart.so.12")) == {}
    older = refusals(cell, truth_of("libcudnn.so.8", "libcudart.so.12"))
    assert "is linked with libcudnn.so.8, and here is 9.5" in older["elf-needs"]
    other = refusals(cell, truth_of("libcudart.so.13"))
    assert "is linked with libcudart.so.13, and here is 12.6" in other["elf-needs"]
    bare = make(*cell.frameworks, python="3.12", base="nvidia/cuda:12.6.3-base-ubuntu24.04")
    assert "libcudnn.so.9, and neither" in refusals(bare, truth_of("libcudnn.so.9"))["elf-needs"]


def test_an_image_without_cuda_is_not_asked_for_it(make) -> None:
    cell = make("onnxruntime-gpu==1.99.0", python="3.13", base="rootfs:debian/trixie", cuda="none")
    assert "elf-needs" not in refusals(cell, truth_of("libcudnn.so.8"))


def test_symbols_count_where_the_tag_promises_more(cell, make) -> None:
    wheel = truth_of("libcudart.so.12", glibc=("2.34",))
    assert refusals(cell, wheel) == {}
    old = make(*cell.frameworks, python="3.8", base="nvidia/cuda:12.6.3-cudnn-runtime-ubuntu20.04")
    assert "needs glibc 2.34" in refusals(old, wheel)["glibc"]


def test_a_release_of_no_table_is_no_yes_by_the_major_version_alone(cell) -> None:
    truth = Truth(wheels=(replace(truth_of("libcudnn.so.9"), cuda="12.2"),), locked=True)
    assert Outcome.of(check(cell, truth)) is Outcome.UNKNOWN
