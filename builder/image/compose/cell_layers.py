"""The layers of a lock, of wheels and base: which of them somebody has, and the making of the others.

They are made while the files that they are made of still arrive.
"""

import heapq
import json
import os
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from builder.core.digests import digest_of
from builder.core.documents import read_file
from builder.core.errors import CancelledError, CellError, RegistryError
from builder.core.items import WorkSpan
from builder.core.model import Cell, Pinned, RegistryBase, RootfsBase, StandalonePython, Wheel
from builder.image.compose.systems import PYTHON_FORMAT, rootfs_key
from builder.image.layers import (
    LAYOUT,
    MEDIA_TYPES,
    NAMED_FOR_PYTHON,
    Layer,
    LayerStore,
    Lease,
    Tree,
    check_python,
    check_tags,
    codec,
    obtain_layer,
    open_layer,
    refuse_collisions,
    tar_layer,
)
from builder.image.layers import style as launcher_style
from builder.image.recipe import LEFT_OUT, USUAL_PATH, pip_of
from builder.plan.lock import Group, groups_of, stands_alone
from builder.sources.oci import Registry, blobs_of, parse_config

_SLIM = digest_of(LEFT_OUT).removeprefix("sha256:")[:8]
"""The rule for files that are left out, as a part of layers' keys."""
_OCI_LAYER = "application/vnd.oci.image.layer.v1.tar"
_LAYER_TYPES = {
    **{media_type: media_type for media_type in (_OCI_LAYER, *MEDIA_TYPES.values())},
    "application/vnd.docker.image.rootfs.diff.tar.gzip": MEDIA_TYPES["gzip"],
    "application/vnd.docker.image.rootfs.diff.tar.zstd": MEDIA_TYPES["zstd"],
    "application/vnd.docker.image.rootfs.diff.tar": _OCI_LAYER,
}
"""Docker's names for layers and OCI's: the bytes, and so the digests, are the same."""


@dataclass(frozen=True, kw_only=True)
class BaseLayers:
    """The base of an image: its layers, lowest first, and its image config."""

    layers: tuple[Layer, ...]
    config: Mapping[str, Any]

    @property
    def environment(self) -> dict[str, str]:
        """The variables that it gives to whatever runs in it."""
        return dict(pair.partition("=")[::2] for pair in (self.config.get("config") or {}).get("Env") or ())


@dataclass(frozen=True, kw_only=True)
class SystemLayers:
    """Layers of packages that were installed in a base, lowest first, with their entries in the history."""

    layers: tuple[Layer, ...] = ()
    history: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The layers of a lock: those that are there, and those to be made of which wheels."""

    pinned: Pinned
    lease: Lease
    groups: tuple[Group, ...]
    """Lowest layer first: each large wheel alone, in the order of :func:`groups_of`, then all small ones
    together. Wheels of a list that is installed as it stands are in pip's order, by which the last one wins:
    see :mod:`builder.image.layers.convert`."""
    known: Mapping[Group, Layer]
    base: BaseLayers = field(default=BaseLayers(layers=(), config={}))
    """Without layers as long as they are not known: those of a registry's base come with the build."""
    interpreter: tuple[Layer, ...] = ()
    """The layer of a standalone Python, if the lock has one and its layer is known."""

    @property
    def missing(self) -> tuple[Wheel, ...]:
        """The wheels that are needed, those of the lowest layer first."""
        return tuple(wheel for group in self.groups if group not in self.known for wheel in group)

    @property
    def wheels(self) -> tuple[Layer, ...]:
        """The layers of the wheels, lowest first, once all are known."""
        return tuple(self.known[group] for group in self.groups)

    @property
    def every(self) -> tuple[Layer, ...]:
        """The layers that are known and found by their keys: all but those of a registry's base."""
        rootfs = self.base.layers if isinstance(self.pinned.base, RootfsBase) else ()
        return (*self.known.values(), *rootfs, *self.interpreter)

    @property
    def stacked(self) -> tuple[Layer, ...]:
        """The layers of wheels and base, lowest first, once all are known.

        A rootfs stands above the large wheels: an engine unpacks along the chain of layers, and more images
        have the wheels in common than the base. Below ``/opt`` it holds nothing, so the tree is the same
        (:func:`refuse_hidden` refuses another). A registry's base is lowest, where engines
        look for it. A standalone Python comes right after the base.
        """
        below = self.base_at
        return (*self.wheels[:below], *self.base.layers, *self.interpreter, *self.wheels[below:])

    @property
    def base_at(self) -> int:
        """How many of the groups are below the base."""
        if not isinstance(self.pinned.base, RootfsBase):
            return 0
        return sum(map(stands_alone, self.groups))


