"""The one function that the pipeline calls: a lock's wheels as a build context."""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

from builder.errors import UsageError
from builder.layers.base import registry_layers, rootfs_base
from builder.layers.compose import TAG, compose
from builder.layers.stack import check_collisions, make_missing, plan
from builder.layers.types import BaseLayers, WheelsContext
from builder.model import RegistryBase

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from builder.layers.stack import Plan
    from builder.layers.store import LayerStore
    from builder.layers.types import BaseSource, Layer, Progress
    from builder.model import Pinned


def wheels_context(
    pinned: Pinned,
    *,
    store: LayerStore,
    wheel_paths: Mapping[str, Path],
    rootfs_tar: Path | None = None,
    source: BaseSource | None = None,
    engine_has_base: bool = False,
    workers: int = 2,
    progress: Progress | None = None,
    cancel: threading.Event | None = None,
    planned: Plan | None = None,
    ready: Callable[[Layer], None] | None = None,
) -> WheelsContext:
    """Turn ``pinned`` into an OCI layout for ``--build-context wheels=oci-layout://…``.

    ``wheel_paths`` maps each wheel's sha256 to its file. A rootfs cell needs ``rootfs_tar``, a registry
    cell ``source``. ``planned`` says which layers are known already: then only the files of the others are
    needed, and its lease passes to the context. ``ready`` is told of each layer as soon as it is known, from
    the thread that made it. ``engine_has_base`` promises that the engine's containerd image store holds the
    registry base (``docker pull`` by digest, and keep it): then its layers are not fetched a second time, and
    the layout names them without holding them.

    Raises :class:`~builder.errors.CellError` for a wheel that is damaged, does not fit the cell, or fights
    with another over a path; :class:`~builder.errors.MissingToolError` where the disk is full;
    :class:`~builder.errors.CancelledError` soon after ``cancel`` is set.
    """
    started = time.monotonic()
    with ExitStack() as undo:
        lease = planned.lease if planned is not None else store.lease()
        undo.callback(lease.release)
        begun = planned or plan(pinned, store=store, lease=lease)
        if isinstance(pinned.base, RegistryBase) and source is None:
            raise UsageError(f"{pinned.cell.id} stands on a registry image, and no registry was given")
        made = make_missing(
            begun,
            wheel_paths=wheel_paths,
            rootfs_tar=rootfs_tar,
            workers=workers,
            progress=progress,
            cancel=cancel,
            ready=ready,
        )
        base, fetched = base_of(made, source, fetch=not engine_has_base)
        layers = tuple(made.known[group].record.layer for group in made.groups)
        layout, digest = compose(
            base,
            layers,
            store=store,
            lease=lease,
            check=lambda: check_collisions(made),
            with_base=not (engine_has_base and isinstance(pinned.base, RegistryBase)),
        )
        undo.pop_all()
    new = fetched + sum(one.new for one in made.every)
    return WheelsContext(
        layout=layout,
        tag=TAG,
        digest=digest,
        layers=(*base.layers, *layers),
        made=new,
        reused=len(base.layers) + len(layers) - new,
        seconds=time.monotonic() - started,
        lease=lease,
    )


def base_of(made: Plan, source: BaseSource | None, *, fetch: bool) -> tuple[BaseLayers, int]:
    """The base's layers, and how many of them were fetched now."""
    base = made.pinned.base
    if isinstance(base, RegistryBase):
        assert source is not None  # noqa: S101 - checked by the caller
        return registry_layers(base, source=source, store=made.store, lease=made.lease, fetch=fetch)
    assert made.rootfs is not None  # noqa: S101 - make_missing has made it
    return rootfs_base(made.rootfs.record.layer, made.pinned.cell), 0
