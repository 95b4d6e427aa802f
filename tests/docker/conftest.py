"""A registry for all tests, and what stands in front of it and fails where a test wants it to."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import containers
import pytest
from doubles.unreliable import Proxy, before
from registry import LoopbackRegistry, serve

if TYPE_CHECKING:
    from collections.abc import Iterator


AXE = "axe-core@4.10.3"


@pytest.fixture(scope="session", autouse=True)
def tidy() -> Iterator[None]:
    """Nothing of these tests' containers is there before or after."""
    containers.remove_left()
    yield
    containers.remove_images()


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoopbackRegistry]:
    with serve(tmp_path_factory.mktemp("registry")) as running:
        yield running


@pytest.fixture
def proxy(server: LoopbackRegistry) -> Iterator[Proxy]:
    with before(server.host) as running:
        yield running


@pytest.fixture(scope="session")
def axe(tmp_path_factory: pytest.TempPathFactory) -> str:
    """axe-core's script, by npm from wherever npm is configured to look."""
    folder = tmp_path_factory.mktemp("axe")
    subprocess.run(
        ["npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", str(folder), AXE],
        check=True,
        capture_output=True,
        timeout=300,
    )
    return (folder / "node_modules" / "axe-core" / "axe.min.js").read_text()
