"""A cell's image put together: its documents, byte for byte as BuildKit would write them, and its layers."""

import json
import shutil
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from builder.core.digests import canonical_json, content_of, sha256_of
from builder.core.files import write_whole
from builder.core.temporary import disk_errors, locked
from builder.image.compose.layer_plan import check_collisions
from builder.image.compose.run_steps import Assembly, added_layers
from builder.image.layers import BaseLayers, Layer, Record, SystemLayers
from builder.image.recipe import Recipe, RecipeSetting, refuse_foreign
from builder.sources.oci import INDEX, MANIFEST

_REF = "org.opencontainers.image.ref.name"
_LOADED = "io.containerd.image.name"
"""https://github.com/containerd/containerd/blob/main/core/images/annotations.go"""
_LAYOUT = canonical_json({"imageLayoutVersion": "1.0.0"})
_CONFIG_ORDER = (
    *("User", "ExposedPorts", "Env", "Entrypoint", "Cmd", "Volumes", "WorkingDir", "Labels", "StopSignal"),
    *("ArgsEscaped", "Healthcheck", "OnBuild", "StopTimeout", "Shell"),
)
"""The order of the fields of Go's structure:
https://github.com/moby/docker-image-spec/blob/main/specs-go/v1/image.go"""
_DURATIONS = {
    "interval": "Interval",
    "timeout": "Timeout",
    "start-period": "StartPeriod",
    "start-interval": "StartInterval",
}
"""Options of ``HEALTHCHECK`` and fields of Go's structure, in its order."""


@dataclass(frozen=True, kw_only=True)
class ComposedImage:
    """An image as its documents, and its layers by key."""

    manifest: bytes
    config: bytes
    layers: tuple[Layer, ...]
    """Lowest first."""
    records: tuple[Record, ...] = ()
    """The layers whose keys in the store are known."""

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

    @property
    def size(self) -> int:
        """In bytes, unpacked; without layers of which only the compressed size is known."""
        return sum(layer.unpacked for layer in self.layers)


def compose_image(work: Assembly) -> ComposedImage:
    """Put an image together: the layers of the plan are known, those that the recipe adds are made.

    Raises :class:`~builder.core.errors.CellError` if two packages fight over a path, and
    :class:`~builder.core.errors.MissingToolError` if this machine cannot run the recipe's steps.
    """
    check_collisions(work.plan)
    records = added_layers(work)
    added = tuple(one.layer for one in records)
    stacked = work.plan.stacked(work.base.layers)
    config = final_config(work.recipe, work.base, stacked, work.system, added)
    layers = (*stacked, *work.system.layers, *added)
    records = (*work.plan.every, *records)
    return ComposedImage(manifest=_manifest(config, layers), config=config, layers=layers, records=records)


def _manifest(config: bytes, layers: tuple[Layer, ...]) -> bytes:
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


def base_image(base: BaseLayers) -> ComposedImage:
    """A base as an image of its own, with the documents that its layers and its config make."""
    diff_ids = [layer.diff_id for layer in base.layers]
    config = canonical_json({**base.config, "rootfs": {"type": "layers", "diff_ids": diff_ids}})
    manifest = _manifest(config, base.layers)
    return ComposedImage(manifest=manifest, config=config, layers=base.layers)


