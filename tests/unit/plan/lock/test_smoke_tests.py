"""The lines by which an installation is tried: for each package its own, in quotes that every shell takes."""

from __future__ import annotations

import shlex

import pytest

from builder.plan.facts.tables import TableFile, load
from builder.plan.lock import python_lines, smoke_statements
from builder.plan.lock.smoke_tests import SmokeTestRow

ROWS = TableFile(load().folder / "smoke-tests.toml").rows(SmokeTestRow)
TEXTS = [text for row in ROWS for text in (row.cuda, row.mps, row.cpu) if text]


@pytest.mark.parametrize("text", TEXTS, ids=lambda text: text[7:40])
def test_a_statement_is_python_and_stands_between_double_quotes_everywhere(text: str) -> None:
    compile(text, "check", "exec")
    assert not set('"$!`\\%^&|<>') & set(text), "sh, cmd.exe and PowerShell take it as it stands"
    assert shlex.split(python_lines([text])[0]) == ["python", "-c", text]


def test_each_framework_that_a_matrix_asks_for_has_one() -> None:
    assert {row.name for row in ROWS} >= {*load().frameworks} - {"mxnet"}


def test_each_package_of_a_set_has_its_own_and_frameworks_come_first() -> None:
    torch, vision = smoke_statements(["torchvision==0.22.1", "numpy<2", "torch==2.7.1+cu118"])
    assert torch.startswith("import torch;")
    assert "torchvision.ops.nms" in vision
    assert [one.partition(";")[0] for one in smoke_statements(["cupy-cuda12x==14.2.0"])] == ["import cupy"]


@pytest.mark.parametrize(("version", "told"), [("1.23.2", True), ("1.20.0", False)])
def test_onnx_runtime_loads_the_libraries_of_wheels_from_its_first_release_that_can(
    version: str, *, told: bool
) -> None:
    (text,) = smoke_statements([f"onnxruntime-gpu[cuda,cudnn]=={version}"])
    assert ("preload_dlls()" in text) is told


def test_without_a_card_and_on_apples_gpu_it_is_another() -> None:
    assert "'mps'" in smoke_statements(["torch==2.8.0"], "mps")[0]
    assert "cuda" not in smoke_statements(["torch==2.8.0"], "cpu")[0]
    assert smoke_statements(["cupy-cuda12x"], "cpu") == []


def test_a_tensorflow_before_2_computes_in_a_session() -> None:
    assert "tf.Session()" in smoke_statements(["tensorflow-gpu==1.15.5"])[0]
    assert "Session" not in smoke_statements(["tensorflow[and-cuda]==2.21.0"])[0]
