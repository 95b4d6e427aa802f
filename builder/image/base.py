"""What wheel layers are stacked on: a rootfs as one layer, or a registry image's own layers."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

from builder.digests import sha256_of
from builder.errors import CellError, RegistryError
from builder.image.rootfs import content_key
from builder.layers.blob import CHUNK, BlobWriter
from builder.layers.codec import codec
from builder.layers.store import Record
from builder.layers.types import MEDIA_TYPES, BaseLayers, Layer
from builder.layers.untar import open_layer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from builder.layers.store import LayerStore, Lease
    from builder.layers.types import BaseSource, Compression
    from builder.model import Cell, RegistryBase, RootfsBase

_PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""What BuildKit gives an image that starts ``FROM scratch``: the plain way begins like that."""

_FORMAT = 2
"""To be raised when a rootfs is held against other rules as it becomes a layer."""
_OCI_LAYER = "application/vnd.oci.image.layer.v1.tar"
_LAYER_TYPES = {
    _OCI_LAYER: _OCI_LAYER,
    **{media_type: media_type for media_type in MEDIA_TYPES.values()},
    "application/vnd.docker.image.rootfs.diff.tar.gzip": MEDIA_TYPES["gzip"],
    "application/vnd.docker.image.rootfs.diff.tar.zstd": MEDIA_TYPES["zstd"],
    "application/vnd.docker.image.rootfs.diff.tar": _OCI_LAYER,
}
"""Docker's names for layers and OCI's: the bytes, and so the digests, are the same."""


def rootfs_key(base: RootfsBase, cell: Cell) -> str:
    """What a rootfs's layer is looked up by: the packages, and how they become a system."""
    return f"rootfs{_FORMAT}-{content_key(base)}-{codec(cell.options.compression)}"


def rootfs_base(layer: Layer, cell: Cell) -> BaseLayers:
    """A rootfs as a base of one layer."""
    operating_system, _, architecture = cell.platform.partition("/")
    config = {"architecture": architecture, "os": operating_system, "config": {"Env": [_PATH]}}
    return BaseLayers(layers=(layer,), config=config)


def rootfs_layer(
    tar: Path, target: Path, base: RootfsBase, cell: Cell, advance: Callable[[int], None]
) -> Record:
    """Write a rootfs's tar file as a layer; ``advance`` is told of each piece's size in bytes.

    Raises :class:`~builder.errors.CellError` for a rootfs that would hide wheels below it.
    """
    refuse_hidden(tar, base)
    return tar_layer(tar, target, f"rootfs {base.suite}", cell.options.compression, advance)


def refuse_hidden(tar: Path, base: RootfsBase) -> None:
    """Raise CellError for a system that owns anything at or below ``/opt/runtime``, where the wheels are."""
    with open_layer(tar, _OCI_LAYER) as archive:
        for entry in archive:
            folder = entry.kind == "folder" and entry.mode & 0o7777 == 0o755
            if (
                entry.name == "opt/runtime"
                or entry.name.startswith("opt/runtime/")
                or (entry.name == "opt" and not folder)
            ):
                raise CellError(
                    f"Debian {base.suite} as it is locked holds /{entry.name} ({entry.kind}, mode "
                    f"{entry.mode:o}), which would hide the wheels' files there",
                    hint="leave the package out that brings it; in an image, /opt/runtime is the wheels' own",
                )


def tar_layer(
    tar: Path, target: Path, title: str, compression: Compression, advance: Callable[[int], None]
) -> Record:
    """The same for any tar stream."""
    with tar.open("rb") as source, target.open("wb") as blob:
        writer = BlobWriter(blob, compression, tar.stat().st_size)
        try:
            while piece := source.read(CHUNK):
                writer.write(piece)
                advance(len(piece))
            written = writer.finish()
        finally:
            writer.close()
    return Record(layer=Layer(title=title, media_type=MEDIA_TYPES[compression], **vars(written)))


def registry_layers(base: RegistryBase, *, source: BaseSource, store: LayerStore, lease: Lease) -> BaseLayers:
    """A registry image's layers, fetched if the store lacks them.

    Raises :class:`~builder.errors.RegistryError` if what came is not what the digests say.
    """
    manifest = _document(base, source.manifest(base.digest), base.digest)
    config = _config(base, manifest["config"], source=source, store=store, lease=lease)
    layers: list[Layer] = []
    for described, diff_id in zip(manifest["layers"], config["rootfs"]["diff_ids"], strict=True):
        layer = _described(base, described, diff_id)
        record, _ = store.obtain(
            f"blob-{layer.digest.removeprefix('sha256:')}",
            lease,
            lambda target, layer=layer: _fetch(layer, target, source),  # type: ignore[misc]
        )
        layers.append(record.layer)
    return BaseLayers(layers=tuple(layers), config=config)


def _config(
    base: RegistryBase, described: Mapping[str, Any], *, source: BaseSource, store: LayerStore, lease: Lease
) -> dict[str, Any]:
    digest = str(described["digest"])
    layer = Layer(
        title="image config",
        digest=digest,
        diff_id=digest,
        size=int(described["size"]),
        unpacked=0,
        media_type="",
    )
    store.obtain(
        f"blob-{digest.removeprefix('sha256:')}", lease, lambda target: _fetch(layer, target, source)
    )
    return _document(base, store.blob(digest).read_bytes(), digest)


def _document(base: RegistryBase, content: bytes, digest: str) -> dict[str, Any]:
    if sha256_of(content) != digest:
        raise RegistryError(
            f"{base.reference}: the registry gave something else for {digest}",
            hint="a proxy or mirror in between may have changed it; try again, or use another registry",
        )
    try:
        document = json.loads(content)
    except ValueError as problem:
        raise RegistryError(f"{base.reference}: {digest} is no JSON document: {problem}") from problem
    if not isinstance(document, dict):
        raise RegistryError(f"{base.reference}: {digest} is no JSON object")
    return document


def _described(base: RegistryBase, described: Mapping[str, Any], diff_id: str) -> Layer:
    media_type = _LAYER_TYPES.get(described["mediaType"])
    if media_type is None or described.get("urls"):
        raise CellError(
            f"{base.reference} has a layer of type {described['mediaType']}, which cannot be taken over",
            hint="use another base image",
        )
    return Layer(
        title=base.reference,
        digest=described["digest"],
        diff_id=diff_id,
        size=int(described["size"]),
        unpacked=0,
        media_type=media_type,
    )


def _fetch(layer: Layer, target: Path, source: BaseSource) -> Record:
    source.blob(layer.digest, target)
    actual = hashlib.sha256()
    with target.open("rb") as blob:
        while chunk := blob.read(CHUNK):
            actual.update(chunk)
    if "sha256:" + actual.hexdigest() != layer.digest:
        raise RegistryError(
            f"{layer.title}: the registry gave something else for {layer.digest}",
            hint="a proxy or mirror in between may have changed it; try again",
        )
    return Record(layer=layer)
