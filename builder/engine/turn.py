"""One probe at a time on a machine's GPUs, among all rtbuild processes there.

Probes that run side by side take one another's memory: TensorFlow takes nearly all of it as it starts
(https://www.tensorflow.org/guide/gpu#limiting_gpu_memory_growth), and the others would find the GPU ``busy``.
"""

import contextlib
import errno
import fcntl
import hashlib
import os
import stat
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from builder.errors import CancelledError, CellError
from builder.temporary import shared_folder

_POLL_SECONDS = 0.2


def turn_file(host: str, *, remote: bool) -> Path:
    """Where the processes of all users of this machine meet; the engines on it share its GPUs."""
    name = hashlib.sha256(host.encode()).hexdigest()[:12] if remote else "here"
    return shared_folder() / f"rtbuild-gpus-{name}.lock"


@contextlib.contextmanager
def turn(
    file: Path, *, cancel: threading.Event | None = None, waits: Callable[[], None] | None = None
) -> Iterator[None]:
    """Hold the GPUs until the block ends. ``waits`` is called once, if another process has them.

    The kernel lets go of the lock with the process, however that ends. Raises CancelledError, and CellError
    if the file cannot be opened.
    """
    descriptor = _open(file)
    try:
        while True:
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            if waits is not None:
                waits()
                waits = None
            if cancel is not None and cancel.is_set():
                raise CancelledError("cancelled while another probe had the GPU")
            time.sleep(_POLL_SECONDS)
        yield
    finally:
        os.close(descriptor)


def _open(file: Path) -> int:
    """A file that is never removed: a lock on a name that is gone keeps nobody out."""
    try:
        # Without O_CREAT, which the kernel refuses for another user's file in a folder like /tmp
        # (https://docs.kernel.org/admin-guide/sysctl/fs.html#protected-regular).
        with contextlib.suppress(FileNotFoundError):
            return _regular(os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK))
        with contextlib.suppress(FileExistsError):
            descriptor = os.open(file, os.O_RDONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644)
            os.fchmod(descriptor, 0o644)  # whatever the umask is: others have to read it
            return descriptor
        return _regular(os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK))
    except OSError as error:
        raise CellError(
            f"{file}, by which probes take turns on the GPU, cannot be opened: {error.strerror}",
            hint="remove it, or set TMPDIR to a folder that can be written",
        ) from error


def _regular(descriptor: int) -> int:
    """Not a pipe or folder that somebody else put there. Raises OSError."""
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is no regular file")
    return descriptor
