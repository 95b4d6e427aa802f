"""The suites that ``build`` names as it verifies."""

import pytest

from builder.core.model import Base, Cell, Cuda
from builder.plan.facts.tables import load


@pytest.mark.parametrize(
    ("frameworks", "verify", "told"),
    [
        (
            ("torch==2.7.1",),
            (),
            "conv; suggested: linalg, attention, train, loader, comm, conv-kinds",
        ),
        (("torch==2.7.1",), ("attention",), "conv, attention"),
        (("six==1.16.0",), (), "conv"),
    ],
)
def test_suites_that_decide_and_those_that_run_without_effect(
    frameworks: tuple[str, ...], verify: tuple[str, ...], told: str
) -> None:
    cell = Cell(
        id="one",
        matrix="m",
        frameworks=frameworks,
        python="3.11",
        base=Base(kind="rootfs", name="debian/bookworm"),
        cuda=Cuda(provider="none"),
        verify=verify,
    )
    assert load().suites_told(cell) == told
