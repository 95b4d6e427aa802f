"""Runs a program that nobody trusts in a laid-out system: no network, no secret, no file of this machine.

What it prints is read and bounded, its result comes over a pipe, and everything that it started ends with it:
the first process of a PID namespace takes all others along (pid_namespaces(7)). It writes into memory that is
gone afterwards, so a second run finds what the first one found.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import shutil
import signal
import subprocess
import sys
import time
from collections import deque
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from builder.errors import CancelledError, CommandError, MissingToolError
from builder.layers.sandbox import NAMESPACES

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Mapping, Sequence

_ENTER = Path(__file__).with_name("enter.py")
_POLL = 0.2
_PIECE = 1 << 16
_TAIL = 40
"""Lines of the program's output in an error."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What a program may use. ``memory`` and ``address`` are bytes, of files and of one process."""

    seconds: int = 600
    processes: int = 256
    memory: int = 1 << 30
    address: int = 8 << 30
    output: int = 64 << 20
    """Bytes that it may print."""
    result: int = 1 << 30


def run_confined(
    program: Sequence[str],
    root: Path,
    folders: Mapping[str, Path],
    *,
    what: str,
    env: Mapping[str, str],
    limits: Limits,
    cancel: threading.Event,
    advise: Callable[[str], str] = lambda _text: "",
) -> bytes:
    """What ``program`` writes to standard output; ``root`` and ``folders`` in it are all the files there are.

    ``advise`` makes an error's hint of what the program printed.

    Raises:
        MissingToolError: this machine lets nobody make the namespaces.
        CommandError: the program failed, or did more than its limits allow; with the end of its output.
        CancelledError: soon after ``cancel`` was set.
    """
    asked = {name: value for name, value in asdict(limits).items() if name not in {"output", "result"}}
    places = json.dumps({place: str(folder) for place, folder in folders.items()})
    command = [
        *_way_in(),
        sys.executable,
        "-I",
        str(_ENTER),
        str(root),
        places,
        json.dumps(asked),
        *program,
    ]
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=dict(env),
        cwd="/",
        umask=0o022,
        start_new_session=True,
    ) as process:
        watched = _Watched(process, limits, cancel)
        try:
            broken = watched.follow()
        finally:
            _end(process)
    if cancel.is_set():
        raise CancelledError(f"{what} was not finished")
    if broken or process.returncode != 0:
        tail = watched.tail()
        raise CommandError(
            f"{what} {broken or 'failed'}",
            command=list(program),
            returncode=process.returncode,
            tail=tail,
            hint=advise(watched.text) or None,
        )
    return bytes(watched.result)


class _Watched:
    """Reads both pipes until the program ends, or until it does too much of something."""

    def __init__(self, process: subprocess.Popen[bytes], limits: Limits, cancel: threading.Event) -> None:
        self._process = process
        self._limits = limits
        self._cancel = cancel
        self._printed = 0
        self._log: deque[bytes] = deque()
        self._kept = 0
        self._looked = 0.0
        self.result = bytearray()

    def follow(self) -> str | None:
        """What it did too much of; None where it came to an end by itself."""
        end = time.monotonic() + self._limits.seconds
        assert self._process.stdout is not None  # noqa: S101 - both are pipes
        assert self._process.stderr is not None  # noqa: S101
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ, self._take)
            selector.register(self._process.stderr, selectors.EVENT_READ, self._hear)
            while self._process.poll() is None or selector.get_map():
                ready = selector.select(_POLL) if selector.get_map() else ()
                for key, _ in ready:
                    piece = os.read(key.fd, _PIECE)
                    if not piece:
                        selector.unregister(key.fileobj)
                    key.data(piece)
                broken = self._too_much(end)
                if broken is not None:
                    return f"{broken}, and was stopped"
                if not ready and not selector.get_map():
                    time.sleep(_POLL)
        return None

    def _too_much(self, end: float) -> str | None:
        limits, now = self._limits, time.monotonic()
        if now > end:
            return f"was not done after {limits.seconds} s"
        if self._cancel.is_set():
            return "was cancelled"
        if self._printed > limits.output:
            return f"printed more than {limits.output >> 20} MiB"
        if len(self.result) > limits.result:
            return f"made more than {limits.result >> 20} MiB"
        if now - self._looked > _POLL:
            self._looked = now
            if _count(self._process.pid) > limits.processes:
                return f"started more than {limits.processes} processes"
        return None

    def _take(self, piece: bytes) -> None:
        self.result += piece

    def _hear(self, piece: bytes) -> None:
        """Keep the end of what is printed."""
        self._printed += len(piece)
        self._log.append(piece)
        self._kept += len(piece)
        while self._kept - len(self._log[0]) > _PIECE:
            self._kept -= len(self._log.popleft())

    @property
    def text(self) -> str:
        return b"".join(self._log).decode("utf-8", "replace")

    def tail(self) -> list[str]:
        return [line.rstrip()[:400] for line in self.text.splitlines() if line.strip()][-_TAIL:]


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill whatever is left. `unshare --kill-child` takes the namespace's first process along, and so all."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    process.wait()


def _count(unshare: int) -> int:
    """Processes in the namespace that ``unshare`` made; 0 where it has not, or is gone."""
    try:
        ours = Path(f"/proc/{unshare}/ns/pid_for_children").stat().st_ino
    except OSError:
        return 0
    found = 0
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError):  # ended meanwhile, or another user's
                found += (entry / "ns/pid").stat().st_ino == ours
    return found


@cache
def _way_in() -> tuple[str, ...]:
    """The command that makes the namespaces. Unlike the recipe's own steps, none of this goes without."""
    unshare = shutil.which("unshare", path=os.environ.get("PATH", os.defpath) + ":/usr/sbin:/sbin:/usr/bin")
    problem = "there is no unshare"
    if unshare is not None:
        way = (unshare, *NAMESPACES)
        done = subprocess.run([*way, "/bin/true"], capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return way
        problem = done.stderr.strip() or f"unshare: exit status {done.returncode}"
    raise MissingToolError(
        f"setup code of sources is run only where it can be shut in, and here it cannot be: {problem}",
        hint="let users make user namespaces (Ubuntu 24.04: sudo sysctl "
        "kernel.apparmor_restrict_unprivileged_userns=0)",
    )
