"""Cells with their truth, written down from outside by people who have seen no rule: the answer of each."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from builder.cli.commands.check import verdict_text
from builder.plan.facts.rules.checking import check
from builder.plan.facts.rules.finding import Outcome

TABLE = tomllib.loads((Path(__file__).parent / "cells.toml").read_text())
EVERY = [
    (name, answer, spec)
    for answer in ("impossible", "possible", "unknown")
    for name, spec in TABLE[answer].items()
]


@pytest.mark.parametrize(("name", "answer", "spec"), EVERY, ids=[name for name, _, _ in EVERY])
def test_the_answer(make, name: str, answer: str, spec) -> None:
    """``check``'s answer; and whatever it offers in place of the cell is possible on the same cards."""
    values = {"base": "rootfs:debian/bookworm", "cuda": "wheels"} | spec
    frameworks, driver = values.pop("frameworks"), values.pop("driver", None)
    values["packages"] = TABLE["packages"].get(values.get("packages"), ())
    cell = make(*frameworks, **{k: tuple(v) if isinstance(v, list) else v for k, v in values.items()})
    findings = check(cell, driver=driver)
    assert Outcome.of(findings).answer == answer, verdict_text(cell, findings)
    way = next((finding.nearest for finding in findings if finding.nearest is not None), None)
    if way is not None:
        assert Outcome.of(check(way.cell, driver=driver, suggest=False)).answer == "possible"
        assert way.cell.gpus == cell.gpus
