"""A place that has the file of every layer and knows none by its key; it notes what was fetched."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from builder.image.layers.store import Layer, LayerStore, Lease


@dataclass
class RemoteLayersDouble:
    store: LayerStore
    """Where the files are."""
    fetched: list[str] = field(default_factory=list)
    """The titles of the layers whose files were asked for."""

    def find(self, _key: str) -> Layer | None:
        return None

    def has(self, _digest: str) -> bool:
        return True

    def fetch(self, layer: Layer, _lease: Lease, _advance: Callable[[int], None]) -> Path:
        self.fetched.append(layer.title)
        return self.store.blob(layer.digest)
