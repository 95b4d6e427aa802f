"""Ready-made layers in a registry: found by what they are made of, fetched if needed, left for others."""

import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from builder.core.digests import sha256_of
from builder.core.errors import ImageMissingError, RegistryError
from builder.image.layers import (
    Layer,
    LayerStore,
    Lease,
    check_content,
    config_digest,
    description,
    manifest_of,
    read,
    shared_tag,
    signature_of,
    signed_text,
)
from builder.sources.oci import MANIFEST, Registry
from builder.verify.evidence import Cosign, Signer, Verifier


@dataclass(kw_only=True)
class LayerRepository:
    """The layers of one repository, for all cells of a run. Threads may share one.

    What a layer is made of is a claim that nobody can check without making it again. So a layer counts only
    if ``trusted`` has signed its description: see ``docs/threat-model.md``.
    """

    registry: Registry
    repository: str
    store: LayerStore
    warn: Callable[[str], None]
    trusted: Verifier | None = None
    """Whose signature counts; None for a repository that is only written to."""
    signer: Signer | None = None
    """Who signs what is left there."""
    _known: dict[str, Layer] = field(default_factory=dict)
    """By the digests of their layers."""
    _tags: set[str] | None = None
    _checked: dict[tuple[bytes, str], str] = field(default_factory=dict)
    _guard: threading.Lock = field(default_factory=threading.Lock)
    _publishing: threading.Lock = field(default_factory=threading.Lock)

    def find(self, key: str) -> Layer | None:
        """The layer that is made of ``key``, described and not downloaded; None if it is not there.

        Raises RegistryError if the registry does not answer.
        """
        tag = shared_tag(key)
        if tag not in self._listed():
            return None
        where = f"{self.repository}:{tag}"
        try:
            manifest = self.registry.manifest(where).document
            config = self.registry.blob(self.repository, config_digest(manifest, where))
            why = self._unsigned(manifest, config)
            if why:
                self.warn(f"{where} does not count: {why}; it is made here")
                return None
            layer = read(config, manifest, key, where)
        except ImageMissingError:
            return None
        except RegistryError as problem:
            self.warn(f"{problem.message}; it is made again")
            return None
        self._known[layer.digest] = layer
        return layer

    def _unsigned(self, manifest: dict[str, Any], config: bytes) -> str:
        """Why a description does not count; empty if the one who is trusted signed it."""
        if self.trusted is None:
            return "nobody's signature was asked for"
        signed = signature_of(manifest, config)
        if signed is None:
            return "it is not signed"
        with self._guard:
            if signed not in self._checked:
                self._checked[signed] = Cosign.find().verify_text(*signed, self.trusted)
            return self._checked[signed]

    def fetch(self, layer: Layer, lease: Lease, advance: Callable[[int], None]) -> Path:
        """The file of a layer that :meth:`find` found, in the store; digest and content are checked."""
        found = self._known[layer.digest]

        def make(target: Path) -> Layer:
            self.registry.fetch_blob(self.repository, layer.digest, target, size=layer.size, progress=advance)
            check_content(layer, target, f"{self.repository}:{shared_tag(found.key)}")
            return found

        return lease.blob(lease.obtain(found.key, make).digest)

    def has(self, digest: str) -> bool:
        """Whether :meth:`find` met a layer with this digest."""
        return digest in self._known

    def publish(self, made: Iterable[Layer]) -> int:
        """Leave layers here under their keys, blobs and all, unless a key has its tag; how many were new."""
        # One cell at a time: docker-registry 2.8 answers 400 to one manifest that arrives twice at once.
        with self._publishing:
            new = {tag: one for one in made if (tag := shared_tag(one.key)) not in self._listed()}
            configs = {tag: self._description(layer) for tag, layer in new.items()}
            signed = None
            if new and self.signer is not None:
                text = signed_text(configs.values())
                signed = text, Cosign.find().sign_text(text, self.signer)
            for tag, layer in new.items():
                config = configs[tag]
                manifest = manifest_of(layer, config, signed)
                self.registry.push_blob(self.repository, layer.digest, self.store.blob(layer.digest))
                self.registry.push_blob(self.repository, sha256_of(config), config)
                self.registry.put_manifest(f"{self.repository}:{tag}", manifest, MANIFEST)
            self._listed().update(new)
        return len(new)

    def _description(self, layer: Layer) -> bytes:
        files = layer.files
        if not files:
            with suppress(FileNotFoundError):
                files = self.store.files(layer.key)
        return description(layer, files)

    def _listed(self) -> set[str]:
        """All tags, asked for once: one question instead of two for every layer of every cell."""
        with self._guard:
            if self._tags is None:
                try:
                    self._tags = set(self.registry.tags(self.repository))
                except ImageMissingError:
                    self._tags = set()
            return self._tags