def plan(pinned: Pinned, lease: Lease) -> Plan:
    """Look for every layer of ``pinned``; nothing is made."""
    for wheel in pinned.wheels:
        check_tags(wheel, pinned.cell)
    groups, cell = groups_of(pinned), pinned.cell
    base_keys = [rootfs_key(pinned.base, cell)] if isinstance(pinned.base, RootfsBase) else []
    python_keys = [python_key(pinned.python, cell)] if pinned.python is not None else []
    with ThreadPoolExecutor(8 if lease.remote else 1, thread_name_prefix="look") as pool:
        wanted = {group: pool.submit(lease.look, layer_keys_of(group, pinned)) for group in groups}
        rootfs = pool.submit(lease.look, base_keys)
        python = pool.submit(lease.look, python_keys)
        found = {group: future.result() for group, future in wanted.items()}
    planned = Plan(
        pinned=pinned,
        lease=lease,
        groups=groups,
        known={group: one for group, one in found.items() if one is not None},
        interpreter=tuple(filter(None, [python.result()])),
    )
    system = rootfs.result()
    return planned if system is None else replace(planned, base=rootfs_base(system, cell))


def rootfs_base(layer: Layer, cell: Cell) -> BaseLayers:
    operating_system, _, architecture = cell.platform.partition("/")
    # BuildKit's setting for an image that starts `FROM scratch`, as the Dockerfile of a recipe does.
    settings = {"Env": [f"PATH={USUAL_PATH}"]}
    config = {"architecture": architecture, "os": operating_system, "config": settings}
    return BaseLayers(layers=(layer,), config=config)


def ready_wheels(pinned: Pinned, store: LayerStore) -> frozenset[str]:
    """The wheels, by sha256, whose layers seem to be in the store: for an estimate, nothing is kept."""
    ready = [group for group in groups_of(pinned) if any(map(store.has, layer_keys_of(group, pinned)))]
    return frozenset(wheel.sha256 for group in ready for wheel in group)


def python_key(python: StandalonePython, cell: Cell) -> str:
    """The key of the layer of a standalone Python: the archive, and the form in which it is laid out."""
    return f"python{PYTHON_FORMAT}-{python.sha256}-{codec(cell.options.compression)}"


def python_title(python: StandalonePython) -> str:
    """The title of that layer: ``CPython 3.12.16, standalone``."""
    return f"CPython {python.version}, standalone"


def layer_keys_of(wheels: Group, pinned: Pinned) -> list[str]:
    """The keys of a layer: first for wheels without scripts, then with all that scripts depend on."""
    style = launcher_style(pip_of(pinned).version)
    names_python = any(wheel.name in NAMED_FOR_PYTHON for wheel in wheels)
    variant = f"{style}-py{pinned.cell.python}" if names_python else style
    shas = [wheel.sha256 for wheel in wheels]
    alone = len(shas) == 1
    made_of = f"wheel-{shas[0]}" if alone else f"wheels-{digest_of(shas).removeprefix('sha256:')}"
    # Whatever the rule leaves out of these: if that is nothing, both keys lead to the same blob.
    slim = f"-slim{_SLIM}" if pinned.cell.options.slim else ""
    end = f"v{LAYOUT}{slim}-{codec(pinned.cell.options.compression)}"
    return [f"{made_of}-{end}", f"{made_of}-{variant}-{end}"]


def title_of(group: Group) -> str:
    return f"{group[0].name} {group[0].version}" if len(group) == 1 else f"{len(group)} small wheels"


def installed(path: Path, wheel: Wheel, pinned: Pinned) -> Tree:
    """The wheel, open, with the files that installing it would leave in the lock's image."""
    cell, style = pinned.cell, launcher_style(pip_of(pinned).version)
    return Tree(path, wheel, python=cell.python, style=style, slim=cell.options.slim)


