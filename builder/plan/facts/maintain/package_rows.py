"""How releases of compiled packages become rows: see :mod:`builder.plan.facts.tables.packages`."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from packaging.version import InvalidVersion, Version

from builder.core.cuda_libraries import NUMBERED
from builder.core.versions import canonical, key, requirement, short
from builder.plan.facts.maintain import release_rows as assemble
from builder.plan.facts.maintain.release_rows import Raw, WheelRelease
from builder.plan.facts.reading import WheelReading, metadata_of, number_of
from builder.plan.facts.tables import PackageRow, newest_minor
from builder.sources.index import IndexFile

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
