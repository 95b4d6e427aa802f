"""Colab's published lists of its runtime, read line by line: pip freeze, apt list, OS info.

A line that its tool does not print is a :class:`Problem` with its place, and reading goes on.
The lists: https://github.com/googlecolab/backend-info
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal
from urllib.parse import unquote, urldefrag, urlsplit

from packaging.utils import canonicalize_name
from packaging.version import Version

from builder.core.documents import redact, shown
from builder.sources.index import wheel_name

_NAME = r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"
_PINNED = re.compile(rf"(?P<name>{_NAME})==(?P<version>[^\s;#]+)")
_DIRECT = re.compile(rf"(?P<name>{_NAME}) @ (?P<url>\S+)")
_EDITABLE = re.compile(r"-e (?P<url>\S+?)(?:#egg=(?P<name>[A-Za-z0-9._-]+))?")
# `name/suite[,suite…] version architecture [state]`, as apt 2 prints it.
_APT = re.compile(r"(?P<name>[a-z0-9][a-z0-9+.-]+)/\S+ (?P<version>\S+) \S+ \[(?P<state>[^\]]+)\]")


@dataclass(frozen=True, kw_only=True)
class Problem:
    """A line that could not be read."""

    file: str
    line: int
    text: str
    message: str

    def __str__(self) -> str:
        text = shown(redact(self.text), most=200)
        return f"{self.file}:{self.line}: error: {self.message}\n  {self.line} | {text}"


@dataclass(frozen=True, kw_only=True, order=True)
class PipPackage:
    name: str
    """As written; compare :attr:`key`."""
    version: str | None
    """None for a repository or a folder."""
    line: int
    url: str | None = None
    kind: Literal["pinned", "wheel", "file", "vcs", "url"] = "pinned"
    """``wheel``: a wheel by its web address. ``url``: anything else on the web."""

    @property
    def key(self) -> str:
        return canonicalize_name(self.name)


@dataclass(frozen=True, kw_only=True)
class AptPackage:
    version: str
    manual: bool
    """False if it was installed as a dependency of another package."""


def parse_freeze(text: str, file: str) -> tuple[tuple[PipPackage, ...], tuple[Problem, ...]]:
    """The packages of a ``pip freeze``, in its order, and the unreadable lines."""
    found: dict[str, PipPackage] = {}
    problems: list[Problem] = []
    for number, line in _lines(text):
        read = _package(line, number)
        if not isinstance(read, str) and read.key in found:
            read = f"'{read.name}' is listed twice, for the first time in line {found[read.key].line}"
        if isinstance(read, str):
            problems.append(Problem(file=file, line=number, text=line, message=read))
        else:
            found[read.key] = read
    return tuple(found.values()), tuple(problems)


def _lines(text: str) -> list[tuple[int, str]]:
    stripped = ((number, line.strip()) for number, line in enumerate(text.splitlines(), 1))
    return [(number, line) for number, line in stripped if line and not line.startswith("#")]


def _package(line: str, number: int) -> PipPackage | str:
    if found := _PINNED.fullmatch(line):
        try:
            version = str(Version(found["version"]))
        except ValueError:  # Python reads no number of more than 4,300 digits
            return f"'{shown(found['version'], most=80)}' is no version of a Python package"
        return PipPackage(name=found["name"], version=version, line=number)
    if found := _DIRECT.fullmatch(line):
        return _direct(found["name"], found["url"], number)
    if found := _EDITABLE.fullmatch(line):
        if found["name"] is None:
            return "an editable installation that does not say its name"
        return PipPackage(name=found["name"], version=None, line=number, url=found["url"], kind="vcs")
    return "neither 'name==version' nor 'name @ address': pip cannot read this line either"


def _direct(name: str, url: str, number: int) -> PipPackage | str:
    try:
        bare = urldefrag(url).url
        scheme = urlsplit(bare).scheme
    except ValueError as error:
        return f"'{shown(url, most=80)}' is no address: {error}"
    version = _version_of(unquote(bare.rpartition("/")[2]))
    kind: Literal["wheel", "url", "file"] = "wheel" if bare.endswith(".whl") and version else "url"
    if "+" in scheme:
        return PipPackage(name=name, version=None, line=number, url=url, kind="vcs")
    if scheme not in {"http", "https", "file"}:
        return f"'{shown(url, most=80)}' is no address that pip understands"
    kind = "file" if scheme == "file" else kind
    return PipPackage(name=name, version=version, line=number, url=url, kind=kind)


def _version_of(file: str) -> str | None:
    """``2.6.0+cu124`` of ``torch-2.6.0+cu124-cp311-cp311-linux_x86_64.whl``, ``1.0.0`` of an sdist."""
    wheel = wheel_name(file)
    if wheel is not None:
        return str(wheel.version)
    sdist = re.fullmatch(r".+-(\d[^-]*)\.(?:tar\.gz|zip)", file)
    try:
        return str(Version(sdist[1])) if sdist else None
    except ValueError:
        return None


def parse_apt(text: str, file: str) -> tuple[Mapping[str, AptPackage], tuple[Problem, ...]]:
    """The packages of an ``apt list --installed``, and the unreadable lines."""
    found: dict[str, AptPackage] = {}
    problems: list[Problem] = []
    for number, line in _lines(text):
        if read := _APT.fullmatch(line):
            states = read["state"].split(",")
            manual = states[0] == "installed" and "automatic" not in states
            found[read["name"]] = AptPackage(version=read["version"], manual=manual)
        elif line != "Listing..." and not line.startswith("WARNING: apt "):
            message = "not a line of 'apt list --installed'"
            problems.append(Problem(file=file, line=number, text=line, message=message))
    return found, tuple(problems)


def parse_system(text: str, file: str) -> tuple[str | None, str | None, tuple[Problem, ...]]:
    """The distribution (``Ubuntu 22.04.4``) and the Python of an OS info; R and Julia are skipped."""
    distribution = python = None
    problems: list[Problem] = []
    for number, line in _lines(text):
        if found := re.fullmatch(r"(Ubuntu|Debian GNU/Linux) (\d+(?:\.\d+)*)\b.*", line):
            distribution = f"{found[1]} {found[2]}"
        elif found := re.fullmatch(r"Python (\d+\.\d+\.\d+)\S*", line):
            python = found[1]
        elif not re.match(r"(R version|julia version) ", line):
            message = "neither a distribution nor the version of Python, R or Julia"
            problems.append(Problem(file=file, line=number, text=line, message=message))
    return distribution, python, tuple(problems)
