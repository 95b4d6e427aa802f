"""Files that are whole or not there."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

_PRIVATE = 0o600
"""What ``mkstemp`` gives."""


def write_whole(path: Path, content: bytes, *, mode: int = 0o644) -> None:
    """Write beside and rename: a reader sees the old file or the new one. Folders are made.

    ``mode`` is the file's, whatever the umask. Raises OSError, and leaves nothing beside then.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:100]}.")
    beside = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            if mode != _PRIVATE:  # some file systems have no modes to change
                os.fchmod(file.fileno(), mode)
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


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
