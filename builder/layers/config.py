"""The config of an image that was put together without an engine, as BuildKit writes it, byte for byte."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from builder.layers.compose import image_config

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from builder.layers.dockerfile import Ending, Setting
    from builder.layers.types import BaseLayers, Layer

_CONFIG_ORDER = (
    *("User", "ExposedPorts", "Env", "Entrypoint", "Cmd", "Volumes", "WorkingDir", "Labels", "StopSignal"),
    *("ArgsEscaped", "Healthcheck", "OnBuild", "StopTimeout", "Shell"),
)
"""The order of the fields of Go's structure:
https://github.com/moby/docker-image-spec/blob/main/specs-go/v1/image.go"""
_HISTORY_ORDER = ("created", "created_by", "author", "comment", "empty_layer")


def final_config(
    base: BaseLayers, wheels: Sequence[Layer], added: Sequence[Layer], ending: Ending, epoch: int
) -> bytes:
    """The image's config as BuildKit writes it, byte for byte."""
    document = image_config(base, [*wheels, *added])
    created = datetime.fromtimestamp(epoch, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    by_kit = {"created": created, "comment": "buildkit.dockerfile.v0"}
    history = document["history"][: len(document["history"]) - len(added)]
    history += [{**by_kit, "created_by": f"COPY /out/{name}/ / # buildkit"} for name in ending.copies]
    history += [{**by_kit, "created_by": one.said, "empty_layer": True} for one in ending.settings]
    document["history"] = [_ordered(entry, _HISTORY_ORDER) for entry in history]
    document["config"] = _ordered(_configured(settings_of(base), ending.settings), _CONFIG_ORDER)
    document["rootfs"] = _ordered(document["rootfs"], ("type", "diff_ids"))
    return go_json(dict(sorted(document.items())))


def settings_of(base: BaseLayers) -> dict[str, Any]:
    """What a base says about how it is run."""
    return dict(base.config.get("config") or {})


def _configured(config: dict[str, Any], settings: Sequence[Setting]) -> dict[str, Any]:
    environment_ = dict(pair.partition("=")[::2] for pair in config.get("Env") or ())
    labels = dict(config.get("Labels") or {})
    for one in settings:
        match one.kind:
            case "ENV":
                environment_[one.name] = str(one.value)
            case "LABEL":
                labels[one.name] = str(one.value)
            case "CMD":
                config["Cmd"], config["ArgsEscaped"] = one.value, True
            case "ENTRYPOINT":
                config["Entrypoint"] = one.value
                if not any(other.kind == "CMD" for other in settings):
                    config.pop("Cmd", None)
            case "HEALTHCHECK":
                times = {name: seconds * 10**9 for name, seconds in one.durations}
                config["Healthcheck"] = {"Test": one.value, **times}
            case "WORKDIR":
                config["WorkingDir"] = one.value
            case "USER":
                config["User"] = one.value
            case _:  # EXPOSE
                ports = one.value if "/" in str(one.value) else f"{one.value}/tcp"
                config["ExposedPorts"] = {**(config.get("ExposedPorts") or {}), str(ports): {}}
    config["Env"] = [f"{name}={text}" for name, text in environment_.items()]
    if labels:
        config["Labels"] = dict(sorted(labels.items()))
    return config


def _ordered(document: Mapping[str, Any], order: Sequence[str]) -> dict[str, Any]:
    known = {key: document[key] for key in order if key in document}
    return known | {key: value for key, value in document.items() if key not in known}


def go_json(document: object) -> bytes:
    """As Go's ``encoding/json`` writes it: no blanks, and HTML's own characters escaped."""
    text = json.dumps(document, separators=(",", ":"), ensure_ascii=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text.encode()
