"""Downloads single files into a cache by content: resumed, checked, and renamed into place."""

import contextlib
import errno
import hashlib
import os
import re
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import requests

from builder.core.documents import redact, shown
from builder.core.errors import (
    CancelledError,
    CellError,
    IndexSilentError,
    MissingToolError,
    PackageIndexError,
    RegistryError,
    RegistrySilentError,
)
from builder.core.files import locked
from builder.sources.net.http import Client, explain, remedy

_Item = TypeVar("_Item")

_CHUNK = 1 << 18
"""Bytes written at a time: the most that a broken connection repeats."""
_WORTH_ANOTHER_TRY = 1 << 20
"""An attempt that received this many bytes does not count towards the limit of attempts."""


_SILENT: dict[type[CellError], type[CellError]] = {
    PackageIndexError: IndexSilentError,
    RegistryError: RegistrySilentError,
}
_CUT_OFF = re.compile(
    "host name is unknown|no network leads there|no connection within|proxy \\S+ did not answer"
)
"""Words about a server that was not reached at all."""


class StoppedError(CancelledError):
    """Another download of the batch failed, or the user pressed Ctrl-C; nothing is wrong with this one."""


class _BrokenError(Exception):
    """An attempt ended early; the part that arrived is kept."""


class _MissingError(Exception):
    """This address does not have the file."""


def together(
    lanes: Iterable[tuple[Sequence[_Item], int]],
    work: Callable[[_Item, Callable[[int], None], Callable[[], bool]], Path],
    *,
    progress: Callable[[int], None] | None = None,
    stop: threading.Event | None = None,
) -> dict[_Item, Path]:
    """Run ``work`` on the items of all lanes at once; the result of each item.

    A lane is its items and the number of them that are worked on at a time; they are begun in their order.

    ``progress`` is called from one thread at a time. The first failure stops the others and is raised;
    setting ``stop`` from outside ends all of them with :class:`StoppedError`.
    """
    failed = threading.Event()
    turn = threading.Lock()

    def report(count: int) -> None:
        with turn:
            if progress is not None:
                progress(count)

    def stopped() -> bool:
        return failed.is_set() or (stop is not None and stop.is_set())

    with contextlib.ExitStack() as pools:
        jobs: dict[_Item, Future[Path]] = {}
        for items, threads in lanes:
            pool = pools.enter_context(ThreadPoolExecutor(threads, thread_name_prefix="download"))
            jobs |= {item: pool.submit(work, item, report, stopped) for item in items}
        try:
            for job in as_completed(jobs.values()):
                job.result()
        finally:
            failed.set()
            for job in jobs.values():
                job.cancel()
    return {item: job.result() for item, job in jobs.items()}


