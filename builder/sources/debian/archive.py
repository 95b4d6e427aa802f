"""The client of Debian archives: resolves the packages of an operating system and downloads them.

The only module that talks to a Debian archive. Which mirror that is, ``RTBUILD_DEBIAN_MIRROR`` and
``RTBUILD_DEBIAN_SECURITY_MIRROR`` say, or the host's own apt sources.
"""

import os
import re
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote

import requests

from builder.core import resources
from builder.core.documents import redact, shown
from builder.core.errors import CellError, MissingToolError, PackageIndexError
from builder.core.model import Deb, RootfsBase
from builder.sources.debian.apt import (
    Apt,
    AptSource,
    HostSource,
    ReleaseFile,
    host_proxies,
    host_sources,
    release_date,
)
from builder.sources.net import Client, Download, together

VARIABLES = {"debian": "RTBUILD_DEBIAN_MIRROR", "debian-security": "RTBUILD_DEBIAN_SECURITY_MIRROR"}
ARCHITECTURES: Mapping[str, str] = {"linux/amd64": "amd64", "linux/arm64": "arm64"}
KEYRINGS = tuple(Path(f"/usr/share/keyrings/debian-archive-keyring.{form}") for form in ("gpg", "pgp"))

MINIMUM = ("?essential", "apt", "ca-certificates")
"""Every package marked Essential, apt so that the image can be extended, and CA certificates."""
_PYTHON: Mapping[str, tuple[str, ...]] = {
    # Split from python3 until Python 3.12 dropped the module: https://peps.python.org/pep-0632/
    "bullseye": ("python3", "python3-distutils"),
    "bookworm": ("python3", "python3-distutils"),
}
_MERGED_USR: Mapping[str, tuple[str, ...]] = {
    # init-system-helpers wants `usrmerge | usr-is-merged`. The first converts a system that runs, and brings
    # all of Perl for that (50 MB); a system that is merged from the beginning takes the second. From trixie
    # on base-files is merged by itself: https://wiki.debian.org/UsrMerge
    "bookworm": ("usr-is-merged",),
}
_SUITE = re.compile(r"[a-z][a-z0-9-]*")
"""It comes from a matrix or a published image, and stands in apt's configuration."""
_HEAD = 4096
"""Bytes of a Release file that are asked for its date, which stands before the list of files."""
_SUITES = {"bullseye", "bookworm", "trixie", "forky", "sid"}
_SUITES |= {"oldoldstable", "oldstable", "stable", "testing", "unstable"}


@dataclass(frozen=True, kw_only=True)
class SuiteToday:
    """What the lists of a suite, its updates and its security archive have of some packages."""

    newest: Mapping[str, str]
    """The newest version of each package; one that no list has is absent."""
    security: Mapping[str, str]
    """The newest version in the security archive, of those that it has."""
    releases: tuple[ReleaseFile, ...]


