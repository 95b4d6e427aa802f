"""Remedies that ``diagnose`` names for a text, run in a real environment with that fault."""

from __future__ import annotations

import shlex
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from pages.diagnose_score import answer

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.wheels, pytest.mark.nightly]
UV = [sys.executable, "-m", "uv"]
_PROTOBUF = "from tensorboard.compat.proto import types_pb2"


@pytest.mark.parametrize(
    ("packages", "forced", "program"),
    [
        (["pandas==2.1.4"], "numpy==2.2.6", "import pandas"),
        (["tensorboard==2.8.0", "setuptools<81"], "protobuf==4.25.8", _PROTOBUF),
        (["wheel"], "setuptools==82.0.1", "import pkg_resources"),
        (["jax==0.4.35"], "jaxlib==0.4.30", "import jax"),
    ],
    ids=["numpy", "protobuf", "setuptools", "jax"],
)
def test_a_remedy_ends_the_fault_that_it_is_named_for(
    tmp_path: Path, packages: list[str], forced: str, program: str
) -> None:
    """``forced`` is put over what fits, as an upgrade by hand does."""
    home = tmp_path / "venv"
    subprocess.run([*UV, "venv", "-q", "--python", "3.11", home], check=True)
    install = [*UV, "pip", "install", "-q", "--python", home / "bin" / "python"]
    subprocess.run([*install, *packages], check=True)
    subprocess.run([*install, "--no-deps", forced], check=True)

    def run() -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [home / "bin" / "python", "-c", program], capture_output=True, text=True, check=False
        )

    failed = run()
    assert failed.returncode
    listed = subprocess.run(
        [*UV, "pip", "freeze", "--python", home / "bin" / "python"],
        capture_output=True,
        text=True,
        check=True,
    )
    row = answer(failed.stderr + listed.stdout)["causes"][0]
    assert row["cause"] == "package-pin-mismatch"
    commands = [shlex.split(command["text"]) for command in row["commands"] if command["where"] == "pip"]
    assert commands
    for command in commands:
        assert command[:2] == ["pip", "install"]
        subprocess.run([*install, *command[2:]], check=True)
    assert run().returncode == 0, run().stderr[-2000:]
