"""A cell's image put together: its documents and its layers."""

import json
import shutil
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from builder.digests import canonical_json, content_of, sha256_of
from builder.errors import UsageError
from builder.files import write_whole
from builder.image.config import final_config
from builder.image.finish import Assembly, added_layers
from builder.image.stack import check_collisions
from builder.layers.store import Record
from builder.layers.types import BaseLayers, Layer
from builder.oci.spec import INDEX, MANIFEST
from builder.temporary import disk_errors, locked

_CONFIG = "application/vnd.oci.image.config.v1+json"
_REF = "org.opencontainers.image.ref.name"
_LOADED = "io.containerd.image.name"
"""https://github.com/containerd/containerd/blob/main/core/images/annotations.go"""


@dataclass(frozen=True, kw_only=True)
class ComposedImage:
    """An image as its documents, and its layers by key."""

    manifest: bytes
    config: bytes
    layers: tuple[Layer, ...]
    """Lowest first."""
    made_of: Mapping[str, Record]
    """The layers by what they are made of: their keys in the store."""
    made: int
    """How many of the recipe's own layers were made now."""

    @property
    def digest(self) -> str:
        return sha256_of(self.manifest)

    @property
    def config_digest(self) -> str:
        return sha256_of(self.config)

    @property
    def content(self) -> str:
        """The same as an engine's for the same image."""
        config = json.loads(self.config)
        return content_of(
            platform=f"{config['os']}/{config['architecture']}",
            layers=config["rootfs"]["diff_ids"],
            config=config["config"],
        )

    @property
    def blobs(self) -> frozenset[str]:
        """The digests of the layers."""
        return frozenset(layer.digest for layer in self.layers)

    @property
    def size(self) -> int:
        """In bytes, unpacked; without layers of which only the compressed size is known."""
        return sum(layer.unpacked for layer in self.layers)


def compose_image(work: Assembly) -> ComposedImage:
    """Put an image together: the layers of the plan are known, those that the recipe adds are made.

    Raises :class:`~builder.errors.CellError` if two packages fight over a path, and
    :class:`~builder.errors.MissingToolError` if this machine cannot run the recipe's steps.
    """
    check_collisions(work.plan)
    added, count = added_layers(work)
    stacked = work.plan.stacked(work.base.layers)
    config = final_config(work.recipe, work.base, stacked, work.system, tuple(added.values()))
    layers = (*stacked, *work.system.layers, *added.values())
    made_of = {one.key: one.record for one in work.plan.every}
    made_of |= {key: Record(layer=layer) for key, layer in added.items()}
    return ComposedImage(
        manifest=_manifest(config, layers), config=config, layers=layers, made_of=made_of, made=count
    )


def _manifest(config: bytes, layers: tuple[Layer, ...]) -> bytes:
    """As BuildKit writes it: of equal layers comes an equal digest."""
    document = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": {"mediaType": _CONFIG, "digest": sha256_of(config), "size": len(config)},
        "layers": [
            {"mediaType": layer.media_type, "digest": layer.digest, "size": layer.size} for layer in layers
        ],
    }
    return json.dumps(document, indent=2).encode()


def base_image(base: BaseLayers) -> ComposedImage:
    """A base as an image of its own, with the documents that its layers and its config make."""
    diff_ids = [layer.diff_id for layer in base.layers]
    config = canonical_json({**base.config, "rootfs": {"type": "layers", "diff_ids": diff_ids}})
    manifest = _manifest(config, base.layers)
    return ComposedImage(manifest=manifest, config=config, layers=base.layers, made_of={}, made=0)


def write_layout(
    folder: Path,
    tag: str,
    loaded: str,
    image: ComposedImage,
    blob: Callable[[Layer], Path],
    *,
    link: bool = False,
) -> None:
    """Add an image to the OCI layout in ``folder`` under ``tag``; blobs that are there stay.

    https://github.com/opencontainers/image-spec/blob/main/image-layout.md; tools read it as
    ``oci:FOLDER:TAG``, and ``docker load`` gives a tar file of it the name ``loaded``. With ``link`` the
    layers are links to their files. Raises UsageError if the folder holds something else.
    """
    blobs = folder / "blobs" / "sha256"
    with disk_errors(folder):
        _refuse_foreign(folder)
        blobs.mkdir(parents=True, exist_ok=True)
        for layer in image.layers:
            target = blobs / layer.digest.removeprefix("sha256:")
            if link:
                target.symlink_to(blob(layer).resolve())
            elif not (target.is_file() and target.stat().st_size == layer.size):
                beside = target.with_suffix(f".{uuid.uuid4().hex}.part")
                shutil.copyfile(blob(layer), beside)
                beside.replace(target)
        for document in (image.config, image.manifest):
            write_whole(blobs / sha256_of(document).removeprefix("sha256:"), document)
        write_whole(folder / "oci-layout", canonical_json({"imageLayoutVersion": "1.0.0"}))
        with locked(folder / ".lock"):
            _add_to_index(folder / "index.json", {_REF: tag, _LOADED: loaded}, image)


def archive_parts(
    image: ComposedImage, name: str, blob: Callable[[Layer], Path], *, without: Collection[str] = ()
) -> Iterator[tuple[str, bytes | Path]]:
    """The files of an archive that ``docker load`` takes, with the blobs that are not in ``without``.

    The containerd image store reads the OCI layout in it, a graphdriver ``manifest.json``:
    https://github.com/moby/docker-image-spec/blob/main/spec.md
    """

    def place(digest: str) -> str:
        return "blobs/sha256/" + digest.removeprefix("sha256:")

    described = {
        "Config": place(image.config_digest),
        "RepoTags": [name],
        "Layers": [place(layer.digest) for layer in image.layers],
    }
    annotations = {_REF: name.rpartition(":")[2], _LOADED: f"docker.io/{name}"}
    yield "oci-layout", canonical_json({"imageLayoutVersion": "1.0.0"})
    yield "index.json", _index([_entry(annotations, image)])
    yield "manifest.json", canonical_json([described])
    for document in (image.manifest, image.config):
        yield place(sha256_of(document)), document
    for layer in {layer.digest: layer for layer in image.layers}.values():
        if layer.digest not in without:
            yield place(layer.digest), blob(layer)


def _add_to_index(path: Path, annotations: dict[str, str], image: ComposedImage) -> None:
    there = json.loads(path.read_bytes())["manifests"] if path.is_file() else []
    others = [entry for entry in there if (entry.get("annotations") or {}).get(_REF) != annotations[_REF]]
    entries = sorted(
        [*others, _entry(annotations, image)], key=lambda one: str((one.get("annotations") or {}).get(_REF))
    )
    write_whole(path, _index(entries))


def _entry(annotations: dict[str, str], image: ComposedImage) -> dict[str, Any]:
    return {
        "mediaType": MANIFEST,
        "digest": image.digest,
        "size": len(image.manifest),
        "annotations": annotations,
    }


def _index(entries: list[dict[str, Any]]) -> bytes:
    return canonical_json({"schemaVersion": 2, "mediaType": INDEX, "manifests": entries})


def _refuse_foreign(folder: Path) -> None:
    names = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
    if (folder.exists() and not folder.is_dir()) or (names and "blobs" not in names):
        raise UsageError(
            f"{folder} is there and is no OCI layout", hint="name a folder that does not exist, or remove it"
        )
