"""Rows of the tables, made from index pages and wheels, one for each release and CUDA variant: which
distributions make up each framework and package, and how their releases become rows.

A row is a plain dictionary, as in ``data/releases/*.json``: absent keys are values that no file has,
and ``read`` names for each value where it was read.
"""

import hashlib
import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.tags import Tag
from packaging.version import InvalidVersion, Version

from builder.core.link_set import number_of
from builder.core.versions import (
    at_least,
    canonical,
    exact_pin,
    key,
    more_exact,
    requirement,
    short,
)
from builder.plan.facts.reading.observed import Metadata, WheelReading, metadata_of
from builder.plan.facts.tables import NUMBERED, FrameworkRow, PackageName, PackageRow, TableFile, newest_minor
from builder.sources.index import MACHINES, IndexFile, environment, glibc_of, takes, wheel_name

Raw = dict[str, Any]


@dataclass
class WheelRelease:
    """One release of one distribution: its wheels for Linux, and the values read from them."""

    distribution: str
    version: str
    files: list[IndexFile] = field(default_factory=list)
    told: dict[str, WheelReading] = field(default_factory=dict)
    """By platform; ``other`` for values read from a second wheel."""

    @property
    def label(self) -> str:
        return f"{self.distribution} {self.version}"

    @property
    def standing(self) -> list[IndexFile]:
        """Files that were not yanked; all files if all were."""
        return [file for file in self.files if file.yanked is None] or self.files

    @property
    def yanked(self) -> str | None:
        return self.files[0].yanked if all(file.yanked is not None for file in self.files) else None

    def on(self, platform: str) -> list[IndexFile]:
        """Its wheels for a platform, the one to read first: the newest Python with a GIL."""
        machine = MACHINES[platform]
        fitting = [file for file in self.standing if file.name.endswith((f"{machine}.whl", "-any.whl"))]

        def newest(file: IndexFile) -> tuple[bool, int, str, str]:
            interpreter, abi = file.name.split("-")[-3:-1]
            return not abi.endswith("t"), len(interpreter), interpreter, file.name

        return sorted(fitting, key=newest, reverse=True)

    def tags(self, platform: str) -> list[Tag]:
        names = (wheel_name(file.name) for file in self.on(platform))
        return [tag for name in names if name is not None for tag in name.tags]

    @property
    def was_read(self) -> bool:
        return any(told.metadata is not None for told in self.told.values())

    @property
    def platforms(self) -> list[str]:
        return [platform for platform in MACHINES if self.on(platform)]

    @property
    def fingerprint(self) -> str:
        """Changes with any file that is added, replaced, yanked or removed."""
        listed = sorted([file.name, file.sha256 or "", file.yanked or ""] for file in self.files)
        return hashlib.sha256(json.dumps(listed).encode()).hexdigest()[:8]


def releases(distribution: str, files: Iterable[IndexFile], since: str) -> dict[str, WheelRelease]:
    """The final releases from ``since`` on that have a wheel for Linux, by version."""
    found: dict[str, WheelRelease] = {}
    for file in files:
        wheel = wheel_name(file.name)
        if wheel is None or wheel.version.is_prerelease or wheel.version < Version(since):
            continue
        version, platforms = str(wheel.version), {tag.platform for tag in wheel.tags}
        if any(name == "any" or "manylinux" in name or name.startswith("linux_") for name in platforms):
            found.setdefault(version, WheelRelease(distribution, version)).files.append(file)
    return {version: one for version, one in found.items() if one.platforms}


def total(row: Mapping[str, Any]) -> str:
    """The check sum of a row: a value that was changed by hand is found by it."""
    told = {name: value for name, value in row.items() if name != "sum"}
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:8]


