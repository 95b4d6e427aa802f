"""Ready-made layers in a registry: found by what they are made of, fetched where needed, left for others."""

from __future__ import annotations

import json
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from builder.errors import CellError, ImageMissingError, RegistryError
from builder.layers import Layer, shared
from builder.layers.finish import layer_keys
from builder.layers.stack import plan
from builder.layers.store import Record

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from builder.layers import LayerStore
    from builder.layers.stack import Plan
    from builder.layers.store import Lease
    from builder.model import Image
    from builder.oci.registry import Registry
    from builder.pipeline.schedule import Walk
    from builder.pipeline.stages import Site
    from builder.recipe.values import Recipe

_CONNECTIONS = 4
"""Layers that are downloaded at a time."""


@dataclass(kw_only=True)
class SharedLayers:
    """The layers of one repository, for all cells of a run. Threads may share one.

    Whoever may push to the repository decides what is in these layers: see ``docs/layers.md``.
    """

    registry: Registry
    repository: str
    store: LayerStore
    warn: Callable[[str], None]
    _known: dict[str, tuple[str, Record]] = field(default_factory=dict)
    """Digest of a layer → its key and what is known of it."""
    _tags: frozenset[str] | None = None
    _guard: threading.Lock = field(default_factory=threading.Lock)
    _publishing: threading.Lock = field(default_factory=threading.Lock)

    def find(self, key: str, lease: Lease) -> Record | None:
        """The layer that is made of ``key``, described and not downloaded; None where it is not there.

        Raises RegistryError where the registry does not answer.
        """
        del lease  # nothing of it is in the store yet
        tag = shared.shared_tag(key)
        if tag not in self._listed():
            return None
        where = f"{self.repository}:{tag}"
        try:
            manifest = self.registry.manifest(where).document
            config = self.registry.blob(self.repository, shared.config_digest(manifest, where))
            record = shared.read(config, manifest, key, where)
        except ImageMissingError:
            return None
        except RegistryError as problem:
            self.warn(f"{problem.message}; it is made again")
            return None
        with self._guard:
            self._known[record.layer.digest] = (key, record)
        return record

    def fetch(self, layer: Layer, lease: Lease, advance: Callable[[int], None]) -> Path:
        """The file of a layer that :meth:`find` found, in the store; digest and content are checked."""
        key, found = self._known[layer.digest]

        def make(target: Path) -> Record:
            # Under one name, so that the next attempt goes on where this one broke off.
            beside = target.with_name("fetched-" + layer.digest.removeprefix("sha256:"))
            self.registry.fetch_blob(self.repository, layer.digest, beside, size=layer.size, progress=advance)
            try:
                shared.check_content(layer, beside, f"{self.repository}:{shared.shared_tag(key)}")
                beside.replace(target)
            finally:
                beside.unlink(missing_ok=True)
            return found

        record, _ = self.store.obtain(key, lease, make)
        return self.store.blob(record.layer.digest)

    def fetch_all(self, planned: Plan, walk: Walk) -> None:
        """Bring every layer of a plan into the store that is known from here only."""
        layers = [one.record.layer for one in planned.every if self.has(one.record.layer.digest)]
        if not layers:
            return
        advance = walk.counter(f"of layers from {self.repository}", sum(layer.size for layer in layers))
        with ThreadPoolExecutor(_CONNECTIONS, thread_name_prefix="layers-from") as pool:
            futures = [pool.submit(self.fetch, layer, planned.lease, advance) for layer in layers]
            try:
                for future in futures:
                    future.result()
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise

    def has(self, digest: str) -> bool:
        """Whether :meth:`find` met a layer with this digest."""
        return digest in self._known

    def publish(self, made: Mapping[str, Record]) -> int:
        """Leave layers here under their keys, blobs and all, unless a key has its tag; how many were new."""
        # One cell at a time: docker-registry 2.8 answers 400 to one manifest that arrives twice at once.
        with self._publishing:
            new = {key: one for key, one in made.items() if shared.shared_tag(key) not in self._listed()}
            for key, record in new.items():
                self._put(key, record)
            if new:
                with self._guard:
                    self._tags = frozenset({*(self._tags or ()), *map(shared.shared_tag, new)})
        return len(new)

    def _put(self, key: str, record: Record) -> None:
        files = record.files
        if not files:
            with suppress(FileNotFoundError):
                files = self.store.files(key)
        config, manifest = shared.documents(key, record, files)
        digest = record.layer.digest
        if not self.registry.exists(self.repository, digest):
            self.registry.push_blob(self.repository, digest, self.store.blob(digest))
        with tempfile.NamedTemporaryFile(prefix="rtbuild-layer-") as file:
            file.write(config)
            file.flush()
            config_digest = shared.config_digest(json.loads(manifest), self.repository)
            self.registry.push_blob(self.repository, config_digest, Path(file.name))
        self.registry.put_manifest(
            f"{self.repository}:{shared.shared_tag(key)}", manifest, shared.MANIFEST_TYPE
        )

    def _listed(self) -> frozenset[str]:
        """All tags, asked for once: one question in the place of two for every layer of every cell."""
        with self._guard:
            if self._tags is None:
                try:
                    self._tags = self.registry.tags(self.repository)
                except ImageMissingError:
                    self._tags = frozenset()
            return self._tags


