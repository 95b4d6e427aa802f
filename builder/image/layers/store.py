"""Layers, and the content-addressed store of them that processes and threads share.

::

    blobs/sha256/<hex>   compressed layers
    index/<key>.json     what a layer was made of → which blob; its file time is when it was last used
    index/<key>.files    the maker's list of what is in it, read only where it is asked for
    leases/<id>          digests in use, locked by the process that uses them
    locks/<key>          locked by whoever makes that layer

Everything is written beside its place and renamed, so that a name never holds half a file; a lock that a dead
process held is free again, because the kernel says so.
"""

from __future__ import annotations

import contextlib
import json
import os
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any, Literal, Protocol, Self

from builder.core.digests import file_sha256
from builder.core.errors import CellError
from builder.core.files import (
    disk_errors,
    locked,
    read_cached,
    remove,
    sweep,
    sweep_memory,
    try_lock,
    write_whole,
)
from builder.core.items import item

Compression = Literal["zstd", "gzip"]

MEDIA_TYPES: Mapping[str, str] = {
    "zstd": "application/vnd.oci.image.layer.v1.tar+zstd",
    "gzip": "application/vnd.oci.image.layer.v1.tar+gzip",
}


@dataclass(frozen=True, kw_only=True)
class Layer:
    """One compressed layer in a blob store. Sizes are in bytes. Two with equal blobs and titles are equal."""

    title: str
    """Its content, for people: ``nvidia-cudnn-cu11 8.6.0.163``."""
    digest: str
    """``sha256:…`` of the compressed blob."""
    diff_id: str
    """``sha256:…`` of the tar stream inside."""
    size: int
    unpacked: int
    """0 if it is not known."""
    media_type: str
    key: str = field(default="", compare=False)
    """The key of its inputs, its name in the store's index. Empty until it is stored."""
    details: Mapping[str, Any] = field(default_factory=dict, compare=False)
    """JSON that the maker wants back with it."""
    files: bytes = field(default=b"", repr=False, compare=False)
    """The maker's list of its content, on the way into the store, which has it in a file of its own."""
    new: bool = field(default=False, compare=False)
    """It was made now."""

    @property
    def document(self) -> dict[str, Any]:
        """The JSON by which the store's index and a registry describe it."""
        names = ("title", "digest", "diff_id", "size", "unpacked", "media_type")
        return {"layer": {name: getattr(self, name) for name in names}, "details": self.details}

    @classmethod
    def of(cls, document: Mapping[str, Any], *, key: str, files: bytes = b"") -> Self:
        """The layer that a :attr:`document` describes. Raises KeyError, TypeError or
        ValueError for anything else."""
        return cls(**document["layer"], details=dict(document["details"]), key=key, files=files, new=False)


Counter = Callable[[str, int], Callable[[int], None]]
"""Gives, for the name and the size in bytes of a work, the function that is told of each piece's bytes."""


class RemoteLayers(Protocol):
    """Layers that another place has, such as a registry."""

    def find(self, key: str) -> Layer | None:
        """The layer made of ``key``, described and not fetched."""

    def has(self, digest: str) -> bool:
        """Whether :meth:`find` met a layer with this digest."""

    def fetch(self, layer: Layer, lease: Lease, advance: Callable[[int], None]) -> Path:
        """The file of a layer that :meth:`find` met, now in the store of ``lease``."""