def pythons(release: WheelRelease, platform: str, admitted: str | None) -> list[str]:
    """CPython versions that a release has wheels for on a platform, without free-threaded builds."""
    found = set()
    for tag in release.tags(platform):
        match = re.fullmatch(r"cp3(\d+)", tag.interpreter)
        if tag.abi == "abi3" and match:
            found |= {f"3.{minor}" for minor in range(int(match[1]), 16)}
        elif match and not tag.abi.endswith("t"):
            found.add(f"3.{match[1]}")
        elif oldest := re.fullmatch(r"(?:py2\.)?py3(\d*)", tag.interpreter):
            found |= {f"3.{minor}" for minor in range(int(oldest[1] or 5), 16)}
    return sorted((name for name in found if takes(admitted, name)), key=key)


def glibc(release: WheelRelease, platform: str) -> str | None:
    """The oldest glibc that one of its wheels for the platform accepts, by their tags."""
    every = (glibc_of(tag.platform) for tag in release.tags(platform))
    return min(filter(None, every), key=key, default=None)


def lines_for(metadata: Metadata, extra: str, versions: Sequence[str]) -> list[str]:
    """``Requires-Dist`` that hold on Linux with an extra, and are not there without it.

    A marker stays if only some of the Pythons meet it.
    """
    kept = []
    for line in metadata.requires:
        parsed = requirement(line)
        if parsed is None or (extra and "extra" not in line):
            continue
        held = [_holds(parsed, extra, p) and not (extra and _holds(parsed, "", p)) for p in versions]
        if any(held):
            extras = f"[{','.join(sorted(parsed.extras))}]" if parsed.extras else ""
            clauses = ",".join(sorted((str(clause) for clause in parsed.specifier), reverse=True))
            marker = "" if all(held) else f" ; {re.sub(_EXTRA, '', str(parsed.marker))}"
            kept.append(f"{canonical(parsed.name)}{extras}{clauses}{marker}")
    return kept


_EXTRA = r"""\s*(?:and\s*)?extra == ["'][^"']*["']"""


def _holds(parsed: Requirement, extra: str, python: str) -> bool:
    if parsed.marker is None:
        return not extra
    # an extra's name is compared as it is written, and it can be written with _ or -
    spelt = {extra, extra.replace("-", "_")}
    return any(parsed.marker.evaluate(environment(f"{python}.9", extra=name)) for name in spelt)


def is_nvidia(line: str) -> bool:
    return line.startswith(("nvidia-", "cuda-toolkit", "cuda-bindings"))


BY_NAME = ("python", "platforms", "glibc")
"""Values that the names of files tell."""


def base_row(release: WheelRelease, *, with_extras: bool = True) -> Raw:
    """The keys that every row has; :func:`seal` drops the empty ones."""
    first = next((release.told[p] for p in MACHINES if p in release.told), None)
    metadata = metadata_of(first.metadata if first else None)
    platforms = release.platforms
    versions = pythons(release, platforms[0], metadata.python)
    names = ("", *metadata.extras) if with_extras else ("",)
    found = {extra: lines_for(metadata, extra, versions) for extra in names}
    extras = {extra: [line for line in lines if is_nvidia(line)] for extra, lines in found.items()}
    row: Raw = {
        "version": release.version,
        "distribution": release.distribution,
        "python": versions,
        "platforms": platforms,
        "cpu_only": [p for p in platforms if p in release.told and cpu_only(release.told[p])],
        "glibc": glibc(release, "linux/amd64"),
        "glibc_arm64": glibc(release, "linux/arm64"),
        "yanked": release.yanked,
    }
    return {name: value for name, value in row.items() if value} | {
        "python": versions,
        "requires": [line for line in found[""] if not is_nvidia(line)],
        "extras": {extra: lines for extra, lines in extras.items() if lines},
        "read": dict.fromkeys(BY_NAME, "file names") | dict.fromkeys(("requires", "extras"), "METADATA"),
    }


def cpu_only(told: WheelReading) -> bool:
    """Whether a wheel says that it has no CUDA, or is an empty one that asks for a CPU build."""
    if told.values.get("gpu") is not None:
        return told.values["gpu"] is False
    return any(line.startswith("tensorflow-cpu-aws") for line in metadata_of(told.metadata).requires)