@dataclass
class Debian:
    """Debian's archives as this machine reaches them. Nothing is asked of apt before it is needed."""

    archives: Mapping[str, str] | None = None
    """The roots of ``debian`` and ``debian-security``; by default the host's."""
    _: KW_ONLY
    cache: Path = field(default_factory=resources.cache)
    client: Client | None = None
    keyring: Path | None = None
    note: Callable[[str], None] | None = None

    def __post_init__(self) -> None:
        self._guard = threading.RLock()
        self._updated: dict[tuple[str, str], tuple[Apt, tuple[ReleaseFile, ...]]] = {}

    def resolve(
        self, suite: str, *, platform: str, packages: Sequence[str] = (), python: bool = True
    ) -> RootfsBase:
        """The packages of a minimal system with ``packages`` in it, without recommended ones; with the
        release's own Python unless ``python`` is false.

        Versions are the newest of the suite, its ``-updates`` and its security archive. ``epoch`` is the
        newest date among their Release files.

        Raises:
            MissingToolError: no apt, no key, or no Debian archive known on this machine.
            PackageIndexError: an archive did not answer, or does not have a package.
        """
        with self._guard:
            apt, releases = self._apt(suite, platform)
            with apt.alone():
                own = _PYTHON.get(suite, ("python3",)) if python else ()
                wanted = [*MINIMUM, *own, *_MERGED_USR.get(suite, ()), *packages]
                debs = apt.plan(wanted, self._place)
        return RootfsBase(suite=suite, debs=debs, epoch=max(one.date for one in releases))

    def today(self, suite: str, *, platform: str, packages: Sequence[str]) -> SuiteToday:
        """The newest versions of ``packages``, by name; nothing is resolved.

        Raises as :meth:`resolve` does.
        """
        with self._guard:
            apt, releases = self._apt(suite, platform)
            with apt.alone():
                listed = list(apt.versions(packages))
        newest: dict[str, str] = {}
        security: dict[str, str] = {}
        for one in listed:
            newest.setdefault(one.package, one.version)
            if one.suite == security_suite(suite):
                security.setdefault(one.package, one.version)
        return SuiteToday(newest=newest, security=security, releases=releases)

    def fetch(
        self,
        debs: Iterable[Deb],
        *,
        progress: Callable[[int], None] | None = None,
        stop: threading.Event | None = None,
    ) -> list[Path]:
        """The packages' files, below ``cache/debs/``, checked; paths in the order of ``debs``.

        ``progress`` is called from one thread at a time with the bytes that arrived since its last call.

        Raises PackageIndexError if the mirror no longer has a package, or what arrived has another sha256.
        """
        ordered = list(debs)
        paths = together(
            [(sorted(set(ordered), key=lambda deb: (-deb.size, deb.file)), 4)],
            self._fetch_one,
            progress=progress,
            stop=stop,
        )
        return [paths[deb] for deb in ordered]

    def _fetch_one(self, deb: Deb, progress: Callable[[int], None], stop: Callable[[], bool]) -> Path:
        return Download(
            client=self._http(),
            urls=lambda: [f"{self._archives()[deb.archive]}/{quote(deb.file)}"],
            what=f"{deb.package} {deb.version}",
            sha256=deb.sha256,
            size=deb.size,
            to=cache_path(deb, self.cache),
            error=PackageIndexError,
            hint="an update has replaced it in the archive: `rtbuild lock --upgrade` takes the new one, or "
            f"name a mirror that keeps old packages (a snapshot) in {VARIABLES[deb.archive]}",
            progress=progress,
            stop=stop,
        ).fetch()

    def _http(self) -> Client:
        with self._guard:
            if self.client is None:
                self.client = Client(proxies=host_proxies())
            return self.client

    def _answered(self, source: AptSource) -> int | None:
        """The date of a source's lists as the archive has them now; None if it does not tell.

        The text is not verified: it can only raise a doubt.
        """
        url = f"{source.uri}/dists/{source.suite}/InRelease"
        try:
            answer = self._http().get(url, headers={"Range": f"bytes=0-{_HEAD - 1}"}, stream=True)
            with answer:
                head = next(answer.iter_content(_HEAD), b"") if answer.ok else b""
        except requests.RequestException:
            return None
        return release_date(head.decode("utf-8", "replace"))

    def _apt(self, suite: str, platform: str) -> tuple[Apt, tuple[ReleaseFile, ...]]:
        """The suite's apt and its lists' heads, fetched once in this process."""
        architecture = ARCHITECTURES.get(platform)
        if architecture is None:
            raise CellError(f"no rootfs for {platform}", hint=f"one of: {', '.join(ARCHITECTURES)}")
        if not _SUITE.fullmatch(suite):
            raise CellError(f"{shown(suite)} is no name of a suite", hint="as bookworm is one")
        known = self._updated.get((suite, architecture))
        if known is not None:
            return known
        folder = (self.cache / "apt" / f"{suite}-{architecture}").absolute()
        apt = Apt(folder, architecture=architecture, keyring=self.keyring or _keyring())
        sources = self._sources(suite)
        with apt.alone():
            found = apt.update(sources)
            releases = apt.releases()
        answers = {one.suite: self._answered(one) for one in found}
        releases = tuple(one._replace(answered=answers.get(one.suite)) for one in releases)
        for absent in sources:
            if absent not in found and self.note is not None:
                self.note(f"{redact(absent.uri)} has no suite {absent.suite}: resolved without it")
        for one in releases:
            if (older := older_lists(one)) and self.note is not None:
                self.note(older)
        self._updated[suite, architecture] = apt, releases
        return apt, releases

    def _sources(self, suite: str) -> list[AptSource]:
        archives = self._archives()
        # A mirror named by hand may be a snapshot, whose Release files have expired by their nature.
        named = self.archives is not None or any(os.environ.get(name) for name in VARIABLES.values())
        # bullseye gets no more updates: its Release files' Valid-Until has passed for good.
        check = suite != "bullseye" and not named
        main, security = archives["debian"], archives["debian-security"]
        sources = [
            AptSource(main, suite, optional=False, check_valid_until=check),
            AptSource(main, f"{suite}-updates", optional=True, check_valid_until=check),
            AptSource(security, security_suite(suite), optional=True, check_valid_until=check),
        ]
        return [one for one in sources if one.uri]

    def _archives(self) -> Mapping[str, str]:
        with self._guard:
            if self.archives is None:
                self.archives = archives_of(os.environ, host_sources)
            return self.archives

    def _place(self, uri: str) -> tuple[str, str]:
        """Which archive an address lies in, and its path there. (``…/debian/`` does not begin the other.)"""
        for archive, root in self._archives().items():
            if root and uri.startswith(root + "/"):
                return archive, uri.removeprefix(root + "/")
        raise PackageIndexError(f"apt wants {redact(uri)}, which lies in none of the archives it was given")


