from __future__ import annotations

import pytest
from outside_fixtures import client, own_configuration, server, uv_cache

from builder.core.model import Base, Cell, Cuda

__all__ = ["client", "make", "own_configuration", "server", "uv_cache"]


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
