"""Unpacks an image's layers for a moment, as far as the recipe's own steps look at them.

They read Python sources, and let ``ldconfig`` look at libraries. So a large library is kept as the skeleton
that ``ldconfig`` reads (:mod:`builder.layers.elf`), and any other large file is left out, as are headers (of
TensorFlow's files three of four): a step that opened one would fail, and not work with something else. 4.7 GB
of layers so take 0.3 GB on the disk.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tarfile
from typing import TYPE_CHECKING, Any

import zstandard

from builder.errors import CancelledError, CellError
from builder.layers.elf import write_skeleton

if TYPE_CHECKING:
    import threading
    from collections.abc import Iterator
    from pathlib import Path

_LARGE = 1 << 20
"""Bytes from which a file is not unpacked whole."""
_WHOLE = re.compile(r"\.(py|pth|txt|json|conf)$")
_HEADER = re.compile(r"\.(h|hh|hpp|cuh|inc|inl|ipp|def|proto)$")
_LIBRARY = re.compile(r"\.so(\.[\w.]+)?$")
_BUFFER = 1 << 20


class Scratch:
    """A folder that layers are unpacked into. Modes and links are kept, owners and times are not."""

    def __init__(self, root: Path, cancel: threading.Event) -> None:
        root.mkdir(mode=0o755)
        root.chmod(0o755)
        self.root = root.resolve()
        self._cancel = cancel
        self._folders: dict[str, Path] = {"": self.root}

    def unpack(self, blob: Path, media_type: str, *, whole: bool) -> None:
        """Unpack one layer, ``whole`` with every byte of it.

        Raises :class:`~builder.errors.CellError` for a layer that is damaged or leads out of the folder.
        """
        again = self._pass(blob, media_type, whole=whole, only=None)
        if again:
            self._pass(blob, media_type, whole=True, only=again)

    def put(self, path: str, content: bytes, mode: int) -> None:
        """Write one more file; ``path`` is absolute."""
        target = self._place(path.lstrip("/"))
        target.unlink(missing_ok=True)
        target.write_bytes(content)
        target.chmod(mode)

    def _pass(
        self, blob: Path, media_type: str, *, whole: bool, only: frozenset[str] | None
    ) -> frozenset[str]:
        """Unpack all or ``only`` some; the names of libraries that one reading was not enough for."""
        again: set[str] = set()
        with _stream(blob, media_type) as stream, _archive(stream, blob) as archive:
            while (member := archive.next()) is not None:
                archive.members = []  # type: ignore[attr-defined]  # it would remember every one of them
                if self._cancel.is_set():
                    raise CancelledError("unpacking was not finished")
                if only is not None and member.name not in only:
                    continue
                if not self._member(archive, member, whole=whole):
                    again.add(member.name)
        return frozenset(again)

    def _member(self, archive: tarfile.TarFile, member: tarfile.TarInfo, *, whole: bool) -> bool:
        name = member.name.removeprefix("./").strip("/")
        if name in ("", "."):
            return True
        base = name.rpartition("/")[2]
        if base.startswith(".wh."):
            self._whiteout(name, base)
            return True
        target = self._place(name)
        if member.isdir():
            self._folder(target)
            if not target.is_symlink():
                target.chmod((member.mode & 0o777) | 0o700)
            return True
        self._remove(target)
        if member.issym():
            target.symlink_to(member.linkname)
        elif member.islnk():
            self._link(self._place(member.linkname.removeprefix("./")), target)
        elif member.isfile():
            return self._file(archive, member, target, whole=whole)
        # Devices, pipes and sockets are nothing that a step reads.
        return True

    def _file(self, archive: tarfile.TarFile, member: tarfile.TarInfo, target: Path, *, whole: bool) -> bool:
        source = archive.extractfile(member)
        assert source is not None  # noqa: S101 - it is a file
        if not whole and _HEADER.search(member.name):
            return True
        large = member.size >= _LARGE and not whole and not _WHOLE.search(member.name)
        if large and not _LIBRARY.search(member.name):
            return True
        with source, target.open("wb") as file:
            if large:
                done = write_skeleton(source, member.size, file)
            else:
                shutil.copyfileobj(source, file, _BUFFER)
                done = True
        target.chmod((member.mode & 0o777) | 0o600)
        return done

    def _folder(self, target: Path) -> None:
        """Make a folder, which another layer's thread may do at the same time: what is in one stays."""
        try:
            target.mkdir()
        except FileExistsError:
            if not target.is_dir():  # a lower layer's file, or a link to nothing
                target.unlink(missing_ok=True)
                target.mkdir(exist_ok=True)

    def _link(self, source: Path, target: Path) -> None:
        try:
            os.link(source, target, follow_symlinks=False)
        except OSError:  # no hard links here: for what reads it a copy is the same
            shutil.copy2(source, target, follow_symlinks=False)

    def _whiteout(self, name: str, base: str) -> None:
        """https://github.com/opencontainers/image-spec/blob/main/layer.md#whiteouts"""
        if base == ".wh..wh..opq":
            raise CellError(
                f"/{name} empties a folder of a lower layer, which is not done without an engine",
                hint="build this cell where Docker is",
            )
        self._remove(self._place(name[: -len(base)] + base.removeprefix(".wh.")))

    def _remove(self, target: Path) -> None:
        if target.is_dir() and not target.is_symlink():
            shutil.rmtree(target)
            self._folders = {"": self.root}
        else:
            target.unlink(missing_ok=True)

    def _place(self, name: str) -> Path:
        """Where ``name`` goes; never outside of the folder, whatever links say."""
        folder, _, base = name.rpartition("/")
        if base in ("", ".", "..") or ".." in folder.split("/"):
            raise CellError(f"a layer holds {name!r}, which is no plain path")
        real = self._folders.get(folder)
        if real is None:
            real = (self.root / folder).resolve()
            if not real.is_relative_to(self.root):
                raise CellError(f"a layer puts {name!r} behind a link that leads out of the image")
            real.mkdir(mode=0o755, parents=True, exist_ok=True)
            self._folders[folder] = real
        return real / base


@contextlib.contextmanager
def _stream(blob: Path, media_type: str) -> Iterator[Any]:
    with blob.open("rb") as file:
        if media_type.endswith("zstd"):
            with zstandard.ZstdDecompressor().stream_reader(file, read_size=_BUFFER) as stream:
                yield stream
        else:
            yield file


@contextlib.contextmanager
def _archive(stream: Any, blob: Path) -> Iterator[tarfile.TarFile]:
    try:
        with tarfile.open(fileobj=stream, mode="r|*", bufsize=_BUFFER) as archive:
            yield archive
    except (tarfile.TarError, zstandard.ZstdError, EOFError) as problem:
        raise CellError(f"the layer {blob.name[:12]} cannot be unpacked: {problem}") from problem
