"""Which distributions make up each framework and package, and how their releases become rows."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.version import InvalidVersion, Version

from builder.core.versions import canonical, key, requirement, short
from builder.plan.facts.reading import release_rows as assemble
from builder.plan.facts.reading.observed import WheelReading, metadata_of
from builder.plan.facts.reading.package_wheel import number_of
from builder.plan.facts.reading.release_rows import Raw, WheelRelease
from builder.plan.facts.tables import NUMBERED, PackageName, PackageRow, TableFile, newest_minor
from builder.sources.index import MACHINES, IndexFile

AGAINST = "torch"
"""Whose symbols packages are compared with."""
AGAINST_SINCE = "2.0"
_SMALL = ("libc10", "libc10_cuda", "libtorch_python")
_TOLD = (
    "abi", "numpy_abi", "needed", "either", "brings", "architectures", "other_code", "by_cuda", "modules",
    "builds", "compiles",
)  # fmt: skip
_PTX = {
    "7.0": "11.0", "7.1": "11.1", "7.2": "11.2", "7.3": "11.3", "7.4": "11.4", "7.5": "11.5", "7.6": "11.6",
    "7.7": "11.7", "7.8": "11.8", "8.0": "12.0", "8.1": "12.1", "8.2": "12.2", "8.3": "12.3", "8.4": "12.4",
    "8.5": "12.5", "8.6": "12.7", "8.7": "12.8", "8.8": "12.9", "9.0": "13.0", "9.1": "13.1", "9.2": "13.2",
}  # fmt: skip
"""The oldest toolkit that writes a version of PTX: "Release Notes" in
https://docs.nvidia.com/cuda/parallel-thread-execution/ (8.5 is of 12.5 and 12.6)."""
_PTX_MAJOR = {"7": "11", "8": "12", "9": "13"}
"""Of a newer version of PTX than these the major is known."""


class SourceRelease(WheelRelease):
    """A release that has a source archive alone."""

    @property
    def platforms(self) -> list[str]:
        return ["linux/amd64"]

    def on(self, platform: str) -> list[IndexFile]:
        return self.standing if platform == "linux/amd64" else []


def with_sources(
    found: dict[str, WheelRelease], distribution: str, files: Iterable[IndexFile], since: str
) -> dict[str, WheelRelease]:
    """The releases with wheels, and those that have a source archive alone."""
    for file in files:
        stem = file.name.removesuffix(".tar.gz")
        name, _, text = stem.rpartition("-")
        try:
            version = Version(text)
        except InvalidVersion:
            continue
        ours = stem != file.name and canonical(name) == distribution and not version.is_prerelease
        if ours and version >= Version(since) and str(version) not in found:
            one = SourceRelease(distribution, str(version))
            one.files.append(file)
            found[str(version)] = one
    return found


def against(files: Iterable[IndexFile]) -> dict[str, WheelRelease]:
    """The newest patch of each minor release of PyTorch."""
    found = assemble.releases(AGAINST, files, AGAINST_SINCE)
    public = [version for version in found if "+" not in version]
    return {version: found[version] for version in newest_minor(public)}


def package_rows(found: Mapping[str, Mapping[str, WheelRelease]]) -> Iterator[Raw]:
    """One row for each release of the one package among the distributions."""
    defined = {
        short(version, 2): values
        for version, release in found.get(AGAINST, {}).items()
        if (values := _defined(release)) is not None
    }
    for name, of_it in found.items():
        for release in of_it.values() if name != AGAINST else ():
            told = release.told.get("linux/amd64") or next(iter(release.told.values()), None)
            yield assemble.seal(_row(release, told, defined), release, kind=PackageRow)


