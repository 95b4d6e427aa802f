"""The start program: Jupyter, the probe beside it, and an end in order.

It prints the address to paste as soon as Jupyter answers. The token stands there and nowhere else.
"""

from __future__ import annotations

import json
import os
import platform
import pwd
import signal
import subprocess
import sys
import tempfile
import threading
from typing import Callable, MutableMapping, Sequence

from . import settings
from .server import Server
from .settings import LOOPBACK, StartError

WORK = "/content"
"""Colab's work folder."""
_EXPECTATION = "/usr/local/share/rtbuild/expect.json"
_PROBE_SECONDS = 900
_WORDS = {
    10: "unverified",
    20: "broken",
    21: "unsupported gpu",
    22: "no gpu for this container",
    23: "gpu busy",
}
"""By the probe's exit status; see docs/verdicts.md of rtbuild."""
_EVENTS = ("/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control")
_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
_speaking = threading.Lock()


def main() -> int:
    """Run until Jupyter ends or a signal asks; the exit status."""
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: stop.set())
    try:
        return _run(stop)
    except StartError as error:
        say(f"error: {error.message}\nhint: {error.hint}")
        return error.status


def say(text: str) -> None:
    """One message, whole: the probe's thread speaks, too."""
    with _speaking:
        sys.stdout.write(text + "\n")
        sys.stdout.flush()


def _warn(text: str) -> None:
    say("! " + text)


def _run(stop: threading.Event) -> int:
    asked = settings.read(os.environ)
    environment = dict(os.environ)
    work = _work_folder(settle_home(environment))
    bind = asked.bind or settings.address()
    settings.refuse_taken(bind, asked.port)
    server = Server(asked.port, bind, asked.token, work, environment)
    verdict = None
    try:
        server.wait_until_it_answers(stop)
        if not stop.is_set():
            say(page(asked.port, asked.token, work))
            if asked.token_note:
                _warn(asked.token_note)
            if bind == LOOPBACK and asked.bind is None:
                _warn("this container shares the network of its host: only 127.0.0.1 is listened on\n")
            verdict = Verdict(say)
        return _watch(server, stop)
    finally:
        if verdict is not None:
            verdict.stop()
        server.stop()


def _watch(server: Server, stop: threading.Event) -> int:
    kills = MemoryWatch()
    while not stop.wait(1.0):
        if news := kills.news():
            _warn(news)
        status = server.poll()
        if status is not None:
            say(f"error: Jupyter ended by itself with status {status}; its own words are above")
            return 1
    say("stopping")
    return 0


def page(port: int, token: str, work: str) -> str:
    """What a person needs to go on."""
    try:
        with open(_EXPECTATION) as stream:
            cell = json.load(stream)["cell"]
    except (OSError, ValueError, KeyError):
        cell = "rtbuild"
    return (
        f"\n{cell}, Python {platform.python_version()}\n\n"
        '  In Colab: "Connect to a local runtime", and paste this address. Or open it in a browser.\n\n'
        f"      http://{LOOPBACK}:{port}/?token={token}\n\n"
        f"  files: {work}    stop: Ctrl-C    cudnn-verify is running, its verdict follows\n"
    )


def settle_home(environment: MutableMapping[str, str]) -> str:
    """Give ``environment`` a HOME that can be written to, and a name for a user who has none; the HOME.

    Raises:
        StartError: nothing at all can be written to.
    """
    home = environment.get("HOME") or "/"
    if not _writable(home):
        try:
            made = tempfile.mkdtemp(prefix="home-")
        except OSError as error:
            raise StartError(
                f"neither the home folder {home} nor a temporary folder can be written to: {error}",
                "give the container a place to write: --tmpfs /tmp",
                5,
            )
        if home != "/":
            _warn(
                f"the home folder {home} cannot be written to: {made} is taken, and goes with the container"
            )
        home = made
    environment["HOME"] = home
    try:
        name = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # `--user` may name anyone; getpass, and so PyTorch's compiler, wants a name
        name = f"user{os.getuid()}"
    environment.setdefault("LOGNAME", environment.setdefault("USER", name))
    return home


