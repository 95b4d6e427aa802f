"""Bounds by what a project's sources take of PyTorch, which give way to a machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from packaging.requirements import Requirement

from builder.plan.facts.tables import load
from builder.plan.resolve.as_written import (
    near_as_written,
    note_as_written,
    of_unedited,
    unedited,
    ways_as_written,
)
from builder.plan.resolve.project_files import from_file
from builder.plan.resolve.solve import Demand, search, split
from builder.plan.resolve.wishes import TYPED, NamedRequirement, Wishes

if TYPE_CHECKING:
    from pathlib import Path

BUILD = "from torch.utils.cpp_extension import load\nFLAGS = ['-O3', '{}']\n"


@pytest.mark.parametrize(
    ("file", "text", "bound", "edit"),
    [
        (
            "a.h",
            "#include <ATen/SparseTensorUtils.h>\n",
            "torch<2.1",
            "put ATen/native/SparseTensorUtils.h there",
        ),
        ("a.cu", '#include "THC/THC.h"\n', "torch<1.11", "AT_CUDA_CHECK"),
        ("a.cpp", '#ifdef WITH_CUDA\n#include "THC.h"\n#endif\n', "torch<1.11", "THC/THC.h"),
        ("a.cpp", "#if TORCH_VERSION_MAJOR < 2\n#include <ATen/SparseTensorUtils.h>\n#endif\n", None, ""),
        (
            "a.cpp",
            "#ifndef A_H\n#define A_H\n#include <TH/TH.h>\n#endif\n",
            "torch<1.11",
            "before it is compiled",
        ),
        ("a.cpp", "#ifndef AT_CHECK\n#define AT_CHECK TORCH_CHECK\n#endif\nAT_CHECK(x)\n", None, ""),
        ("a.cpp", "AT_CHECK(x)\n", "torch<1.5", "put TORCH_CHECK there"),
        ("a.cu", 'AT_DISPATCH_FLOATING_TYPES(value.type(), "f", [&] {});\n', "torch<2.6", ".scalar_type()"),
        ("a.cu", 'AT_DISPATCH_FLOATING_TYPES(value.scalar_type(), "f", [&] {});\n', None, ""),
        ("a.cu", "#include <torch/extension.h>\n#include <ATen/ATen.h>\n", None, ""),
        ("backend.py", BUILD.format("-std=c++14"), "torch<2.1", "-std=c++17"),
        ("setup.py", BUILD.format("-std=c++17"), "torch<2.14", "-std=c++20"),
        ("setup.py", BUILD.format("-std=c++1y"), "torch<2.1", "-std=c++17"),
        ("setup.py", "FLAGS = ['-std=c++14']\n", None, ""),  # nothing of PyTorch's compiles here
        ("setup.py", BUILD.replace("['", "[  # '").format("-std=c++14"), None, ""),
    ],
)
def test_what_the_sources_take_of_pytorch_bounds_it_with_the_edit_for_later_ones(
    tmp_path: Path, file, text, bound, edit
) -> None:
    (tmp_path / file).write_text(text)
    found = Wishes()
    note_as_written([tmp_path / file], found)
    assert [str(one) for one in found.unedited] == ([bound] if bound else [])
    assert len(found.notes) == len(found.unedited)
    assert all(edit in note and note.startswith(f"{tmp_path / file}:") for note in found.notes)


@pytest.mark.parametrize(
    ("text", "bound"),
    [
        ("if float(torchvision.__version__[:3]) < 0.5:\n", "torchvision<0.10"),
        ("if float(torch.__version__[:3]) >= 1.7:\n", "torch!=1.10.*,!=1.11.*,!=1.12.*,!=1.13.*"),
        ("if torch.__version__ >= '1.7.0':\n", "torch!=1.10.*,!=1.11.*,!=1.12.*,!=1.13.*"),
        ("if float(torch.__version__[:3]) < 1.0:\n", None),  # 1.1 of 1.13 is no less than it, either
        ("if Version(torch.__version__) >= Version('1.7'):\n", None),
        ("if torch.__version__ == '1.7':\n", None),
        ("if float(other.__version__[:3]) < 0.5:\n", None),
    ],
)
def test_a_test_that_misreads_a_version_leaves_out_the_releases_that_it_misreads(
    tmp_path, text, bound
) -> None:
    (tmp_path / "misc.py").write_text(text + "    pass\n")
    found = Wishes()
    note_as_written([tmp_path / "misc.py"], found)
    listed = [Requirement(bound)] if bound else []
    assert [one.parsed.name for one in found.unedited] == [one.name for one in listed]
    assert [one.parsed.specifier for one in found.unedited] == [one.specifier for one in listed]


def demanded(*texts: str, gpus: tuple[str, ...] = (), **bounds: str) -> tuple[Demand, Wishes]:
    asked = Wishes(wishes=[NamedRequirement(parsed=Requirement(text), place=TYPED) for text in texts])
    asked.unedited = [
        NamedRequirement(parsed=Requirement(f"{name}{text}"), place="a.cu:1", use="a.cu:1: edit it")
        for name, text in bounds.items()
    ]
    frameworks, companions = split(asked.merged())
    return Demand(frameworks=frameworks, companions=companions, gpus=gpus), asked


def test_a_bound_of_the_sources_gives_way_where_the_card_takes_none_within_it() -> None:
    demand, asked = demanded("torch", gpus=("V100",), torch="<2.1")
    within = unedited(demand, asked, {})
    assert within is not None
    assert str(within[0].frameworks[0]) == "torch<2.1"
    assert "(a.cu:1)" in within[1][0]
    assert [len(ways_as_written([(demand, [])], asked, {})), near_as_written(demand, asked, {})] == [
        2,
        within[0],
    ]
    best = search(within[0], available={}).possible[0]
    assert [*of_unedited(asked, best)] == ["torch<2.1, or edit for a later one: a.cu:1: edit it"]
    newer = search(demand, available={}).possible[0]
    assert [*of_unedited(asked, newer)] == ["a.cu:1: edit it"]
    for texts, gpus in ((("torch",), ("RTX5090",)), (("torch==2.4.1",), ()), (("torch>=2.3",), ())):
        demand, asked = demanded(*texts, gpus=gpus, torch="<2.1")
        assert unedited(demand, asked, {}) is None
        assert ways_as_written([(demand, [])], asked, {}) == [(demand, [])]
        assert near_as_written(demand, asked, {}) is demand


def test_a_bound_of_torchvision_is_one_of_the_pytorch_that_goes_with_it() -> None:
    demand, asked = demanded("torch", "torchvision", torchvision="<0.10")
    within = unedited(demand, asked, {})
    assert within is not None
    assert [str(one) for one in (*within[0].frameworks, *within[0].companions)] == [
        "torch<1.9",
        "torchvision<0.10",
    ]


def test_a_folder_remembers_the_bounds_of_its_sources(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("torch\n")
    (tmp_path / "ops").mkdir()
    (tmp_path / "ops" / "backend.py").write_text(BUILD.format("-std=c++14"))
    (tmp_path / "ops" / "setup.py").write_text(BUILD.format("-std=c++14"))
    asked = from_file(tmp_path)
    assert [str(one) for one in asked.unedited] == ["torch<2.1"]
    (note,) = (note for note in asked.notes if "-std=c++14" in note)
    assert f"{tmp_path / 'ops' / 'backend.py'} {tmp_path / 'ops' / 'setup.py'}" in note


def test_the_table_of_headers_is_of_releases_on_record() -> None:
    table = load().torch_headers
    assert table.standards["2.1"] == 17
    assert all(until[0].isdigit() for until, _ in table.gone.values())
