"""The platform tags of wheels bind what a system is proposed: its glibc, Windows, macOS."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest
from doubles import small_image
from packaging.requirements import Requirement

from builder.plan.resolve import other_systems, platform_tags
from builder.plan.resolve.notes import of_glibc
from builder.plan.resolve.platform_tags import bound_by_glibc
from builder.plan.resolve.refusals import nothing
from builder.plan.resolve.solve import Demand, Proposal, search
from builder.plan.resolve.wishes import TYPED, NamedRequirement
from builder.sources.index import Index, IndexFile

FILES = {
    "bitsandbytes": [
        "bitsandbytes-0.42.0-py3-none-any.whl",
        "bitsandbytes-0.45.5-py3-none-manylinux_2_24_x86_64.whl",
        "bitsandbytes-0.45.5-py3-none-win_amd64.whl",
        "bitsandbytes-0.50.2-py3-none-manylinux_2_24_x86_64.whl",
        "bitsandbytes-0.50.2-py3-none-macosx_14_0_arm64.whl",
    ],
    "transformers": ["transformers-5.24.0-py3-none-any.whl"],
    "torchvision": [f"torchvision-0.23.0-cp311-cp311-{on}.whl" for on in ("win_amd64", "macosx_11_0_arm64")],
    "triton": ["triton-3.4.0-cp311-cp311-manylinux_2_27_x86_64.manylinux_2_28_x86_64.whl"],
    "wordsplit": [
        "wordsplit-2.0.8-cp311-cp311-manylinux_2_17_x86_64.whl",
        "wordsplit-2.0.8.tar.gz",
    ],
    "nvidia-cudnn-cu12": ["nvidia_cudnn_cu12-9.10.2.21-py3-none-win_amd64.whl"],
    "numpy": [f"numpy-2.2.6-cp311-cp311-{on}.whl" for on in ("win_amd64", "macosx_11_0_arm64")],
}


def files(name: str) -> list[IndexFile]:
    return [
        IndexFile(name=one, url=f"https://x/{one}", sha256=None, requires_python=None, yanked=None)
        for one in FILES[name]
    ]


@pytest.fixture
def index(monkeypatch: pytest.MonkeyPatch) -> Index:
    monkeypatch.setattr(platform_tags, "pages", lambda names, _index: {name: files(name) for name in names})
    monkeypatch.setattr(other_systems, "page", lambda name, _index: files(name))
    return cast("Index", object())  # its pages are those above


def wish(text: str) -> NamedRequirement:
    return NamedRequirement(parsed=Requirement(text), place=TYPED)


def centos7(framework: str, *beside: str, **asked: Any) -> Demand:
    return Demand(frameworks=(wish(framework),), companions=tuple(map(wish, beside)), glibc="2.17", **asked)


def test_packages_beside_are_bound_to_what_the_systems_glibc_loads(index: Index) -> None:
    notes = list[str]()
    demand = bound_by_glibc(centos7("torch", "transformers", "bitsandbytes>=0.40"), index, notes)
    assert [str(one) for one in demand.companions] == ["transformers", "bitsandbytes<=0.42.0,>=0.40"]
    (said,) = notes
    assert "bitsandbytes 0.50.2 has wheels for glibc 2.24 and later, and the system has 2.17" in said
    newer = replace(centos7("torch", "bitsandbytes"), glibc="2.28")
    assert bound_by_glibc(newer, index, []) == newer


def test_a_refusal_by_glibc_names_it_and_the_image_for_the_card_and_driver() -> None:
    demand = centos7("torch>=2.8", gpus=("A100",), driver="550.90")
    refused = nothing(demand, search(demand)).message
    assert "from PyTorch 2.7.0 on the wheels ask for glibc 2.28, and the system has 2.17" in refused
    assert "torch==2.6.0 is the newest for it" in refused
    (container,) = [line for line in refused.splitlines() if "apptainer build" in line]
    assert "docker://pytorch/pytorch:2." in container
    assert "cuda13" not in container  # which driver 550 does not run
    assert "no Python and base on record" not in refused


def test_the_newest_for_a_glibc_is_told_whatever_else_holds_the_first_back() -> None:
    taken = Proposal(cell=small_image.cell(frameworks=("torch==2.3.1",)), findings=())
    (said,) = of_glibc(taken, centos7("torch", gpus=("A100",), driver="550.90"))
    assert "torch==2.6.0 is the newest for it" in said


def test_a_system_is_left_without_what_has_no_wheel_there_each_with_the_reason(index: Index) -> None:
    cell = small_image.cell(
        frameworks=("torch==2.8.0+cu128",),
        python="3.11",
        pip=(
            "torchvision==0.23.0+cu128",
            "triton==3.4.0",
            "nvidia-cudnn-cu12==9.10.2.21",
            "bitsandbytes==0.45.5",
            "wordsplit",
            "numpy==2.2.6",
        ),
    )
    windows = other_systems.left_out_on("windows", cell, index)
    assert windows == {
        "triton==3.4.0": "none of its releases has a wheel for windows",
        "nvidia-cudnn-cu12==9.10.2.21": "it is for CUDA alone; PyTorch's wheel for Windows has CUDA's "
        "libraries within",
    }
    lines = other_systems.windows_lines(cell, windows)
    assert lines is not None
    assert "triton" not in " ".join(lines)
    compiled = replace(cell, pip=("wordsplit", "diso"))
    assert (other_systems.windows_lines(compiled) or [])[1:] == [
        "pip install wordsplit",
        "pip install --no-build-isolation diso",
    ]
    mac = other_systems.left_out_on("macos", cell, index)
    assert [*mac] == ["triton==3.4.0", "nvidia-cudnn-cu12==9.10.2.21", "bitsandbytes==0.45.5"]
    assert mac["bitsandbytes==0.45.5"].endswith("has a wheel for macos; 0.50.2 has one")


def test_onnx_runtime_on_windows_keeps_the_wheels_that_it_loads(index: Index) -> None:
    cell = small_image.cell(frameworks=("onnxruntime-gpu==1.22.0",), pip=("nvidia-cudnn-cu12==9.10.2.21",))
    assert other_systems.left_out_on("windows", cell, index) == {}
