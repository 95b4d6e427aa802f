"""A folder that stands for an image for a moment: its base as far as a script needs it, and excerpts.

Laid out in memory if there is room (:func:`builder.core.temporary.workplace`). Files of the base that no
script reads are left out: zones, documentation, the package manager's lists, two files of three in a small
Debian.
"""

import errno
import os
import re
import shutil
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path

from builder.core.documents import shown
from builder.core.errors import CancelledError, CellError
from builder.image.layers import MTIME, Packed, TarEntry, TarReader, open_layer

_UNREAD = re.compile(r"(usr/share|usr/include|var/lib/dpkg|var/cache)/")
_MACHINE = (errno.ENOSPC, errno.EDQUOT, errno.ENOMEM, errno.EIO, errno.EROFS, errno.EMFILE)
"""Errors that are this machine's, and not the layer's."""
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class RootfsTree:
    """Modes and links are kept, owners are not, nor times; packed files are as old as those of wheels."""

    def __init__(self, root: Path, cancel: threading.Event) -> None:
        root.mkdir(mode=0o755)
        root.chmod(0o755)
        self.root = root.resolve()
        self._cancel = cancel
        self._new: set[str] = set()
        """Paths that the layer being unpacked has brought so far."""
        self._folders: dict[str, Path] = {"": self.root}

    def unpack(self, blob: Path, media_type: str) -> None:
        """Unpack one layer of the base.

        Raises :class:`~builder.core.errors.CellError` for a layer that is damaged or leads out of the folder.
        """
        self._new.clear()
        with open_layer(blob, media_type) as archive:
            for entry in archive:
                if self._cancel.is_set():
                    raise CancelledError("unpacking was not finished")
                try:
                    self._entry(archive, entry)
                except (OSError, RuntimeError) as problem:  # pathlib's own error for a circle of links
                    if isinstance(problem, OSError) and problem.errno in _MACHINE:
                        raise
                    raise archive.error(f"it holds {shown(entry.name, most=100)!r}: {problem}") from problem

    def write(self, files: Iterable[Packed], below: str = "") -> None:
        """Write packed files, as much of each as there is, ``below`` a folder."""
        for file in files:
            ranges = [(offset, data) for (offset, _), data in zip(file.ranges, file.pieces, strict=True)]
            target = self._place(below + file.path)
            self._write(target, ranges, file.size, file.mode)
            os.utime(target, (MTIME, MTIME))

    def _entry(self, archive: TarReader, entry: TarEntry) -> None:
        if entry.name in ("", ".") or _UNREAD.match(entry.name):
            return
        folder, _, base = entry.name.rpartition("/")
        if base == ".wh..wh..opq":
            self._empty(folder)
            return
        self._new.add(entry.name)
        # https://github.com/opencontainers/image-spec/blob/main/layer.md#whiteouts
        if base.startswith(".wh."):
            self._remove(self._place(entry.name[: -len(base)] + base.removeprefix(".wh.")))
            return
        target = self._place(entry.name)
        if entry.kind == "folder":
            self._make_folder(target, entry.mode)
        elif entry.kind == "file":
            self._write(target, _placed(archive.content()), entry.size, entry.mode)
        elif entry.kind in ("symlink", "hardlink"):
            self._remove(target)
            if entry.kind == "symlink":
                target.symlink_to(entry.link)
            else:
                self._link(entry.link.removeprefix("./").strip("/"), target)
        # Devices, pipes and sockets are nothing that a step reads.

    def _write(self, target: Path, ranges: Iterable[tuple[int, bytes]], size: int, mode: int) -> None:
        try:
            file = os.open(target, _NEW, 0o600)
        except FileExistsError:
            self._remove(target)
            file = os.open(target, _NEW, 0o600)
        try:
            whole = 0
            for start, data in ranges:
                written = 0
                while written < len(data):
                    written += os.pwrite(file, memoryview(data)[written:], start + written)
                whole += written
            if whole != size:
                os.ftruncate(file, size)
            os.fchmod(file, (mode & 0o777) | 0o600)
        finally:
            os.close(file)

    def _make_folder(self, target: Path, mode: int) -> None:
        try:
            target.mkdir()
        except FileExistsError:
            if not target.is_dir():  # a lower layer's file, or a link to nothing
                target.unlink()
                target.mkdir()
        if not target.is_symlink():
            target.chmod((mode & 0o777) | 0o700)

    def _link(self, name: str, target: Path) -> None:
        if _UNREAD.match(name):
            return
        source = self._place(name)
        try:
            os.link(source, target, follow_symlinks=False)
        except FileNotFoundError:
            raise CellError(f"a layer holds a link to {name!r}, which is not there") from None
        except OSError:  # no hard links here: for what reads it a copy is the same
            shutil.copy2(source, target, follow_symlinks=False)

    def _empty(self, folder: str) -> None:
        """Remove what lower layers have in a folder, and nothing of this one's."""
        start = f"{folder}/"
        kept = {name[len(start) :].partition("/")[0] for name in self._new if name.startswith(start)}
        for path in sorted(self.folder(folder).iterdir()):
            if path.name not in kept:
                self._remove(path)

    def _remove(self, target: Path) -> None:
        if target.is_dir() and not target.is_symlink():
            shutil.rmtree(target)
            self._folders = {"": self.root}
        else:
            target.unlink(missing_ok=True)

    def _place(self, name: str) -> Path:
        """Where ``name`` goes; never outside of the folder, whatever links say."""
        folder, _, base = name.rpartition("/")
        if base in ("", ".", ".."):
            raise CellError(f"a layer holds {name!r}, which is no plain path")
        return self.folder(folder) / base

    def folder(self, name: str) -> Path:
        """Where a folder is, which is made if it is not there."""
        path = self._folders.get(name)
        if path is not None:
            return path
        path = self._place(name)
        try:
            path.mkdir()
            path.chmod(0o755)  # whatever the umask: of bytecode that is laid out it is the layer's
        except FileExistsError:
            if path.is_symlink():
                path = path.resolve()
                if not path.is_relative_to(self.root):
                    raise CellError(
                        f"a layer puts {name!r} behind a link that leads out of the image"
                    ) from None
                path.mkdir(mode=0o755, parents=True, exist_ok=True)
        self._folders[name] = path
        return path


def _placed(pieces: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
    """Each piece with its offset."""
    at = 0
    for piece in pieces:
        yield at, piece
        at += len(piece)