def _row(
    release: WheelRelease, told: WheelReading | None, defined: Mapping[str, Mapping[str, set[int]]]
) -> Raw:
    source = isinstance(release, SourceRelease)
    row = assemble.base_row(release, with_extras=False) if not source else _source_row(release, told)
    if told is None:
        return row
    assemble.add_told(row, [("", told)], _TOLD)
    if source:
        row["cuda"] = told.values.get("cuda")
        return row
    cuda = _cuda(row, told.values)
    if cuda is not None:
        row["cuda"], row["read"]["cuda"] = cuda
    if fitting := _fitting(told.values.get("symbols", ()), defined):
        row["torch"] = fitting
        row["read"]["torch"] = "its symbols, and those that PyTorch's small libraries define,"
    if row.get("unread", {}).pop("architectures", None) and _has_cuda(row):
        row["unread"]["architectures"] = "it lies beyond what is read of its libraries"
    if "numpy_abi" in row.get("unread", {}):
        row["unread"]["numpy_abi"] = "it lies beyond what is read of its libraries"
    # of the others the name of the file is enough
    row["read"] = {name: where for name, where in row["read"].items() if name in {"cuda", "torch"}}
    if limits := told.values.get("limits"):
        row.setdefault("unread", {})["libraries"] = "; ".join(limits[:3])[:400]
    return row


def _has_cuda(row: Raw) -> bool:
    """Whether its name or the libraries that it is linked with say that there is CUDA in it."""
    linked = (*row.get("needed", ()), *row.get("either", ()), *row.get("brings", ()))
    named = any(map(NUMBERED.fullmatch, linked))
    return named or re.search(r"-cu\d|-cuda|gpu", row["distribution"]) is not None


def _source_row(release: WheelRelease, told: WheelReading | None) -> Raw:
    metadata = metadata_of(told.metadata if told else None)
    pythons = [f"3.{minor}" for minor in range(8, 16)]
    return {
        "version": release.version,
        "distribution": release.distribution,
        "archive": "source",
        "yanked": release.yanked,
        "requires": assemble.lines_for(metadata, "", pythons),
        "extras": {},
        **(
            {"unread": {"requires": "its archive holds no PKG-INFO"}}
            if told is not None and "requires" in told.beyond
            else {"read": {"requires": "PKG-INFO"}}
        ),
    }


def _cuda(row: Raw, values: Mapping[str, Any]) -> tuple[str, str] | None:
    """CUDA that it was compiled with, and where that is said."""
    pins = [
        parsed
        for line in row.get("extras", {}).get("", ())
        if (parsed := requirement(line)) is not None and parsed.name.startswith("nvidia-cuda-runtime")
    ]
    linked = [*values.get("needed", ()), *values.get("either", ()), *values.get("brings", ())]
    majors = {match[1] for name in linked if (match := NUMBERED.fullmatch(name))}
    ptx = values.get("ptx", "")
    toolkit = _PTX.get(ptx) or _PTX_MAJOR.get(ptx.partition(".")[0])
    if len(majors) > 1:
        return None  # a library for each: `by_cuda` has them
    if toolkit is not None and majors <= {toolkit.partition(".")[0]}:
        return toolkit, "the version of the PTX in its libraries"
    if majors:
        return majors.pop().removesuffix(".0"), "the names of the libraries that it is linked with"
    exact = next(
        (clause.version for one in pins for clause in one.specifier if clause.operator == "=="), None
    )
    return (short(exact, 2), "METADATA") if exact else None


def _defined(release: WheelRelease) -> dict[str, set[int]] | None:
    told = next(iter(release.told.values()), None)
    values = told.values if told is not None else {}
    return {name: set(values[name]) for name in _SMALL} if all(name in values for name in _SMALL) else None


def _fitting(symbols: Iterable[str], defined: Mapping[str, Mapping[str, set[int]]]) -> list[str]:
    """Minor releases that define every symbol which one of the releases defines in a small library.

    What none of them defines there is of the large libraries, which are not read.
    """
    asked = {number_of(symbol) for symbol in symbols}
    ever = {number for values in defined.values() for name in _SMALL for number in values[name]}
    ours = asked & ever
    fitting = [minor for minor, values in defined.items() if ours <= set().union(*values.values())]
    return sorted(fitting, key=key) if ours else []


# -- frameworks, and all families

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
