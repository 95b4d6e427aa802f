"""Four installations that differ most, of those that `make sound-installs` tries every night.

A run path of 21.5 kB; libraries that are found after a line in the program; NVIDIA's wheels of CUDA 13 with
their one folder; libraries that only LD_LIBRARY_PATH leads to.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from sound_installs import DOCUMENTED, install, probed, said

pytestmark = pytest.mark.wheels
FOUR = {"tensorflow": "2.20.0", "onnxruntime-gpu": "1.23.2", "jax-cuda13": "0.8.0", "ctranslate2": "4.6.0"}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name == "onnxruntime-gpu" else pytest.mark.nightly, id=name)
        for name in FOUR
    ],
)
def test_as_installed_is_sound(name: str, tmp_path: Path) -> None:
    row = DOCUMENTED[name]
    report = probed(tmp_path, install(row, FOUR[name], tmp_path))
    shutil.rmtree(tmp_path / "venv")
    assert said(report) is None
    notes = " ".join(check["note"] or "" for check in report["checks"])
    assert ("the line onnxruntime.preload_dlls()" in notes) == (name == "onnxruntime-gpu")
