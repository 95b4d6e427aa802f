"""A registry with an image, and releases, judged once for the room: few, where all are not asked for."""

from __future__ import annotations

import pytest
from catalogue_scene import branches, releases
from evidence_fixtures import pushed, registry, server

from builder.release.catalogue.collection import collect
from builder.release.catalogue.values import cards_of

__all__ = ["pushed", "registry", "server"]


FEW = 20


@pytest.fixture(autouse=True)
def _few_releases(monkeypatch: pytest.MonkeyPatch) -> None:
    """A site of all takes a second to write."""
    monkeypatch.setitem(collect.__globals__, "releases_of", lambda: releases(FEW))
    monkeypatch.setitem(collect.__globals__, "branches_of", lambda *_: branches(FEW)[::9])
    kinds = {card.capability: card for card in cards_of()}
    few = tuple(card for card in cards_of() if card.name == "T4" or card == kinds[card.capability])
    monkeypatch.setitem(collect.__globals__, "cards_of", lambda: few)


@pytest.fixture
def all_releases(monkeypatch: pytest.MonkeyPatch, _few_releases: None) -> None:
    monkeypatch.setitem(collect.__globals__, "releases_of", releases)
    monkeypatch.setitem(collect.__globals__, "branches_of", lambda *_: branches())
    monkeypatch.setitem(collect.__globals__, "cards_of", cards_of)
