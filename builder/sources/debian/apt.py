"""A private apt with its own sources, keys, lists and empty package status; it leaves the host's alone.

apt resolves versions, verifies the archives' signatures and prints the packages that it would download. It
needs no root for that.
"""

import contextlib
import email.utils
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

from builder.core.documents import redact
from builder.core.errors import IndexSilentError, MissingToolError, PackageIndexError
from builder.core.files import read_cached, write_cached
from builder.core.model import Deb
from builder.core.temporary import locked
from builder.sources.net import authorities, proxies, remedy

_HINTS = {
    "Unable to locate package|was not found": "check the name: the suite's archive does not have the package",
    "unmet dependencies": "these packages cannot be installed together: loosen the versions asked for",
    "is expired": "this mirror is no longer updated: name another one in RTBUILD_DEBIAN_MIRROR",
    "NO_PUBKEY|is not signed": "its signature is not Debian's: is debian-archive-keyring up to date?",
    "": "check the network, the proxy, and RTBUILD_DEBIAN_MIRROR or this machine's apt sources",
}
"""Remedies by apt's own words; the first that fits counts."""
_SILENT = r"Failed to fetch|Could not (?:connect|resolve)|Temporary failure|Connection (?:failed|timed out)"
_PACKAGE = re.compile(r"[a-z0-9][a-z0-9.+-]+")
"""https://www.debian.org/doc/debian-policy/ch-controlfields.html#source"""
_RELEASE_MISSING = re.compile(r"The repository '(\S+) (\S+) (?:In)?Release' does not have a Release file")


class AptSource(NamedTuple):
    """One line of ``sources.list``. An ``optional`` one may be absent from the archive."""

    uri: str
    suite: str
    optional: bool
    check_valid_until: bool


class ReleaseFile(NamedTuple):
    """The head of one suite's lists. Times are seconds since 1970.

    https://wiki.debian.org/DebianRepository/Format#A.22Release.22_files
    """

    suite: str
    """As the archive's folder is named: ``bookworm-security``."""
    date: int
    valid_until: int | None
    newest: int
    """The newest date of this suite's lists that this machine ever had."""
    answered: int | None = None
    """The date of the lists that the archive answers with: apt keeps its own if they are newer, and says
    nothing. None if the archive does not tell."""


class ListedVersion(NamedTuple):
    """A version of a package in the lists of one suite."""

    package: str
    version: str
    suite: str


