"""Images in the engine's store: what they hold, under which names."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class StoredImage:
    """An image in the engine's store."""

    reference: str
    digest: str
    """What the engine calls it: with the containerd image store the manifest digest, else the image id."""
    content: str
    """Digest over the ordered layer diff ids and the config without its dates; see :func:`content_digest`."""
    size: int
    """Unpacked, in bytes, as the engine's history counts it."""
    labels: tuple[tuple[str, str], ...]
    env: tuple[tuple[str, str], ...]
    platform: str
    layers: tuple[str, ...]
    """The diff ids, lowest first."""

    def label(self, name: str) -> str | None:
        return dict(self.labels).get(name)


@dataclass(frozen=True, kw_only=True)
class HistoryEntry:
    """One step of an image's history, newest first. ``size`` is in bytes unpacked."""

    created_by: str
    size: int
