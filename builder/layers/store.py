"""A content-addressed store of layers, shared by processes and threads."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


class Lease:
    """Keeps blobs from being pruned until it is released or its process ends."""

    def release(self) -> None:
        raise NotImplementedError


class LayerStore:
    """Layers under ``root``, by digest, with an index from what they are made of. ``limit`` is in bytes."""

    def __init__(self, root: Path, *, limit: int | None = None) -> None:
        self.root = root
        self.limit = limit

    def usage(self) -> int:
        """Bytes in blobs."""
        raise NotImplementedError

    def prune(self, limit: int | None = None) -> int:
        """Remove the least recently used blobs until ``limit`` holds; what is leased stays. Bytes freed."""
        raise NotImplementedError

    def verify(self) -> list[str]:
        """Hash every blob; remove those that are not what they claim to be, and return their digests."""
        raise NotImplementedError
