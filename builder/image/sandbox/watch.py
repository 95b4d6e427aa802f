"""Follows a shut-in program: reads what it prints, and finds when it uses too much of something.

The kernel limits each process, the number of processes and the memory for files. It limits the sum of memory
for control groups only, which not every user may make, and of writes to a disk for nobody, so these two are
looked at here as well, a few times a second. Memory that belongs to no process, such as a socket's buffer,
shows only in what the machine has left.
"""

import contextlib
import json
import os
import selectors
import subprocess
import threading
import time
import uuid
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from builder.core.documents import shown

ROOT = Path("/sys/fs/cgroup")
OWN = Path("/proc/self/cgroup")
_PREFIX = "rtbuild-"
_WANTED = frozenset({"memory", "pids"})
_POLL = 0.2
_PIECE = 1 << 16
_TAIL = 40
"""Lines of the program's output in an error."""
_RESERVE = 1 << 30
"""Bytes of memory that a program has to leave to this machine."""
_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class ControlGroup:
    """One for a shut-in program, whose sum the kernel bounds. ``folders`` by controller.

    Of version 2 a neighbour of this process's own group, since a group that has processes bounds none below
    it; of version 1 one below it in each hierarchy. https://docs.kernel.org/admin-guide/cgroup-v2.html
    """

    version: int
    folders: dict[str, Path]

    def add(self, process: int) -> None:
        """Bound a process and all that it starts from now on. Raises OSError."""
        for folder in set(self.folders.values()):
            (folder / "cgroup.procs").write_text(str(process))

    def full(self) -> bool:
        """Whether the kernel killed a process in it for want of memory."""
        name = "memory.events" if self.version == 2 else "memory.oom_control"
        with contextlib.suppress(OSError):
            return any(
                line.partition(" ")[0] == "oom_kill" and line.partition(" ")[2] not in ("", "0")
                for line in (self.folders["memory"] / name).read_text().splitlines()
            )
        return False

    def remove(self) -> None:
        """Once its processes have ended; what does not go now is swept by the next."""
        for folder in set(self.folders.values()):
            for _ in range(20):
                with contextlib.suppress(OSError):
                    folder.rmdir()
                if not folder.exists():
                    break
                time.sleep(0.01)


def control_group(memory: int, processes: int, *, root: Path = ROOT, own: Path = OWN) -> ControlGroup | None:
    """A new group for so many bytes and processes; None if this process may make none."""
    for version, places in _places(root, own):
        name = f"{_PREFIX}{os.getpid()}-{uuid.uuid4().hex[:8]}"
        group = ControlGroup(version, {what: place / name for what, place in places.items()})
        try:
            for place in set(places.values()):
                _sweep(place)
                (place / name).mkdir()
            limit = "memory.max" if version == 2 else "memory.limit_in_bytes"
            (group.folders["memory"] / limit).write_text(str(memory))
            (group.folders["pids"] / "pids.max").write_text(str(processes))
        except OSError:
            group.remove()
            continue
        for more in ("memory.swap.max", "memory.oom.group"):  # not in every kernel
            with contextlib.suppress(OSError):
                (group.folders["memory"] / more).write_text("0" if "swap" in more else "1")
        return group
    return None


def _places(root: Path, own: Path) -> Iterator[tuple[int, dict[str, Path]]]:
    """Folders in which a group could be made that bounds both."""
    try:
        lines = [line.split(":", 2) for line in own.read_text().splitlines() if line.count(":") >= 2]
    except OSError:
        return
    paths = {name: path.strip("/") for _, names, path in lines for name in names.split(",")}
    if "" in paths and (root / "cgroup.controllers").is_file():
        folder = root / paths[""]
        for place in dict.fromkeys((folder.parent if paths[""] else folder, folder)):
            with contextlib.suppress(OSError):
                if set((place / "cgroup.subtree_control").read_text().split()) >= _WANTED:
                    yield 2, dict.fromkeys(_WANTED, place)
    elif paths.keys() >= _WANTED:
        places = {what: root / what / paths[what] for what in _WANTED}
        if all(place.is_dir() for place in places.values()):
            yield 1, places


