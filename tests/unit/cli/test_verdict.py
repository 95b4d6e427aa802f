"""The verdict on a cell as a person reads it."""

from dataclasses import replace
from pathlib import Path

import pytest
from rtbuild_command import inside, rtbuild

from builder.cli.commands.check import verdict_text
from builder.core.model import Base, Cell, Cuda
from builder.plan.facts.rules.checking import check

CELL = Cell(
    id="cell",
    matrix="test",
    frameworks=("numpy==2.2.6",),
    python="3.12",
    base=Base(kind="rootfs", name="debian/bookworm"),
    cuda=Cuda(provider="none"),
)


def test_whose_python_it_is() -> None:
    assert "  python      3.12, standalone (debian/bookworm has 3.11)\n" in verdict_text(CELL, check(CELL))
    own = replace(CELL, python="3.11")
    assert "  python      3.11\n" in verdict_text(own, check(own))


def test_an_impossible_cell_has_its_reason_first_and_what_is_possible_instead_last() -> None:
    cell = replace(CELL, frameworks=("torch==2.9.1",), python="3.8", cuda=Cuda(provider="wheels"))
    text = verdict_text(cell, check(cell))
    answer, refused, instead = (
        text.index(part) for part in ("cell: impossible\n", "Refused because:", "The nearest")
    )
    assert answer < refused < instead


def test_a_script_tells_the_answers_of_check_apart_by_the_exit_code(tmp_path: Path) -> None:
    for framework, code in (("torch==2.14.1", 0), ("torch==2.15.0+cu126", 0), ("torch==1.4.0", 1)):
        (tmp_path / "m.yaml").write_text(
            "version: 1\ndefaults: {python: '3.12', base: rootfs:debian/bookworm, cuda: wheels}\n"
            f"axes: {{framework: [{framework}]}}\n"
        )
        inside(tmp_path, "check", "m.yaml", check=code)


@pytest.mark.parametrize(
    "text",
    ["epoch 3 of 9 is done", "Loaded runtime CuDNN library: 8.0.5 but source was compiled with: 8.1.0"],
)
def test_diagnose_ends_with_0_with_a_cause_and_without(tmp_path: Path, text: str) -> None:
    rtbuild(tmp_path, "diagnose", text)


def test_resolve_ends_with_1_where_a_demand_is_impossible(tmp_path: Path) -> None:
    inside(tmp_path, "resolve", "torch==1.4.0", "--gpu", "RTX 5090", "--offline", check=1)
    inside(tmp_path, "resolve", "torch", "--gpu", "T4", "--offline", check=0)
