"""Which layers a lock's wheels are, and how those come to be that nobody has yet."""

from __future__ import annotations

import hashlib
import json
import threading
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from builder.digests import canonical_json, digest_of
from builder.errors import CancelledError, UsageError
from builder.layers import scripts
from builder.layers.archive import Archive
from builder.layers.base import registry_layers, rootfs_base, rootfs_key, rootfs_layer
from builder.layers.codec import codec
from builder.layers.collide import refuse_collisions
from builder.layers.convert import LAYOUT, InstalledWheel, write_layer
from builder.layers.excerpt import Excerpt, keep_excerpt
from builder.layers.fits import check_python, check_tags
from builder.layers.store import Record
from builder.layers.types import MEDIA_TYPES, Layer
from builder.layers.wheel import tree
from builder.model import RootfsBase
from builder.recipe.slim import LEFT_OUT

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from builder.layers.store import LayerStore, Lease
    from builder.layers.types import BaseLayers, BaseSource, Progress
    from builder.model import Pinned, Wheel

_SLIM = digest_of(LEFT_OUT).removeprefix("sha256:")[:8]
"""The rule of what is left out, as part of what a layer is made of."""
LARGE = 8 << 20
"""Bytes of a wheel file from which it gets a layer of its own. By the size in the lock, so that which layers
an image has follows from the lock alone."""
MAX_LARGE = 64
"""Engines take 127 layers; base and recipe need some. Beyond this many, the smaller wheels share one."""

Group = tuple["Wheel", ...]
"""Wheels that share a layer."""


class Elsewhere(Protocol):
    """Where ready-made layers may be had that this machine has not made, such as a registry."""

    def find(self, key: str, lease: Lease) -> Record | None:
        """The layer made of ``key``, a key of the store; None where it is not there either."""
        ...


@dataclass(frozen=True, kw_only=True)
class Known:
    """A layer under its key. ``new``: it was made now."""

    key: str
    record: Record
    new: bool = False


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What of a lock is a layer already, and what has to be made of which wheels."""

    pinned: Pinned
    store: LayerStore
    lease: Lease
    groups: tuple[Group, ...]
    """Lowest layer first: each large wheel alone, in the order of :func:`_shared_first`, then all small ones
    together. Wheels of a list that is installed as it stands are in pip's order, by which the last one wins:
    see :mod:`builder.layers.collide`."""
    known: Mapping[Group, Known]
    rootfs: Known | None
    """The base's layer, where the base is a rootfs and its layer is known."""

    @property
    def missing(self) -> tuple[Wheel, ...]:
        """The wheels that are needed, in the lock's order."""
        known = {wheel for group in self.known for wheel in group}
        return tuple(wheel for wheel in self.pinned.wheels if wheel not in known)

    @property
    def every(self) -> tuple[Known, ...]:
        """All layers that are known."""
        return (*self.known.values(), *((self.rootfs,) if self.rootfs else ()))

    def stacked(self, base: Sequence[Layer]) -> tuple[Layer, ...]:
        """The layers of wheels and base, lowest first, once all are known.

        A rootfs stands above the large wheels: an engine unpacks along the chain of layers, and more images
        have the wheels in common than the base. Below ``/opt`` it holds nothing, so the tree is the same
        (:func:`~builder.layers.base.refuse_hidden`). A registry's base is lowest, where engines look for it.
        """
        layers = [self.known[group].record.layer for group in self.groups]
        return (*layers[: self.base_at], *base, *layers[self.base_at :])

    @property
    def base_at(self) -> int:
        """How many of the groups are below the base."""
        if not isinstance(self.pinned.base, RootfsBase):
            return 0
        return sum(len(group) == 1 and group[0].size >= LARGE for group in self.groups)

    @property
    def needs_rootfs(self) -> bool:
        return isinstance(self.pinned.base, RootfsBase) and self.rootfs is None


def plan(pinned: Pinned, *, store: LayerStore, lease: Lease, elsewhere: Elsewhere | None = None) -> Plan:
    """Look for every layer of ``pinned``, first in the store; nothing is made."""
    for wheel in pinned.wheels:
        check_tags(wheel, pinned.cell)

    def look(keys: Sequence[str]) -> Known | None:
        for key in keys:
            found = store.find(key, lease)
            if found is not None:
                return Known(key=key, record=found)
        if elsewhere is not None:
            for key in keys:
                found = elsewhere.find(key, lease)
                if found is not None:
                    return Known(key=key, record=found)
        return None

    groups = _groups(pinned)
    base = [rootfs_key(pinned.base, pinned.cell)] if isinstance(pinned.base, RootfsBase) else []
    with ThreadPoolExecutor(8 if elsewhere else 1, thread_name_prefix="look") as pool:
        wanted = {group: pool.submit(look, _keys(group, pinned)) for group in groups}
        rootfs = pool.submit(look, base)
        found = {group: future.result() for group, future in wanted.items()}
    return Plan(
        pinned=pinned,
        store=store,
        lease=lease,
        groups=groups,
        known={group: one for group, one in found.items() if one is not None},
        rootfs=rootfs.result(),
    )


