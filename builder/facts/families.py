"""Which distributions make up each framework, and how their releases become rows."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from builder.facts.assemble import (
    BY_NAME,
    Raw,
    WheelRelease,
    add_told,
    base_row,
    cudnn_by_pin,
    is_nvidia,
    least,
    lines_for,
    pythons,
    seal,
)
from builder.facts.versions import key, requirement, short
from builder.facts.wheel import Told, metadata_of

if TYPE_CHECKING:
    Found = Mapping[str, Mapping[str, WheelRelease]]
    """Releases by distribution and version."""

CUPY = ("80", "90", "91", "92", "100", "101", "102", "110", "111", "112", "113", "114", "115", "116", "117")


@dataclass(frozen=True, kw_only=True)
class Family:
    """One framework."""

    stem: str
    """Of its file in ``tables/releases``."""
    distributions: Mapping[str, str]
    """Each with the first release that is read."""
    rows: Callable[[Found], Iterator[Raw]]
    two: bool = False
    """True if a second wheel of each release is read, too."""
    light: tuple[str, ...] = ()
    """Distributions whose metadata is enough."""


def _told(release: WheelRelease) -> list[tuple[str, Told]]:
    order = ("linux/amd64", "other", "linux/arm64")
    return [("", release.told[name]) for name in order if name in release.told]


def _tensorflow(found: Found) -> Iterator[Raw]:
    for release in _all(found):
        row = base_row(release)
        add_told(row, _told(release))
        lines = row["extras"].get("and-cuda", ())
        cudnn_by_pin(row, lines, 2)
        row["brings"] = "extra" if lines else "outside"
        row["extra"] = "and-cuda" if lines else None
        yield seal(row, release)


def _torch(found: Found) -> Iterator[Raw]:
    for release in _all(found):
        row = base_row(release)
        add_told(row, _told(release)[:1])
        arm = release.told.get("linux/arm64")
        if arm is not None and "linux/arm64" not in row.get("cpu_only", ()):
            row["architectures_arm64"] = list(arm.values.get("architectures", ()))
        cudnn_by_pin(row, row["extras"].get("", ()), 4)
        row["version"], _, local = release.version.partition("+")
        if local:
            row |= {"variant": local, "default": False}
        elif row.get("cuda"):
            row["variant"] = "cu" + short(row["cuda"], 2).replace(".", "")
        row["brings"] = "pins" if any("cudnn" in line for line in row["extras"].get("", ())) else "inside"
        yield seal(row, release)


def _plain(found: Found) -> Iterator[Raw]:
    """ONNX Runtime, PaddlePaddle, CTranslate2: one row for each release."""
    for release in _all(found):
        row = base_row(release)
        add_told(row, _told(release))
        lines = row["extras"].get("cudnn", ())
        row["brings"] = (
            "extra"
            if lines
            else "pins"
            if any("cudnn" in x for x in row["extras"].get("", ()))
            else "outside"
        )
        row["extra"] = "cudnn" if lines else None
        yield seal(row, release)


def _cupy(found: Found) -> Iterator[Raw]:
    for release in _all(found):
        row = base_row(release)
        add_told(row, _told(release))
        row["variant"] = release.distribution.removeprefix("cupy-")
        row["default"] = True
        row["brings"] = "outside"
        yield seal(row, release)


def _jax(found: Found) -> Iterator[Raw]:
    """One row for each release of jax and each CUDA that an extra of it asks a plug-in or a build for."""
    for release in found["jax"].values():
        told = next(iter(release.told.values()), None)
        metadata = metadata_of(told.metadata if told else None)
        versions = pythons(release, "linux/amd64", metadata.python)
        asked = {extra: lines_for(metadata, extra, versions) for extra in metadata.extras}
        for variant in ("cuda11", "cuda12", "cuda13"):
            plugin = _asked_for(asked.get(variant, ()), f"jax-{variant}-plugin", found)
            if plugin is not None:
                yield _with_plugin(release, variant, asked, plugin, found)
            elif f"{variant}-pip" in asked:
                yield _with_local_build(release, variant, asked)


def _asked_for(lines: list[str] | tuple[()], name: str, found: Found) -> WheelRelease | None:
    """The newest release of a distribution that one of these requirements admits."""
    for line in lines:
        parsed = requirement(line)
        if parsed is not None and parsed.name == name:
            fitting = [version for version in found.get(name, {}) if parsed.specifier.contains(version)]
            return found[name][max(fitting, key=key)] if fitting else None
    return None


def _with_plugin(
    release: WheelRelease, variant: str, asked: Mapping[str, list[str]], plugin: WheelRelease, found: Found
) -> Raw:
    row = base_row(release)
    jaxlib = _asked_for(row["requires"] + asked[variant], "jaxlib", found)
    parts = [part for part in (plugin, jaxlib) if part is not None]
    platforms = [p for p in ("linux/amd64", "linux/arm64") if all(part.on(p) for part in parts)]
    row["platforms"] = platforms
    common = set(row["python"]).intersection(*(pythons(part, "linux/amd64", None) for part in parts))
    row["python"] = sorted(common, key=key)
    own = base_row(plugin)
    row |= {name: own[name] for name in ("glibc", "glibc_arm64") if name in own}
    if "linux/arm64" not in platforms:
        row.pop("glibc_arm64", None)
    row["read"] |= dict.fromkeys(BY_NAME, "file names")
    add_told(
        row,
        [(f"{plugin.distribution} {plugin.version}: ", told) for _, told in _told(plugin)[:1]],
        ("cuda", "cudnn", "architectures"),
    )
    if jaxlib is not None:
        add_told(row, [(f"jaxlib {jaxlib.version}: ", told) for _, told in _told(jaxlib)], ("numpy_abi",))
    brought = own["extras"].get("with-cuda", [])
    row["extras"] = {
        extra: [line for line in lines if is_nvidia(line)] + (brought if _with_cuda(lines, plugin) else [])
        for extra, lines in asked.items()
        if extra.startswith("cuda") and (_with_cuda(lines, plugin) or any(is_nvidia(line) for line in lines))
    }
    row |= {"variant": variant, "default": True, "brings": "extra", "extra": variant}
    row["requires"] += [
        line for line in asked[variant] if not is_nvidia(line) and line not in row["requires"]
    ]
    runtime = least(row["extras"].get(variant, ()), r"nvidia-cuda-runtime(-cu\d+)?")
    if runtime:
        row["cuda_minimum"] = short(runtime, 2)
        row["read"]["cuda_minimum"] = "METADATA"
    row["yanked"] = release.yanked or plugin.yanked
    return seal(row, release, plugin, jaxlib)


def _with_cuda(lines: list[str], plugin: WheelRelease) -> bool:
    return any(
        line.startswith((f"{plugin.distribution}[with-cuda]", f"{plugin.distribution}[with_cuda]"))
        for line in lines
    )


def _with_local_build(release: WheelRelease, variant: str, asked: Mapping[str, list[str]]) -> Raw:
    """A jaxlib of Google's own index: its version, ``0.4.16+cuda11.cudnn86``, names its CUDA and cuDNN."""
    row = base_row(release)
    extra = f"{variant}-pip"
    local = next((m for line in asked[extra] if (m := re.search(r"\+cuda(\d+)\.cudnn(\d)(\d+)", line))), None)
    if local is not None:
        row |= {"cuda": local[1], "cudnn": f"{local[2]}.{local[3]}"}
        row["read"] |= {"cuda": "METADATA", "cudnn": "METADATA"}
    row["extras"] = {extra: [line for line in asked[extra] if is_nvidia(line)]}
    row |= {"variant": variant, "default": False, "brings": "extra", "extra": extra}
    row["requires"] += [line for line in asked[extra] if not is_nvidia(line) and line not in row["requires"]]
    row["unread"] = {"architectures": "its jaxlib is on an index of its maker's that was not reachable"}
    return seal(row, release)


def _all(found: Found) -> Iterator[WheelRelease]:
    for of_it in found.values():
        yield from of_it.values()


FAMILIES = (
    Family(
        stem="tensorflow", distributions={"tensorflow": "1.13", "tensorflow-gpu": "1.13"}, rows=_tensorflow
    ),
    Family(stem="torch", distributions={"torch": "1.8"}, rows=_torch),
    Family(
        stem="jax",
        distributions={
            "jax": "0.4.8",
            "jaxlib": "0.4.8",
            "jax-cuda11-plugin": "0.4",
            "jax-cuda12-plugin": "0.4",
            "jax-cuda13-plugin": "0.4",
        },
        rows=_jax,
        light=("jax", "jaxlib"),
    ),
    Family(
        stem="cupy",
        distributions={f"cupy-cuda{name}": "8" for name in (*CUPY, "11x", "12x", "13x")},
        rows=_cupy,
    ),
    Family(stem="onnxruntime", distributions={"onnxruntime-gpu": "1.0"}, rows=_plain, two=True),
    Family(stem="paddle", distributions={"paddlepaddle-gpu": "2.0"}, rows=_plain),
    Family(stem="ctranslate2", distributions={"ctranslate2": "2.0"}, rows=_plain, two=True),
)
