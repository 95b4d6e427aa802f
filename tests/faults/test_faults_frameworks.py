"""Real frameworks without a GPU: the faults they are silent about, and the numbers of their adapters."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import faults_real_frameworks
import pytest
from fault_list import FAULTS, Fault
from fault_scene import EXIT_CODES

if TYPE_CHECKING:
    from fault_scene import Scene

pytestmark = pytest.mark.wheels
ROWS = [row for row in FAULTS if row.parts == "framework"]
HERE = Path(__file__).resolve().parent


@pytest.mark.parametrize("row", ROWS, ids=[row.name for row in ROWS])
def test_framework_fault_gets_its_cause(row: Fault, scene: Scene) -> None:
    row.prepare(scene)
    outcome = scene.run()
    assert outcome.report, outcome.stderr
    found = (outcome.report["verdict"], outcome.report["cause"])
    assert found == (row.verdict, row.cause), outcome.report["summary"]
    assert outcome.code == EXIT_CODES[row.verdict]
    assert outcome.unlisted() == []


@pytest.mark.parametrize("name", ["tensorflow", "onnxruntime"])
def test_a_build_for_cuda_computes_on_the_cpu_where_no_cuda_is_asked_for(name: str, scene: Scene) -> None:
    """``cuda: none``: both import and convolve without a library of CUDA."""
    faults_real_frameworks.install(scene, name)
    assert scene.run().report["verdict"] == "broken"
    scene.expect(cuda={"provider": "none", "version": None}, cudnn=None, frameworks={})
    outcome = scene.run()
    assert (outcome.report["verdict"], outcome.report["cause"]) == ("unverified", None)
    check = next(c for c in outcome.report["checks"] if c["id"] == "F05")
    assert check["evidence"]["on the CPU"] == "the same convolution is right"


@pytest.mark.parametrize(
    "arguments",
    [("tensorflow",), ("tensorflow", "graph"), ("jax",), ("onnxruntime",), ("paddle",)],
    ids=["tensorflow", "tensorflow-1-graph", "jax", "onnxruntime", "paddle"],
)
def test_adapter_computes_the_known_answers(arguments: tuple[str, ...], scene: Scene) -> None:
    faults_real_frameworks.install(scene, arguments[0])
    python = scene.venv / "bin" / "python"
    command = [str(python), str(HERE / "adapter_on_cpu.py"), str(HERE.parent.parent), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False, env={})
    assert done.returncode == 0, done.stderr[-3000:]
    report = json.loads(done.stdout.splitlines()[-1])
    assert set(report["differences"].values()) == {0.0}, report["differences"]
    assert report["unnoticed"] == []
    assert report["devices"]
    assert not any("gpu" in name.lower() or "cuda" in name.lower() for name in report["devices"])
    assert report.get("falls", True), report["losses"]
