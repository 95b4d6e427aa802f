"""Temporary folders for a system: in memory if there is room, else beside the store.

4,000 small files take 0.10 s in memory, and 1.48 s on ext4.
"""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from builder.core import temporary
from builder.core.errors import CommandError, MissingToolError
from builder.core.temporary import locked_folder, own_prefix

SHARED = Path("/dev/shm")  # noqa: S108 - memory by name, and on every Linux
_NEARLY_FULL = 4 << 20


def roomy(need: int) -> bool:
    """Whether ``need`` bytes may be put into memory, as programs that run there."""
    try:
        status = os.statvfs(SHARED)
    except OSError:
        return False
    if status.f_flag & (os.ST_NOEXEC | os.ST_RDONLY) or not os.access(SHARED, os.W_OK | os.X_OK):
        return False
    spare = 1 << 30  # is left alone
    return min(status.f_bavail * status.f_frsize, available() - spare) >= need


def available() -> int:
    """Bytes of memory that this process may still take, by the kernel and by its control group."""
    lines = _read(Path("/proc/meminfo")).splitlines()
    found = next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")), 0)
    for line in _read(Path("/proc/self/cgroup")).splitlines():
        if line.startswith("0::"):
            # https://docs.kernel.org/admin-guide/cgroup-v2.html#memory-interface-files
            folder = Path("/sys/fs/cgroup") / line[3:].strip("/")
            limit, used = _read(folder / "memory.max").strip(), _read(folder / "memory.current").strip()
            if limit.isdecimal() and used.isdecimal():
                found = min(found, int(limit) - int(used))
    return found


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


class MemoryFullError(Exception):
    """The room in memory that there seemed to be was not enough, or somebody else took it."""


@contextlib.contextmanager
def workplace(beside: Path, need: int, *, memory: bool) -> Iterator[Path]:
    """A new folder for about ``need`` bytes until the block ends: in ``memory`` if it may, or ``beside``.

    What a process that was killed has left is removed by the next that comes here, or by a prune. An error of
    the block that a full place explains becomes :class:`MemoryFullError`, or on a disk
    :class:`~builder.core.errors.MissingToolError`: a program's children may fail without a word.
    """
    sweep()
    memory = memory and roomy(need)
    place, prefix = (SHARED, own_prefix()) if memory else (beside, "bases-")
    temporary.sweep(place, prefix)
    with locked_folder(place, prefix) as folder:
        try:
            yield folder
        except (OSError, CommandError) as problem:
            status = os.statvfs(folder)
            full = status.f_bavail * status.f_frsize < _NEARLY_FULL
            if full and memory:
                raise MemoryFullError from problem
            if full and isinstance(problem, CommandError):
                raise MissingToolError(
                    f"no room left on the disk of {beside}: {problem.message}",
                    hint="free some room, or set RTBUILD_CACHE to a folder on another disk",
                ) from problem
            raise


def sweep() -> None:
    """Remove what dead processes of this user left in memory."""
    temporary.sweep(SHARED, own_prefix())