def ready_wheels(pinned: Pinned, store: LayerStore) -> frozenset[str]:
    """The wheels, by sha256, whose layers seem to be in the store: for an estimate, nothing is kept."""
    ready = [group for group in _groups(pinned) if any(map(store.has, _keys(group, pinned)))]
    return frozenset(wheel.sha256 for group in ready for wheel in group)


@dataclass(frozen=True, kw_only=True)
class _Work:
    """What the conversions of one call have in common."""

    plan: Plan
    wheel_paths: Mapping[str, Path]
    progress: Progress | None
    cancel: threading.Event
    """Set by whoever called, who wants it all to end."""
    ready: Callable[[Layer], None]
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


def make_missing(
    given: Plan,
    *,
    wheel_paths: Mapping[str, Path],
    rootfs_tar: Path | None,
    workers: int = 2,
    progress: Progress | None = None,
    cancel: threading.Event | None = None,
    ready: Callable[[Layer], None] | None = None,
) -> Plan:
    """The plan with every layer of its wheels known, and that of its rootfs where it has one.

    ``ready`` is told of each layer as soon as it is known, from the thread that made it.

    Raises :class:`~builder.errors.CellError` for a wheel that is damaged, does not fit the cell, or fights
    with another over a path; :class:`~builder.errors.MissingToolError` if the disk is full;
    :class:`~builder.errors.CancelledError` soon after ``cancel`` is set.
    """
    if given.needs_rootfs and rootfs_tar is None:
        raise UsageError(f"{given.pinned.cell.id} stands on a rootfs, and none was given")
    work = _Work(
        plan=given,
        wheel_paths=wheel_paths,
        progress=progress,
        cancel=cancel or threading.Event(),
        ready=ready or (lambda _layer: None),
    )
    missing = [group for group in given.groups if group not in given.known]
    # The costliest first, or the last one would run alone.
    missing.sort(key=lambda group: -sum(wheel.size for wheel in group))
    for one in given.every:
        work.ready(one.record.layer)
    with ThreadPoolExecutor(max_workers=workers, thread_name_prefix="layers") as pool:
        futures = {group: pool.submit(_layer, group, work) for group in missing}
        try:
            rootfs = _rootfs(work, rootfs_tar) if given.needs_rootfs and rootfs_tar else given.rootfs
            for future in as_completed(futures.values()):
                future.result()
        except BaseException:
            work.failed.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise
        known = {**given.known, **{group: future.result() for group, future in futures.items()}}
    for one in known.values():
        for name, requires in one.record.details["requires_python"].items():
            check_python(name, requires, given.pinned.cell)
    return replace(given, known=known, rootfs=rootfs)


def base_of(made: Plan, source: BaseSource) -> BaseLayers:
    """The base's layers, in the store: a registry base's are fetched from ``source`` if need be."""
    base = made.pinned.base
    if isinstance(base, RootfsBase):
        if made.rootfs is None:
            raise ValueError("the plan's missing layers were not made")
        return rootfs_base(made.rootfs.record.layer, made.pinned.cell)
    return registry_layers(base, source=source, store=made.store, lease=made.lease)


def check_collisions(given: Plan) -> None:
    """Raise CellError where two wheels of a plan whose layers are all known fight over a path."""
    found = (given.known[group] for group in given.groups)
    listings = [json.loads(one.record.files or given.store.files(one.key)) for one in found]
    refuse_collisions(listings, as_listed=_as_listed(given.pinned))


def _as_listed(pinned: Pinned) -> bool:
    return pinned.cell.dependencies == "listed"


def _groups(pinned: Pinned) -> tuple[Group, ...]:
    wheels = pinned.wheels
    large = sorted((wheel for wheel in wheels if wheel.size >= LARGE), key=lambda wheel: -wheel.size)[
        :MAX_LARGE
    ]
    small = tuple(sorted(wheel for wheel in wheels if wheel not in large))
    alone = [wheel for wheel in wheels if wheel in large]
    if _as_listed(pinned):
        alone.sort(key=lambda wheel: wheel.name, reverse=True)
    else:
        alone.sort(key=_shared_first(pinned))
    groups = tuple((wheel,) for wheel in alone)
    return (*groups, small) if small else groups


