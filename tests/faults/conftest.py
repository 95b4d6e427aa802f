"""Fixtures of the fault tests: the probe as users get it, the compiled doubles, and a scene to break."""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from builder.image.recipe.probe_file import bundle

sys.path.insert(0, str(Path(__file__).parent))
import proof
import remedies
from fault_doubles import Doubles
from fault_scene import Scene
from fault_wheels import wheel_tree

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def probe_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("probe") / "cudnn_verify.py"
    path.write_bytes(bundle())
    return path


@pytest.fixture(scope="session")
def doubles(tmp_path_factory: pytest.TempPathFactory) -> Doubles:
    return Doubles(tmp_path_factory.mktemp("doubles"))


@pytest.fixture(scope="session")
def bare_machine() -> None:
    """The faults stand for themselves only on a machine with neither a driver nor a cuDNN of its own."""
    for name in ("libcuda.so.1", "libcudnn.so.9", "libcudnn.so.8"):
        try:
            ctypes.CDLL(name)
        except OSError:
            continue
        pytest.skip(f"this machine has a {name} of its own")


@pytest.fixture
def scene(
    request: pytest.FixtureRequest, tmp_path: Path, probe_file: Path, doubles: Doubles, bare_machine: None
) -> Iterator[Scene]:
    made = Scene(tmp_path, probe_file, doubles, wheel_tree)
    yield made
    if made.outcomes:  # none if a part could not be had, and the test was skipped
        update = request.config.getoption("--update-golden")
        proof.compare(request.node.name, made.outcomes, update=update)
        remedies.compare(request.node.name, made.outcomes, update=update)
