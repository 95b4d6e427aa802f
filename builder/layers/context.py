"""The one function that the pipeline calls: a lock's wheels as a build context."""

from __future__ import annotations

import hashlib
import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from builder.errors import CancelledError, UsageError
from builder.layers import scripts
from builder.layers.archive import Archive
from builder.layers.base import registry_layers, rootfs_layers
from builder.layers.codec import codec
from builder.layers.collide import Listing, refuse_collisions
from builder.layers.compose import TAG, compose
from builder.layers.convert import LAYOUT, Source, write_layer
from builder.layers.fits import check_python, check_tags
from builder.layers.store import Record
from builder.layers.types import MEDIA_TYPES, BaseLayers, Layer, WheelsContext
from builder.layers.wheel import tree
from builder.model import RegistryBase, canonical_json

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from builder.layers.store import LayerStore, Lease
    from builder.layers.types import BaseSource, Progress
    from builder.model import Cell, Pinned, Wheel

LARGE = 8 << 20
"""Bytes of a wheel file from which it gets a layer of its own. By the size in the lock, so that which layers
an image has follows from the lock alone."""
MAX_LARGE = 64
"""Engines take 127 layers; base and recipe need some. Beyond this many, the smaller wheels share one."""


@dataclass(frozen=True, kw_only=True)
class _Made:
    """A layer in the store, under its key there."""

    key: str
    record: Record
    new: bool


@dataclass(frozen=True, kw_only=True)
class _Work:
    """What the conversions of one call have in common."""

    cell: Cell
    store: LayerStore
    lease: Lease
    wheel_paths: Mapping[str, Path]
    style: scripts.Style
    progress: Progress | None
    cancel: threading.Event
    """Set by whoever called, who wants it all to end."""
    failed: threading.Event = field(default_factory=threading.Event)
    """Set when one layer failed, so that the others need not be finished."""

    def meter(self, title: str, total: int) -> Callable[[int], None]:
        """A function that takes how many bytes more are done."""
        done = 0

        def advance(size: int) -> None:
            nonlocal done
            if self.cancel.is_set() or self.failed.is_set():
                raise CancelledError(f"{title} was not finished")
            done += size
            if self.progress is not None:
                self.progress(title, done, total)

        return advance


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
) -> WheelsContext:
    """Turn ``pinned`` into an OCI layout for ``--build-context wheels=oci-layout://…``.

    ``wheel_paths`` maps each wheel's sha256 to its file. A rootfs cell needs ``rootfs_tar``, a registry
    cell ``source``. ``engine_has_base`` promises that the engine's containerd image store holds the registry
    base (``docker pull`` by digest, and keep it): then its layers are not fetched a second time, and the
    layout names them without holding them.

    Raises :class:`~builder.errors.CellError` for a wheel that is damaged, does not fit the cell, or fights
    with another over a path; :class:`~builder.errors.MissingToolError` where the disk is full;
    :class:`~builder.errors.CancelledError` soon after ``cancel`` is set.
    """
    started = time.monotonic()
    cell = pinned.cell
    for wheel in pinned.wheels:
        check_tags(wheel, cell)
    with ExitStack() as undo:
        lease = store.lease()
        undo.callback(lease.release)
        work = _Work(
            cell=cell,
            store=store,
            lease=lease,
            wheel_paths=wheel_paths,
            style=scripts.style(_pip(pinned)),
            progress=progress,
            cancel=cancel or threading.Event(),
        )
        with ThreadPoolExecutor(max_workers=workers, thread_name_prefix="layers") as pool:
            # The costliest first, or the last one would run alone; the results are in the lock's order.
            groups = _groups(pinned.wheels)
            order = sorted(groups, key=lambda group: -sum(wheel.size for wheel in group))
            futures = {group: pool.submit(_layer, group, work) for group in order}
            try:
                base, fetched = _base(pinned, work, rootfs_tar, source, fetch=not engine_has_base)
                for future in as_completed(futures.values()):
                    future.result()
            except BaseException:
                work.failed.set()
                pool.shutdown(wait=False, cancel_futures=True)
                raise
            made = [futures[group].result() for group in groups]
        for one in made:
            for name, requires in one.record.details["requires_python"].items():
                check_python(name, requires, cell)
        layers = tuple(one.record.layer for one in made)
        layout, digest = compose(
            base,
            layers,
            store=store,
            lease=lease,
            check=lambda: refuse_collisions(_listings(made, store)),
            with_base=not (engine_has_base and isinstance(pinned.base, RegistryBase)),
        )
        undo.pop_all()
    new = fetched + sum(one.new for one in made)
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