class Apt:
    """apt with everything of its own below ``folder``, which is kept so that a later update is quick."""

    def __init__(self, folder: Path, *, architecture: str, keyring: Path) -> None:
        if shutil.which("apt-get") is None:
            raise MissingToolError(
                "a rootfs base is resolved with apt-get, which this machine lacks",
                hint="sudo apt-get install apt mmdebstrap debian-archive-keyring (Debian, Ubuntu), "
                "or use a base image from a registry",
            )
        self._folder = folder
        self._architecture = architecture
        self._keyring = keyring

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Keep other processes out: two apts in one folder would overwrite each other's sources."""
        self._folder.mkdir(parents=True, exist_ok=True)
        with locked(self._folder / "rtbuild.lock"):
            yield

    def update(self, sources: Sequence[AptSource]) -> tuple[AptSource, ...]:
        """Fetch the package lists; the sources that exist.

        Raises:
            PackageIndexError: an archive did not answer, its signature is bad, or a required suite is absent.
        """
        self._set_up()
        remaining = tuple(sources)
        while True:
            lines = [
                f"deb [signed-by={self._keyring}{'' if one.check_valid_until else ' check-valid-until=no'}] "
                f"{one.uri} {one.suite} main\n"
                for one in remaining
            ]
            (self._folder / "sources.list").write_text("".join(lines), encoding="utf-8")
            done = self._run("update", "-o", "APT::Update::Error-Mode=any")
            if done.returncode == 0:
                return remaining
            absent = {(uri.rstrip("/"), suite) for uri, suite in _RELEASE_MISSING.findall(done.stderr)}
            kept = tuple(s for s in remaining if not (s.optional and (s.uri.rstrip("/"), s.suite) in absent))
            if kept == remaining:
                raise self._failure("the package lists could not be fetched", done.stderr)
            remaining = kept

    def plan(self, packages: Sequence[str], place: Callable[[str], tuple[str, str]]) -> tuple[Deb, ...]:
        """The downloads that install ``packages`` (names or apt patterns) into an empty system, by name.

        ``place`` gives the archive of an address, and the path in it.
        """
        done = self._run(
            "install", "--print-uris", "--yes", "-q", "-o", "Acquire::ForceHash=SHA256", "--", *packages
        )
        if done.returncode != 0:
            # apt explains unmet dependencies on stdout.
            raise self._failure(f"apt cannot install {' '.join(packages)}", done.stdout + done.stderr)
        debs = (_deb(line, place) for line in done.stdout.splitlines() if line.startswith("'"))
        return tuple(sorted(debs, key=lambda deb: (deb.package, deb.architecture)))

    def releases(self) -> tuple[ReleaseFile, ...]:
        """The Release file of each source; their dates are remembered in ``folder``.

        Raises PackageIndexError for one without a date.
        """
        kept = self._folder / "newest-lists.json"
        newest = (
            read_cached(kept, lambda document: {suite: int(date) for suite, date in document.items()}) or {}
        )
        found = []
        for path in sorted((self._folder / "lists").glob("*_dists_*Release")):
            suite = path.name.rpartition("_dists_")[2].rpartition("_")[0]
            text = path.read_text(encoding="utf-8")
            date = release_date(text)
            if date is None:
                raise PackageIndexError(f"the Release file of {suite} has no date")
            newest[suite] = max(date, newest.get(suite, date))
            found.append(ReleaseFile(suite, date, _moment("Valid-Until", text), newest[suite]))
        write_cached(kept, newest)
        return tuple(found)

    def versions(self, packages: Sequence[str]) -> Iterator[ListedVersion]:
        """Every version that the lists have of ``packages``, of each package the newest first."""
        named = [name for name in packages if _PACKAGE.fullmatch(name)]
        for start in range(0, len(named), 500):  # a command line has an end
            done = self._run("madison", "--", *named[start : start + 500], program="apt-cache")
            if done.returncode != 0:
                raise self._failure("apt cannot list its packages", done.stderr)
            for line in done.stdout.splitlines():
                package, version, place = (part.strip() for part in line.split(" | "))
                if place.endswith(" Packages"):
                    yield ListedVersion(package, version, place.split()[1].partition("/")[0])

    def _set_up(self) -> None:
        for name in ("lists/partial", "cache/archives/partial", "etc", "log"):
            (self._folder / name).mkdir(parents=True, exist_ok=True)
        (self._folder / "status").write_text("")
        # The host's own settings, apart from its credentials for private mirrors
        empty = ("main", "parts", "sourceparts", "preferences", "preferencesparts", "trusted", "trustedparts")
        options = host_acquire_options()
        lines = [
            *options,
            f'Dir "{self._folder}";',
            f'Dir::State "{self._folder}";',
            f'Dir::State::status "{self._folder}/status";',
            f'Dir::Cache "{self._folder}/cache";',
            f'Dir::Log "{self._folder}/log";',
            f'Dir::Etc "{self._folder}/etc";',
            f'Dir::Etc::sourcelist "{self._folder}/sources.list";',
            *(f'Dir::Etc::{name} "/dev/null";' for name in empty),
            # The host's credentials for private mirrors stay usable.
            'Dir::Etc::netrc "/etc/apt/auth.conf";',
            'Dir::Etc::netrcparts "/etc/apt/auth.conf.d";',
            f'APT::Architecture "{self._architecture}";',
            f'APT::Architectures {{ "{self._architecture}"; }};',
            'APT::Install-Recommends "false";',
            'APT::Sandbox::User "root";',
            *_own_authorities(options),
            'Acquire::Languages "none";',
        ]
        (self._folder / "apt.conf").write_text("\n".join(lines) + "\n", encoding="utf-8")

    def _run(self, *arguments: str, program: str = "apt-get") -> subprocess.CompletedProcess[str]:
        environment = os.environ | _proxies() | {"LC_ALL": "C.UTF-8"}
        environment["APT_CONFIG"] = str(self._folder / "apt.conf")
        command = [program, *arguments]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    @staticmethod
    def _failure(what: str, said: str) -> PackageIndexError:
        wanted = ("E:", "W:", " ", "The following packages have unmet dependencies")
        lines = [line for line in redact(said).splitlines() if line.startswith(wanted)]
        hint = remedy(said) or next(hint for pattern, hint in _HINTS.items() if re.search(pattern, said))
        kind = IndexSilentError if re.search(_SILENT, said) else PackageIndexError
        return kind("\n".join([what, *(f"  {line.rstrip()}" for line in lines)]), hint=hint)