class LayerStore:
    """Layers under ``root``, by digest, with an index from what they are made of. ``limit`` is in bytes."""

    def __init__(self, root: Path, *, limit: int | None = None) -> None:
        self.root = root
        self.limit = limit

    def folder(self, name: str) -> Path:
        path = self.root / name
        with disk_errors(path):
            path.mkdir(parents=True, exist_ok=True)
        return path

    def blob(self, digest: str) -> Path:
        """The path of the blob with this digest, whether it is there or not."""
        return self.root / "blobs" / "sha256" / digest.removeprefix("sha256:")

    def lease(self, remote: RemoteLayers | None = None, counter: Counter | None = None) -> Lease:
        """A new lease, which finds layers in ``remote``, too; close it when they are no longer needed.

        ``counter`` is told of what is fetched.
        """
        with self._lock():  # else a prune could take it for a dead one before its lock is held
            return Lease(self, remote, counter)

    def sweep(self) -> None:
        """Remove what dead processes began: unfinished files, leases, and systems laid out in memory."""
        sweep_memory()
        with self._lock():
            self._sweep_unfinished(self._leased())

    def has(self, key: str) -> bool:
        """Whether the layer of ``key`` seems to be here; it is neither leased nor checked."""
        layer = self._read(key)
        return layer is not None and self.blob(layer.digest).exists()

    def files(self, key: str) -> bytes:
        """:attr:`Layer.files` of the layer of ``key``."""
        return self._index(key, "files").read_bytes()

    def prune(self, limit: int | None = None) -> int:
        """Remove the least recently used blobs until ``limit`` holds; what is leased stays. Bytes freed."""
        allowed = self.limit if limit is None else limit
        if allowed is None:
            return 0
        sweep_memory()
        freed = 0
        with self._lock():
            leased = self._leased()
            sizes = dict(self._blobs())
            excess = sum(sizes.values()) - allowed
            for digest in self._oldest_first(sizes):
                if freed >= excess:
                    break
                if digest not in leased:
                    remove(self.blob(digest))
                    freed += sizes[digest]
            self._sweep(leased)
        return freed

    def verify(self) -> list[str]:
        """Hash every blob; remove those that are not what they claim to be, and return their digests.

        Raises CellError for those that this machine cannot read or remove, when all others are done.
        """
        damaged, failed = [], []
        for digest, _ in list(self._blobs()):
            try:
                with item(digest):
                    if not self._is_sound(digest):
                        damaged.append(digest)
            except CellError as error:
                failed.append(error.message)
        if failed:
            removed = f"; {len(damaged)} damaged ones are removed" if damaged else ""
            raise CellError(f"{len(failed)} blobs were not looked at: {'; '.join(failed[:5])}{removed}")
        return damaged

    def _lock(self) -> contextlib.AbstractContextManager[int]:
        """Held for moments only: while a lease grows, a blob comes in, or blobs go."""
        return locked(self.folder("locks") / ".store")

    def _index(self, key: str, form: str = "json") -> Path:
        return self.folder("index") / f"{key}.{form}"

    def _forget(self, key: str) -> None:
        remove(self._index(key))
        remove(self._index(key, "files"))

    def _read(self, key: str) -> Layer | None:
        try:
            return Layer.of(json.loads(self._index(key).read_bytes()), key=key)
        except FileNotFoundError:
            return None
        except (ValueError, TypeError, KeyError, IsADirectoryError):
            # Not written by this program: forget it, the layer is made again.
            self._forget(key)
            return None

    def _is_sound(self, digest: str, size: int | None = None) -> bool:
        """Whether the blob's hash is its name; if not, it is removed.

        With its ``size``, it is hashed once, and again when its inode, size or times have changed.
        """
        blob = self.blob(digest)
        try:
            stamp = _stamp(blob)
            known = read_cached(self._note(digest), lambda found: tuple(map(int, found)))
            if size == stamp[1] and stamp == known:
                return True
            sound = blob.is_file() and size in (None, stamp[1]) and f"sha256:{file_sha256(blob)}" == digest
            with self._lock():
                if sound:
                    self._remember(digest, stamp)
                elif _stamp(blob) == stamp:  # else somebody has put a good one in its place meanwhile
                    remove(blob)
        except FileNotFoundError:
            return False
        return sound

    def _remember(self, digest: str, stamp: tuple[int, ...]) -> None:
        """Note that the blob is sound as long as it bears this stamp. Under the store's lock."""
        write_whole(self._note(digest), json.dumps(stamp).encode())

    def _note(self, digest: str) -> Path:
        return self.folder("hashed") / digest.removeprefix("sha256:")

    def _blobs(self) -> Iterator[tuple[str, int]]:
        for path in self.folder("blobs/sha256").iterdir():
            with contextlib.suppress(FileNotFoundError):
                yield "sha256:" + path.name, path.stat().st_size

    def _oldest_first(self, digests: Iterable[str]) -> list[str]:
        used: dict[str, float] = {}
        for path in self.folder("index").glob("*.json"):
            layer = self._read(path.stem)
            if layer is not None:
                used[layer.digest] = max(used.get(layer.digest, 0.0), path.stat().st_mtime)
        return sorted(digests, key=lambda digest: (used.get(digest, 0.0), digest))

    def _leased(self) -> set[str]:
        """The names in living leases. A lease whose lock is free belongs to a process that has ended."""
        leased: set[str] = set()
        for path in self.folder("leases").iterdir():
            if try_lock(path):
                path.unlink(missing_ok=True)
            else:
                with contextlib.suppress(FileNotFoundError):
                    leased.update(path.read_text().split())
        return leased

    def _sweep(self, leased: set[str]) -> None:
        """Remove what points at blobs that are gone, and what dead processes left."""
        for path in self.folder("index").glob("*.json"):
            layer = self._read(path.stem)
            if layer is not None and not self.blob(layer.digest).exists():
                self._forget(path.stem)
        for path in self.folder("hashed").iterdir():
            if not self.blob(path.name).exists():
                path.unlink(missing_ok=True)
        self._sweep_unfinished(leased)

    def _sweep_unfinished(self, leased: set[str]) -> None:
        """Remove files that no living lease names (``.<id>.…`` too), and folders that nobody has locked."""
        unfinished = self.folder("tmp")
        for path in unfinished.iterdir():
            if path.name.lstrip(".").partition(".")[0] not in leased and not path.is_dir():
                path.unlink(missing_ok=True)
        sweep(unfinished, "")
        for path in (*self.folder("index").glob(".*"), *self.folder("hashed").glob(".*")):
            path.unlink(missing_ok=True)  # it was being written: that is done under the lock


