"""A registry with an image, and releases that are judged once for all tests of the room."""

from __future__ import annotations

import pytest
from catalogue_scene import releases
from evidence_fixtures import pushed, registry, server

from builder.release.catalogue.collection import collect

__all__ = ["pushed", "registry", "server"]


@pytest.fixture(autouse=True)
def _judged_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(collect.__globals__, "releases_of", releases)
