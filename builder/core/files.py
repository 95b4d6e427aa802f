"""Files that are whole or not there."""

import contextlib
import fcntl
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from builder.core.errors import UsageError

_PRIVATE = 0o600
_Read = TypeVar("_Read")


def write_whole(path: Path, content: bytes, *, mode: int = 0o644) -> None:
    """Write beside and rename: a reader sees the old file or the new one. Folders are made.

    ``mode`` is the file's, whatever the umask. Raises OSError, and leaves nothing beside then; what a process
    that was killed has left there is taken over by the next.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name[:100]}.new")
    with _alone(beside) as file:
        try:
            os.ftruncate(file.fileno(), 0)
            file.write(content)
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
        done = subprocess.run(["rm", "-rf", "--", folder], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise OSError(done.stderr.strip()) from None


def refuse_foreign(folder: Path, marks: set[str], kind: str, *, link: bool = False) -> None:
    """Raise UsageError if ``folder`` is a ``link``, or is there, is not empty, and lacks one of its marks."""
    names = {entry.name for entry in folder.iterdir()} if folder.is_dir() else set[str]()
    if link or (names and not marks <= names) or (os.path.lexists(folder) and not folder.is_dir()):
        raise UsageError(
            f"{folder} is there and is no {kind}", hint="name a folder that does not exist, or remove it"
        )
