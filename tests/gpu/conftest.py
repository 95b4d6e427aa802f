"""The doubles of the fault tests, for what ``make gpu`` does where they stand in for a card."""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "faults")]

import pytest  # noqa: E402
from fault_doubles import Doubles  # noqa: E402


@pytest.fixture(scope="session")
def doubles(tmp_path_factory: pytest.TempPathFactory) -> Doubles:
    return Doubles(tmp_path_factory.mktemp("doubles"))
