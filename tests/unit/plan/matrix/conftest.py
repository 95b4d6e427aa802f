"""Matrices as text."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Protocol

import pytest

from builder.plan.matrix import load

if TYPE_CHECKING:
    from builder.core.model import Matrix


class LoadText(Protocol):
    def __call__(self, text: str | bytes, name: str = "m.yaml") -> Matrix: ...


@pytest.fixture(scope="session")
def load_text(tmp_path_factory: pytest.TempPathFactory) -> LoadText:
    folder = tmp_path_factory.mktemp("matrices")

    def load_it(text: str | bytes, name: str = "m.yaml") -> Matrix:
        path = folder / name
        path.write_bytes(text if isinstance(text, bytes) else textwrap.dedent(text).encode())
        return load(path)

    return load_it