@dataclass(kw_only=True)
class Download:
    """One file. Safe for several processes and threads: one downloads under a file lock, the others wait."""

    client: Client
    urls: Callable[[], Iterable[str]]
    """Addresses, tried in order; called only if a download is needed."""
    what: str
    """For messages: a wheel's file name, a Debian package's path, a blob's digest."""
    sha256: str
    """Empty if only the first fetch tells it."""
    size: int
    """In bytes; 0: not known."""
    to: Path
    """A partial file stays beside it with the suffix ``.part``, and the next attempt continues it."""
    error: type[CellError]
    """Raised if no address gives the file, or another one, which is removed."""
    hint: str
    progress: Callable[[int], None] | None = None
    """Gets the bytes received since its last call, a negative number if a restart discarded some. After
    success the numbers add up to the file's size."""
    stop: Callable[[], bool] | None = None
    headers: Callable[[], dict[str, str]] | None = None
    """Called before every attempt."""
    renew: Callable[[requests.Response], object] | None = None
    """Gets a response with status 401, and may change the headers."""
    _reported: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self.part = self.to.with_name(self.to.name + ".part")

    def fetch(self) -> Path:
        """The path of the file, which is downloaded unless it is there.

        Raises :attr:`error`, :class:`~builder.core.errors.MissingToolError` if the disk is full, and
        :class:`StoppedError` after ``stop``.
        """
        try:
            if self._complete():
                return self.to
            self.to.parent.mkdir(parents=True, exist_ok=True)
            with locked(self.to.with_name(f".{self.to.name}.lock")):
                return self.to if self._complete() else self._tried()
        except OSError as problem:
            if problem.errno is None:
                raise
            if problem.errno == errno.ENAMETOOLONG:
                name = shown(self.what, most=80)
                raise self.error(f"{name} has a longer name than a file may have", hint=self.hint) from None
            said, hint = problem.strerror, "name a folder that can be written"
            if problem.errno == errno.ENOSPC:
                said, hint = "no space left", "free some, or name a folder on a larger disk"
            raise MissingToolError(
                f"{said} in {self.to.parent} for {self.what}",
                hint=f"{hint}: RTBUILD_CACHE for files that are kept, TMPDIR for files that pass from one "
                "registry to another",
            ) from problem

    def _complete(self) -> bool:
        # A name is given only to checked bytes, so the size tells a file cut by a broken disk or copy.
        try:
            size = self.to.stat().st_size
        except FileNotFoundError:
            return False
        if self.size and size != self.size:
            return False
        self._report(size)
        return True

    def _tried(self) -> Path:
        problems: list[str] = []
        kind = self.error
        try:
            for url in self.urls():
                try:
                    return self._from(url)
                except _MissingError as problem:
                    problems.append(f"{redact(url)}: {problem}")
        except self.error as problem:  # nobody was reached who knows an address
            if not _CUT_OFF.search(problem.message):
                raise
            problems.append(problem.message)
            kind = type(problem)
        self._report(0)
        tried = "".join(f"\n  {line}" for line in problems)
        hint = self.hint
        if problems and all(map(_CUT_OFF.search, problems)):
            kind = _SILENT.get(kind, kind)
            tried += f"\n  missing here: {self.to}"
            hint = (
                "check the network and the proxy; a machine without a network wants this file brought there"
            )
            hint += ", or the whole cache (RTBUILD_CACHE) of one where the same command ran"
        raise kind(f"{self.what} could not be downloaded{tried}", hint=remedy(tried) or hint)

    def _from(self, url: str) -> Path:
        attempts = self.client.retries + 1
        while True:
            resumed = self._have()
            try:
                digest, note = self._attempt(url)
            except _BrokenError as problem:
                attempts -= self._have() - resumed < _WORTH_ANOTHER_TRY
                if attempts <= 0:
                    raise _MissingError(str(problem)) from None
                time.sleep(self.client.backoff)
                continue
            if self.sha256 in ("", digest):
                self.part.replace(self.to)
                return self.to
            self.part.unlink(missing_ok=True)
            if not resumed:
                self._report(0)
                raise self.error(
                    f"{self.what}: the file that arrived is another one ({note})\n"
                    f"  expected sha256:{self.sha256}\n  received sha256:{digest}\n  from {redact(url)}",
                    hint="nothing was kept; if a proxy or mirror stands in between, ask it for the original",
                )
            # What an earlier run left may have been the bad half: once more, from the start.

    def _have(self) -> int:
        try:
            return self.part.stat().st_size
        except FileNotFoundError:
            return 0

    def _report(self, total: int) -> None:
        if total != self._reported and self.progress is not None:
            self.progress(total - self._reported)
        self._reported = total

    def _attempt(self, url: str) -> tuple[str, str]:
        """Download the missing bytes; return the sha256 of the whole file and a word on its kind."""
        have = self._have()
        if self.size and have > self.size:
            self.part.unlink()
            have = 0
        digest = hashlib.sha256()
        if have:
            with self.part.open("rb") as kept:
                while block := kept.read(_CHUNK):
                    digest.update(block)
            self._report(have)
            if have == self.size:
                return digest.hexdigest(), f"{have} bytes"
        try:
            with self._open(url, have) as response:
                if response.status_code != 206:
                    have, digest = 0, hashlib.sha256()
                with open(self.part, "ab" if have else "wb", opener=_no_link) as file:
                    for block in response.iter_content(_CHUNK):
                        if self.stop is not None and self.stop():
                            hint = "what has arrived is kept, and the next run continues there"
                            raise StoppedError(f"the download of {self.what} was stopped", hint=hint)
                        file.write(block)
                        digest.update(block)
                        have += len(block)
                        self._report(have)
                        if self.size and have > self.size:
                            break
                if have < self.size and "Content-Length" not in response.headers:
                    raise _BrokenError(f"the answer broke off after {have} of {self.size} bytes")
                return digest.hexdigest(), _describe(have, self.size, response)
        except requests.RequestException as problem:
            why = explain(problem)
            if have == 0 and _CUT_OFF.search(why):  # the client has tried several times itself
                raise _MissingError(why) from None
            raise _BrokenError(why) from None

    def _open(self, url: str, have: int) -> requests.Response:
        # Identity: a transparently decompressed body would have another length and another hash.
        wanted = {"Accept-Encoding": "identity"}
        if self.headers is not None:
            wanted |= self.headers()
        if have:
            wanted["Range"] = f"bytes={have}-"
        response = self.client.get(url, headers=wanted, stream=True)
        status, sent = response.status_code, response.headers.get("Content-Range", "")
        if status == 200 or (status == 206 and sent.startswith(f"bytes {have}-")):
            return response
        if status == 401 and self.renew is not None and self.renew(response):
            response.close()
            raise _BrokenError("the login had run out")
        response.close()
        if have and status in (206, 416):
            self.part.unlink(missing_ok=True)
            raise _BrokenError(f"the server cannot continue a download (HTTP {status})")
        raise _MissingError(f"HTTP {status} {response.reason}".strip())


def _no_link(path: str, flags: int) -> int:
    """Opens a file where others may write: no link of theirs is followed, and no pipe waited for."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)


def _describe(have: int, expected: int, response: requests.Response) -> str:
    kind = response.headers.get("Content-Type", "").split(";")[0]
    page = " of HTML: a login page or a proxy's message" if kind == "text/html" else ""
    if expected and have > expected:
        return f"more than the {expected} bytes expected{page}"
    if expected and have != expected:
        return f"{have} bytes{page}, {expected} expected"
    return f"{have} bytes{page}"
