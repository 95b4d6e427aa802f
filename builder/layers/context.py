"""The one function that the pipeline calls: a lock's wheels as a build context."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from builder.layers.store import LayerStore
    from builder.layers.types import BaseSource, Progress, WheelsContext
    from builder.model import Pinned


def wheels_context(
    pinned: Pinned,
    *,
    store: LayerStore,
    wheel_paths: Mapping[str, Path],
    rootfs_tar: Path | None = None,
    source: BaseSource | None = None,
    workers: int = 2,
    progress: Progress | None = None,
) -> WheelsContext:
    """Turn ``pinned`` into an OCI layout for ``--build-context wheels=oci-layout://…``.

    ``wheel_paths`` maps each wheel's sha256 to its file. A rootfs cell needs ``rootfs_tar``, a registry
    cell ``source``. Raises :class:`~builder.errors.CellError` for a wheel that is damaged, does not fit the
    cell, or
    fights with another over a path; :class:`~builder.errors.MissingToolError` where the disk is full.
    """
    raise NotImplementedError
