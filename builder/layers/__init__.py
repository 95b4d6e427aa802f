"""Wheels as ready-made image layers: each wheel becomes one deterministic OCI layer, once.

``docker build`` installs the wheels in the stage ``wheels`` of the Dockerfile. ``rtbuild build`` overrides
that stage with :func:`wheels_context`: an OCI layout of the base's layers, one layer for each large wheel in
the lock's order, and one for all small ones. Nothing is installed, compressed or hashed twice.
"""

from builder.layers.context import wheels_context
from builder.layers.store import LayerStore
from builder.layers.types import BaseLayers, BaseSource, Compression, Layer, Progress, WheelsContext

__all__ = [
    "BaseLayers",
    "BaseSource",
    "Compression",
    "Layer",
    "LayerStore",
    "Progress",
    "WheelsContext",
    "wheels_context",
]
