"""``scripts/colab-month``: which month of a clone is whole, and that one is imported once."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[4] / "scripts" / "colab-month"

pytestmark = pytest.mark.slow  # git and bash, some tenths of a second


def clone(folder: Path, *moments: str) -> Path:
    """A repository with a commit at each moment."""
    folder.mkdir()
    subprocess.run(["git", "init", "-q", folder], check=True)
    for moment in moments:
        dates = {"GIT_COMMITTER_DATE": moment, "GIT_AUTHOR_DATE": moment}
        names = ["-c", "user.name=lists", "-c", "user.email=lists@example.invalid"]
        command = ["git", *names, "-C", str(folder), "commit", "-q", "--allow-empty", "-m", "lists"]
        subprocess.run(command, check=True, env=os.environ | dates)
    return folder


def ask(lists: Path, matrices: Path) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"RTBUILD": "echo"}
    command = [SCRIPT, lists, matrices]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


def test_the_newest_whole_month_is_imported_as_of_its_last_day(tmp_path: Path) -> None:
    lists = clone(tmp_path / "lists", "2024-01-20T12:00:00Z", "2024-02-29T23:30:00Z", "2098-01-01T00:00:00Z")
    done = ask(lists, tmp_path)
    asked, checked = done.stdout.splitlines()
    assert asked.startswith(
        f"colab import {lists} --at 2024-02-29 --name 2024.02 --no-lock --output {tmp_path} "
    )
    assert checked == f"check {tmp_path}/colab-2024.02.yaml"
    (tmp_path / "colab-2024.02.yaml").touch()
    done = ask(lists, tmp_path)
    assert (done.returncode, done.stdout) == (0, "")
    assert "2024.02, the newest whole month, is in" in done.stderr


def test_a_month_that_goes_on_is_not_whole(tmp_path: Path) -> None:
    done = ask(clone(tmp_path / "lists", "2098-01-01T00:00:00Z"), tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert "has no whole month" in done.stderr
