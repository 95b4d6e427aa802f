"""What the layer room hands out: layers by content, bases, and the context that overrides a stage."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from builder.layers.store import Lease

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
class WheelsContext:
    """An OCI layout that stands in for the stage ``wheels`` of the Dockerfile.

    Holds a lease on its blobs until it is closed: use it as a context manager around the build.
    """

    layout: Path
    tag: str
    digest: str
    """Digest of the composed manifest."""
    layers: tuple[Layer, ...]
    """All layers, those of the base first."""
    made: int
    """How many layers were made in this call."""
    reused: int
    """How many came out of the store."""
    seconds: float
    lease: Lease = field(repr=False, compare=False)

    @property
    def build_contexts(self) -> dict[str, str]:
        """Every stage to override, so that nothing is done for stages that are not built.

        BuildKit 0.13 looks up the images and sends the files of the stages below an overridden one, too: a
        rootfs.tar that nobody unpacks, a question to a registry for a base that is here already.
        """
        return dict.fromkeys(("base", "installer", "wheels"), f"oci-layout://{self.layout}:{self.tag}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let the store remove these blobs again when it needs the room."""
        self.lease.release()
