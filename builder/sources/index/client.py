"""The client of package indexes: resolves requirements and downloads wheels.

The only module that talks to a package index (resolution is done by uv, see :mod:`.uv`). Which index that is,
the user's own configuration says. Questions about several projects raise nothing: an index that does not
answer is an answer, too.
"""

import copy
import datetime
import functools
import re
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self
from urllib.parse import unquote, urlsplit, urlunsplit

import requests
from packaging.markers import Marker
from packaging.utils import canonicalize_name

from builder.core.documents import redact
from builder.core.errors import IndexSilentError, NoSolutionError, PackageIndexError, RtbuildError
from builder.core.items import WorkSpan
from builder.core.model import Sdist, Wheel
from builder.core.versions import canonical
from builder.sources.index import simple_api, uv
from builder.sources.index.simple_api import IndexFile
from builder.sources.index.target import MACHINES, Target, rank, wheel_name
from builder.sources.index.uv import IndexSettings, UploadLimit
from builder.sources.net import READ_TIMEOUT, Client, Download, explain, remedy, together

_THREADS = 4
"""Downloads at a time: enough to fill a line, few enough for a small mirror."""
_LARGE = 32 << 20
"""Bytes from which on a wheel is large. Half of the downloads are of large wheels: with fewer of them at a
time the first is there earlier, and its layer is made while the next arrive."""
_ABSENT = re.compile(r"(?<![\w.-])([A-Za-z0-9][\w.-]*) was not found in the package registry")
"""uv's words for a package that no index has."""
Files = tuple[IndexFile, ...] | str
"""A project's files, or why they are not known."""


@dataclass(frozen=True, kw_only=True)
class LocalWheel:
    """A wheel that was built on this machine, and its file."""

    wheel: Wheel
    path: Path


