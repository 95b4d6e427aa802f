"""The base below the wheels: a rootfs as one layer, or a registry image's own layers."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from builder.documents import read_file
from builder.errors import CellError, RegistryError
from builder.image.rootfs import content_key
from builder.layers.codec import CHUNK, BlobWriter, codec
from builder.layers.store import Lease, Record
from builder.layers.types import MEDIA_TYPES, BaseLayers, Compression, Layer
from builder.layers.untar import open_layer
from builder.model import Cell, RegistryBase, RootfsBase
from builder.oci.registry import Registry
from builder.oci.spec import blobs_of, parse_config

_FORMAT = 2
"""To be raised when a rootfs is held against other rules as it becomes a layer."""
_OCI_LAYER = "application/vnd.oci.image.layer.v1.tar"
_LAYER_TYPES = {
    **{media_type: media_type for media_type in (_OCI_LAYER, *MEDIA_TYPES.values())},
    "application/vnd.docker.image.rootfs.diff.tar.gzip": MEDIA_TYPES["gzip"],
    "application/vnd.docker.image.rootfs.diff.tar.zstd": MEDIA_TYPES["zstd"],
    "application/vnd.docker.image.rootfs.diff.tar": _OCI_LAYER,
}
"""Docker's names for layers and OCI's: the bytes, and so the digests, are the same."""


def rootfs_key(base: RootfsBase, cell: Cell) -> str:
    """The key of a rootfs's layer: its packages, and the rules by which they become a system."""
    return f"rootfs{_FORMAT}-{content_key(base)}-{codec(cell.options.compression)}"


def rootfs_base(layer: Layer, cell: Cell) -> BaseLayers:
    operating_system, _, architecture = cell.platform.partition("/")
    # BuildKit's setting for an image that starts `FROM scratch`, as the Dockerfile of a recipe does.
    path = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    config = {"architecture": architecture, "os": operating_system, "config": {"Env": [path]}}
    return BaseLayers(layers=(layer,), config=config)


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


def tar_layer(
    tar: Path, target: Path, title: str, compression: Compression, advance: Callable[[int], None]
) -> Record:
    """Write a tar file as a layer; ``advance`` is told of each piece's size in bytes."""
    size = tar.stat().st_size
    with (
        tar.open("rb") as source,
        target.open("wb") as blob,
        BlobWriter(blob, title, compression, size) as writer,
    ):
        while piece := source.read(CHUNK):
            writer.write(piece)
            advance(len(piece))
        return Record(layer=writer.finish())


def registry_layers(base: RegistryBase, registry: Registry, lease: Lease) -> BaseLayers:
    """A registry image's layers, fetched if the lease's store lacks them.

    Raises :class:`~builder.errors.RegistryError` if what came is not what the digests say.
    """

    def obtain(layer: Layer) -> Layer:
        def fetch(target: Path) -> Record:
            registry.fetch_blob(base.reference, layer.digest, target)
            return Record(layer=layer)

        return lease.store.obtain(f"blob-{layer.digest.removeprefix('sha256:')}", lease, fetch)[0].layer

    manifest = registry.manifest(f"{base.reference.partition('@')[0]}@{base.digest}").document
    try:
        (digest, size), *_ = blobs_of(manifest)
        obtain(
            Layer(title="image config", digest=digest, diff_id=digest, size=size, unpacked=0, media_type="")
        )
        config = parse_config(read_file(lease.store.blob(digest)))
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
