from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from outside_fixtures import client, own_configuration, server, uv_cache

from builder.core.model import Base, Cell, Cuda

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["client", "home", "make", "own_configuration", "server", "uv_cache"]


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One for all tests, none of which writes there: uv's list of Pythons is read once for each home."""
    return tmp_path_factory.mktemp("home")


@pytest.fixture
def make():
    """A cell in one line: ``make("torch==2.9.1", python="3.13", base="rootfs:debian/trixie")``."""

    def cell(*frameworks, python, base, cuda="base", packages=(), **more):
        return Cell(
            id=more.pop("id", "cell"),
            matrix="test",
            frameworks=frameworks,
            python=python,
            base=Base(
                kind="rootfs" if base.startswith("rootfs:") else "registry", name=base.removeprefix("rootfs:")
            ),
            cuda=Cuda(provider="wheels" if packages else cuda, packages=tuple(packages)),
            **more,
        )

    return cell
