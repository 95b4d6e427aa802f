"""Colab's lists of a day in 2024 and 2025 become cells that ``check`` accepts; ``make colab-month``.

``RTBUILD_COLAB_LISTS`` names a clone of github.com/googlecolab/backend-info; without it one is made.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from rtbuild_command import rtbuild

ADDRESS = "https://github.com/googlecolab/backend-info.git"


@pytest.fixture(scope="module")
def lists(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if named := os.environ.get("RTBUILD_COLAB_LISTS"):
        return Path(named)
    folder = tmp_path_factory.mktemp("lists") / "backend-info"
    subprocess.run(["git", "clone", "--quiet", "--bare", ADDRESS, folder], check=True, timeout=600)
    return folder


@pytest.mark.parametrize("day", ["2024-07-29", "2024-12-01", "2025-03-15", "2025-09-01"])
def test_a_day_becomes_cells_that_check_accepts(day: str, lists: Path, tmp_path: Path) -> None:
    options = ["--at", day, "--no-lock", "--output", str(tmp_path), "--progress", "plain", "--json"]
    imported = json.loads(rtbuild(tmp_path, "colab", "import", str(lists), *options, timeout=1200).stdout)
    checked = json.loads(rtbuild(tmp_path, "check", imported["matrix"], "--json", timeout=600).stdout)
    answers = [cell["answer"] for cell in checked["cells"]]
    print(f"{day}: {len(answers)} cells, {answers}")
    assert answers
    assert set(answers) <= {"possible"}
