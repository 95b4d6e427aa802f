"""scripts/lock-outdated, which the weekly proposal of locks runs: what it asks, and what it moves."""

from __future__ import annotations

import json
import runpy
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

SCRIPT = Path(__file__).resolve().parents[3] / "scripts" / "lock-outdated"
CHANGES = (("security", "libc6"), ("rules", "links"), ("yanked", "six"), ("python", "Python"))


def test_what_is_out_of_date_moves_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A rule's finding is no name to move, a matrix without a lock is passed over, a failed one is said."""
    for name in ("bad", "good", "sound"):
        (tmp_path / f"{name}.lock.json").touch()
    ran: list[list[str]] = []

    def run(command: list[Any], **_: Any) -> SimpleNamespace:
        words = [str(word) for word in command]
        ran.append([words[1], Path(words[2]).name, *words[3:]])
        changes = [] if "sound" in words[2] else [{"kind": kind, "name": name} for kind, name in CHANGES]
        document = {"cells": [{"changes": changes}, {"changes": changes}]}
        return SimpleNamespace(returncode=3 if "bad" in words[2] else 0, stdout=json.dumps(document))

    monkeypatch.setattr(subprocess, "run", run)
    matrices = [str(tmp_path / f"{name}.yaml") for name in ("absent", "bad", "good", "sound")]
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), *matrices])
    runpy.run_path(str(SCRIPT), run_name="__main__")
    named = [word for name in ("Python", "libc6", "six") for word in ("--upgrade-only", name)]
    assert ran == [
        ["outdated", "bad.yaml", "--json"],
        ["outdated", "good.yaml", "--json"],
        ["lock", "good.yaml", *named, "--progress", "plain"],
        ["outdated", "sound.yaml", "--json"],
    ]
    assert "bad.yaml: rtbuild outdated ended with 3" in capsys.readouterr().err