def _work_folder(home: str) -> str:
    """``/content``, or the home folder where an image has none."""
    if not os.path.isdir(WORK):
        _warn(f"there is no {WORK}: notebooks are kept in {home}")
        return home
    if not _writable(WORK):
        owner = os.stat(WORK)
        hint = f"start as its owner: --user {owner.st_uid}:{owner.st_gid}"
        if owner.st_uid == 0:
            hint = f'mount a folder that is yours: --volume "$PWD:{WORK}"'
        _warn(
            f"{WORK} cannot be written to by user {os.getuid()}, it belongs to user {owner.st_uid}: notebooks"
            f" there cannot be saved.\n  hint: {hint}"
        )
    return WORK


def _writable(folder: str) -> bool:
    """Whether a file can be made there; the modes alone do not tell of a read-only mount."""
    try:
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


class Verdict:
    """A probe under way: its verdict in a line, and in large letters where it is not ``works``.

    ``tell`` gets the text once it has ended.
    """

    def __init__(
        self, tell: Callable[[str], None], command: Sequence[str] = ("cudnn-verify", "--quiet")
    ) -> None:
        self._tell, self._stopped = tell, False
        self._process: subprocess.Popen[str] | None = None
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                universal_newlines=True,
            )
        except OSError as error:
            tell(_large("not verified", f"cudnn-verify did not start: {error}"))
            return
        threading.Thread(target=self._follow, args=(self._process,), daemon=True).start()

    def stop(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._stopped = True
            self._process.terminate()

    def _follow(self, process: subprocess.Popen[str]) -> None:
        try:
            output, _ = process.communicate(timeout=_PROBE_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            output, _ = process.communicate()
        status, last = process.returncode, (output.strip().splitlines() or ["it printed nothing"])[-1]
        text = _large("not verified", f"cudnn-verify failed by a fault of its own ({status}): {last}")
        if status in _WORDS:
            text = _large(_WORDS[status], last)
        if not self._stopped:
            self._tell(text if status else f"cudnn-verify: {last}")


def _large(words: str, detail: str) -> str:
    """A headline that nobody misses, and under it why."""
    headline = "   ".join(" ".join(word) for word in words.upper().split())
    rule = "#" * (len(headline) + 8)
    after = "Jupyter runs all the same; `!cudnn-verify` in a cell says more."
    return f"\n{rule}\n\n    {headline}\n\n{rule}\n{detail}\n{after}\n"


class MemoryWatch:
    """Counts the processes that the kernel killed for memory (``oom_kill``), which Jupyter cannot tell.

    https://docs.kernel.org/admin-guide/cgroup-v2.html#memory-interface-files
    """

    def __init__(self, events: tuple[str, ...] = _EVENTS, limits: tuple[str, ...] = _LIMITS) -> None:
        self._events, self._limits = events, limits
        self._seen = self._count()

    def news(self) -> str | None:
        """What to say about kills since the last call; None where there were none."""
        count = self._count()
        new, self._seen = count - self._seen, count
        if new <= 0:
            return None
        killed = "a process was" if new == 1 else f"{new} processes were"
        return (
            f"out of memory: {killed} killed{self._limit()}. A notebook's kernel starts anew, its variables"
            " are gone.\n  hint: load less at a time, or give the container more: docker run --memory"
        )

    def _count(self) -> int:
        for text in map(_read, self._events):
            rows = [line.split() for line in text.splitlines()]
            if rows:
                return next((int(row[1]) for row in rows if row[:1] == ["oom_kill"] and row[1:]), 0)
        return 0

    def _limit(self) -> str:
        """Version 1 of cgroups says "none" by a number near 2**63, version 2 by "max"."""
        limit = next((int(text) for text in map(_read, self._limits) if text.strip().isdecimal()), 1 << 60)
        return f" at the limit of {limit / 1e9:.1f} GB" if limit < 1 << 60 else ""


def _read(path: str) -> str:
    try:
        with open(path) as stream:
            return stream.read()
    except OSError:
        return ""
