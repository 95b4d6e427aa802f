"""Images outside of a registry: the OCI layout in a folder, and the archive that ``docker load`` takes."""

import json
import shutil
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from builder.core.digests import canonical_json, content_of, sha256_of
from builder.core.files import refuse_foreign, write_whole
from builder.core.temporary import disk_errors, locked
from builder.sources.oci.spec import INDEX, MANIFEST

_REF = "org.opencontainers.image.ref.name"
_LOADED = "io.containerd.image.name"
"""https://github.com/containerd/containerd/blob/main/core/images/annotations.go"""
_LAYOUT = canonical_json({"imageLayoutVersion": "1.0.0"})


class LayerBlob(Protocol):
    """As much of a layer as an image's documents say of it."""

    @property
    def digest(self) -> str:
        """``sha256:…`` of the blob."""

    @property
    def diff_id(self) -> str:
        """``sha256:…`` of the tar stream inside."""

    @property
    def size(self) -> int:
        """Bytes of the blob."""

    @property
    def media_type(self) -> str: ...


Blob = TypeVar("Blob", bound=LayerBlob)


@dataclass(frozen=True, kw_only=True)
class OciImage(Generic[Blob]):
    """An image as its documents and its layers."""

    manifest: bytes
    config: bytes
    layers: tuple[Blob, ...]
    """Lowest first."""

    @property
    def digest(self) -> str:
        return sha256_of(self.manifest)

    @property
    def config_digest(self) -> str:
        return sha256_of(self.config)

    @property
    def content(self) -> str:
        """As an engine says it of the same image."""
        config = json.loads(self.config)
        return content_of(
            platform=f"{config['os']}/{config['architecture']}",
            layers=config["rootfs"]["diff_ids"],
            config=config["config"],
        )


def image_manifest(config: bytes, layers: Sequence[LayerBlob]) -> bytes:
    """As BuildKit writes it: of equal layers comes an equal digest."""
    kind = "application/vnd.oci.image.config.v1+json"
    document = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": {"mediaType": kind, "digest": sha256_of(config), "size": len(config)},
        "layers": [
            {"mediaType": layer.media_type, "digest": layer.digest, "size": layer.size} for layer in layers
        ],
    }
    return json.dumps(document, indent=2).encode()


def plain_image(layers: tuple[Blob, ...], config: Mapping[str, Any]) -> OciImage[Blob]:
    """An image of these layers, lowest first, with ``config`` and the documents that both make."""
    diff_ids = [layer.diff_id for layer in layers]
    content = canonical_json({**config, "rootfs": {"type": "layers", "diff_ids": diff_ids}})
    return OciImage(manifest=image_manifest(content, layers), config=content, layers=layers)


def write_layout(
    folder: Path,
    tag: str,
    loaded: str,
    image: OciImage[Blob],
    blob: Callable[[Blob], Path],
    *,
    link: bool = False,
) -> None:
    """Add an image to the OCI layout in ``folder`` under ``tag``; blobs that are there stay.

    https://github.com/opencontainers/image-spec/blob/main/image-layout.md; tools read it as
    ``oci:FOLDER:TAG``, and ``docker load`` gives a tar file of it the name ``loaded``. With ``link`` the
    layers are links to their files. Raises UsageError if the folder holds something else.
    """
    index = folder / "index.json"
    with disk_errors(folder):
        refuse_foreign(folder, {"blobs"}, "OCI layout")
        (folder / _place("")).mkdir(parents=True, exist_ok=True)
        for layer in image.layers:
            target = folder / _place(layer.digest)
            if link:
                target.symlink_to(blob(layer).resolve())
            elif not (target.is_file() and target.stat().st_size == layer.size):
                beside = target.with_suffix(f".{uuid.uuid4().hex}.part")
                shutil.copyfile(blob(layer), beside)
                beside.replace(target)
        for document in (image.config, image.manifest):
            write_whole(folder / _place(sha256_of(document)), document)
        write_whole(folder / "oci-layout", _LAYOUT)
        with locked(folder / ".lock"):
            there = json.loads(index.read_bytes())["manifests"] if index.is_file() else []
            entries = [entry for entry in there if _tag(entry) != tag]
            entries.append(_entry({_REF: tag, _LOADED: loaded}, image))
            write_whole(index, _index(sorted(entries, key=_tag)))


def _tag(entry: Mapping[str, Any]) -> str:
    return str((entry.get("annotations") or {}).get(_REF))


def archive_parts(
    image: OciImage[Blob], name: str, blob: Callable[[Blob], Path], *, without: Collection[str] = ()
) -> Iterator[tuple[str, bytes | Path]]:
    """The files of an archive that ``docker load`` takes, with the blobs that are not in ``without``.

    The containerd image store reads the OCI layout in it, a graphdriver ``manifest.json``:
    https://github.com/moby/docker-image-spec/blob/main/spec.md
    """
    described = {
        "Config": _place(image.config_digest),
        "RepoTags": [name],
        "Layers": [_place(layer.digest) for layer in image.layers],
    }
    annotations = {_REF: name.rpartition(":")[2], _LOADED: f"docker.io/{name}"}
    yield "oci-layout", _LAYOUT
    yield "index.json", _index([_entry(annotations, image)])
    yield "manifest.json", canonical_json([described])
    for document in (image.manifest, image.config):
        yield _place(sha256_of(document)), document
    for layer in {layer.digest: layer for layer in image.layers}.values():
        if layer.digest not in without:
            yield _place(layer.digest), blob(layer)


def _place(digest: str) -> str:
    return "blobs/sha256/" + digest.removeprefix("sha256:")


def _entry(annotations: dict[str, str], image: OciImage[Any]) -> dict[str, Any]:
    return {
        "mediaType": MANIFEST,
        "digest": image.digest,
        "size": len(image.manifest),
        "annotations": annotations,
    }


def _index(entries: list[dict[str, Any]]) -> bytes:
    return canonical_json({"schemaVersion": 2, "mediaType": INDEX, "manifests": entries})
