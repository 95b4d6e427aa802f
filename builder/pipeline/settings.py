"""The settings of a run, as one frozen value."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from builder import resources
from builder.model import Cell


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How to walk. The defaults are those of ``rtbuild build`` without options."""

    jobs: int = field(default_factory=lambda: max(1, min(4, os.cpu_count() or 1)))
    """Cells at a time."""
    locked: bool = False
    """Refuse a lock that is missing or stale, instead of bringing it up to date."""
    upgrade: bool | frozenset[str] = False
    """Lock anew: all, or only these packages."""
    refuse: bool = True
    """Stop cells that the compatibility rules call impossible before anything is built."""
    engine: bool = True
    """Put images into a Docker Engine's store, and verify them there."""
    no_cache: bool = False
    """Build anew even if an image with the same inputs is there."""
    verify: bool = True
    again: bool = False
    """Run the probe even if there is a report about the same content, probe, GPUs and driver."""
    gpus: Literal["auto"] | bool = "auto"
    cache: Path = field(default_factory=resources.cache)
    layer_limit: int = 50_000_000_000
    """Bytes that ready-made layers may take in the cache; the least recently used go first."""
    results: Path = Path("results")
    mirrors: Mapping[str, str] = field(default_factory=dict)
    context: str | None = None
    source: str | None = None
    """The staging repository that images to verify are pulled from; None for those in the engine's store."""
    share_reports: bool = True
    """Attach reports to the staged image that they are about."""
    remove: bool = False
    """Remove from the engine's store what was pulled for its verification."""
    builder: str | None = None
    """A buildx builder other than the engine's own; what it built is loaded into the engine."""
    push: str | None = None
    """The repository to which every image that was built is pushed, under an unlisted tag."""
    output: Path | None = None
    """Where images are written as an OCI layout, without an engine."""
    layers_from: str | None = None
    """The repository that is searched for ready-made layers. None: they are made here, also for ``push``."""
    layers_key: str | None = None
    """The public key whose signature on a layer there counts: a file, or a key service's URI."""
    key: str | None = None
    """The key that signs what is pushed: images, and layers for others; or the reports of a verification."""
    built_by: tuple[str, ...] = ()
    """Public keys: who may have built an image that ``source`` has and this machine did not make."""
    cache_from: tuple[str, ...] = ()
    """Where buildx takes its own cache from, in its own words: ``type=registry,ref=…``."""
    cache_to: tuple[str, ...] = ()
    repository: str = "rtbuild"
    """Images are called ``<repository>/<matrix>:<cell id>``."""

    def image_name(self, cell: Cell) -> str:
        return f"{self.repository}/{cell.matrix}:{cell.id}"
