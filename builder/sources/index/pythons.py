"""The client of standalone CPythons: chosen out of uv's catalogue, fetched from where uv would fetch them.

The archives are the ``install_only`` ones of https://github.com/astral-sh/python-build-standalone. uv has the
list of them; its addresses have the user's mirror in them already (``UV_PYTHON_INSTALL_MIRROR``, or
``python-install-mirror`` of its configuration): https://docs.astral.sh/uv/reference/environment/
"""

import functools
import json
import os
import re
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

import requests
from packaging.version import Version
from uv import find_uv_bin

from builder.core.digests import file_sha256
from builder.core.documents import redact, shown
from builder.core.errors import CellError, PackageIndexError, RtbuildError, UsageError
from builder.core.model import StandalonePython
from builder.sources.index.target import MACHINES
from builder.sources.net import Client, Download

_LIST = ("python", "list", "--only-downloads", "--all-versions", "--all-arches", "--output-format", "json")
_NAME = re.compile(
    r"cpython-(?P<version>[\d.]+[a-z0-9]*)\+(?P<build>\d{8})-(?P<machine>[a-z0-9_]+)-unknown-linux-gnu-"
    r"install_only(?:_stripped)?\.tar\.gz"
)
_SUM = re.compile(r"\\?(?P<sum>[0-9a-fA-F]{64}) [ *](?P<file>\S+)")
_PATIENCE = 60
"""Seconds for uv to give its list, which takes 50 milliseconds."""
_HINT = (
    "UV_PYTHON_INSTALL_MIRROR, or python-install-mirror in uv.toml, names a mirror of python-build-standalone"
)


@dataclass(frozen=True, kw_only=True)
class OfferedPython:
    """An archive of uv's catalogue. ``url`` may hold a login: for no lock and no log."""

    version: str
    build: str
    file: str
    url: str


def offered(platform: str) -> tuple[OfferedPython, ...]:
    """CPythons for glibc on ``platform`` (Docker's name), oldest first; no PyPy, no free-threaded builds.

    Raises UsageError if uv does not accept its own configuration, or gives no list.
    """
    settings = sorted((key, text) for key, text in os.environ.items() if key.startswith(("UV_", "XDG_")))
    return _offered(MACHINES[platform], tuple(settings), str(Path.cwd()))


@functools.lru_cache(maxsize=8)
def _offered(machine: str, _settings: tuple[tuple[str, str], ...], _folder: str) -> tuple[OfferedPython, ...]:
    """Once for each of uv's configurations: variables, and files below the folder."""
    environ = {key: text for key, text in os.environ.items() if key != "UV_PYTHON_DOWNLOADS"}
    try:
        done = subprocess.run(
            [find_uv_bin(), *_LIST],
            env=environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            errors="replace",
            timeout=_PATIENCE,
            check=False,
        )
        if done.returncode != 0:
            hint = "rtbuild needs uv >= 0.9"
            raise UsageError(f"uv lists no Pythons:\n{redact(done.stderr.strip())[-2000:]}", hint=hint)
        keys = ("implementation", "variant", "os", "arch", "libc")
        wanted = ["cpython", "default", "linux", machine, "gnu"]
        rows = [row for row in json.loads(done.stdout) if [row[key] for key in keys] == wanted]
        found = [_named(row["url"]) for row in rows]
        return tuple(sorted(filter(None, found), key=lambda one: Version(one.version)))
    except subprocess.TimeoutExpired:
        raise UsageError(f"uv gave no list of Pythons within {_PATIENCE} s") from None
    except (ValueError, LookupError, TypeError, AttributeError) as problem:
        why = shown(str(problem), most=80)
        raise UsageError(f"uv's list of Pythons is not as expected: {why}") from problem


def _named(url: str) -> OfferedPython | None:
    """None for the archives of 2021 and before, which have another form."""
    file = unquote(urlsplit(url).path.rpartition("/")[2])
    name = _NAME.fullmatch(file)
    if name is None:
        return None
    return OfferedPython(version=name["version"], build=name["build"], file=file, url=url)


def choose_python(version: str, platform: str) -> OfferedPython:
    """The newest final release of ``3.12``, or the very ``3.12.4``. Raises CellError, with what there is."""
    known = offered(platform)
    of_minor = [one for one in known if one.version == version or one.version.startswith(f"{version}.")]
    final = [one for one in of_minor if one.version.replace(".", "").isdigit()]  # not `3.15.0a1`
    if final:
        return final[-1]
    if of_minor:
        raise CellError(
            f"of Python {version} uv knows a pre-release alone, {of_minor[-1].version}",
            hint="wheels are for final releases: take an older Python",
        )
    minor = ".".join(version.split(".")[:2])
    line = [one.version for one in known if one.version.startswith(f"{minor}.")]
    if line and version != minor:
        near = sorted(line, key=lambda text: abs(Version(text).micro - Version(version).micro))[:2]
        hint = f"nearest: {', '.join(near)}; {minor} takes the newest. A newer uv may know more"
        raise CellError(f"uv's catalogue has no Python {version}: it has {line[0]} to {line[-1]}", hint=hint)
    minors = list(dict.fromkeys(".".join(one.version.split(".")[:2]) for one in known)) or ["none"]
    raise CellError(
        f"uv's catalogue has no Python {version}: it begins at {minors[0]} and ends at {minors[-1]}",
        hint="take one of those, or a base whose distribution has that Python",
    )


