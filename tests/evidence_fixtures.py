"""An image by itself, and one that lies in a registry on loopback."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from doubles import small_image
from doubles.registry import RegistryDouble, registry_client, serve

from builder.sources.oci.registry import Registry

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from builder.sources.oci.staging import Staged


@pytest.fixture
def server() -> Iterator[RegistryDouble]:
    with serve() as running:
        yield running


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Registry:
    """Without the pauses in which other writers are let go first."""
    monkeypatch.setattr("time.sleep", lambda _seconds: None)
    return registry_client()


@pytest.fixture(scope="session")
def image(tmp_path_factory: pytest.TempPathFactory) -> Staged:
    folder = tmp_path_factory.mktemp("image")
    return small_image.push_image(small_image.Memory(), "registry.example/team/tf", folder)


@pytest.fixture
def pushed(server: RegistryDouble, registry: Registry, tmp_path: Path) -> Staged:
    return small_image.push_image(registry, f"{server.host}/team/tf", tmp_path)
