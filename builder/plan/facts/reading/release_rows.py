"""Rows of the tables, made from index pages and wheels: one for each release and CUDA variant.

A row is a plain dictionary, as in ``tables/releases/*.json``: absent keys are values that no file has,
and ``read`` names for each value where it was read. Nothing here asks a network.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from packaging.requirements import Requirement
from packaging.tags import Tag
from packaging.version import Version

from builder.core.versions import (
    at_least,
    canonical,
    exact_pin,
    key,
    lower_bound,
    more_exact,
    requirement,
    short,
)
from builder.plan.facts.reading.observed import Metadata, WheelReading, metadata_of
from builder.plan.facts.tables import FrameworkRow
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


def least(lines: Iterable[str], pattern: str) -> str | None:
    """The oldest version that pins admit of a distribution."""
    named = (parsed for parsed in map(requirement, lines) if parsed and re.fullmatch(pattern, parsed.name))
    return max(filter(None, map(lower_bound, named)), key=key, default=None)


def cudnn_by_pin(row: Raw, lines: Iterable[str], parts: int) -> None:
    """Take cuDNN's version from an exact pin: the wheel was built with it, to the minor at least."""
    exact = exact_pin(lines, r"nvidia-cudnn-cu\d+")
    value = short(exact, parts) if exact else None
    if more_exact(row.get("cudnn"), value):
        row["cudnn"] = value
        row["read"]["cudnn"] = "METADATA"
