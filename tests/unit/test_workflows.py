"""Workflows get no more than they need, and run no action that can change under them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

FOLDER = Path(__file__).resolve().parents[2] / ".github" / "workflows"
FILES = sorted(FOLDER.glob("*.yml"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_permissions_and_pins(path: Path) -> None:
    document = yaml.safe_load(path.read_text())
    assert document["permissions"] == {}
    for job in document["jobs"].values():
        assert job["permissions"]
        assert job["timeout-minutes"] <= 360
        for step in job["steps"]:
            if "uses" in step:
                assert re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", step["uses"])
            if str(step.get("uses", "")).startswith("actions/checkout@"):
                assert step["with"]["persist-credentials"] is False
            # an expression inside a script is code that somebody else may write
            assert "${{" not in step.get("run", "")


def test_the_refresh_runs_by_the_clock_and_by_hand_only() -> None:
    document = yaml.safe_load((FOLDER / "refresh.yml").read_text())
    # YAML 1.1 reads the key `on` as true
    assert set(document[True]) == {"schedule", "workflow_dispatch"}
    assert document["jobs"]["facts"]["permissions"] == {"contents": "write", "pull-requests": "write"}
