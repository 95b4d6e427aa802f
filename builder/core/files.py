"""Files that are whole or not there; locks that the kernel frees when their process ends, and folders for a
moment that are locked by them.

Such a folder lies in a place for temporary files or, if there is room, in memory. The next process removes
what a killed one left.
"""

import contextlib
import errno
import fcntl
import glob
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from builder.core.errors import CommandError, MissingToolError, UsageError

_PRIVATE = 0o600
_Read = TypeVar("_Read")


def write_whole(path: Path, content: bytes | Callable[[], bytes], *, mode: int = 0o644) -> None:
    """Write beside and rename: a reader sees the old file or the new one. Folders are made.

    A ``content`` that is made out of the file's own is called while no other process writes here. ``mode`` is
    the file's, whatever the umask. Raises OSError, and leaves nothing beside then; what a process
    that was killed has left there is taken over by the next.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name[:100]}.new")
    with _alone(beside) as file:
        try:
            os.ftruncate(file.fileno(), 0)
            file.write(content if isinstance(content, bytes) else content())
            file.flush()
            if mode != _PRIVATE:  # some file systems have no modes to change
                os.fchmod(file.fileno(), mode)
            beside.replace(path)
        except BaseException:
            beside.unlink(missing_ok=True)
            raise


def write_cached(path: Path, document: Mapping[str, Any], *, indent: int | None = None) -> None:
    """Write JSON into a cache, for this user alone. A cache that cannot be written costs only time."""
    with contextlib.suppress(OSError):
        write_whole(path, json.dumps(document, indent=indent, sort_keys=True).encode(), mode=_PRIVATE)


def read_cached(path: Path | None, read: Callable[[dict[str, Any]], _Read | None]) -> _Read | None:
    """The result of ``read`` on JSON in a cache; None if the file is absent, damaged or of another form."""
    try:
        return None if path is None else read(json.loads(path.read_text("utf-8")))
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return None


@contextlib.contextmanager
def _alone(path: Path) -> Iterator[BinaryIO]:
    """A file that no other writer of this name has open, new or left by one that was killed."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    while True:
        with os.fdopen(os.open(path, flags, _PRIVATE), "wb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if _is_still(path, os.fstat(file.fileno()).st_ino):  # else the writer before has renamed it
                yield file
                return


def _is_still(path: Path, inode: int) -> bool:
    try:
        return path.stat().st_ino == inode
    except FileNotFoundError:
        return False


def remove(path: Path) -> None:
    """Remove what has this name, be it a file, a link or a whole folder; nothing is fine."""
    if path.is_dir() and not path.is_symlink():
        remove_tree(path)
    else:
        path.unlink(missing_ok=True)


def remove_tree(folder: Path) -> None:
    """Remove a folder and all that is in it, however deep: :func:`shutil.rmtree` goes as deep as calls may.

    Raises OSError.
    """
    try:
        shutil.rmtree(folder)
    except RecursionError:
        done = subprocess.run(["rm", "-rf", "--", folder], capture_output=True, errors="replace", check=False)
        if done.returncode != 0:
            raise OSError(done.stderr.strip()) from None


def refuse_foreign(folder: Path, marks: set[str], kind: str, *, link: bool = False) -> None:
    """Raise UsageError if ``folder`` is a ``link``, or is there, is not empty, and lacks one of its marks."""
    names = {entry.name for entry in folder.iterdir()} if folder.is_dir() else set[str]()
    if link or (names and not marks <= names) or (os.path.lexists(folder) and not folder.is_dir()):
        raise UsageError(
            f"{folder} is there and is no {kind}", hint="name a folder that does not exist, or remove it"
        )


_FULL = (errno.ENOSPC, errno.EDQUOT)
SHARED = Path("/dev/shm")  # noqa: S108 - memory by name, and on every Linux
_NEARLY_FULL = 4 << 20
_REFUSED = (errno.EACCES, errno.ELOOP, errno.EPERM, errno.EROFS)


@contextlib.contextmanager
def locked(path: Path) -> Iterator[int]:
    """Hold an exclusive lock on the file ``path``; other processes and threads wait. Yields it."""
    with disk_errors(path):
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        file = os.open(path, flags, 0o666)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield file
    finally:
        os.close(file)


def try_lock(path: Path) -> bool:
    """Whether no process holds the lock on ``path``."""
    try:
        file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    else:
        return True
    finally:
        os.close(file)


@contextlib.contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Turn a full or closed disk into :class:`~builder.core.errors.MissingToolError`."""
    try:
        yield
    except OSError as problem:
        if problem.errno in _FULL:
            raise MissingToolError(
                f"no room left on the disk for the cache ({path.parent})",
                hint="free some room, or set RTBUILD_CACHE to a folder on another disk",
            ) from problem
        if problem.errno in _REFUSED:
            raise MissingToolError(
                f"the cache cannot be written: {problem.strerror} ({problem.filename or path})",
                hint="set RTBUILD_CACHE to a folder that you may write to",
            ) from problem
        raise


def own_prefix() -> str:
    """The prefix of this user's folders in a place that several users share."""
    return f"rtbuild-{os.geteuid()}-"


@contextlib.contextmanager
def locked_folder(parent: Path, prefix: str) -> Iterator[Path]:
    """A new folder of mode 0700, removed when the block ends. Raises OSError."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
        try:
            file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError:
            continue  # somebody swept it before it was open
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            if not folder.exists():
                continue  # somebody swept it before the lock was held
            try:
                yield folder
            finally:
                remove_tree(folder)
            return
        finally:
            os.close(file)


def sweep(parent: Path, prefix: str) -> None:
    """Remove the folders that dead processes of this user left: nobody holds their locks."""
    for folder in parent.glob(f"{glob.escape(prefix)}*"):
        with contextlib.suppress(OSError):
            file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                if os.fstat(file).st_uid == os.geteuid():
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    remove_tree(folder)
            finally:
                os.close(file)


@contextlib.contextmanager
def one_folder() -> Iterator[None]:
    """Have every temporary file of this process below one folder that a later process finds.

    Where the place for temporary files takes none, it is left to whoever needs one to say so.
    """
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):
            parent = Path(tempfile.gettempdir())
            sweep(parent, own_prefix())
            folder = stack.enter_context(locked_folder(parent, own_prefix()))
            folder.chmod(0o711)  # mmdebstrap works below it as other users of this one's subordinate ids
            stack.callback(setattr, tempfile, "tempdir", tempfile.tempdir)
            tempfile.tempdir = str(folder)
        yield


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

    4,000 small files take 0.10 s in memory, and 1.48 s on ext4.

    What a process that was killed has left is removed by the next that comes here, or by a prune. An error of
    the block that a full place explains becomes :class:`MemoryFullError`, or on a disk
    :class:`~builder.core.errors.MissingToolError`: a program's children may fail without a word.
    """
    sweep_memory()
    memory = memory and roomy(need)
    place, prefix = (SHARED, own_prefix()) if memory else (beside, "bases-")
    sweep(place, prefix)
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


def sweep_memory() -> None:
    """Remove what dead processes of this user left in memory."""
    sweep(SHARED, own_prefix())
