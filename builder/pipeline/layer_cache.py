"""Ready-made layers in a registry: found by what they are made of, fetched if needed, left for others.

Each is a small manifest that no engine can run: its layer is the blob itself, so the registry keeps it, and
its config says what the blob is. The tag is made of the key, so that one question finds it. What it was made
of is a claim of whoever pushed it, which nobody can check without making the layer again. So a layer counts
only if one who is trusted signed its description, and a repository that is pushed to is not one that is taken
from: ``docs/layers.md``, ``docs/threat-model.md``.
"""

import hashlib
import json
import re
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from builder.core.digests import canonical_json, sha256_of
from builder.core.documents import MalformedError, parse_json, parse_object
from builder.core.errors import ImageMissingError, RegistryError
from builder.image.layers import DAMAGED, MEDIA_TYPES, Layer, LayerStore, Lease, decompressed
from builder.sources.oci import MANIFEST, Registry, is_digest
from builder.verify.evidence import Cosign, Signer, Verifier

SCHEMA = 1
CONFIG_TYPE = "application/vnd.rtbuild.layer.v1+json"

_CODEC = re.compile(r"-(?:(zstd)|igzip|zlib)-[^-]+-\d+$")


def shared_key(key: str) -> str:
    """A key of the store without the compressor's version: any blob of that content will do elsewhere."""
    return _CODEC.sub(lambda match: "-zstd" if match[1] else "-gzip", key)


def shared_tag(key: str) -> str:
    """``layer-<32 hex>``: the tag under which a registry has the layer that is made of ``key``."""
    return "layer-" + hashlib.sha256(shared_key(key).encode()).hexdigest()[:32]


SIGNED, SIGNATURE = "io.rtbuild.layers.signed", "io.rtbuild.layers.signature"
"""Annotations: the digests of the descriptions that were signed together, and the signature."""


def signed_text(configs: Iterable[bytes]) -> bytes:
    """The text that is signed for several descriptions at once: their digests, as canonical JSON."""
    return canonical_json({"rtbuild": "layers", "configs": sorted(map(sha256_of, configs))})


def signature_of(manifest: dict[str, Any], config: bytes) -> tuple[bytes, str] | None:
    """The signed text and the signature, if they cover this description; else None."""
    try:
        text, signature = manifest["annotations"][SIGNED], manifest["annotations"][SIGNATURE]
        listed = parse_object(text, strict=True)
    except (LookupError, TypeError, AttributeError, MalformedError):
        return None
    named = listed.get("configs")
    covers = listed.get("rtbuild") == "layers" and isinstance(named, list) and sha256_of(config) in named
    return (text.encode(), signature) if covers and isinstance(signature, str) else None


def manifest_of(layer: Layer, config: bytes, signed: tuple[bytes, str] | None) -> bytes:
    """The manifest that keeps a layer's blob and its description in a registry."""
    notes = {} if signed is None else {"annotations": {SIGNED: signed[0].decode(), SIGNATURE: signed[1]}}
    return canonical_json(
        {
            **notes,
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "artifactType": CONFIG_TYPE,
            "config": {"mediaType": CONFIG_TYPE, "digest": sha256_of(config), "size": len(config)},
            "layers": [{"mediaType": layer.media_type, "digest": layer.digest, "size": layer.size}],
        }
    )


def config_digest(manifest: dict[str, Any], where: str) -> str:
    """The digest of the config that a manifest names. Raises RegistryError if it is none of a layer."""
    described = manifest.get("config")
    if not isinstance(described, dict) or described.get("mediaType") != CONFIG_TYPE:
        raise _strange(where, "its manifest describes something else")
    digest = str(described.get("digest"))
    if not is_digest(digest):
        raise _strange(where, "its manifest names no config")
    return digest


def read(config: bytes, manifest: dict[str, Any], key: str, where: str) -> Layer:
    """The layer that a config describes, with the list of its content.

    Raises :class:`~builder.core.errors.RegistryError` if it is another one than ``key`` asks for, or its
    parts do not agree.
    """
    try:
        document = parse_json(config)
        files = document["files"]
        listed = canonical_json(files) if files is not None else b""
        layer = Layer.of(document, key=key, files=listed)
        (described,) = manifest["layers"]
        checks = {
            "its format is of another rtbuild": document["schema"] == SCHEMA,
            "it was made of something else": document["key"] == shared_key(key),
            "its manifest and its config do not agree": (layer.digest, layer.size, layer.media_type)
            == (described["digest"], described["size"], described["mediaType"]),
            "its digests are none": is_digest(layer.digest) and is_digest(layer.diff_id),
            "it is compressed in another way": layer.media_type in MEDIA_TYPES.values(),
        }
        if key.startswith("wheel"):  # what else two packages could fight over unseen
            checks["it does not say what is in it"] = isinstance(files, dict) and isinstance(
                layer.details.get("requires_python"), dict
            )
    except (LookupError, TypeError, ValueError) as problem:
        raise _strange(where, f"it cannot be read: {problem!r}") from problem
    for wrong, right in checks.items():
        if not right:
            raise _strange(where, wrong)
    return layer


def check_content(layer: Layer, blob: Path, where: str) -> None:
    """Unpack a blob and compare its content with the diff id. Raises RegistryError if it differs."""
    try:
        with blob.open("rb") as file, decompressed(file, layer.media_type) as stream:
            found = f"sha256:{hashlib.file_digest(stream, 'sha256').hexdigest()}"
    except DAMAGED as problem:
        raise _strange(where, f"its blob cannot be unpacked: {problem}") from problem
    if found != layer.diff_id:
        raise _strange(where, f"its content is {found}, and {layer.diff_id} is claimed")


def _strange(where: str, what: str) -> RegistryError:
    return RegistryError(
        f"{where} is not the layer that it is named after: {what}",
        hint="somebody else may write to this repository: build without --layers-from, or delete the tag",
    )


@dataclass(kw_only=True)
class LayerRepository:
    """The layers of one repository, for all cells of a run. Threads may share one."""

    registry: Registry
    repository: str
    store: LayerStore
    warn: Callable[[str], None]
    trusted: Verifier | None = None
    """The key whose signature counts; None for a repository that is only written to."""
    signer: Signer | None = None
    """The signer of layers that are left there."""
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
        """The config of a layer, which says what it was made of and lists its content."""
        files = layer.files
        if not files:
            with suppress(FileNotFoundError):
                files = self.store.files(layer.key)
        listed = json.loads(files) if files else None
        document = {"schema": SCHEMA, "key": shared_key(layer.key), **layer.document, "files": listed}
        return canonical_json(document)

    def _listed(self) -> set[str]:
        """All tags, asked for once: one question instead of two for every layer of every cell."""
        with self._guard:
            if self._tags is None:
                try:
                    self._tags = set(self.registry.tags(self.repository))
                except ImageMissingError:
                    self._tags = set()
            return self._tags