class Index:
    """The user's package indexes."""

    def __init__(
        self,
        settings: IndexSettings,
        *,
        client: Client | None = None,
        note: Callable[[str], None] = lambda _text: None,
    ) -> None:
        """``note`` receives remarks for the user that stop nothing, such as a yanked version."""
        self.settings = settings
        self.client = client or Client(read_timeout=max(READ_TIMEOUT, settings.timeout or 0.0))
        """With the user's proxies and certificate authorities."""
        self._note = note
        # sha256 → address, from resolutions of this process: saves asking for the project's page again.
        self._known: dict[str, str] = {}
        self._absent: set[tuple[str, tuple[str, ...]]] = set()
        self._pages: dict[tuple[str, str], tuple[IndexFile, ...]] = {}

    @classmethod
    def from_user(
        cls, *, note: Callable[[str], None] = lambda _text: None, brief: bool = False, once: bool = False
    ) -> Self:
        """The indexes of the user's uv or pip configuration.

        With ``brief`` a server that is slow or down is given up soon: for questions that can stay open. With
        ``once`` it is given up for good, and a page that uv has read is believed for a minute: for a series
        of questions that one answer serves.
        """
        settings = uv.from_user()
        for text in settings.notes:
            note(text)
        client = None
        if once:
            settings = replace(settings, believed=60)
            client = Client(
                retries=2,
                connection_retries=0,
                connect_timeout=2,
                read_timeout=8,
                gives_up=True,
            )
        elif brief:
            client = Client(retries=2, connection_retries=1, read_timeout=15)
        return cls(settings, client=client, note=note)

    def with_extra(self, extra: Sequence[str]) -> Self:
        """A client that asks a cell's own indexes first."""
        if not extra:
            return self
        wider = copy.copy(self)
        wider.settings = uv.with_extra(self.settings, extra)
        return wider

    def resolve(
        self,
        requirements: Sequence[str],
        *,
        target: Target,
        previous: Sequence[Wheel] = (),
        upgrade: Collection[str] | bool = False,
        listed: bool = False,
        built: Sequence[LocalWheel] = (),
        limit: UploadLimit | None = None,
    ) -> tuple[Wheel, ...]:
        """The wheels that satisfy ``requirements``, one a package, by name.

        ``previous`` wheels stay as they are unless the requirements or ``upgrade`` move them. With ``listed``
        nothing is added to ``requirements``, whatever they say they depend on. ``built`` are wheels that no
        index has; each is the one of its package. ``limit`` leaves out what was uploaded later.

        Raises PackageIndexError if nothing satisfies them, with the reason, or the index did not answer.
        """
        for url in self.settings.all:
            if failure := self.client.given_up(url):  # uv would wait for it anew, each time
                raise simple_api.unanswered(url, failure)
        try:
            packages, warnings = uv.compile_requirements(
                [*requirements, *(f"{one.wheel.name}=={one.wheel.version}" for one in built)],
                target,
                self.settings,
                previous=previous,
                upgrade=upgrade,
                listed=listed,
                files=[one.path for one in built],
                limit=limit,
            )
        except NoSolutionError as none:
            for name in _ABSENT.findall(none.message)[:3]:
                self._ask_about(name)
            raise
        for text in warnings:
            self._note(text)
        fitting = target.tags()
        kept = {wheel.sha256 for wheel in previous}
        own = {canonicalize_name(one.wheel.name): one.wheel for one in built}
        found: list[tuple[dict[str, Any], dict[str, Any]]] = []
        for package in packages:
            marker = package.get("marker")
            if marker and not Marker(marker).evaluate(target.environment):
                continue
            if canonicalize_name(package["name"]) not in own:
                found.append((package, _best(package, fitting, kept, target)))
        with ThreadPoolExecutor(_THREADS * 2) as pool:
            wheels = [*pool.map(lambda pair: self._wheel(*pair), found), *own.values()]
        return tuple(sorted(wheels, key=lambda wheel: canonicalize_name(wheel.name)) if own else wheels)

    def _ask_about(self, name: str) -> None:
        """Raise PackageIndexError if an index did not answer about a package that uv did not find: uv takes
        one that wants a login for one without the package.
        """
        if (name, self.settings.all) not in self._absent:
            self.offers(name)
            self._absent.add((name, self.settings.all))

    def offers(self, name: str) -> tuple[IndexFile, ...]:
        """Every file that the user's indexes list for a project, each address with the login it needs.

        Raises PackageIndexError if an index did not answer, or not with a project's page.
        """
        return tuple(file for index in self.settings.all for file in self.offers_of(index, name))

    def offers_of(self, index: str, name: str) -> tuple[IndexFile, ...]:
        """As :meth:`offers`, of one index by its address."""
        place = (index, canonical(name))
        files = self._pages.get(place) or simple_api.files(self.client, index, name)
        if self.settings.believed:
            self._pages[place] = files
        if "@" not in index:
            return files
        return tuple(replace(file, url=_with_login(file.url, index)) for file in files)

    def place(self, file: Wheel | Sdist) -> tuple[str, str]:
        """The index that offers this very file, and the file's address there, both without a login.

        Raises PackageIndexError if no index has it, or one did not answer.
        """
        others: list[tuple[str, IndexFile]] = []
        for index, listed in self._listed(file):
            if listed.sha256 == file.sha256:
                return _without_login(index), _without_login(listed.url)
            others.append((index, listed))
        if any(listed.sha256 is None for _, listed in others):
            said = f"no index gives the sha256 of {file.file}"
            raise PackageIndexError(said, hint="use an index that lists hashes")
        raise self._not_listed(file, others)

    def address(self, wheel: Wheel) -> str:
        """The address of this very file, with the login it needs. Raises PackageIndexError if no index has
        it.
        """
        return next(self._addresses(wheel))

    def fetch(
        self,
        wheel: Wheel | Sdist,
        *,
        cache: Path,
        progress: Callable[[int], None] | None = None,
        stop: Callable[[], bool] | None = None,
    ) -> Path:
        """The file, below ``cache/wheels/`` or ``cache/sdists/``; downloaded and checked unless it is there.

        ``progress`` as of :class:`~builder.sources.net.download.Download`. Raises PackageIndexError if no
        index offers this very file, or what arrived has another sha256.
        """
        return Download(
            client=self.client,
            urls=lambda: self._addresses(wheel),
            what=wheel.file,
            sha256=wheel.sha256,
            size=wheel.size,
            to=cache_path(wheel, cache),
            error=PackageIndexError,
            hint="if the file is gone from the index for good: `rtbuild lock --upgrade`",
            progress=progress,
            stop=stop,
        ).fetch()

    def fetch_all(
        self,
        wheels: Iterable[Wheel],
        *,
        cache: Path,
        progress: Callable[[int], None] | None = None,
        stop: threading.Event | None = None,
        arrived: Callable[[Wheel, Path], None] | None = None,
        span: WorkSpan = nullcontext,
    ) -> dict[str, Path]:
        """:meth:`fetch` for several at a time, begun in their order; each wheel's path by its sha256.

        ``progress`` is called from one thread at a time, ``arrived`` from that which fetched the wheel. The
        first failure, of either, and ``stop`` end the others; their partial files stay for the next run.
        """

        def one(wheel: Wheel, report: Callable[[int], None], stopped: Callable[[], bool]) -> Path:
            with span(f"fetch {wheel.file}"):
                path = self.fetch(wheel, cache=cache, progress=report, stop=stopped)
            if arrived is not None:
                arrived(wheel, path)
            return path

        lanes: tuple[list[Wheel], list[Wheel]] = ([], [])
        for wheel in dict.fromkeys(wheels):
            lanes[wheel.size < _LARGE].append(wheel)
        threads = _THREADS // 2 if all(lanes) else _THREADS
        paths = together([(lane, threads) for lane in lanes], one, progress=progress, stop=stop)
        return {wheel.sha256: path for wheel, path in paths.items()}

    def _listed(self, file: Wheel | Sdist) -> Iterator[tuple[str, IndexFile]]:
        """The index and its row, for each that lists a file of this name, whatever its hash."""
        for index in self.settings.all:
            for row in simple_api.files(self.client, index, file.name):
                if row.name == file.file:
                    yield index, row

    def _not_listed(self, file: Wheel | Sdist, others: Iterable[tuple[str, IndexFile]]) -> PackageIndexError:
        """The error for a file of which the indexes have ``others`` of the same name at most."""
        asked = ", ".join(redact(url) for url in self.settings.all)
        detail = "".join(f"\n  {redact(url)} has it with sha256:{row.sha256}" for url, row in others)
        return PackageIndexError(
            f"{file.file} with sha256:{file.sha256} is in none of the indexes ({asked}){detail}",
            hint=f"it may be deleted there, or another index is configured than when it was locked; "
            f"`rtbuild lock --upgrade-only {file.name}` takes what there is now",
        )

    def _addresses(self, wheel: Wheel | Sdist) -> Iterator[str]:
        """The addresses of the wheel, best first, from the project's page: the lock names no host."""
        known = self._known.get(wheel.sha256)
        if known is not None:
            yield functools.reduce(_with_login, self.settings.all, known)
        others: list[tuple[str, IndexFile]] = []
        offered = False
        for index, listed in self._listed(wheel):
            if listed.sha256 not in (None, wheel.sha256):
                others.append((index, listed))
                continue
            offered = True
            if listed.url != known:
                yield _with_login(listed.url, index)
        if not offered and known is None:
            raise self._not_listed(wheel, others)

    def _wheel(self, package: dict[str, Any], chosen: dict[str, Any]) -> Wheel:
        url, sha256 = chosen["url"], chosen["hashes"]["sha256"]
        self._known[sha256] = url
        uploaded: datetime.datetime | None = chosen.get("upload-time")
        return Wheel(
            name=package["name"],
            version=package["version"],
            file=_file_name(chosen),
            sha256=sha256,
            size=chosen.get("size") or self._size(url, _file_name(chosen)),
            uploaded=int(uploaded.timestamp()) if uploaded else 0,
        )

    def _size(self, url: str, file: str) -> int:
        """An index in HTML does not say how large a file is; the server that has it does."""
        headers = {"Accept-Encoding": "identity"}
        try:
            url = functools.reduce(_with_login, self.settings.all, url)
            response = self.client.request("HEAD", url, headers=headers)
            if response.status_code != 200:
                response = self.client.get(url, headers=headers, stream=True)
                response.close()
        except requests.RequestException as problem:
            why = explain(problem)
            hint = remedy(why) or "check the network and the proxy variables"
            raise IndexSilentError(f"{file} from {redact(url)}: {why}", hint=hint) from problem
        size = response.headers.get("Content-Length", "")
        if response.status_code != 200 or not size.isdigit():
            raise PackageIndexError(
                f"{file}: {redact(url)} does not say how large it is (HTTP {response.status_code})",
                hint="try again, or use an index that lists the file",
            )
        return int(size)