@dataclass(kw_only=True)
class LayerBuild:
    """Makes them within a ``with`` block: :meth:`wheel` for each file as it arrives, then :meth:`finish`.

    Both raise what went wrong with a layer so far, and an error that leaves the block ends the conversions:
    :class:`~builder.core.errors.CellError` for a wheel that is damaged, does not fit the cell, or fights with
    another over a path; :class:`~builder.core.errors.MissingToolError` if the disk is full;
    :class:`~builder.core.errors.CancelledError` soon after ``cancel`` is set.
    """

    given: Plan
    """All that is known; the rest is missing."""
    rootfs: Callable[[RootfsBase], Path]
    """Makes the tar of a rootfs base; called at once, in a thread, if its layer is missing."""
    python: Path | None = None
    """The tar of a standalone Python, if its layer is missing."""
    registry: Registry | None = None
    """Gives the layers of a registry's base."""
    workers: int = field(default_factory=lambda: max(2, len(os.sched_getaffinity(0)) // 2))
    """Wheels that are converted at a time; each takes up to two cores."""
    progress: Callable[[str, int, int], None] = lambda _title, _done, _total: None
    """Told of each layer's title, and how many bytes of how many are done."""
    warn: Callable[[str], None] = lambda _text: None
    """Told of files that two wheels bring, where either will do."""
    cancel: threading.Event = field(default_factory=threading.Event)
    span: WorkSpan = nullcontext
    ready: Callable[[int, tuple[Layer, ...]], None] = lambda _place, _layers: None
    """Told of each part of the image as soon as its layers are known and at hand, from the thread that made
    it: one layer of wheels, or all of the base. A part's place in the image is from 0, the lowest, and its
    layers are lowest first."""
    lowest_first: bool = False
    """Whether whoever is told can do more with the lowest layers than with others."""

    def __post_init__(self) -> None:
        self._failed = threading.Event()
        self._guard = threading.Lock()
        self._missing = [group for group in self.given.groups if group not in self.given.known]
        self._paths: dict[str, Path] = {}
        self._waiting: list[tuple[int, Group]] = []  # a heap
        self._known = dict(self.given.known)
        self._interpreter = self.given.interpreter
        self._futures: list[Future[None]] = []
        self._pool = ThreadPoolExecutor(max_workers=self.workers, thread_name_prefix="layers")
        self._base_pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="base")
        self._base: Future[BaseLayers]

    def __enter__(self) -> Self:
        for group, layer in self.given.known.items():
            self._tell(group, layer)
        self._base = self._base_pool.submit(self._layers_of_base)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self._failed.set()
        for pool in (self._pool, self._base_pool):
            pool.shutdown(wait=True, cancel_futures=kind is not None)

    def wheel(self, wheel: Wheel, path: Path) -> None:
        """The file of a wheel is there: the layer is made whose last one it is. From any thread."""
        with self._guard:
            self._paths[wheel.sha256] = path
            for group in self._missing[:]:
                if all(one.sha256 in self._paths for one in group):
                    self._missing.remove(group)
                    heapq.heappush(self._waiting, (self._rank(group), group))
                    self._futures.append(self._pool.submit(self._next))
        self._raise_failure()

    def finish(self) -> Plan:
        """The plan with every layer known, once the files of all missing wheels are there."""
        with self.span("wait for layers"):
            wait(self._all, return_when=FIRST_EXCEPTION)
        self._raise_failure()
        for one in self._known.values():
            for name, requires in one.details["requires_python"].items():
                check_python(name, requires, self.given.pinned.cell)
        made = replace(self.given, known=self._known, base=self._base.result(), interpreter=self._interpreter)
        listings = [json.loads(one.files or made.lease.files(one.key)) for one in made.wheels]
        for text in refuse_collisions(listings, as_listed=made.pinned.cell.dependencies == "listed"):
            self.warn(text)
        return made

    @property
    def _all(self) -> list[Future[Any]]:
        return [*self._futures, self._base]

    def _rank(self, group: Group) -> int:
        """The lowest first if that is asked for; else the costliest, or the last one would run alone."""
        return self.given.groups.index(group) if self.lowest_first else -sum(one.size for one in group)

    def _tell(self, group: Group, layer: Layer) -> None:
        """The base is a part, too, between those that are below and above it."""
        place = self.given.groups.index(group)
        self.ready(place + (place >= self.given.base_at), (layer,))

    def _raise_failure(self) -> None:
        for future in self._all:
            if future.done():
                future.result()

    def _meter(self, title: str, total: int) -> Callable[[int], None]:
        """A function that takes how many bytes more are done."""
        done = 0

        def advance(size: int) -> None:
            nonlocal done
            if self.cancel.is_set() or self._failed.is_set():
                raise CancelledError(f"{title} was not finished")
            done += size
            self.progress(title, done, total)

        return advance

    def _of_tar(self, key: str, title: str, tar: Path) -> Layer:
        lease, compression = self.given.lease, self.given.pinned.cell.options.compression
        advance = self._meter(title, tar.stat().st_size)
        with self.span(f"layer of {title}"):
            return lease.obtain(key, lambda target: tar_layer(tar, target, title, compression, advance))

    def _layers_of_base(self) -> BaseLayers:
        pinned = self.given.pinned
        if not self._interpreter and self.python is not None and pinned.python is not None:
            key = python_key(pinned.python, pinned.cell)
            self._interpreter = (self._of_tar(key, python_title(pinned.python), self.python),)
        base = self._system()
        self.ready(self.given.base_at, (*base.layers, *self._interpreter))
        return base

    def _system(self) -> BaseLayers:
        pinned = self.given.pinned
        if self.given.base.layers:
            return self.given.base
        if not isinstance(pinned.base, RootfsBase):
            if self.registry is None:
                raise TypeError("a registry's base comes from somewhere")
            with self.span(f"fetch {pinned.base.reference}"):
                return registry_layers(pinned.base, self.registry, self.given.lease)
        title = f"rootfs {pinned.base.suite}"
        with self.span(title):
            tar = self.rootfs(pinned.base)
            refuse_hidden(tar, pinned.base)
        return rootfs_base(self._of_tar(rootfs_key(pinned.base, pinned.cell), title, tar), pinned.cell)

    def _next(self) -> None:
        """Make the first of the waiting layers, unless another process makes it meanwhile."""
        with self._guard:
            _, wheels = heapq.heappop(self._waiting)
        given = self.given
        title, keys, cell = title_of(wheels), layer_keys_of(wheels, given.pinned), given.pinned.cell
        with self.span(f"layer of {title}"), ExitStack() as files:
            trees = [
                files.enter_context(installed(self._paths[wheel.sha256], wheel, given.pinned))
                for wheel in wheels
            ]
            layer = obtain_layer(
                trees,
                given.lease,
                # Without scripts the layer is the same for every Python and pip.
                keys[-1] if any(tree.scripts for tree in trees) else keys[0],
                title,
                compression=cell.options.compression,
                as_listed=cell.dependencies == "listed",
                advance=self._meter(title, sum(tree.size for tree in trees)),
            )
        self._known[wheels] = layer
        self._tell(wheels, layer)


def refuse_hidden(tar: Path, base: RootfsBase) -> None:
    """Raise CellError for a system that owns anything at or below ``/opt/runtime``, where the wheels are."""
    with open_layer(tar, _OCI_LAYER) as archive:
        for entry in archive:
            folder = entry.kind == "folder" and entry.mode & 0o7777 == 0o755
            if f"{entry.name}/".startswith("opt/runtime/") or (entry.name == "opt" and not folder):
                raise CellError(
                    f"Debian {base.suite} as it is locked holds /{entry.name} ({entry.kind}, mode "
                    f"{entry.mode:o}), which would hide the wheels' files there",
                    hint="leave the package out that brings it; in an image, /opt/runtime is the wheels' own",
                )


def registry_layers(base: RegistryBase, registry: Registry, lease: Lease) -> BaseLayers:
    """A registry image's layers, fetched if the store lacks them.

    Raises :class:`~builder.core.errors.RegistryError` if what came is not what the digests say.
    """

    def obtain(layer: Layer) -> Layer:
        def fetch(target: Path) -> Layer:
            registry.fetch_blob(base.reference, layer.digest, target)
            return layer

        return lease.obtain(f"blob-{layer.digest.removeprefix('sha256:')}", fetch)

    manifest = registry.manifest(f"{base.reference.partition('@')[0]}@{base.digest}").document
    try:
        (digest, size), *_ = blobs_of(manifest)
        obtain(
            Layer(title="image config", digest=digest, diff_id=digest, size=size, unpacked=0, media_type="")
        )
        config = parse_config(read_file(lease.blob(digest)))
        pairs = zip(manifest["layers"], config["rootfs"]["diff_ids"], strict=True)
        layers = [_described(base, described, diff_id) for described, diff_id in pairs]
    except (LookupError, TypeError, ValueError) as problem:
        raise RegistryError(f"{base.reference} is no image that can be read: {problem!r}") from problem
    return BaseLayers(layers=tuple(map(obtain, layers)), config=config)


def _described(base: RegistryBase, described: Mapping[str, Any], diff_id: str) -> Layer:
    media_type = _LAYER_TYPES.get(described["mediaType"])
    if media_type is None or described.get("urls"):
        raise CellError(
            f"{base.reference} has a layer of type {described['mediaType']}, which cannot be taken over",
            hint="use another base image",
        )
    known = {"digest": described["digest"], "size": described["size"], "unpacked": 0}
    return Layer(title=base.reference, diff_id=diff_id, media_type=media_type, **known)
