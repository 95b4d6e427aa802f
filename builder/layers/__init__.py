"""Layers: their values, how their blobs are written and read, and the store that keeps them.

Nothing is compressed or hashed twice.
"""

from builder.layers.store import LayerStore
from builder.layers.types import BaseLayers, Layer

__all__ = ["BaseLayers", "Layer", "LayerStore"]