def add_told(
    row: Raw,
    told: Iterable[tuple[str, WheelReading]],
    names: Sequence[str] = ("cuda", "cudnn", "architectures", "numpy_abi"),
) -> None:
    """Put values read from wheels into a row, each from the first wheel that has it."""
    for prefix, one in told:
        for name in names:
            if name in one.values and name not in row:
                value = one.values[name]
                row[name] = list(value) if isinstance(value, (list, tuple)) else value
                row["read"][name] = prefix + _short_path(one.read[name])
        for name in one.beyond:
            if name not in row:
                row.setdefault("unread", {})[name] = BEYOND
        asked = one.values.get("glibc")
        if asked and "x86_64" in one.file and not at_least(row.get("glibc", "2"), asked):
            # a tag is a promise; the symbols are what the loader goes by
            row["glibc"], row["read"]["glibc"] = asked, prefix + _short_path(one.read["glibc"])


def add_arm64(row: Raw, release: WheelRelease) -> None:
    """Put the GPU code of a release's wheel for ARM into a row: it is made for other cards than x86-64's."""
    told = release.told.get("linux/arm64")
    if told is None or "linux/arm64" not in row["platforms"] or "linux/arm64" in row.get("cpu_only", ()):
        return
    if code := told.values.get("architectures"):
        row["architectures_arm64"] = list(code)
        row["read"]["architectures_arm64"] = _short_path(told.read["architectures"])
    else:
        row.setdefault("unread", {})["architectures_arm64"] = (
            BEYOND if "architectures" in told.beyond else "nothing that is read of its wheel for ARM says it"
        )


BEYOND = "it lies beyond the first 16 MiB of the wheel"


def _short_path(member: str) -> str:
    """A member's path without the parts that differ from release to release of one framework."""
    member = re.sub(r"^[^/]+\.data/purelib/", "", member)
    return re.sub(r"\.cpython-\w+-[\w-]+(?=\.so)|-[0-9a-f]{8}(?=\.so)", "", member)


def seal(row: Raw, *made_of: WheelRelease | None, kind: type = FrameworkRow) -> Raw:
    """Give a row the fingerprints of its releases and its check sum, its keys in the order of ``kind``'s."""
    row["files"] = {release.label: release.fingerprint for release in made_of if release is not None}
    order = (*(one.name for one in fields(kind) if one.name != "sources"), "files")
    sealed = {name: row[name] for name in order if row.get(name) not in (None, [], {})}
    return sealed | {"sum": total(sealed)}


def cudnn_by_pin(row: Raw, lines: Iterable[str], parts: int) -> None:
    """Take cuDNN's version from an exact pin: the wheel was built with it, to the minor at least."""
    exact = exact_pin(lines, r"nvidia-cudnn-cu\d+")
    value = short(exact, parts) if exact else None
    if more_exact(row.get("cudnn"), value):
        row["cudnn"] = value
        row["read"]["cudnn"] = "METADATA"


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
"""CUDA's major by that of PTX: all that is known of a newer version of PTX than these."""


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
    found = releases(AGAINST, files, AGAINST_SINCE)
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
            yield seal(_row(release, told, defined), release, kind=PackageRow)


def _row(
    release: WheelRelease, told: WheelReading | None, defined: Mapping[str, Mapping[str, set[int]]]
) -> Raw:
    source = isinstance(release, SourceRelease)
    row = base_row(release, with_extras=False) if not source else _source_row(release, told)
    if told is None:
        return row
    add_told(row, [("", told)], _TOLD)
    if source:
        row["cuda"] = told.values.get("cuda")
        return row
    cuda = _cuda(row, told.values)
    if cuda is not None:
        row["cuda"], row["read"]["cuda"] = cuda
    fitting = _fitting(told.values.get("symbols", ()), defined)
    if fitting and _is_compared(row.get("requires", ()), defined):
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
        "requires": lines_for(metadata, "", pythons),
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