def _with_login(url: str, index: str) -> str:
    """The address with the login of the index's own address, if both are on one host; as pip does it."""
    login, at, host = urlsplit(index).netloc.rpartition("@")
    parts = urlsplit(url)
    if at and parts.netloc == host and parts.scheme == urlsplit(index).scheme:
        return urlunsplit(parts._replace(netloc=f"{login}@{host}"))
    return url


def _without_login(url: str) -> str:
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def cache_path(wheel: Wheel | Sdist, cache: Path) -> Path:
    """The path of a fetched file, which need not exist."""
    kind = "sdists" if isinstance(wheel, Sdist) else "wheels"
    return cache / kind / wheel.sha256[:2] / wheel.sha256 / wheel.file


def _file_name(entry: dict[str, Any]) -> str:
    name: str = entry.get("name") or unquote(urlsplit(entry["url"]).path.rsplit("/", 1)[-1])
    return name


def _best(
    package: dict[str, Any], fitting: dict[Any, int], kept: Collection[str], target: Target
) -> dict[str, Any]:
    """The wheel to take of those offered: the one locked before, else the one with the best tag."""
    name = f"{package['name']}=={package.get('version', '?')}"
    wheels: list[dict[str, Any]] = [entry for entry in package.get("wheels", ()) if "url" in entry]
    if not wheels:
        hint = "a requirement with an address or a path cannot be locked; name a version on an index"
        raise PackageIndexError(f"{name} does not come from a package index as a wheel", hint=hint)
    for entry in wheels:
        if entry.get("hashes", {}).get("sha256") in kept:
            return entry
    ranked = [(key, entry) for entry in wheels if (key := rank(_file_name(entry), fitting)) is not None]
    if not ranked:
        files = ", ".join(sorted(_file_name(entry) for entry in wheels))
        place = f"Python {target.python}, {target.machine}, glibc {target.glibc}"
        hint = "take another version of it, another Python, or a base with a newer glibc"
        raise NoSolutionError(f"{name} has no wheel for {place}: {files}", hint=hint)
    best = min(ranked, key=lambda pair: (pair[0], _file_name(pair[1])))[1]
    if "sha256" not in best.get("hashes", {}):
        hint = "use an index that does"
        raise PackageIndexError(f"{name}: the index gives no sha256 for {_file_name(best)}", hint=hint)
    return best


