"""The config of an image, byte for byte as BuildKit would write it."""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from builder.layers.types import BaseLayers, Layer, SystemLayers
from builder.recipe.values import Recipe, RecipeSetting

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
_HISTORY_ORDER = ("created", "created_by", "author", "comment", "empty_layer")


def final_config(
    recipe: Recipe,
    base: BaseLayers,
    stacked: Sequence[Layer],
    system: SystemLayers,
    added: Sequence[Layer],
) -> bytes:
    """The image's config as BuildKit writes it, byte for byte, dated by the lock.

    ``stacked`` are the layers of base and wheels, lowest first; those of a base with a history are lowest.
    """
    created = datetime.fromtimestamp(recipe.pinned.epoch, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    by_kit = {"created": created, "comment": "buildkit.dockerfile.v0"}
    history = list(base.config.get("history") or ())
    ours = stacked[len(base.layers) :] if history else stacked
    history += [{"created": created, "created_by": f"rtbuild: {layer.title}"} for layer in ours]
    history += system.history
    history += [{**by_kit, "created_by": f"COPY /out/{name}/ / # buildkit"} for name in recipe.added]
    history += [{**by_kit, "created_by": _said(one), "empty_layer": True} for one in recipe.settings]
    layers = (*stacked, *system.layers, *added)
    document = {
        **{key: base.config[key] for key in ("architecture", "os", "variant") if key in base.config},
        "config": _ordered(_configured(base, recipe.settings), _CONFIG_ORDER),
        "created": created,
        "history": [_ordered(entry, _HISTORY_ORDER) for entry in history],
        "rootfs": {"type": "layers", "diff_ids": [layer.diff_id for layer in layers]},
    }
    return go_json(dict(sorted(document.items())))


def environment_of(base: BaseLayers) -> dict[str, str]:
    """The variables that a base gives to whatever runs in it."""
    return dict(pair.partition("=")[::2] for pair in (base.config.get("config") or {}).get("Env") or ())


def _configured(base: BaseLayers, settings: Sequence[RecipeSetting]) -> dict[str, Any]:
    config = dict(base.config.get("config") or {})
    environment = environment_of(base)
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
    if one.kind in ("ENV", "LABEL"):
        return f"{one.kind} {one.name}={one.value}"
    if isinstance(one.value, str):
        return f"{one.kind} {one.value}"
    if one.kind == "HEALTHCHECK":
        given = dict(one.durations)
        lengths = " ".join(f'"{_go_duration(given.get(name, 0))}"' for name in _DURATIONS)
        return f"HEALTHCHECK &{{[{_quoted('CMD', *one.value)}] {lengths} '\\x00'}}"
    return f"{one.kind} [{_quoted(*one.value)}]"


def _quoted(*words: str) -> str:
    return " ".join(json.dumps(word, ensure_ascii=False) for word in words)


def _go_duration(seconds: int) -> str:
    """``1m0s``, as Go writes it."""
    hours, minutes = seconds // 3600, seconds // 60
    text = f"{hours}h" if hours else ""
    text += f"{minutes % 60}m" if minutes else ""
    return f"{text}{seconds % 60}s"


def _ordered(document: Mapping[str, Any], order: Sequence[str]) -> dict[str, Any]:
    known = {key: document[key] for key in order if key in document}
    return known | {key: value for key, value in document.items() if key not in known}


def go_json(document: object) -> bytes:
    """As Go's ``encoding/json`` writes it: no blanks, and HTML's own characters escaped."""
    text = json.dumps(document, separators=(",", ":"), ensure_ascii=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text.encode()
