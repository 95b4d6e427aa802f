"""Manifests and configs of images, in which every program has to read the same.

https://github.com/opencontainers/image-spec/blob/main/manifest.md and config.md
"""

from collections.abc import Iterable, Mapping
from typing import Any

from builder.documents import MalformedError, parse_object, shown
from builder.oci.spec import is_digest

_MANIFEST = ("mediaType", "config", "layers", "manifests", "subject", "digest", "size", "urls", "platform")
_PLATFORM = {"os": str, "architecture": str, "variant": str}
_CONFIG = {**_PLATFORM, "config": dict, "rootfs": dict, "history": list}
_ROOTFS = {"type": str, "diff_ids": list}
_SETTINGS = {
    **dict.fromkeys(("Env", "Cmd", "Entrypoint", "OnBuild", "Shell"), list),
    **dict.fromkeys(("Labels", "Volumes", "ExposedPorts", "Healthcheck"), dict),
    **dict.fromkeys(("User", "WorkingDir", "StopSignal"), str),
}


def parse_manifest(content: bytes) -> dict[str, Any]:
    """A manifest or index. Raises MalformedError for one that programs read differently."""
    document = parse_object(content, strict=True)
    lists = [document.get(name) for name in ("layers", "manifests")]
    entries = [entry for one in lists if isinstance(one, list) for entry in one]
    entries += [entry.get("platform") for entry in entries if isinstance(entry, dict)]
    for part in (document, document.get("config"), *entries):
        if isinstance(part, dict):
            _refuse_lookalikes(part, (*_MANIFEST, *_PLATFORM))
    return document


def blobs_of(manifest: Mapping[str, Any]) -> tuple[tuple[str, int], ...]:
    """Digests and sizes in bytes of an image's config and layers, lowest first. Raises MalformedError."""
    layers = manifest.get("layers")
    if not isinstance(layers, list):
        raise MalformedError("it has no list of layers")
    found = []
    for entry in (manifest.get("config"), *layers):
        digest, size = (entry.get("digest"), entry.get("size")) if isinstance(entry, dict) else (None, None)
        if not is_digest(digest) or type(size) is not int or size < 0:
            raise MalformedError("it has a blob without a digest or size")
        found.append((digest, size))
    return tuple(found)


def parse_config(content: bytes) -> dict[str, Any]:
    """An image's config. Raises MalformedError for one that programs read differently, or not at all."""
    document = parse_object(content, strict=True)
    _check(document, _CONFIG)
    settings, rootfs = document.get("config") or {}, document.get("rootfs") or {}
    _check(settings, _SETTINGS)
    _check(rootfs, _ROOTFS)
    texts = [text for name in ("Env", "Cmd", "Entrypoint", "OnBuild") for text in settings.get(name) or ()]
    texts += [*(settings.get("Labels") or {}).values(), *(rootfs.get("diff_ids") or ())]
    steps = document.get("history") or ()
    if not all(isinstance(text, str) for text in texts) or not all(isinstance(row, dict) for row in steps):
        raise MalformedError("it has other values where texts belong")
    return document


def _check(part: Mapping[str, Any], fields: Mapping[str, type]) -> None:
    _refuse_lookalikes(part, fields)
    for name, kind in fields.items():
        if not isinstance(part.get(name), (kind, type(None))):
            raise MalformedError(f"its {name} is of another type than the specification says")


def _refuse_lookalikes(part: Mapping[str, Any], names: Iterable[str]) -> None:
    """Refuse ``env`` for ``Env``: programs in Go take it, and the last of both, and others do not.

    https://pkg.go.dev/encoding/json#Unmarshal
    """
    known = {name.casefold(): name for name in names}
    for key in part:
        if known.get(key.casefold(), key) != key:
            raise MalformedError(f"some programs read its {shown(key, most=40)} as {known[key.casefold()]}")