@dataclass(frozen=True, kw_only=True)
class Offer:
    """The index's answer about one project; ``unknown`` is the reason if there is none."""

    wheels: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """File names for Linux on one platform by version, without yanked files and pre-releases."""
    unknown: str | None = None

    @property
    def versions(self) -> tuple[str, ...]:
        return tuple(self.wheels)


def page(name: str, index: Index, url: str | None = None) -> Files:
    """The files that all of the user's indexes have of a project, or the one at ``url``."""
    try:
        return index.offers(name) if url is None else index.offers_of(url.rstrip("/"), name)
    except RtbuildError as problem:
        return problem.message


def pages(names: Iterable[str], index: Index) -> dict[str, Files]:
    """The pages of several projects, by canonical name."""
    wanted = sorted({canonical(name) for name in names})
    with ThreadPoolExecutor(_THREADS) as pool:
        return dict(zip(wanted, pool.map(lambda name: page(name, index), wanted), strict=True))


def ask(names: Iterable[str], index: Index, platform: str = "linux/amd64") -> dict[str, Offer]:
    """The wheels of several projects for one platform, by canonical name."""
    return {
        name: Offer(unknown=files)
        if isinstance(files, str)
        else Offer(wheels=_wheels(files, MACHINES[platform]))
        for name, files in pages(names, index).items()
    }


def _wheels(files: Iterable[IndexFile], machine: str) -> dict[str, list[str]]:
    """File names of released, standing wheels for Linux on ``x86_64`` or ``aarch64``, by version."""
    found: dict[str, list[str]] = {}
    for file in files:
        wheel = wheel_name(file.name)
        if wheel is None or file.yanked is not None or wheel.version.is_prerelease:
            continue
        platforms = {tag.platform for tag in wheel.tags}
        if any(name.endswith((machine, "any")) and not name.startswith("macos") for name in platforms):
            found.setdefault(str(wheel.version), []).append(file.name)
    return found