def final_config(
    recipe: Recipe, base: BaseLayers, stacked: Sequence[Layer], system: SystemLayers, added: Sequence[Layer]
) -> bytes:
    """The image's config as BuildKit writes it, byte for byte, dated by the lock.

    ``stacked`` are the layers of base and wheels, lowest first; those of a base with a history are lowest.
    """
    created = datetime.fromtimestamp(recipe.pinned.epoch, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    step = {"created": created, "comment": "buildkit.dockerfile.v0"}
    history = list(base.config.get("history") or ())
    ours = stacked[len(base.layers) :] if history else stacked
    history += [{"created": created, "created_by": f"rtbuild: {layer.title}"} for layer in ours]
    history += system.history
    history += [{**step, "created_by": f"COPY /out/{name}/ / # buildkit"} for name in recipe.added]
    history += [{**step, "created_by": _said(one), "empty_layer": True} for one in recipe.settings]
    order = ("created", "created_by", "author", "comment", "empty_layer")
    layers = (*stacked, *system.layers, *added)
    document = {
        **{key: base.config[key] for key in ("architecture", "os", "variant") if key in base.config},
        "config": _ordered(_configured(base, recipe.settings), _CONFIG_ORDER),
        "created": created,
        "history": [_ordered(entry, order) for entry in history],
        "rootfs": {"type": "layers", "diff_ids": [layer.diff_id for layer in layers]},
    }
    return go_json(dict(sorted(document.items())))


def _configured(base: BaseLayers, settings: Sequence[RecipeSetting]) -> dict[str, Any]:
    config = dict(base.config.get("config") or {})
    environment = base.environment
    labels = dict(config.get("Labels") or {})
    for one in settings:
        match one.kind:
            case "ENV":
                environment[one.name] = str(one.value)
            case "LABEL":
                labels[one.name] = str(one.value)
            case "CMD":
                config["Cmd"], config["ArgsEscaped"] = list(one.value), True
            case "ENTRYPOINT":
                config["Entrypoint"] = list(one.value)
                if not any(other.kind == "CMD" for other in settings):
                    config.pop("Cmd", None)
            case "HEALTHCHECK":
                times = {_DURATIONS[name]: seconds * 10**9 for name, seconds in one.durations}
                config["Healthcheck"] = {"Test": ["CMD", *one.value], **times}
            case "USER":
                config["User"] = one.value
    config["Env"] = [f"{name}={text}" for name, text in environment.items()]
    if labels:
        config["Labels"] = dict(sorted(labels.items()))
    return config


def _said(one: RecipeSetting) -> str:
    """The entry of the image's history, in BuildKit's words."""

    def quoted(*words: str) -> str:
        return " ".join(json.dumps(word, ensure_ascii=False) for word in words)

    if isinstance(one.value, str):
        return f"{one.kind} {one.name}={one.value}" if one.name else f"{one.kind} {one.value}"
    if one.kind == "HEALTHCHECK":
        given = dict(one.durations)
        lengths = " ".join(f'"{_go_duration(given.get(name, 0))}"' for name in _DURATIONS)
        return f"HEALTHCHECK &{{[{quoted('CMD', *one.value)}] {lengths} '\\x00'}}"
    return f"{one.kind} [{quoted(*one.value)}]"


def _go_duration(seconds: int) -> str:
    """``1m0s``, as Go writes it."""
    minutes, hours = seconds // 60, seconds // 3600
    return (f"{hours}h" if hours else "") + (f"{minutes % 60}m" if minutes else "") + f"{seconds % 60}s"


def _ordered(document: Mapping[str, Any], order: Sequence[str]) -> dict[str, Any]:
    known = {key: document[key] for key in order if key in document}
    return known | {key: value for key, value in document.items() if key not in known}


def go_json(document: object) -> bytes:
    """As Go's ``encoding/json`` writes it: no blanks, and HTML's own characters escaped."""
    text = json.dumps(document, separators=(",", ":"), ensure_ascii=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text.encode()


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
    image: ComposedImage, name: str, blob: Callable[[Layer], Path], *, without: Collection[str] = ()
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


def _entry(annotations: dict[str, str], image: ComposedImage) -> dict[str, Any]:
    return {
        "mediaType": MANIFEST,
        "digest": image.digest,
        "size": len(image.manifest),
        "annotations": annotations,
    }


def _index(entries: list[dict[str, Any]]) -> bytes:
    return canonical_json({"schemaVersion": 2, "mediaType": INDEX, "manifests": entries})