class Lease(LayerStore, contextlib.ExitStack[bool | None]):
    """The store, of which no layer that was found or made here is pruned until this is closed.

    The end of its process closes it, too.
    """

    def __init__(self, store: LayerStore, remote: RemoteLayers | None, counter: Counter | None) -> None:
        LayerStore.__init__(self, store.root, limit=store.limit)
        contextlib.ExitStack.__init__(self)
        self.remote = remote
        self._counter = counter or (lambda _what, _size: lambda _count: None)
        path = self.folder("leases") / f"{os.getpid()}-{uuid.uuid4().hex}"
        self._file = self.enter_context(locked(path))
        self.callback(path.unlink, missing_ok=True)

    def find(self, key: str) -> Layer | None:
        """The layer made of ``key``, if it is here and sound."""
        with self._lock():
            layer = self._read(key)
            if layer is None or not self.blob(layer.digest).exists():
                return None
            self._add(layer.digest)
            os.utime(self._index(key))
        return layer if self._is_sound(layer.digest, layer.size) else None

    def look(self, keys: Sequence[str]) -> Layer | None:
        """The first layer made of one of ``keys``: one that is here, else one that the other place has."""
        places = (self.find,) if self.remote is None else (self.find, self.remote.find)
        return next(filter(None, (find(key) for find, key in product(places, keys))), None)

    def path(self, layer: Layer) -> Path:
        """The file of a layer that :meth:`look` gave: it is here, or brought here now."""
        if self.remote is not None and self.remote.has(layer.digest):
            return self.remote.fetch(layer, self, self._counter(f"of {layer.title}", layer.size))
        return self.blob(layer.digest)

    def obtain(self, key: str, make: Callable[[Path], Layer]) -> Layer:
        """The layer made of ``key``.

        ``make`` writes the blob to the path it is given. Only one process or thread makes a key; others wait.
        """
        with locked(self.folder("locks") / key), disk_errors(self.folder("tmp") / key):
            found = self.find(key)
            if found is not None:
                return found
            with self._lock():
                target = self.beside()
            try:
                layer = replace(make(target), key=key, new=True)
                self._put(layer, target)
            finally:
                target.unlink(missing_ok=True)
        if self.limit is not None:
            self.prune()
        return layer

    def beside(self) -> Path:
        """A path for what is not finished: gone with this lease, or swept when its process has died."""
        path = self.folder("tmp") / uuid.uuid4().hex
        self._add(path.name)
        return path

    def _add(self, name: str) -> None:
        """Keep the blob ``name``. Call it under the store's lock, with the blob still there."""
        os.write(self._file, f"{name}\n".encode())

    def _put(self, layer: Layer, made: Path) -> None:
        target = self.blob(layer.digest)
        target.parent.mkdir(parents=True, exist_ok=True)
        with self._lock():
            if target.is_dir():
                remove(target)
            made.replace(target)
            write_whole(self._index(layer.key, "files"), layer.files)
            write_whole(self._index(layer.key), json.dumps(layer.document).encode())
            self._add(layer.digest)
            self._remember(layer.digest, _stamp(target))  # it was hashed on the way


def _stamp(path: Path) -> tuple[int, ...]:
    """Inode, size and times of a file. The kernel sets the last of them; no program can set it back."""
    status = path.stat()
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
