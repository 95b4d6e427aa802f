"""Layers by content, and the layers that others are stacked on."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

Compression = Literal["zstd", "gzip"]

MEDIA_TYPES: Mapping[str, str] = {
    "zstd": "application/vnd.oci.image.layer.v1.tar+zstd",
    "gzip": "application/vnd.oci.image.layer.v1.tar+gzip",
}


@dataclass(frozen=True, kw_only=True)
class Layer:
    """One compressed layer in a blob store. Sizes are in bytes."""

    title: str
    """Its content, for people: ``nvidia-cudnn-cu11 8.6.0.163``."""
    digest: str
    """``sha256:…`` of the compressed blob."""
    diff_id: str
    """``sha256:…`` of the tar stream inside."""
    size: int
    unpacked: int
    """0 if it is not known."""
    media_type: str


@dataclass(frozen=True, kw_only=True)
class BaseLayers:
    """The base of an image: its layers, lowest first, and its image config."""

    layers: tuple[Layer, ...]
    config: Mapping[str, Any]

    @property
    def environment(self) -> dict[str, str]:
        """The variables that it gives to whatever runs in it."""
        return dict(pair.partition("=")[::2] for pair in (self.config.get("config") or {}).get("Env") or ())


@dataclass(frozen=True, kw_only=True)
class SystemLayers:
    """Layers of packages that were installed in a base, lowest first, with their entries in the history."""

    layers: tuple[Layer, ...] = ()
    history: tuple[Mapping[str, Any], ...] = ()
