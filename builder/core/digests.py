"""How content is named: by the digest of its bytes, in the one form that its document has."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


def canonical_json(document: object) -> bytes:
    """The canonical bytes of a JSON document, from which digests are made: sorted keys, no blanks, UTF-8."""
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def sha256_of(content: bytes) -> str:
    """``sha256:…`` of bytes, as registries write it."""
    return "sha256:" + hashlib.sha256(content).hexdigest()


def file_sha256(path: Path) -> str:
    """The sha256 of a file's bytes in hexadecimal, as package indexes write it. Raises OSError."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def digest_of(document: object) -> str:
    """``sha256:…`` of a document's canonical JSON."""
    return sha256_of(canonical_json(document))


_CONFIG_KEYS = (
    *("Cmd", "Entrypoint", "Env", "ExposedPorts", "Healthcheck", "Labels"),
    *("OnBuild", "Shell", "StopSignal", "User", "Volumes", "WorkingDir"),
)
"""The parts of an image's config that say how it behaves
(https://github.com/opencontainers/image-spec/blob/main/config.md). The rest an engine fills in itself."""


def content_of(*, platform: str, layers: Sequence[str], config: Mapping[str, Any]) -> str:
    """A digest that equal content has on every engine, store, registry and compressor.

    Made of the platform, the layers' diff ids in order, and the parts of the config that are not empty.
    Dates, history and whatever an engine adds of its own do not take part.
    """
    kept = {key: config[key] for key in _CONFIG_KEYS if config.get(key)}
    return digest_of({"platform": platform, "layers": list(layers), "config": kept})