def share_built(walk: Walk, site: Site, recipe: Recipe, image: Image) -> None:
    """Leave the layers of an image that an engine pushed beside it; a failure is noted, no more."""
    leaving = site.leaving
    if leaving is None or image.pushed is None:
        return
    try:
        manifest = site.writing.manifest(image.pushed).document
        config = json.loads(site.writing.blob(leaving.repository, manifest["config"]["digest"]))
        lease = leaving.store.lease()
        try:
            planned = plan(recipe.pinned, store=leaving.store, lease=lease)
            leaving.publish(built_of(recipe, planned, manifest, config))
        finally:
            lease.release()
    except CellError as problem:
        walk.note(f"its layers are not left for other machines: {problem.message}", warning=True)


def built_of(
    recipe: Recipe, planned: Plan, manifest: Mapping[str, Any], config: Mapping[str, Any]
) -> dict[str, Record]:
    """The layers of an image that an engine built, by what they are made of.

    Those of the wheels are in the store; an engine that compressed them again pushed other blobs, which are
    left out. Those that the recipe adds are the engine's own, with the diff ids that its config gives.
    """
    pushed = [entry["digest"] for entry in manifest["layers"]]
    every = planned.every
    made = {one.key: one.record for one in every if one.record.layer.digest in pushed}
    if planned.missing or planned.rootfs is None or len(made) < len(every):
        return made
    wheels = [planned.known[group].record.layer for group in planned.groups]
    keys = layer_keys(recipe, [planned.rootfs.record.layer], wheels)
    below = [planned.rootfs.record.layer.digest, *(layer.digest for layer in wheels)]
    if pushed[: len(below)] != below or len(pushed) != len(below) + len(keys):
        return made  # which layer is which step's cannot be told
    last = list(zip(manifest["layers"], config["rootfs"]["diff_ids"], strict=True))[len(below) :]
    for (name, key), (entry, diff_id) in zip(keys.items(), last, strict=True):
        layer = Layer(
            title=name,
            digest=entry["digest"],
            diff_id=diff_id,
            size=entry["size"],
            unpacked=0,
            media_type=entry["mediaType"],
        )
        made[key] = Record(layer=layer)
    return made


def share_composed(walk: Walk, site: Site, made_of: Mapping[str, Record]) -> None:
    """The same for an image that was put together here."""
    try:
        if site.leaving is not None:
            site.leaving.publish(made_of)
    except RegistryError as problem:
        walk.note(f"its layers are not left for other machines: {problem.message}", warning=True)
