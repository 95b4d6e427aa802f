"""Every fault that needs nothing but gcc: exactly its cause, exactly its verdict, and never ``works``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import faults_driver  # noqa: F401
import faults_files  # noqa: F401
import faults_gpu  # noqa: F401
import pytest
from fault_list import FAULTS, Fault
from fault_scene import EXIT_CODES

if TYPE_CHECKING:
    from fault_scene import Scene

QUICK = [row for row in FAULTS if row.parts == "doubles"]


@pytest.mark.parametrize("row", QUICK, ids=[row.name for row in QUICK])
def test_fault_gets_its_cause(row: Fault, scene: Scene) -> None:
    row.prepare(scene)
    outcome = scene.run()
    assert outcome.report, outcome.stderr
    found = (outcome.report["verdict"], outcome.report["cause"])
    assert found == (row.verdict, row.cause), outcome.report["summary"]
    assert outcome.code == EXIT_CODES[row.verdict]
    assert outcome.report["verdict"] != "works"
