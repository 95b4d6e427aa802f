"""The verdict on a cell as a person reads it."""

from dataclasses import replace

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
