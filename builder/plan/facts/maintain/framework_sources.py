"""Which distributions make up each framework, and how their releases become rows."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from builder.core.versions import key, requirement, short
from builder.plan.facts.maintain import release_rows as assemble
from builder.plan.facts.maintain.package_rows import package_rows
from builder.plan.facts.maintain.release_rows import Raw, WheelRelease
from builder.plan.facts.reading import WheelReading, metadata_of
from builder.plan.facts.tables import PackageName, TableFile
from builder.sources.index import MACHINES

Found = Mapping[str, Mapping[str, WheelRelease]]
"""Releases by distribution and version."""
Rows = Callable[[Found], Iterator[Raw]]

_JAX_VARIANTS = ("cuda11", "cuda12", "cuda13")
CUPY = ("80", "90", "91", "92", "100", "101", "102", "110", "111", "112", "113", "114", "115", "116", "117")


@dataclass(frozen=True)
class Family:
    """One framework."""

    stem: str
    """Of its file in ``tables/releases``: ``torch``, ``packages/vllm``."""
    distributions: Mapping[str, str]
    """Each with the first release that is read."""
    rows: Rows
    two: bool = False
    """True if a second wheel of each release is read, too."""
    light: tuple[str, ...] = ()
    """Distributions whose metadata is enough."""
    compiled: str | None = None
    """Of a package beside the frameworks: the first release whose libraries are read."""
    numpy: bool = False
    """True if of its libraries is read which NumPy they are compiled for, and nothing else."""

    @property
    def name(self) -> str:
        """By which ``--only`` asks for it."""
        return self.stem.rpartition("/")[2]


def _told(release: WheelRelease) -> list[tuple[str, WheelReading]]:
    order = ("linux/amd64", "other", "linux/arm64")
    return [("", release.told[name]) for name in order if name in release.told]


def _each(change: Callable[[WheelRelease, Raw], None], wheels: int | None = None) -> Rows:
    """One row for each release, with the values of its first ``wheels``; ``change`` adds a family's own."""

    def rows(found: Found) -> Iterator[Raw]:
        for release in (release for of_it in found.values() for release in of_it.values()):
            row = assemble.base_row(release)
            assemble.add_told(row, _told(release)[:wheels])
            assemble.add_arm64(row, release)
            change(release, row)
            yield assemble.seal(row, release)

    return rows


def _tensorflow(_release: WheelRelease, row: Raw) -> None:
    assemble.cudnn_by_pin(row, row["extras"].get("and-cuda", ()), 2)
    row["extra"] = "and-cuda" if "and-cuda" in row["extras"] else None
    row["brings"] = "extra" if row["extra"] else "outside"


def _torch(release: WheelRelease, row: Raw) -> None:
    assemble.cudnn_by_pin(row, row["extras"].get("", ()), 4)
    row["version"], _, local = release.version.partition("+")
    if local:
        row |= {"variant": local, "default": False}
    elif row.get("cuda"):
        row["variant"] = "cu" + short(row["cuda"], 2).replace(".", "")
    row["brings"] = "pins" if _pins_cudnn(row) else "inside"


def _paddle(release: WheelRelease, row: Raw) -> None:
    """Up to 1.8 its version names CUDA and cuDNN: ``1.8.5.post107`` is for CUDA 10 and cuDNN 7."""
    _plain(release, row)
    named = re.search(r"\.post(\d+)(\d)$", release.version)
    if named is not None:
        row |= {"cuda": named[1], "cudnn": named[2]}
        row["read"] |= dict.fromkeys(("cuda", "cudnn"), "version")


def _plain(_release: WheelRelease, row: Raw) -> None:
    """ONNX Runtime, CTranslate2."""
    row["extra"] = "cudnn" if "cudnn" in row["extras"] else None
    row["brings"] = "extra" if row["extra"] else "pins" if _pins_cudnn(row) else "outside"


def _pins_cudnn(row: Raw) -> bool:
    return any("cudnn" in line for line in row["extras"].get("", ()))


def _cupy(release: WheelRelease, row: Raw) -> None:
    row |= {"variant": release.distribution.removeprefix("cupy-"), "default": True, "brings": "outside"}


def _jax(found: Found) -> Iterator[Raw]:
    """One row for each release of jax and each CUDA that an extra of it asks a plug-in or a build for."""
    for release in found["jax"].values():
        told = next(iter(release.told.values()), None)
        metadata = metadata_of(told.metadata if told else None)
        versions = assemble.pythons(release, "linux/amd64", metadata.python)
        asked = {extra: assemble.lines_for(metadata, extra, versions) for extra in metadata.extras}
        for variant in _JAX_VARIANTS:
            plugin = _asked_for(asked.get(variant, ()), f"jax-{variant}-plugin", found)
            if plugin is not None:
                row, made_of = _with_plugin(release, variant, asked, plugin, found)
            elif f"{variant}-pip" in asked:
                row, made_of = _with_local_build(release, variant, asked), (release,)
            else:
                continue
            row["aliases"] = [extra for extra, lines in asked.items() if _means(extra, lines, variant)]
            yield assemble.seal(row, *made_of)


