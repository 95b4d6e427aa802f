"""``make setup``, in an environment that another tool made."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from uv import find_uv_bin

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_an_environment_of_uv_gets_pip(tmp_path: Path) -> None:
    venv = tmp_path / "venv"
    command = [find_uv_bin(), "venv", "--quiet", "--offline", "--python", sys.executable, str(venv)]
    subprocess.run(command, check=True)
    python = str(venv / "bin" / "python")
    has_pip = [python, "-c", "import pip"]
    assert subprocess.run(has_pip, capture_output=True, check=False).returncode
    env = os.environ | {"PIP_NO_INDEX": "1"}  # no package is installed from anywhere
    done = subprocess.run(
        [ROOT / "scripts" / "ensure-python", sys.executable, str(venv)],
        env=env,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "No module named pip" not in done.stderr
    subprocess.run(has_pip, check=True)