def _groups(wheels: Sequence[Wheel]) -> list[tuple[Wheel, ...]]:
    """Which wheels share a layer: each large one alone, in the lock's order, then all small ones together."""
    large = sorted((wheel for wheel in wheels if wheel.size >= LARGE), key=lambda wheel: -wheel.size)[
        :MAX_LARGE
    ]
    small = tuple(sorted(wheel for wheel in wheels if wheel not in large))
    groups: list[tuple[Wheel, ...]] = [(wheel,) for wheel in wheels if wheel in large]
    return [*groups, small] if small else groups


def _pip(pinned: Pinned) -> str:
    for wheel in pinned.wheels:
        if wheel.name == "pip":
            return wheel.version
    raise UsageError(
        f"the lock of {pinned.cell.id} has no pip, which every image carries",
        hint="lock the cell again",
    )


def _base(
    pinned: Pinned, work: _Work, rootfs_tar: Path | None, source: BaseSource | None, *, fetch: bool
) -> tuple[BaseLayers, int]:
    if isinstance(pinned.base, RegistryBase):
        if source is None:
            raise UsageError(f"{pinned.cell.id} stands on a registry image, and no registry was given")
        return registry_layers(pinned.base, source=source, store=work.store, lease=work.lease, fetch=fetch)
    if rootfs_tar is None:
        raise UsageError(f"{pinned.cell.id} stands on a rootfs, and none was given")
    return rootfs_layers(
        rootfs_tar,
        pinned.cell,
        pinned.base,
        store=work.store,
        lease=work.lease,
        advance=work.meter(f"rootfs {pinned.base.suite}", rootfs_tar.stat().st_size),
    )


def _layer(wheels: tuple[Wheel, ...], work: _Work) -> _Made:
    """The layer of these wheels, out of the store or made now."""
    keys = _keys(wheels, work)
    for key in keys:
        found = work.store.find(key, work.lease)
        if found is not None:
            return _Made(key=key, record=found, new=False)
    with ExitStack() as files:
        sources = [_open(wheel, work, files) for wheel in wheels]
        # Without scripts the layer is the same for every Python and pip.
        key = keys[-1] if any(source.tree.scripts for source in sources) else keys[0]
        record, new = work.store.obtain(key, work.lease, lambda target: _make(sources, target, work))
    return _Made(key=key, record=record, new=new)


def _keys(wheels: tuple[Wheel, ...], work: _Work) -> list[str]:
    """What the layer is looked up by: first for wheels without scripts, then with what scripts depend on."""
    names_python = any(scripts.depends_on_python(wheel.name) for wheel in wheels)
    variant = f"{work.style}-py{work.cell.python}" if names_python else work.style
    if len(wheels) == 1:
        made_of = f"wheel-{wheels[0].sha256}"
    else:
        shas = canonical_json([wheel.sha256 for wheel in wheels])
        made_of = f"wheels-{hashlib.sha256(shas).hexdigest()}"
    end = f"v{LAYOUT}-{codec(work.cell.options.compression)}"
    return [f"{made_of}-{end}", f"{made_of}-{variant}-{end}"]


def _open(wheel: Wheel, work: _Work, files: ExitStack) -> Source:
    archive = files.enter_context(Archive(work.wheel_paths[wheel.sha256]))
    return Source(archive=archive, tree=tree(archive, wheel, python=work.cell.python, style=work.style))


def _make(sources: Sequence[Source], target: Path, work: _Work) -> Record:
    compression = work.cell.options.compression
    first = sources[0].tree.wheel
    title = f"{first.name} {first.version}" if len(sources) == 1 else f"{len(sources)} small wheels"
    total = sum(source.tree.size for source in sources)
    with target.open("wb") as blob:
        written, listing = write_layer(sources, blob, compression, work.meter(title, total))
    return Record(
        layer=Layer(title=title, media_type=MEDIA_TYPES[compression], **vars(written)),
        details={
            "requires_python": {source.tree.wheel.name: source.tree.requires_python for source in sources}
        },
        files=canonical_json(listing),
    )


def _listings(made: Sequence[_Made], store: LayerStore) -> list[Listing]:
    return [json.loads(store.files(one.key)) for one in made]
