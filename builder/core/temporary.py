"""Locks that the kernel frees when their process ends, and folders for a moment that are locked by them.

The next process removes what a killed one left.
"""

import contextlib
import errno
import fcntl
import glob
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from builder.core.errors import MissingToolError
from builder.core.files import remove_tree

_FULL = (errno.ENOSPC, errno.EDQUOT)
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
