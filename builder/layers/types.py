"""What the layer room hands out: layers by content, bases, and the context that overrides a stage."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    import threading
    from collections.abc import Mapping
    from pathlib import Path

Compression = Literal["zstd", "gzip"]

MEDIA_TYPES: Mapping[str, str] = {
    "zstd": "application/vnd.oci.image.layer.v1.tar+zstd",
    "gzip": "application/vnd.oci.image.layer.v1.tar+gzip",
}


@dataclass(frozen=True, kw_only=True)
class Layer:
    """One compressed layer in a blob store. Sizes are in bytes."""

    title: str
    """What it holds, for people: ``nvidia-cudnn-cu11 8.6.0.163``."""
    digest: str
    """``sha256:…`` of the compressed blob."""
    diff_id: str
    """``sha256:…`` of the tar stream inside."""
    size: int
    unpacked: int
    media_type: str


@dataclass(frozen=True, kw_only=True)
class BaseLayers:
    """What wheel layers are stacked on: the base's layers, bottom first, and its image config."""

    layers: tuple[Layer, ...]
    config: Mapping[str, Any]


class BaseSource(Protocol):
    """Where a registry base's manifest and blobs come from; the pipeline passes its registry client in."""

    def manifest(self, digest: str) -> bytes:
        """The manifest with this digest, byte for byte as the registry gave it."""
        ...

    def blob(self, digest: str, dest: Path) -> None:
        """Write the blob with this digest to ``dest``; the caller checks size and hash."""
        ...


class Progress(Protocol):
    """Called from worker threads as work advances; ``done`` and ``total`` are bytes unpacked."""

    def __call__(self, title: str, done: int, total: int) -> None: ...


@dataclass(frozen=True, kw_only=True)
class SystemLayers:
    """Layers of packages that were installed in a base, lowest first, with their entries in the history."""

    layers: tuple[Layer, ...] = ()
    history: tuple[Mapping[str, Any], ...] = ()


class Runner(Protocol):
    """Runs steps of recipes: in namespaces on this machine, or in an engine."""

    def check(self) -> None:
        """Raise :class:`~builder.errors.MissingToolError` if no step can be run."""
        ...

    def run(
        self, script: str, root: Path, *, what: str, env: Mapping[str, str], cancel: threading.Event
    ) -> None:
        """Run ``script`` as root, with ``root`` as the root folder and without network.

        Raises :class:`~builder.errors.CommandError` if the script fails, and
        :class:`~builder.errors.CancelledError` soon after ``cancel`` is set.
        """
        ...
