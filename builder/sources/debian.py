"""Debian archives: which packages make an operating system, and the packages themselves.

The only module that talks to a Debian archive. Which mirror that is, ``RTBUILD_DEBIAN_MIRROR`` and
``RTBUILD_DEBIAN_SECURITY_MIRROR`` say, or the host's own apt sources. A private apt with its own sources,
keys, lists and empty package status resolves versions, verifies the archives' signatures and prints the
packages that it would download. It needs no root for that, and leaves the host's alone.
"""

import contextlib
import email.utils
import os
import re
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote, unquote

import requests

from builder.core import resources
from builder.core.documents import redact, shown
from builder.core.errors import CellError, IndexSilentError, MissingToolError, PackageIndexError
from builder.core.files import locked, read_cached, write_cached
from builder.core.model import Deb, RootfsBase
from builder.sources.net import Client, Download, authorities, proxies, remedy, together

_HINTS = {
    "Unable to locate package|was not found": "check the name: the suite's archive does not have the package",
    "unmet dependencies": "these packages cannot be installed together: loosen the versions asked for",
    "is expired": "this mirror is no longer updated: name another one in RTBUILD_DEBIAN_MIRROR",
    "NO_PUBKEY|is not signed": "its signature is not Debian's: is debian-archive-keyring up to date?",
    "": "check the network, the proxy, and RTBUILD_DEBIAN_MIRROR or this machine's apt sources",
}
"""Remedies by apt's own words; the first that fits counts."""
_SILENT = (
    r"Failed to fetch (?!.*\s4\d\d\s)|Could not (?:connect|resolve)|Temporary failure"
    r"|Connection (?:failed|timed out)"
)
"""apt's words for an archive that gave no answer; a file that it has not is an answer."""
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
        return subprocess.run(command, env=environment, capture_output=True, errors="replace", check=False)

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
    """The host's ``Acquire`` settings as lines of ``apt.conf``: its proxy, its CA, its time limits; none on a
    machine without apt.
    """
    if shutil.which("apt-config") is None:
        return []
    done = subprocess.run(["apt-config", "dump"], capture_output=True, errors="replace", check=False)
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
    done = subprocess.run(command, capture_output=True, errors="replace", check=False)
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
    """Entries of some packages in the lists of a suite, its updates and its security archive."""

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
        """The archive of an address, and the path there. (``…/debian/`` does not begin the other.)"""
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
