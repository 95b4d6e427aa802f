"""The stations before a build: what it needs is fetched, and made into layers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from builder.layers.context import wheels_context
from builder.layers.rootfs import cached_rootfs
from builder.layers.stack import plan
from builder.model import RegistryBase, RootfsBase
from builder.pipeline.events import Stage
from builder.pipeline.uploads import Uploads
from builder.recipe.render import ROOTFS

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import ExitStack
    from pathlib import Path

    from builder.layers.stack import Plan
    from builder.layers.store import Lease
    from builder.model import Pinned, Wheel
    from builder.oci.registry import Registry
    from builder.pipeline.schedule import Walk
    from builder.pipeline.stages import Site
    from builder.recipe.values import Recipe


def fetch_blobs(walk: Walk, site: Site, recipe: Recipe, wheels: tuple[Wheel, ...]) -> dict[str, Path]:
    """Bring ``wheels`` and the recipe's large files into the cache; paths by sha256, or by name in it."""
    with walk.stage(Stage.FETCH):
        found = fetch_wheels(walk, site, wheels)
        for name, blob in recipe.blobs.items():
            if isinstance(blob, RootfsBase):
                found[name] = _rootfs(walk, site, blob)
            else:
                found[name] = found.get(blob.sha256) or fetch_wheels(walk, site, (blob,))[blob.sha256]
        return found


def fetch_wheels(walk: Walk, site: Site, wheels: tuple[Wheel, ...]) -> dict[str, Path]:
    """Bring wheels into the cache; paths by sha256."""
    total = sum(wheel.size for wheel in wheels)
    advance = walk.counter("of wheels", total)
    index = site.index.with_extra(walk.cell.index)
    offered = [wheel for wheel in wheels if wheel.source is None]
    found = dict(index.fetch_all(offered, cache=site.settings.cache, progress=advance, stop=walk.cancel))
    for wheel in wheels:
        if wheel.source is not None:
            found[wheel.sha256] = site.workshop(walk).make(wheel, index)
            advance(wheel.size)
    walk.done(f"{len(wheels)} wheels, {total / 1e9:.2f} GB")
    return found


def plan_layers(site: Site, pinned: Pinned, lease: Lease) -> Plan:
    """Which layers are in the store or in the registry."""
    assert site.layers is not None  # noqa: S101 - every site that builds has a store
    return plan(pinned, store=site.layers, lease=lease, elsewhere=site.shared)


def fetch_missing(walk: Walk, site: Site, planned: Plan) -> dict[str, Path]:
    """The files that the layers are made of that nobody has: wheels by sha256, and the rootfs by its name."""
    found = fetch_wheels(walk, site, planned.missing)
    base = planned.pinned.base
    if planned.needs_rootfs and isinstance(base, RootfsBase):
        found[ROOTFS] = _rootfs(walk, site, base)
    return found


def _rootfs(walk: Walk, site: Site, base: RootfsBase) -> Path:
    walk.progress(f"Debian {base.suite} out of {len(base.debs)} packages", quiet=False)
    cache = site.settings.cache
    return cached_rootfs(base, cache=cache, fetch=partial(site.debian.fetch, cache=cache, stop=walk.cancel))


def takes_layers(walk: Walk, site: Site) -> bool:
    """Whether the fast way is open; where it is not, the reason is said."""
    if not site.settings.layers or site.layers is None or site.engine is None:
        return False
    if not site.engine.facts().takes_layers:
        walk.note("wheels are installed in the build: ready-made layers need the containerd image store")
        return False
    return True


def mirrored(site: Site, pinned: Pinned) -> Mapping[str, str]:
    """The build context that takes the base from the mirror of its registry, for the engine's own pull."""
    mirror = None if isinstance(pinned.base, RootfsBase) else site.registry.at_mirror(pinned.base)
    return {"base": f"docker-image://{mirror}"} if mirror else {}


def ready_made(walk: Walk, site: Site, recipe: Recipe, stack: ExitStack) -> Mapping[str, str]:
    """The build contexts that override the recipe's stages below ``system``, with all that they need."""
    assert site.layers is not None  # noqa: S101 - see takes_layers
    assert site.engine is not None  # noqa: S101
    pinned = recipe.pinned
    base = pinned.base
    source, there = None, False
    if isinstance(base, RegistryBase):
        by_digest = f"{base.reference.partition('@')[0]}@{base.digest}"
        source = _BaseSource(site.registry, base.reference)
        there = site.engine.facts().builds_in_store and site.engine.inspect(by_digest) is not None
    lease = site.layers.lease()
    stack.callback(lease.release)
    with walk.stage(Stage.FETCH):
        planned = plan_layers(site, pinned, lease)
        paths = fetch_missing(walk, site, planned)
        if site.shared is not None:
            site.shared.fetch_all(planned, walk)
    # The engine keeps these layers as they are, and finds them there when it pushes.
    uploads = stack.enter_context(Uploads(site, lease))
    with walk.stage(Stage.LAYERS):
        context = stack.enter_context(
            wheels_context(
                pinned,
                store=site.layers,
                wheel_paths=paths,
                rootfs_tar=paths.get(ROOTFS),
                source=source,
                engine_has_base=there,
                progress=lambda title, done, total: walk.progress(f"layer of {title}", done, total),
                cancel=walk.cancel,
                planned=planned,
                ready=uploads.begin,
            )
        )
        walk.done(f"{context.made} made, {context.reused} there already")
    return context.build_contexts


@dataclass(frozen=True)
class _BaseSource:
    """The registry client as the layer room wants it: blobs of one base."""

    registry: Registry
    reference: str

    def manifest(self, digest: str) -> bytes:
        return self.registry.manifest(f"{self.reference.partition('@')[0]}@{digest}").content

    def blob(self, digest: str, dest: Path) -> None:
        self.registry.fetch_blob(self.reference, digest, dest)
