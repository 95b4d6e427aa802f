"""What a run works with."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from builder import resources
from builder.oci.registry import Registry
from builder.recipe.bundle import kept_bundle
from builder.sdist import Workshop

if TYPE_CHECKING:
    from collections.abc import Mapping

    from builder.debian.archive import Debian
    from builder.engine import Engine
    from builder.index.client import Index
    from builder.layers import LayerStore
    from builder.pipeline.locks import LockKeeper
    from builder.pipeline.schedule import Walk
    from builder.pipeline.settings import Settings
    from builder.pipeline.sharing import SharedLayers
    from builder.verify import ReportStore


@dataclass(frozen=True, kw_only=True)
class Site:
    """What the stages work with: the outer world by its four doors, and rtbuild's own stores."""

    settings: Settings
    registry: Registry
    debian: Debian
    index: Index
    keepers: Mapping[str, LockKeeper]
    probe: bytes = field(default_factory=lambda: kept_bundle(resources.cache()))
    """``cudnn-verify``, the one file."""
    layers: LayerStore
    reports: ReportStore
    engine: Engine | None = None
    shared: SharedLayers | None = None
    """Where layers are looked for that this machine has not made."""
    leaving: SharedLayers | None = None
    """Where layers are left for others: beside the images that are pushed."""
    writing: Registry = field(default_factory=Registry.to_write)
    """The door to repositories that are pushed to, and never to a mirror."""

    def workshop(self, walk: Walk) -> Workshop:
        """Where a cell's wheels are built from sources."""
        return Workshop(
            debian=self.debian, cache=self.settings.cache, cancel=walk.cancel, progress=walk.progress
        )