def security_suite(suite: str) -> str:
    """The suite of the security archive; so named from bullseye on.

    https://www.debian.org/releases/bullseye/amd64/release-notes/ch-information.en.html#security-archive
    """
    return f"{suite}-security"


def older_lists(found: ReleaseFile) -> str | None:
    """A sentence, if an archive answered with older lists than this machine had before."""
    if found.date < found.newest:
        what = f"the lists of {found.suite} are of {day(found.date)}, and this machine had some of"
    elif found.answered is not None and found.answered < found.newest:
        answered = day(found.answered)
        what = f"the archive has lists of {found.suite} of {answered}, and this machine keeps those of"
    else:
        return None
    return f"{what} {day(found.newest)}: a mirror that lags, or an old answer"


def day(moment: int) -> str:
    """Seconds since 1970 as ``2026-11-23 04:00``, UTC."""
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%d %H:%M")


def archives_of(environ: Mapping[str, str], host: Callable[[], Sequence[HostSource]]) -> dict[str, str]:
    """The roots of Debian's two archives: from the variables, else from the host's sources.

    Raises MissingToolError if neither names one; the message says which variable to set.
    """
    found = {archive: environ[name].rstrip("/") for archive, name in VARIABLES.items() if environ.get(name)}
    if len(found) < len(VARIABLES):
        for source in host():
            debians = source.origin in ("", "Debian") and source.component == "main"
            known = source.suite.partition("/")[0].split("-")[0] in _SUITES
            if debians and known and source.uri.startswith(("http://", "https://")):
                found.setdefault("debian-security" if "security" in source.suite else "debian", source.uri)
    if "debian" not in found:
        raise MissingToolError(
            "a rootfs base is made from Debian's packages, and this machine's apt knows no Debian archive",
            hint=f"set {VARIABLES['debian']} (and {VARIABLES['debian-security']}) to a mirror's address, "
            "the one that ends in /debian",
        )
    # By Debian's own convention the security archive lies beside the main one on a mirror that has both.
    found.setdefault("debian-security", f"{found['debian']}-security")
    return found


def cache_path(deb: Deb, cache: Path) -> Path:
    """The path of a fetched package, which need not exist."""
    return cache / "debs" / deb.sha256[:2] / deb.sha256 / deb.file.rsplit("/", 1)[-1]


def _keyring() -> Path:
    found = next(filter(Path.is_file, KEYRINGS), None)
    if found is not None:
        return found
    raise MissingToolError(
        "the key that Debian signs its packages with is not on this machine",
        hint="sudo apt-get install debian-archive-keyring",
    )
