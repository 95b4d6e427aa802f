"""A registry with an image, and releases, judged once for the room: few, where all are not asked for."""

from __future__ import annotations

import pytest
from catalogue_scene import releases
from evidence_fixtures import pushed, registry, server

from builder.release.catalogue.collection import collect

__all__ = ["pushed", "registry", "server"]


FEW = 20


@pytest.fixture(autouse=True)
def _few_releases(monkeypatch: pytest.MonkeyPatch) -> None:
    """A site of all takes a second to write."""
    monkeypatch.setitem(collect.__globals__, "releases_of", lambda: releases(FEW))


@pytest.fixture
def all_releases(monkeypatch: pytest.MonkeyPatch, _few_releases: None) -> None:
    monkeypatch.setitem(collect.__globals__, "releases_of", releases)
