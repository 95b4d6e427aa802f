"""``docs/probe.md`` says on what each check was proven, and nothing more than that."""

from __future__ import annotations

import ast
import json
from typing import TYPE_CHECKING

import proof
from test_faults_page import FAULTS

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

PAGE = proof.ROOT / "docs" / "probe.md"
_BEGIN, _END = "<!-- proof: begin -->\n", "<!-- proof: end -->\n"


def test_the_page_has_the_table(request: pytest.FixtureRequest) -> None:
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(_BEGIN)
    _, _, after = rest.partition(_END)
    wanted = f"{before}{_BEGIN}\n{proof.table()}\n{_END}{after}"
    if request.config.getoption("--update-golden"):
        PAGE.write_text(wanted, encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == wanted


def test_every_witness_is_a_test() -> None:
    functions = {
        node.name
        for path in proof.TABLE.parent.glob("test_*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef)
    }
    faults = {row.name for row in FAULTS}
    for kinds in proof.read().values():
        for witnesses in kinds.values():
            for witness in witnesses.values():
                function, _, parameter = witness.partition("[")
                assert function in functions, witness
                assert "fault_gets_its_cause" not in function or parameter.rstrip("]") in faults, witness


def test_no_card_is_claimed_without_a_report() -> None:
    reports = list(proof.REPORTS.glob("*.json"))
    column = [line.split("|")[2].strip() for line in proof.table().splitlines()[2:]]
    assert bool(reports) == any(cell != "—" for cell in column)


def test_only_what_came_out_as_expected_on_a_card_counts(tmp_path: Path) -> None:
    row = {
        "expected": ["works", None],
        "found": ["works", None],
        "checks": [["convolution", "C07", "passed", None]],
    }
    other = row | {"found": ["broken", "crash"], "checks": [["convolution", "C06", "failed", "crash"]]}
    report = {"gpu": {"name": "Tesla T4"}, "rows": [row, other]}
    (tmp_path / "tesla-t4-550.json").write_text(json.dumps(report))
    assert {check: dict(found) for check, found in proof.on_cards(tmp_path).items()} == {
        "C07": {"passed": {"Tesla T4"}}
    }
    assert "| C07 | passes: Tesla T4 |" in proof.table(tmp_path)
    assert "| C06 | — |" in proof.table(tmp_path)
