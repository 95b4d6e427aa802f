"""The small Debian that one source is built in: laid out for it alone, and removed after it."""

from __future__ import annotations

import contextlib
import os
import tarfile
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

_UNREAD = ("./usr/share/doc/", "./usr/share/man/", "./usr/share/locale/", "./var/lib/dpkg/", "./var/cache/")
_ALSO = ("build", "dev", "tmp", "requires", "sdist")
"""Folders that the sandbox mounts something on."""


@contextlib.contextmanager
def laid_out(*tars: Path) -> Iterator[Path]:
    """The folder with the files of ``tars``, which are rtbuild's own: every user of it reads them."""
    with tempfile.TemporaryDirectory(prefix="rtbuild-system-", ignore_cleanup_errors=True) as name:
        folder = Path(name) / "root"
        folder.mkdir()
        for tar in tars:
            _lay(tar, folder)
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
            member.mode = (member.mode & 0o755) | (0o755 if member.isdir() else 0o444)
            archive.extract(member, folder, **trusted)
    for name in _ALSO:
        (folder / name).mkdir(exist_ok=True)
    folder.chmod(0o755)


def _unread(name: str) -> bool:
    """dpkg's lists of files say whose a library is."""
    of_dpkg = name.startswith("./var/lib/dpkg/info/") and name.endswith(".list")
    return name.startswith(_UNREAD) and not of_dpkg


def _is_link(member: tarfile.TarInfo) -> bool:
    return member.issym() or member.islnk()
