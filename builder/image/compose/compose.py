"""A cell's image put together: its documents, byte for byte as BuildKit would write them, and its layers."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from builder.image.compose.cell_layers import BaseLayers, SystemLayers
from builder.image.compose.run_steps import ComposeInput, added_layers
from builder.image.layers import Layer
from builder.image.recipe import Recipe, RecipeSetting
from builder.sources.oci import OciImage, image_manifest

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
class ComposedImage(OciImage[Layer]):
    """A cell's image."""

    own: tuple[Layer, ...] = ()
    """Layers of wheels, rootfs, Python and recipe, which another machine finds by their keys."""

    @property
    def size(self) -> int:
        """In bytes, unpacked; without layers of which only the compressed size is known."""
        return sum(layer.unpacked for layer in self.layers)


def compose_image(work: ComposeInput) -> ComposedImage:
    """Put an image together: the layers of the plan are known, those that the recipe adds are made.

    Raises :class:`~builder.core.errors.MissingToolError` if this machine cannot run the recipe's steps, and
    :class:`~builder.core.errors.CellError` for one that fails.
    """
    added = added_layers(work)
    config = final_config(work.recipe, work.plan.base, work.plan.stacked, work.system, added)
    layers = (*work.plan.stacked, *work.system.layers, *added)
    manifest = image_manifest(config, layers)
    return ComposedImage(manifest=manifest, config=config, layers=layers, own=(*work.plan.every, *added))


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
    """JSON as Go's ``encoding/json`` writes it: no blanks, and HTML's own characters escaped."""
    text = json.dumps(document, separators=(",", ":"), ensure_ascii=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text.encode()
