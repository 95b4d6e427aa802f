"""The small Debian that sources are built in, laid out once for a process; nobody writes into it."""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import tarfile
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

_UNREAD = ("./usr/share/doc/", "./usr/share/man/", "./usr/share/locale/", "./var/lib/dpkg/", "./var/cache/")
_ALSO = ("build", "tmp", "requires", "sdist")
"""Folders that :mod:`.enter` mounts something on."""
_DEVICES = ("null", "zero", "random", "urandom")
_laid: dict[Path, Path] = {}
_guard = threading.Lock()


def laid_out(rootfs: Path) -> Path:
    """The folder with the files of ``rootfs``, a tar of rtbuild's own; removed when the process ends."""
    with _guard:
        if rootfs not in _laid:
            folder = Path(tempfile.mkdtemp(prefix="rtbuild-system-"))
            atexit.register(shutil.rmtree, folder, ignore_errors=True)
            _lay(rootfs, folder)
            _laid[rootfs] = folder
        return _laid[rootfs]


@contextlib.contextmanager
def laid_out_once(rootfs: Path) -> Iterator[Path]:
    """The same for one user, and removed after it: a compiler's system is large, and one package's own."""
    with tempfile.TemporaryDirectory(prefix="rtbuild-system-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        _lay(rootfs, folder)
        yield folder


def _lay(rootfs: Path, folder: Path) -> None:
    # Python 3.14's default refuses the absolute links that a system has; before 3.11.4 there is no choice.
    trusted: dict[str, Any] = {"filter": "fully_trusted"} if hasattr(tarfile, "data_filter") else {}
    owner, group = os.geteuid(), os.getegid()
    with tarfile.open(rootfs) as archive:
        for member in archive:
            if _unread(member.name) or not (member.isreg() or member.isdir() or _is_link(member)):
                continue
            member.uid, member.gid, member.uname, member.gname = owner, group, "", ""
            member.mode = (member.mode & 0o755) | (0o700 if member.isdir() else 0o400)
            archive.extract(member, folder, **trusted)
    for name in _ALSO:
        (folder / name).mkdir(exist_ok=True)
    for name in _DEVICES:
        (folder / "dev" / name).touch()
    folder.chmod(0o755)


def _unread(name: str) -> bool:
    """dpkg's lists of files say whose a library is."""
    of_dpkg = name.startswith("./var/lib/dpkg/info/") and name.endswith(".list")
    return name.startswith(_UNREAD) and not of_dpkg


def _is_link(member: tarfile.TarInfo) -> bool:
    return member.issym() or member.islnk()
