"""File locks that the kernel frees when their process ends, and what to say when a disk is full."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from typing import TYPE_CHECKING

from builder.errors import MissingToolError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_FULL = (errno.ENOSPC, errno.EDQUOT)
_REFUSED = (errno.EACCES, errno.EPERM, errno.EROFS)


@contextlib.contextmanager
def locked(path: Path) -> Iterator[int]:
    """Hold an exclusive lock on the file ``path``; other processes and threads wait. Yields it."""
    with disk_errors(path):
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield file
    finally:
        os.close(file)


def try_lock(path: Path) -> bool:
    """Whether nobody holds the lock on ``path``."""
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
    """Turn a full or closed disk into :class:`~builder.errors.MissingToolError`."""
    try:
        yield
    except OSError as problem:
        if problem.errno in _FULL:
            raise MissingToolError(
                f"no room left on the disk for the layer cache ({path.parent})",
                hint="free some room, or set RTBUILD_CACHE to a folder on another disk",
            ) from problem
        if problem.errno in _REFUSED:
            raise MissingToolError(
                f"the layer cache cannot be written: {problem.strerror} ({problem.filename or path})",
                hint="set RTBUILD_CACHE to a folder that you may write to",
            ) from problem
        raise
