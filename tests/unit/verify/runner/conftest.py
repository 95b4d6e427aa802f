from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from doubles.engine import make_document

from builder.core.model import Base, Cell, Cuda, Image

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture
def document() -> Callable[..., dict[str, Any]]:
    """A report of the probe, with what the test changes in it."""
    return make_document


@pytest.fixture
def image() -> Image:
    cell = Cell(
        id="tensorflow2.8.4-py39",
        matrix="m",
        frameworks=("tensorflow==2.8.4",),
        python="3.9",
        base=Base(kind="rootfs", name="debian/bullseye"),
        cuda=Cuda(provider="wheels"),
    )
    return Image(
        cell=cell, reference="rt/m:cell", digest="sha256:" + "d" * 64, content="sha256:" + "c" * 64, size=1
    )
