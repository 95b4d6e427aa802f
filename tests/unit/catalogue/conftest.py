"""The releases of the tables, judged once for all tests of the room: that takes seconds."""

from __future__ import annotations

import functools

import pytest
from evidence_fixtures import pushed, registry, server

from builder.release.catalogue.collection import collect
from builder.release.catalogue.releases import releases_of

__all__ = ["pushed", "registry", "server"]


@functools.cache
def releases() -> tuple[object, ...]:
    return tuple(releases_of())


@pytest.fixture(autouse=True)
def _judged_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(collect.__globals__, "releases_of", releases)