def _means(extra: str, lines: Iterable[str], variant: str) -> bool:
    """Whether an extra without a number asks for this CUDA's plug-in, or for the build with it inside."""
    return extra == "cuda" and any(
        re.search(rf"\bjax-{variant}-plugin\b|\+{variant}\.", line) for line in lines
    )


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
) -> tuple[Raw, tuple[WheelRelease, ...]]:
    """The row, and the releases that it is made of."""
    row = assemble.base_row(release)
    jaxlib = _asked_for(row["requires"] + asked[variant], "jaxlib", found)
    parts = [part for part in (plugin, jaxlib) if part is not None]
    row["platforms"] = [p for p in MACHINES if all(part.on(p) for part in parts)]
    common = set(row["python"]).intersection(*(assemble.pythons(part, "linux/amd64", None) for part in parts))
    row["python"] = sorted(common, key=key)
    own = assemble.base_row(plugin)
    row |= {name: own[name] for name in ("glibc", "glibc_arm64") if name in own}
    if "linux/arm64" not in row["platforms"]:
        row.pop("glibc_arm64", None)
    row["read"] |= dict.fromkeys(assemble.BY_NAME, "file names")
    told = [(f"{plugin.distribution} {plugin.version}: ", told) for _, told in _told(plugin)[:1]]
    assemble.add_told(row, told, ("cuda", "cudnn", "architectures"))
    assemble.add_arm64(row, plugin)
    if jaxlib is not None:
        assemble.add_told(
            row, [(f"jaxlib {jaxlib.version}: ", told) for _, told in _told(jaxlib)], ("numpy_abi",)
        )
    with_cuda = (f"{plugin.distribution}[with-cuda]", f"{plugin.distribution}[with_cuda]")
    row["extras"] = {}
    for extra, lines in asked.items():
        pins = [line for line in lines if assemble.is_nvidia(line)]
        brought = any(line.startswith(with_cuda) for line in lines)
        if extra.startswith("cuda") and (brought or pins):
            row["extras"][extra] = pins + (own["extras"].get("with-cuda", []) if brought else [])
    row |= {"variant": variant, "default": True, "brings": "extra", "extra": variant}
    _add_requires(row, asked[variant])
    runtime = assemble.least(row["extras"].get(variant, ()), r"nvidia-cuda-runtime(-cu\d+)?")
    if runtime:
        row["cuda_minimum"] = short(runtime, 2)
        row["read"]["cuda_minimum"] = "METADATA"
    row["yanked"] = next((part.yanked for part in (release, *parts) if part.yanked is not None), None)
    return row, (release, *parts)


def _add_requires(row: Raw, lines: list[str]) -> None:
    row["requires"] += [
        line for line in lines if not assemble.is_nvidia(line) and line not in row["requires"]
    ]


def _with_local_build(release: WheelRelease, variant: str, asked: Mapping[str, list[str]]) -> Raw:
    """A jaxlib of Google's own index: its version, ``0.4.16+cuda11.cudnn86``, names its CUDA and cuDNN."""
    row = assemble.base_row(release)
    extra = f"{variant}-pip"
    local = next((m for line in asked[extra] if (m := re.search(r"\+cuda(\d+)\.cudnn(\d)(\d+)", line))), None)
    if local is not None:
        row |= {"cuda": local[1], "cudnn": f"{local[2]}.{local[3]}"}
        row["read"] |= {"cuda": "METADATA", "cudnn": "METADATA"}
    row["extras"] = {extra: [line for line in asked[extra] if assemble.is_nvidia(line)]}
    row |= {"variant": variant, "default": False, "brings": "extra", "extra": extra}
    _add_requires(row, asked[extra])
    row["unread"] = {"architectures": "its jaxlib is on an index of its maker's that was not reachable"}
    return row


FAMILIES = (
    Family("tensorflow", dict.fromkeys(("tensorflow", "tensorflow-gpu"), "0.12"), _each(_tensorflow)),
    Family("torch", {"torch": "0.4"}, _each(_torch, 1)),
    Family(
        "jax",
        {
            **dict.fromkeys(("jax", "jaxlib"), "0.4.8"),
            **dict.fromkeys((f"jax-{variant}-plugin" for variant in _JAX_VARIANTS), "0.4"),
        },
        _jax,
        light=("jax", "jaxlib"),
    ),
    Family("cupy", {f"cupy-cuda{name}": "8" for name in (*CUPY, "11x", "12x", "13x")}, _each(_cupy)),
    Family("onnxruntime", {"onnxruntime-gpu": "1.0"}, _each(_plain), two=True),
    Family("paddle", {"paddlepaddle-gpu": "0.10"}, _each(_paddle)),
    Family("ctranslate2", {"ctranslate2": "2.0"}, _each(_plain), two=True),
)


def families(folder: Path) -> tuple[Family, ...]:
    """The frameworks, and the packages beside them that the tables in a folder name."""
    path = folder / "packages.toml"
    names = TableFile(path).rows(PackageName) if path.exists() else ()
    beside = (
        Family(
            f"packages/{one.name}",
            {one.name: one.since},
            package_rows,
            compiled=one.compiled,
            numpy=one.light,
        )
        for one in names
    )
    return (*FAMILIES, *beside)
