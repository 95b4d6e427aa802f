"""A cell's whole image put together without an engine: the documents, and where each layer is."""

from __future__ import annotations

import json
import shutil
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING

from builder.digests import canonical_json, content_of, sha256_of
from builder.errors import UsageError
from builder.files import write_whole
from builder.layers.config import final_config
from builder.layers.finish import Finisher, added_layers, layer_keys
from builder.layers.locking import disk_errors, locked
from builder.layers.stack import check_collisions
from builder.layers.store import Record

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from builder.layers.finish import Workbench
    from builder.layers.stack import Plan
    from builder.layers.store import Lease
    from builder.layers.types import BaseLayers, Layer
    from builder.recipe.values import Recipe

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_CONFIG = "application/vnd.oci.image.config.v1+json"
_INDEX = "application/vnd.oci.image.index.v1+json"
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
    def size(self) -> int:
        """In bytes, unpacked; without layers of which only the compressed size is known."""
        return sum(layer.unpacked for layer in self.layers)


def compose_image(
    recipe: Recipe,
    made: Plan,
    base: BaseLayers,
    *,
    blob: Callable[[Layer], Path],
    fetched: Callable[[str, Lease], Record | None],
    progress: Callable[[str], None],
    cancel: threading.Event,
    bench: Workbench,
) -> ComposedImage:
    """Put the image of ``recipe`` together: every layer of ``made`` is known, what the recipe adds is made.

    ``blob`` gives the file of a layer that has to be looked into; ``fetched`` a layer of that key from
    elsewhere. Raises :class:`~builder.errors.CellError` where an engine is needed, or two packages fight over
    a path, and :class:`~builder.errors.MissingToolError` where this machine cannot run the recipe's steps.
    """
    check_collisions(made)
    wheels = [made.known[group].record.layer for group in made.groups]
    work = Finisher(
        recipe=recipe,
        base=base,
        wheels=wheels,
        store=made.store,
        lease=made.lease,
        cancel=cancel,
        bench=bench,
        blob=blob,
        fetched=fetched,
        progress=progress,
    )
    added, count = added_layers(work)
    config = final_config(recipe, base, wheels, added)
    layers = (*base.layers, *wheels, *added)
    steps = layer_keys(recipe, base.layers, wheels)
    made_of = {one.key: one.record for one in made.every}
    made_of |= {key: Record(layer=layer) for key, layer in zip(steps.values(), added, strict=True)}
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


def write_layout(
    folder: Path, tag: str, loaded: str, image: ComposedImage, blob: Callable[[Layer], Path]
) -> None:
    """Add an image to the OCI layout in ``folder`` under ``tag``; blobs that are there stay.

    https://github.com/opencontainers/image-spec/blob/main/image-layout.md; tools read it as
    ``oci:FOLDER:TAG``, and ``docker load`` gives a tar file of it the name ``loaded``. Raises UsageError
    where the folder holds something else.
    """
    blobs = folder / "blobs" / "sha256"
    with disk_errors(folder):
        _refuse_foreign(folder)
        blobs.mkdir(parents=True, exist_ok=True)
        for layer in image.layers:
            target = blobs / layer.digest.removeprefix("sha256:")
            if not (target.is_file() and target.stat().st_size == layer.size):
                beside = target.with_suffix(f".{uuid.uuid4().hex}.part")
                shutil.copyfile(blob(layer), beside)
                beside.replace(target)
        for document in (image.config, image.manifest):
            write_whole(blobs / sha256_of(document).removeprefix("sha256:"), document)
        write_whole(folder / "oci-layout", canonical_json({"imageLayoutVersion": "1.0.0"}))
        with locked(folder / ".lock"):
            _add_to_index(folder / "index.json", {_REF: tag, _LOADED: loaded}, image)


def _add_to_index(path: Path, annotations: dict[str, str], image: ComposedImage) -> None:
    there = json.loads(path.read_bytes())["manifests"] if path.is_file() else []
    others = [entry for entry in there if (entry.get("annotations") or {}).get(_REF) != annotations[_REF]]
    entry = {
        "mediaType": MANIFEST,
        "digest": image.digest,
        "size": len(image.manifest),
        "annotations": annotations,
    }
    entries = sorted([*others, entry], key=lambda one: str((one.get("annotations") or {}).get(_REF)))
    write_whole(path, canonical_json({"schemaVersion": 2, "mediaType": _INDEX, "manifests": entries}))


def _refuse_foreign(folder: Path) -> None:
    names = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
    if (folder.exists() and not folder.is_dir()) or (names and "blobs" not in names):
        raise UsageError(
            f"{folder} is there and is no OCI layout", hint="name a folder that does not exist, or remove it"
        )
