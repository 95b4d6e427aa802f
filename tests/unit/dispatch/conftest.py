from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from publish_doubles import MATRIX, Project
from registry_double import RegistryDouble, serve

from builder.net.http import Client
from builder.oci.registry import Registry

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TWO_CARDS = MATRIX.replace("[T4]", "[T4, A100]") + "include:\n  - {}\n  - {variant: other}\n"


@pytest.fixture
def server() -> Iterator[RegistryDouble]:
    with serve() as running:
        yield running


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Registry:
    found = Registry(client=Client(retries=0, backoff=0.01, read_timeout=5), login=lambda _host: None)
    monkeypatch.setattr(Registry, "to_write", lambda: found)
    return found


@pytest.fixture
def project(server: RegistryDouble, registry: Registry, tmp_path: Path) -> Project:
    """Two cells that claim two classes, both in staging."""
    project = Project(tmp_path / "project", text=TWO_CARDS)
    for number, cell in enumerate(project.matrix.cells):
        project.stage(registry, f"{server.host}/staging", cell, extra=b"%d" % number)
    return project
