"""Wheels as ready-made image layers, and images put together from them.

Each large wheel becomes one deterministic OCI layer, once, and all small ones together another. On top of the
base and the wheels come the small layers that the recipe's steps make. Nothing is installed, compressed or
hashed twice.
"""

from builder.layers.store import LayerStore
from builder.layers.types import BaseLayers, BaseSource, Compression, Layer, Progress

__all__ = ["BaseLayers", "BaseSource", "Compression", "Layer", "LayerStore", "Progress"]