def _is_compared(requires: Iterable[str], defined: Collection[str]) -> bool:
    """Whether a release's own PyTorch, if it pins one, is among those of ``defined``, minor releases whose
    symbols are read: that of torchvision 0.11 is older than all, and others tell nothing of it."""
    own = exact_pin(requires, "torch")
    return own is None or short(own.partition("+")[0], 2) in defined


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
    """The name of its file in ``data/releases``, without the ending: ``torch``, ``packages/vllm``."""
    distributions: Mapping[str, str]
    """Each with the first release that is read."""
    rows: Rows
    two: bool = False
    """True if a second wheel of each release is read, too."""
    light: tuple[str, ...] = ()
    """Distributions whose metadata is enough."""
    compiled: str | None = None
    """The first release whose libraries are read, of a package beside the frameworks."""
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
            row = base_row(release)
            add_told(row, _told(release)[:wheels])
            add_arm64(row, release)
            change(release, row)
            yield seal(row, release)

    return rows


def _tensorflow(_release: WheelRelease, row: Raw) -> None:
    cudnn_by_pin(row, row["extras"].get("and-cuda", ()), 2)
    row["extra"] = "and-cuda" if "and-cuda" in row["extras"] else None
    row["brings"] = "extra" if row["extra"] else "outside"


def _torch(release: WheelRelease, row: Raw) -> None:
    cudnn_by_pin(row, row["extras"].get("", ()), 4)
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
        versions = pythons(release, "linux/amd64", metadata.python)
        asked = {extra: lines_for(metadata, extra, versions) for extra in metadata.extras}
        for variant in _JAX_VARIANTS:
            plugin = _asked_for(asked.get(variant, ()), f"jax-{variant}-plugin", found)
            if plugin is not None:
                row, made_of = _with_plugin(release, variant, asked, plugin, found)
            elif f"{variant}-pip" in asked:
                row, made_of = _with_local_build(release, variant, asked), (release,)
            else:
                continue
            row["aliases"] = [extra for extra, lines in asked.items() if _means(extra, lines, variant)]
            yield seal(row, *made_of)


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
    row = base_row(release)
    jaxlib = _asked_for(row["requires"] + asked[variant], "jaxlib", found)
    parts = [part for part in (plugin, jaxlib) if part is not None]
    row["platforms"] = [p for p in MACHINES if all(part.on(p) for part in parts)]
    common = set(row["python"]).intersection(*(pythons(part, "linux/amd64", None) for part in parts))
    row["python"] = sorted(common, key=key)
    own = base_row(plugin)
    row |= {name: own[name] for name in ("glibc", "glibc_arm64") if name in own}
    if "linux/arm64" not in row["platforms"]:
        row.pop("glibc_arm64", None)
    row["read"] |= dict.fromkeys(BY_NAME, "file names")
    told = [(f"{plugin.distribution} {plugin.version}: ", told) for _, told in _told(plugin)[:1]]
    add_told(row, told, ("cuda", "cudnn", "architectures"))
    add_arm64(row, plugin)
    if jaxlib is not None:
        add_told(row, [(f"jaxlib {jaxlib.version}: ", told) for _, told in _told(jaxlib)], ("numpy_abi",))
    with_cuda = (f"{plugin.distribution}[with-cuda]", f"{plugin.distribution}[with_cuda]")
    row["extras"] = {}
    for extra, lines in asked.items():
        pins = [line for line in lines if is_nvidia(line)]
        brought = any(line.startswith(with_cuda) for line in lines)
        if extra.startswith("cuda") and (brought or pins):
            row["extras"][extra] = pins + (own["extras"].get("with-cuda", []) if brought else [])
    row |= {"variant": variant, "default": True, "brings": "extra", "extra": variant}
    _add_requires(row, asked[variant])
    row["yanked"] = next((part.yanked for part in (release, *parts) if part.yanked is not None), None)
    return row, (release, *parts)


def _add_requires(row: Raw, lines: list[str]) -> None:
    row["requires"] += [line for line in lines if not is_nvidia(line) and line not in row["requires"]]


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