def known_release(version: str, platform: str) -> str:
    """As :func:`choose_python`, its version; empty if uv's catalogue has none, or cannot be asked."""
    try:
        return choose_python(version, platform).version
    except RtbuildError:
        return ""


class PythonArchives:
    """Fetches archives into the cache, by content."""

    def __init__(self, *, cache: Path, client: Client | None = None) -> None:
        self._cache = cache
        self._client = client or Client()

    def pin(
        self,
        one: OfferedPython,
        *,
        known: str | None,
        check: Callable[[Path], None],
        note: Callable[[str], None],
        at_once: bool = False,
    ) -> StandalonePython:
        """The archive by its sha256: ``known``, else of the release's own list, else of the first fetch.

        ``check`` raises CellError for an archive that is something else than its name says. One whose sum is
        ``known`` may be out of reach, unless it is needed ``at_once``: then nothing is checked before it is
        built, and ``note`` is told.

        Raises PackageIndexError if the mirror did not give the archive, or not the one of that sum.
        """
        sha256 = known or self._listed(one, note)
        unpinned = self._cache / "pythons" / "unpinned" / one.build / one.file
        to = unpinned if sha256 is None else self.place(_locked(one, sha256, 0))
        try:
            path = self._download(lambda: [one.url], _locked(one, sha256 or "", 0), to)
        except PackageIndexError as problem:
            if known is None or at_once or "received" in problem.message:
                raise
            note(f"{one.file} is locked by the sum that uv has of it, and was not fetched: {problem.message}")
            return _locked(one, known, 0)
        try:
            check(path)
        except CellError:
            path.unlink()
            raise
        found = _locked(one, file_sha256(path), path.stat().st_size)
        if path == unpinned:
            place = self.place(found)
            place.parent.mkdir(parents=True, exist_ok=True)
            path.replace(place)
        return found

    def place(self, python: StandalonePython) -> Path:
        """The path of a fetched archive, which need not exist."""
        return self._cache / "pythons" / python.sha256[:2] / python.sha256 / python.file

    def fetch(
        self,
        python: StandalonePython,
        *,
        progress: Callable[[int], None] | None = None,
        stop: Callable[[], bool] | None = None,
    ) -> Path:
        """The file of a locked archive. Raises PackageIndexError."""
        path = self.place(python)
        if path.is_file() and file_sha256(path) != python.sha256:
            path.unlink()  # a disk's fault

        def urls() -> list[str]:
            known = offered(machine_platform(python.file))
            same = [one.url for one in known if one.file == python.file]
            # A catalogue that moved on to another build of it: the old one lies beside the new ones.
            others = [one.url.rpartition("/")[0].rpartition("/")[0] for one in known[-1:]]
            file = python.file.replace("+", "%2B")
            return same or [f"{folder}/{python.build}/{file}" for folder in others]

        return self._download(urls, python, path, progress=progress, stop=stop)

    def _download(
        self,
        urls: Callable[[], list[str]],
        python: StandalonePython,
        to: Path,
        *,
        progress: Callable[[int], None] | None = None,
        stop: Callable[[], bool] | None = None,
    ) -> Path:
        return Download(
            client=self._client,
            urls=lambda: map(_over_http, urls()),
            what=python.file,
            sha256=python.sha256,
            size=python.size,
            to=to,
            error=PackageIndexError,
            hint=_HINT,
            progress=progress,
            stop=stop,
        ).fetch()

    def _listed(self, one: OfferedPython, note: Callable[[str], None]) -> str | None:
        """The archive's sum in the ``SHA256SUMS`` of its release; None if it cannot be fetched."""
        url = _over_http(one.url.rpartition("/")[0] + "/SHA256SUMS")
        try:
            with self._client.get(url, stream=True) as response:
                content = response.content if response.ok else b""
        except requests.RequestException:
            content = b""
        rows = (_SUM.fullmatch(line.strip()) for line in content.decode("utf-8", "replace").splitlines())
        sums = {row["file"]: row["sum"].lower() for row in rows if row is not None}
        if one.file not in sums:
            note(f"{redact(url)} gives no sum of {one.file}: the first fetch decides which file it is")
        return sums.get(one.file)


def _locked(one: OfferedPython, sha256: str, size: int) -> StandalonePython:
    return StandalonePython(version=one.version, build=one.build, file=one.file, sha256=sha256, size=size)


def machine_platform(file: str) -> str:
    """``linux/amd64``, of the name of an archive. Raises CellError."""
    name = _NAME.fullmatch(file)
    for platform, machine in MACHINES.items():
        if name is not None and name["machine"] == machine:
            return platform
    hint = "lock the matrix again: `rtbuild lock`"
    raise CellError(f"{file} is no archive of a CPython for glibc", hint=hint)


def _over_http(url: str) -> str:
    if not url.startswith(("http://", "https://")):
        raise PackageIndexError(
            f"{redact(url)} is not an http or https address: a lock must work on every machine",
            hint="serve the mirror's folder over http: python3 -m http.server",
        )
    return url
