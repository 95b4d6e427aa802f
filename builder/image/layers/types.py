"""Layers by content, and the layers that others are stacked on."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Self

Compression = Literal["zstd", "gzip"]

MEDIA_TYPES: Mapping[str, str] = {
    "zstd": "application/vnd.oci.image.layer.v1.tar+zstd",
    "gzip": "application/vnd.oci.image.layer.v1.tar+gzip",
}


@dataclass(frozen=True, kw_only=True)
class Layer:
    """One compressed layer in a blob store. Sizes are in bytes. Two with equal blobs and titles are equal."""

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
    key: str = field(default="", compare=False)
    """What it is made of: its name in the store's index. Empty until it is stored."""
    details: Mapping[str, Any] = field(default_factory=dict, compare=False)
    """JSON that the maker wants back with it."""
    files: bytes = field(default=b"", repr=False, compare=False)
    """The maker's list of its content, on the way into the store, which has it in a file of its own."""
    new: bool = field(default=False, compare=False)
    """It was made now."""

    @property
    def document(self) -> dict[str, Any]:
        """The JSON by which the store's index and a registry describe it."""
        names = ("title", "digest", "diff_id", "size", "unpacked", "media_type")
        return {"layer": {name: getattr(self, name) for name in names}, "details": self.details}

    @classmethod
    def of(cls, document: Mapping[str, Any], *, key: str, files: bytes = b"") -> Self:
        """The layer that a :attr:`document` describes. Raises KeyError, TypeError or
        ValueError for anything else."""
        return cls(**document["layer"], details=dict(document["details"]), key=key, files=files, new=False)


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
