"""Layers and a config → an OCI layout, which is a folder of JSON and of links to the store's blobs.

https://github.com/opencontainers/image-spec/blob/main/image-layout.md
"""

from __future__ import annotations

import hashlib
import shutil
import uuid
from typing import TYPE_CHECKING, Any

from builder.digests import canonical_json, sha256_of
from builder.layers.locking import disk_errors
from builder.layers.tar import MTIME

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from builder.layers.store import LayerStore, Lease
    from builder.layers.types import BaseLayers, Layer

TAG = "wheels"
CREATED = "1980-01-02T00:00:00Z"
"""The same moment as :data:`builder.layers.tar.MTIME`."""
assert MTIME == 315619200  # noqa: S101 - the two constants above say the same

_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_CONFIG = "application/vnd.oci.image.config.v1+json"
_INDEX = "application/vnd.oci.image.index.v1+json"
_LINKS = "../../../../blobs/sha256"


def compose(
    base: BaseLayers,
    layers: Sequence[Layer],
    *,
    store: LayerStore,
    lease: Lease,
    check: Callable[[], None],
    with_base: bool = True,
) -> tuple[Path, str]:
    """Write the layout of ``base`` with ``layers`` on top; returns its folder and the manifest's digest.

    ``check`` is called only where this combination is new, and may refuse it. Without ``with_base`` the
    layout names the base's layers and does not hold them.
    """
    config = canonical_json(image_config(base, layers))
    manifest = canonical_json(
        {
            "schemaVersion": 2,
            "mediaType": _MANIFEST,
            "config": _descriptor(_CONFIG, config),
            "layers": [
                {"mediaType": layer.media_type, "digest": layer.digest, "size": layer.size}
                for layer in (*base.layers, *layers)
            ],
        }
    )
    described = _descriptor(_MANIFEST, manifest)
    name = described["digest"].removeprefix("sha256:") + ("" if with_base else "-without-base")
    held = (*base.layers, *layers) if with_base else tuple(layers)
    target = store.folder("layouts") / name
    with store.keeping(lease, name):
        there = target.is_dir()
    if there:
        return target, described["digest"]
    check()
    index = canonical_json(
        {
            "schemaVersion": 2,
            "mediaType": _INDEX,
            "manifests": [{**described, "annotations": {"org.opencontainers.image.ref.name": TAG}}],
        }
    )
    temporary = store.folder("tmp") / uuid.uuid4().hex
    with store.keeping(lease, temporary.name):
        pass  # kept from here on: a clock that jumps makes it look old
    with disk_errors(temporary):
        blobs = temporary / "blobs" / "sha256"
        blobs.mkdir(parents=True)
        (temporary / "oci-layout").write_bytes(canonical_json({"imageLayoutVersion": "1.0.0"}))
        (temporary / "index.json").write_bytes(index)
        for document in (config, manifest):
            (blobs / hashlib.sha256(document).hexdigest()).write_bytes(document)
        for digest in {layer.digest.removeprefix("sha256:") for layer in held}:
            (blobs / digest).symlink_to(f"{_LINKS}/{digest}")
        try:
            temporary.rename(target)
        except OSError:
            # Somebody else was faster: the name is the content, so theirs is as good.
            shutil.rmtree(temporary)
            if not target.is_dir():
                raise
    return target, described["digest"]


def image_config(base: BaseLayers, layers: Sequence[Layer]) -> dict[str, Any]:
    """The base's config with ``layers`` added: its environment, labels and history stay."""
    kept = {
        key: base.config[key] for key in ("architecture", "os", "variant", "config") if key in base.config
    }
    inherited = base.config.get("history") or [
        {"created": CREATED, "created_by": f"rtbuild: {layer.title}"} for layer in base.layers
    ]
    added = [{"created": CREATED, "created_by": f"rtbuild: {layer.title}"} for layer in layers]
    return {
        **kept,
        "created": CREATED,
        "rootfs": {"type": "layers", "diff_ids": [layer.diff_id for layer in (*base.layers, *layers)]},
        "history": [*inherited, *added],
    }


def _descriptor(media_type: str, content: bytes) -> dict[str, Any]:
    digest = sha256_of(content)
    return {"mediaType": media_type, "digest": digest, "size": len(content)}
