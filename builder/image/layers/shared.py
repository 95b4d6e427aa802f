"""Ready-made layers in a registry, each named after what it was made of.

A small manifest that no engine can run: its layer is the blob itself, so the registry keeps it, and its
config says what the blob is. The tag is made of the key, so that one question finds it. What it was made of
is a claim of whoever pushed it, which nobody can check without making the layer again. So a repository that
is pushed to is not one that is taken from: ``docs/layers.md``.
"""

import hashlib
import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from builder.core.digests import canonical_json, sha256_of
from builder.core.documents import MalformedError, parse_json, parse_object
from builder.core.errors import RegistryError
from builder.image.layers.compression import CHUNK, DAMAGED, decompressed
from builder.image.layers.types import MEDIA_TYPES, Layer
from builder.sources.oci import MANIFEST, is_digest

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


def description(layer: Layer, files: bytes) -> bytes:
    """The config of a layer, which names its sources; ``files`` lists its content."""
    return canonical_json(
        {
            "schema": SCHEMA,
            "key": shared_key(layer.key),
            **layer.document,
            "files": json.loads(files) if files else None,
        }
    )


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
    digest = hashlib.sha256()
    try:
        with blob.open("rb") as file, decompressed(file, layer.media_type) as stream:
            while piece := stream.read(CHUNK):
                digest.update(piece)
    except DAMAGED as problem:
        raise _strange(where, f"its blob cannot be unpacked: {problem}") from problem
    if f"sha256:{digest.hexdigest()}" != layer.diff_id:
        raise _strange(where, f"its content is sha256:{digest.hexdigest()}, and {layer.diff_id} is claimed")


def _strange(where: str, what: str) -> RegistryError:
    return RegistryError(
        f"{where} is not the layer that it is named after: {what}",
        hint="somebody else may write to this repository: build without --layers-from, or delete the tag",
    )
