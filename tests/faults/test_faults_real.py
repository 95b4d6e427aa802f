"""The faults in real parts, and the same parts without a fault."""

from __future__ import annotations

from typing import TYPE_CHECKING

import faults_real
import pytest
from fault_list import FAULTS, Fault
from fault_scene import EXIT_CODES

if TYPE_CHECKING:
    from fault_scene import Scene

pytestmark = pytest.mark.wheels
REAL = [row for row in FAULTS if row.parts == "real"]


@pytest.mark.parametrize("row", REAL, ids=[row.name for row in REAL])
def test_real_fault_gets_its_cause(row: Fault, scene: Scene) -> None:
    row.prepare(scene)
    outcome = scene.run()
    assert outcome.report, outcome.stderr
    found = (outcome.report["verdict"], outcome.report["cause"])
    assert found == (row.verdict, row.cause), outcome.report["summary"]
    assert outcome.code == EXIT_CODES[row.verdict]
    assert outcome.unlisted() == []


@pytest.mark.parametrize("name", ["cudnn-7.6.5", "cudnn-8.9.7", "cudnn-9.1.0", "cudnn-9.10.2"])
def test_sound_cudnn_is_only_unverified(name: str, scene: Scene) -> None:
    for part in (name, "cublas", "nvrtc", "cudart"):
        scene.wheel(part)
    outcome = scene.run()
    assert (outcome.report["verdict"], outcome.report["cause"]) == ("unverified", None), outcome.report[
        "summary"
    ]
    passed = outcome.checks("passed")
    assert {("cudnn", number) for number in ("C01", "C04", "C05")} <= set(passed)
    assert [row["version"] for row in outcome.report["libraries"] if row["name"].startswith("libcudnn.so")]
    assert outcome.report["test_double"] is False
    assert outcome.seconds < 20


def test_sound_cudnn_8_6_needs_a_driver_to_load_its_convolutions(scene: Scene) -> None:
    """Without a driver its libraries abort: that is no fault of the image, and no trace of a GPU either."""
    faults_real.cudnn_8_6(scene)
    folder = scene.site / "nvidia" / "cuda_nvrtc" / "lib"
    (folder / "libnvrtc.so").symlink_to("libnvrtc.so.11.2")
    outcome = scene.run()
    assert (outcome.report["verdict"], outcome.report["cause"]) == ("unverified", None), outcome.report[
        "summary"
    ]
