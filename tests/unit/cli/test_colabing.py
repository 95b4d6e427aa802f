"""What ``rtbuild colab`` prints."""

import pytest

from builder.cli.commands.colab import _table
from builder.release.colab.diff import Parity, ParityRow, ParityStatus

CORE = (
    ParityRow(
        name="Python",
        asked="3.11.13",
        found="3.11.2",
        status=ParityStatus.SAME,
        why="the patch is the base's",
    ),
    ParityRow(
        name="torch", asked="2.6.0+cu124", found=None, status=ParityStatus.MISSING, why="not in the image"
    ),
)


def parity(missing: int) -> Parity:
    same = tuple(ParityRow(name=f"s{n}", asked="1", found="1", status=ParityStatus.SAME) for n in range(8))
    gone = tuple(
        ParityRow(name=f"m{n:02}", asked="1", found=None, status=ParityStatus.MISSING, why="only sources")
        for n in range(missing)
    )
    extra = (ParityRow(name="tini", asked=None, found="0.19", status=ParityStatus.EXTRA),)
    return Parity(runtime="2025.07", core=CORE, packages=(*same, *gone, *extra))


def test_the_figures_then_each_exception() -> None:
    lines = list(_table("an-image", parity(2), verbose=False))
    assert lines[0] == "an-image against Colab 2025.07"
    assert lines[2].split()[:4] == ["same", "Python", "3.11.13", "3.11.2"]
    assert lines[3].split()[:4] == ["missing", "torch", "2.6.0+cu124", "-"]
    assert "  10 other packages: present 80.0 % (goal 99 %), same version 80.0 % (goal 97 %)" in lines
    assert "  same 8, other version 0, missing 2, out of reach 0, extra 1" in lines
    assert lines[lines.index("missing (2)") + 1].endswith("only sources")
    assert lines[lines.index("extra (1)") + 1].split() == ["extra", "tini", "-", "0.19"]


@pytest.mark.parametrize(("verbose", "shown"), [(False, 40), (True, 60)])
def test_long_tables_are_cut_and_say_so(verbose: bool, shown: int) -> None:
    lines = list(_table("x", parity(60), verbose=verbose))
    assert sum(line.startswith("  missing  m") for line in lines) == shown
    assert ("  and 20 more: --verbose" in lines) is not verbose