def _sweep(place: Path) -> None:
    """Remove what runs left that were killed: a group with processes stays by itself."""
    for folder in place.glob(f"{_PREFIX}*"):
        process = folder.name.removeprefix(_PREFIX).partition("-")[0]
        if not Path(f"/proc/{process}").exists():
            with contextlib.suppress(OSError):
                folder.rmdir()


def _most_memory() -> int:
    return min(8 << 30, _PAGE * os.sysconf("SC_PHYS_PAGES") * 3 // 4)


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits of a program, in bytes unless another unit is named."""

    seconds: int = 600
    processes: int = 256
    """Processes and threads at a time."""
    memory: int = 1 << 30
    """Files below ``/build``; a quarter of it below ``/tmp``."""
    address: int = 8 << 30
    """Addresses of one process."""
    total: int = field(default_factory=_most_memory)
    """Memory of all processes together, files apart."""
    disk: int = 2 << 30
    """Written into a system that may be written to."""
    files: int = 300_000
    """Files and folders made in such a system."""
    output: int = 64 << 20
    """Printed to standard error."""
    result: int = 1 << 30
    """Written to standard output."""

    def of_each(self) -> dict[str, int]:
        """Limits of one process, by their names in :mod:`resource`."""
        return {
            "RLIMIT_AS": self.address,
            "RLIMIT_CORE": 0,
            "RLIMIT_CPU": self.seconds,
            "RLIMIT_FSIZE": max(self.disk, self.memory),
            "RLIMIT_MEMLOCK": 0,
            "RLIMIT_NOFILE": 4096,
        }


@dataclass
class Watched:
    """Reads both pipes until the program ends, or until it does too much of something."""

    process: subprocess.Popen[bytes]
    limits: Limits
    cancel: threading.Event
    told: int
    """The pipe to which bubblewrap writes the id of the namespace's first process."""
    written: Path | None
    """The folder that the program may write to."""
    group: ControlGroup | None

    def __post_init__(self) -> None:
        self._before = _free(self.written) if self.written else (0, 0)
        self._reserve = min(_RESERVE, _available() // 2)
        self._first = 0
        self._printed = 0
        self._log: deque[bytes] = deque()
        self._kept = 0
        self._looked = 0.0
        self.result = bytearray()
        self.broken: str | None = None
        """The limit that it exceeded; None if it ended by itself."""

    def follow(self, plan: bytes) -> None:
        """Tell it the plan, and watch it to its end."""
        end = time.monotonic() + self.limits.seconds
        assert self.process.stdin is not None  # noqa: S101 - all three are pipes
        assert self.process.stdout is not None  # noqa: S101
        assert self.process.stderr is not None  # noqa: S101
        with contextlib.suppress(BrokenPipeError):  # it failed at once, and says of what
            self.process.stdin.write(plan)
            self.process.stdin.close()
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ, self.result.extend)
            selector.register(self.process.stderr, selectors.EVENT_READ, self._hear)
            while self.process.poll() is None or selector.get_map():
                ready = selector.select(_POLL) if selector.get_map() else ()
                for key, _ in ready:
                    piece = os.read(key.fd, _PIECE)
                    if not piece:
                        selector.unregister(key.fileobj)
                    key.data(piece)
                broken = self._too_much(end)
                if broken is not None:
                    self.broken = f"{broken}, and was stopped"
                    return
                if not ready and not selector.get_map():
                    time.sleep(_POLL)

    def _too_much(self, end: float) -> str | None:
        limits, now = self.limits, time.monotonic()
        if now > end:
            return f"was not done after {limits.seconds} s"
        if self.cancel.is_set():
            return "was cancelled"
        if self._printed > limits.output:
            return f"printed more than {limits.output >> 20} MiB"
        if len(self.result) > limits.result:
            return f"made more than {limits.result >> 20} MiB"
        if now - self._looked > _POLL:
            self._looked = now
            return self._looked_at()
        return None

    def _looked_at(self) -> str | None:
        limits, processes = self.limits, list(self._processes())
        if len(processes) > limits.processes:
            return f"started more than {limits.processes} processes"
        if self.full() or _memory(processes, limits.total) > limits.total:
            return f"took more than {limits.total >> 20} MiB of memory"
        if _available() < self._reserve:
            return f"left this machine less than {self._reserve >> 20} MiB of memory"
        return None if self.written is None else self._wrote_too_much(self.written)

    def _wrote_too_much(self, folder: Path) -> str | None:
        limits, before, now = self.limits, self._before, _free(folder)
        if before[0] - now[0] > limits.disk or before[1] - now[1] > limits.files:
            size, files = _size(folder)
            if size > limits.disk:
                return f"wrote more than {limits.disk >> 20} MiB"
            if files > limits.files:
                return f"made more than {limits.files} files"
            self._before = now  # it was somebody else
        return None

    def full(self) -> bool:
        """Whether the kernel has ended one of them for want of memory, if it bounds their sum."""
        return self.group is not None and self.group.full()

    def _processes(self) -> Iterator[Path]:
        """The folders in ``/proc`` of the namespace's processes; none before it is made and after its end."""
        if not self._first:
            with contextlib.suppress(BlockingIOError, ValueError, KeyError):
                os.set_blocking(self.told, False)
                self._first = json.loads(os.read(self.told, _PIECE))["child-pid"]
        try:
            ours = Path(f"/proc/{self._first}/ns/pid").stat().st_ino if self._first else 0
        except OSError:
            return
        for entry in Path("/proc").iterdir() if ours else ():
            if entry.name.isdecimal():
                with contextlib.suppress(OSError):  # ended meanwhile, or another user's
                    if (entry / "ns/pid").stat().st_ino == ours:
                        yield entry

    def _hear(self, piece: bytes) -> None:
        """Keep the end of what is printed."""
        self._printed += len(piece)
        self._log.append(piece)
        self._kept += len(piece)
        while self._kept - len(self._log[0]) > _PIECE:
            self._kept -= len(self._log.popleft())

    @property
    def text(self) -> str:
        """The end of the output."""
        return b"".join(self._log).decode("utf-8", "replace")

    def tail(self) -> list[str]:
        """Its last lines, for people."""
        return [line for text in self.text.split("\n") if (line := shown(text))][-_TAIL:]


def _memory(processes: list[Path], enough: int) -> int:
    """Bytes of memory, shared pages are counted once if that matters."""
    resident = sum(_number(path / "statm", 1) * _PAGE for path in processes)
    if resident <= enough:
        return resident
    # Forked processes share pages: each resident set counts them whole, each proportional one its part.
    return sum(_number(path / "smaps_rollup", "Pss:") * 1024 for path in processes)


def _number(path: Path, which: int | str) -> int:
    with contextlib.suppress(OSError, IndexError, ValueError):
        words = path.read_text().split()
        return int(words[which] if isinstance(which, int) else words[words.index(which) + 1])
    return 0  # it ended meanwhile


def _available() -> int:
    """Bytes of memory that this machine has left, by its kernel's estimate."""
    return _number(Path("/proc/meminfo"), "MemAvailable:") * 1024


def _free(folder: Path) -> tuple[int, int]:
    """Bytes and files for which the file system has room; some count no files."""
    status = os.statvfs(folder)
    return status.f_bavail * status.f_frsize, status.f_favail


def _size(folder: Path) -> tuple[int, int]:
    """Bytes, and files and folders."""
    size = count = 0
    for _, folders, files, at in os.fwalk(folder):
        count += len(folders) + len(files)
        for name in files:
            with contextlib.suppress(OSError):
                size += os.stat(name, dir_fd=at, follow_symlinks=False).st_blocks * 512
    return size, count