def _own_authorities(options: Sequence[str]) -> Iterator[str]:
    """The lines that name this machine's certificate authorities, unless the host's apt names its own."""
    known = authorities(os.environ)
    theirs = any(re.search(r"::CA(?:Info|Path) ", line, re.IGNORECASE) for line in options)
    if known is not None and not theirs:
        yield f'Acquire::https::{"CaPath" if known.is_dir() else "CaInfo"} "{known}";'


def _proxies() -> dict[str, str]:
    """In the spelling that apt reads; it knows no ``all_proxy``."""
    found = proxies(os.environ)
    every = {name: found["all_proxy"] for name in ("http_proxy", "https_proxy") if "all_proxy" in found}
    return every | found


def release_date(text: str) -> int | None:
    """The date of a Release file, in seconds since 1970; None without one that can be read."""
    return _moment("Date", text)


def _moment(field: str, text: str) -> int | None:
    """The time in a field of a Release file, in seconds since 1970; None without one that can be read."""
    found = re.search(rf"^{field}: (.+)$", text, re.MULTILINE)
    try:
        return found and int(email.utils.parsedate_to_datetime(found[1]).timestamp())
    except (ValueError, OverflowError):
        return None


def host_acquire_options() -> list[str]:
    """The host's ``Acquire`` settings as lines of ``apt.conf``: its proxy, its CA, its time limits."""
    done = subprocess.run(["apt-config", "dump"], capture_output=True, text=True, check=False)
    wanted = re.compile(
        r"Acquire::(?:https?|Retries|Check-|Max-|Queue|By-Hash|AuthenticationHeader)", re.IGNORECASE
    )
    return [line for line in done.stdout.splitlines() if wanted.match(line)]


def host_proxies() -> Mapping[str, str]:
    """The proxies that apt is configured with, as ``requests`` wants them."""
    found = {}
    for line in host_acquire_options():
        match = re.match(r'Acquire::(https?)::Proxy "([^"]+)";', line, re.IGNORECASE)
        if match and match.group(2) != "DIRECT":
            found[match.group(1).lower()] = match.group(2)
    return found


class HostSource(NamedTuple):
    """A package list that the host's own apt is configured with."""

    uri: str
    suite: str
    component: str
    origin: str
    """``Debian``, or empty if the lists were never fetched."""


def host_sources() -> tuple[HostSource, ...]:
    """The output of ``apt-get indextargets``; empty on a machine without apt."""
    if shutil.which("apt-get") is None:
        return ()
    fields = "$(REPO_URI)\t$(RELEASE)\t$(COMPONENT)\t$(ORIGIN)"
    command = ["apt-get", "indextargets", "--format", fields, "Created-By: Packages"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    rows = (line.split("\t") for line in done.stdout.splitlines() if line.count("\t") == 3)
    # apt leaves a field that it does not know as it is written.
    return tuple(
        HostSource(uri.rstrip("/"), suite, component, "" if origin.startswith("$(") else origin)
        for uri, suite, component, origin in rows
    )


def _deb(line: str, place: Callable[[str], tuple[str, str]]) -> Deb:
    match = re.fullmatch(
        r"'([^']+)' ([^_ ]+)_([^_ ]+)_([^_ ]+)\.deb (\d+) SHA256:([0-9a-f]{64})", line.strip()
    )
    if match is None:
        raise PackageIndexError(
            f"apt printed something else than an address with its sha256: {redact(line)}",
            hint="rtbuild needs apt 2.0 or later, and an archive that lists SHA256",
        )
    uri, package, version, architecture, size, sha256 = match.groups()
    archive, file = place(unquote(uri))
    return Deb(
        package=package,
        version=unquote(version),
        architecture=architecture,
        file=file,
        sha256=sha256,
        size=int(size),
        archive=archive,
    )