def _shared_first(pinned: Pinned) -> Callable[[Wheel], int]:
    """NVIDIA's wheels, which frameworks of one CUDA have in common; others; the frameworks, of which each
    release is another. The order within each of these stays the lock's.
    """
    frameworks = {canonicalize_name(Requirement(text).name) for text in pinned.cell.frameworks}

    def rank(wheel: Wheel) -> int:
        name = canonicalize_name(wheel.name)
        return 0 if name.startswith("nvidia-") else 1 + (name in frameworks)

    return rank


def _pip(pinned: Pinned) -> str:
    for wheel in pinned.wheels:
        if wheel.name == "pip":
            return wheel.version
    raise UsageError(
        f"the lock of {pinned.cell.id} has no pip, which every image carries",
        hint="lock the cell again",
    )


def _rootfs(work: _Work, tar: Path) -> Known:
    base, plan_ = work.plan.pinned.base, work.plan
    assert isinstance(base, RootfsBase)  # noqa: S101 - see Plan.needs_rootfs
    key = rootfs_key(base, plan_.pinned.cell)
    advance = work.meter(f"rootfs {base.suite}", tar.stat().st_size)
    record, new = plan_.store.obtain(
        key, plan_.lease, lambda target: rootfs_layer(tar, target, base, plan_.pinned.cell, advance)
    )
    work.ready(record.layer)
    return Known(key=key, record=record, new=new)


def _layer(wheels: Group, work: _Work) -> Known:
    """The layer of these wheels, made now or by another meanwhile."""
    keys, given = _keys(wheels, work.plan.pinned), work.plan
    with ExitStack() as files:
        sources = [_open(wheel, work, files) for wheel in wheels]
        # Without scripts the layer is the same for every Python and pip.
        key = keys[-1] if any(source.tree.scripts for source in sources) else keys[0]
        excerpt = Excerpt()
        record, new = given.store.obtain(
            key, given.lease, lambda target: _make(sources, target, work, excerpt)
        )
    if new:
        keep_excerpt(record.layer, excerpt, store=given.store, lease=given.lease)
    work.ready(record.layer)
    return Known(key=key, record=record, new=new)


def _keys(wheels: Group, pinned: Pinned) -> list[str]:
    """What the layer is looked up by: first for wheels without scripts, then with what scripts depend on."""
    style = scripts.style(_pip(pinned))
    names_python = any(scripts.depends_on_python(wheel.name) for wheel in wheels)
    variant = f"{style}-py{pinned.cell.python}" if names_python else style
    if len(wheels) == 1:
        made_of = f"wheel-{wheels[0].sha256}"
    else:
        shas = canonical_json([wheel.sha256 for wheel in wheels])
        made_of = f"wheels-{hashlib.sha256(shas).hexdigest()}"
    # Whatever the rule leaves out of these: where it is nothing, both keys lead to the same blob.
    slim = f"-slim{_SLIM}" if pinned.cell.options.slim else ""
    end = f"v{LAYOUT}{slim}-{codec(pinned.cell.options.compression)}"
    return [f"{made_of}-{end}", f"{made_of}-{variant}-{end}"]


def _open(wheel: Wheel, work: _Work, files: ExitStack) -> InstalledWheel:
    pinned = work.plan.pinned
    archive = files.enter_context(Archive(work.wheel_paths[wheel.sha256]))
    style = scripts.style(_pip(pinned))
    cell = pinned.cell
    installed = tree(archive, wheel, python=cell.python, style=style, slim=cell.options.slim)
    return InstalledWheel(archive=archive, tree=installed)


def _make(sources: Sequence[InstalledWheel], target: Path, work: _Work, excerpt: Excerpt) -> Record:
    compression = work.plan.pinned.cell.options.compression
    first = sources[0].tree.wheel
    title = f"{first.name} {first.version}" if len(sources) == 1 else f"{len(sources)} small wheels"
    total = sum(source.tree.size for source in sources)
    with target.open("wb") as blob:
        written, listing = write_layer(
            sources,
            blob,
            compression,
            work.meter(title, total),
            as_listed=_as_listed(work.plan.pinned),
            excerpt=excerpt,
        )
    return Record(
        layer=Layer(title=title, media_type=MEDIA_TYPES[compression], **vars(written)),
        details={
            "requires_python": {source.tree.wheel.name: source.tree.requires_python for source in sources}
        },
        files=canonical_json(listing),
    )
