"""Fixtures of rooms that talk to the outside: a server that does as told; no settings of this machine."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from doubles.http_server import Server
from doubles.package_index import PackageIndexDouble

from builder.sources.net.http import Client

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def server() -> Iterator[Server]:
    running = Server()
    yield running
    running.stop()


@pytest.fixture
def client() -> Client:
    """Retries without waiting."""
    return Client(retries=2, backoff=0.0, connect_timeout=2, read_timeout=5)


@pytest.fixture(scope="session")
def uv_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One for the session: what uv finds out about the interpreter is the slow part of a short resolution."""
    return tmp_path_factory.mktemp("uv")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """The folder that stands for the home of the person who runs the test."""
    folder = tmp_path / "home"
    folder.mkdir()
    return folder


@pytest.fixture(autouse=True)
def own_configuration(monkeypatch: pytest.MonkeyPatch, home: Path, uv_cache: Path) -> Path:
    """No test sees the configuration of the person who runs it. Gives ``home``."""
    for name in list(os.environ):
        if name.startswith(("UV_", "PIP_", "RTBUILD_")) or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home / ".config"))
    monkeypatch.setenv("XDG_CONFIG_DIRS", str(home / "xdg"))
    monkeypatch.setenv("UV_CACHE_DIR", str(uv_cache))
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")
    monkeypatch.setenv("DOCKER_CONFIG", str(home / ".docker"))
    return home


@pytest.fixture
def fake_index(server: Server, tmp_path: Path) -> PackageIndexDouble:
    return PackageIndexDouble(server, tmp_path / "wheels")
