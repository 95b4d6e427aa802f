"""rtbuild's own matrices: the good ones pass every rule, and each refused cell meets the rule it names."""

from __future__ import annotations

from pathlib import Path

import pytest

from builder.cli.commands.check import verdict_text
from builder.plan.facts.rules.checking import check
from builder.plan.facts.rules.finding import Outcome
from builder.plan.matrix import load

MATRICES = Path(__file__).resolve().parents[4] / "matrices"
GOOD = sorted(MATRICES.glob("*.yaml"))


@pytest.mark.parametrize("path", GOOD, ids=lambda path: path.stem)
def test_every_cell_of_a_good_matrix_passes(path: Path) -> None:
    cells = [cell for cell in load(path).cells if cell.excluded is None]
    assert cells
    failed = [
        verdict_text(cell, findings)
        for cell in cells
        if Outcome.of(findings := check(cell)) not in {Outcome.POSSIBLE, Outcome.WARNS}
    ]
    assert not failed, "\n".join(failed)


@pytest.mark.parametrize("cell", load(MATRICES / "refused" / "refused.yaml").cells, ids=lambda cell: cell.id)
def test_a_refused_cell_is_refused_by_the_rule_that_it_names(cell) -> None:
    findings = check(cell)
    assert Outcome.of(findings) is Outcome.IMPOSSIBLE
    refusing = {finding.rule for finding in findings if finding.outcome is Outcome.IMPOSSIBLE}
    assert cell.variant in refusing
    assert all(finding.values for finding in findings if finding.rule == cell.variant)
