"""Wheels → one layer, in one pass: inflate, check against ``RECORD``, lay out as tar, compress, hash; and the
part of it that the recipe's steps read, kept beside the layer in the store.

Of two wheels that own one path, pip lets the one that it installs last win, silently: by name, Z before A.
That is its order for requirements that know nothing of one another, as with ``--no-deps``:
``get_installation_order`` in https://github.com/pypa/pip/blob/main/src/pip/_internal/resolution/resolvelib/resolver.py.

The steps compile Python sources and have ``ldconfig`` read libraries, a hundredth of all bytes: so that their
excerpt is not unpacked for them again and again, it is set aside when a wheel becomes a layer, and taken from
the layer if that came from elsewhere. Any other file is left out: a step that opened one would fail. Excerpts
are kept as packs, and so is the bytecode that a step leaves.

What ``ldconfig`` says of a library depends on its ELF header, the dynamic section with its names, and a few
notes (``process_elf_file`` in https://sourceware.org/git/?p=glibc.git;a=blob;f=elf/readelf.c): kilobytes of a
file of hundreds of megabytes.
"""

import csv
import hashlib
import io
import json
import re
import threading
from collections import Counter
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO, Self

import zstandard

from builder.core import elf
from builder.core.digests import canonical_json, sha256_of
from builder.core.documents import shown
from builder.core.errors import CancelledError, CellError
from builder.core.import_set import NO_ROOTS
from builder.image.layers.store import Compression, Layer, Lease
from builder.image.layers.tar import (
    END,
    ZSTD_LEVEL,
    BlobWriter,
    directory_header,
    file_header,
    open_layer,
    padding,
)
from builder.image.layers.wheel import SITE, File, Tree, parents

FORMAT = 1
"""Part of every key that a pack is looked up by. To be raised with every change to what is in one."""
_LENGTH = 8
_LIBRARY = re.compile(r"/lib(64)?/[^/]+\.so(\.[\w.]+)?$")
"""Only folders of this name are told to the loader."""
_RECORD = re.compile(rf"{SITE}/([^/]+\.dist-info)/RECORD")
_MOST = 2 << 30
"""Bytes of a layer's sources and of libraries that are kept whole: they are in memory for a moment."""
_KEPT = {elf.DYNAMIC_SEGMENT, elf.INTERP_SEGMENT, elf.NOTE_SEGMENT, 0x6474E553}  # the last: properties
_HEAD = 32 << 20
"""Bytes at the start that are held in memory: a table of names is usually there, before what points to it."""
_LARGEST_PART, _LARGEST_NAMES = 1 << 20, 128 << 20
"""Bytes of a library's dynamic section and notes, and of its names: 20 MiB in PyTorch's."""

Range = tuple[int, int]
"""Offset and length, in bytes."""


@dataclass(frozen=True, slots=True)
class Packed:
    """A file in a pack, or on its way there. ``path`` is relative to the image's root, ``size`` that of the
    whole file in bytes.
    """

    path: str
    mode: int
    size: int
    sha256: str
    """The digest of the content, in hexadecimal; empty if it is not all here."""
    ranges: tuple[tuple[int, int], ...]
    """Offsets and lengths of the parts that are here."""
    pieces: Sequence[bytes] = ()
    """One for each of these, where they are at hand."""

    @classmethod
    def whole(cls, path: str, mode: int, content: bytes) -> Self:
        """A file of which all is at hand."""
        size, digest = len(content), hashlib.sha256(content).hexdigest()
        return cls(path, mode, size, digest, ((0, size),), (content,))


class Pack:
    """A few files in one blob that the store found sound, whole or in parts; the index is read at once.

    ::

        length of the index, 8 bytes, big-endian
        index: JSON, compressed
        contents, one after another, compressed

    Not a tar file, because a library of a gigabyte of which some kilobytes are kept would be one of zeros
    there.
    """

    def __init__(self, path: Path) -> None:
        with path.open("rb") as blob:
            length = int.from_bytes(blob.read(_LENGTH), "big")
            index = json.loads(zstandard.decompress(blob.read(length)))
        self.path = path
        self.files = tuple(
            Packed(name, mode, size, sha256, tuple((start, end) for start, end in ranges))
            for name, mode, size, sha256, ranges in index["files"]
        )
        """In the order of their contents."""
        self.notes: Mapping[str, Any] = index["notes"]
        """The maker's notes, read with the index."""
        self._start = _LENGTH + length

    def contents(self, wanted: Callable[[Packed], bool] = lambda _file: True) -> Iterator[Packed]:
        """The files that are ``wanted``, with their pieces; nothing is read beyond the last of them."""
        left = sum(map(wanted, self.files))
        with self.path.open("rb") as blob:
            blob.seek(self._start)
            with zstandard.ZstdDecompressor().stream_reader(blob) as stream:
                for file in self.files:
                    if not left:
                        return
                    pieces = [stream.read(length) for _, length in file.ranges]
                    if [len(piece) for piece in pieces] != [length for _, length in file.ranges]:
                        raise CellError(f"{self.path.name[:12]} in the layer cache is cut short")
                    if wanted(file):
                        left -= 1
                        yield replace(file, pieces=pieces)


def keep_pack(
    key: str, title: str, make: Callable[[], tuple[Sequence[Packed], Mapping[str, Any]]], lease: Lease
) -> Pack:
    """The pack of ``key``, made of the files and notes that ``make`` gives, if nobody has made it yet."""

    def write(target: Path) -> Layer:
        files, notes = make()
        entries = [[one.path, one.mode, one.size, one.sha256, one.ranges] for one in files]
        index = _compressed([canonical_json({"files": entries, "notes": notes})])
        data = _compressed([piece for one in files for piece in one.pieces])
        blob = len(index).to_bytes(_LENGTH, "big") + index + data
        target.write_bytes(blob)
        digest, size, kind = sha256_of(blob), len(blob), "application/vnd.rtbuild.pack"
        return Layer(title=title, digest=digest, diff_id=digest, size=size, unpacked=0, media_type=kind)

    return Pack(lease.blob(lease.obtain(key, write).digest))


def find_pack(key: str, lease: Lease) -> Pack | None:
    """The pack of ``key``, kept by ``lease``; None if it must be made."""
    found = lease.find(key)
    return None if found is None else Pack(lease.blob(found.digest))


def _compressed(pieces: Sequence[bytes]) -> bytes:
    return zstandard.ZstdCompressor(level=ZSTD_LEVEL).compress(b"".join(pieces))


def is_source(path: str) -> bool:
    """Whether the bytecode step reads this file: Python, and who brought it."""
    return path.endswith(".py") or _RECORD.fullmatch(path) is not None


def is_library(path: str) -> bool:
    return _LIBRARY.search(path) is not None


class Skeleton:
    """Takes a library of ``size`` bytes in pieces, from its start, and keeps what ``ldconfig`` reads."""

    def __init__(self, size: int) -> None:
        self._kept: list[tuple[int, bytes]] = []
        self._clear = True
        self._reading = self._read(size)
        next(self._reading)
        self.feed: Callable[[bytes], None] = self._reading.send

    def ranges(self) -> list[tuple[int, bytes]] | None:
        """The parts that were kept, by offset, after the last piece.

        None if one reading was not enough: the names stand too far in front of what points to them, or
        the file is an ELF file of an unusual kind. Of what is no ELF file only its start is kept, as
        ``ldconfig`` passes it over.
        """
        self._reading.close()  # its frame holds this object: a cycle
        return self._kept if self._clear else None

    def _read(self, size: int) -> Generator[None, bytes]:
        try:
            yield from self._parts(size)
        except (KeyError, ValueError):
            self._clear = False
        while True:
            yield

    def _parts(self, size: int) -> Generator[None, bytes]:
        """Keep the parts of the pieces. Raises KeyError or ValueError if one reading is not enough."""
        pieces = [(yield)]
        held = len(pieces[0])
        while held < min(size, _HEAD):
            pieces.append((yield))
            held += len(pieces[-1])
        piece = head = b"".join(pieces)  # the names usually stand in it
        pieces.clear()
        segments = _segments(head) if head[:4] == b"\x7fELF" else []
        wanted = [(one.offset, one.length) for one in segments if one.kind in _KEPT]
        if sum(length for _, length in wanted) > _LARGEST_PART:
            raise ValueError("more than is kept of a library")
        wanted.insert(0, (0, min(elf.ELF_HEADER + elf.ELF_SEGMENT * len(segments), len(head))))
        tables = [(one.offset, one.length) for one in segments if one.kind == elf.DYNAMIC_SEGMENT]
        dynamic = tables[0] if tables else None
        self._clear = dynamic is None
        position, found = 0, b""
        while True:
            for one in wanted:
                self._keep(one, position, piece)
            if dynamic is not None and not self._clear:
                found += _overlap(dynamic, position, piece)
                if len(found) == dynamic[1]:
                    values = dict(elf.dynamic_entries(found))
                    names = elf.place_in_file(values[elf.DT_STRTAB], segments), values[elf.DT_STRSZ]
                    if names[1] > _LARGEST_NAMES or (sum(names) > len(head) and names[0] < position):
                        raise ValueError("names that are too large, or have passed by")
                    if position:
                        self._kept.append((names[0], _overlap(names, 0, head)))
                    self._keep(names, position, piece)
                    wanted.append(names)
                    self._clear = True
            head = b"" if self._clear else head
            position += len(piece)
            piece = b""  # nothing is held while the next one is waited for
            piece = yield

    def _keep(self, wanted: Range, position: int, piece: bytes) -> None:
        if data := _overlap(wanted, position, piece):
            self._kept.append((max(wanted[0], position), data))


def _overlap(wanted: Range, position: int, piece: bytes) -> bytes:
    """The part of ``piece``, which stands at ``position``, that is in the range."""
    start, end = max(wanted[0], position), min(sum(wanted), position + len(piece))
    return piece[start - position : end - position] if start < end else b""


def _segments(head: bytes) -> list[elf.Segment]:
    """The table of segments. Raises ValueError if it does not stand right behind the header, as it does."""
    read = elf.reader_of(head)
    if elf.elf_machine(read) is None or int.from_bytes(read(32, 8), "little") != elf.ELF_HEADER:
        raise ValueError("an ELF file of another kind")
    return elf.elf_segments(read)


class _Whole:
    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self.feed = self._pieces.append

    def ranges(self) -> list[tuple[int, bytes]]:
        return [(0, b"".join(self._pieces))]


@dataclass
class Excerpt:
    """Collects what is looked at while a layer's files pass by, in any order."""

    folders: set[str] = field(default_factory=set)
    whole: frozenset[str] = frozenset()
    """Libraries of which a skeleton was not enough."""
    _taken: list[tuple[str, int, int, Skeleton | _Whole]] = field(default_factory=list)
    """Path, mode, size, and the parts that are kept."""
    _left: int = _MOST

    def take(self, path: str, mode: int, size: int) -> Callable[[bytes], None] | None:
        """The function to call with each piece of this file, if the steps read it; else None."""
        self.folders.update(parents(path))
        if is_source(path) or path in self.whole:
            part: Skeleton | _Whole = _Whole()
            self._left -= size
            if self._left < 0:
                raise CellError(
                    f"a layer with /{shown(path)} has more than {_MOST >> 30} GiB of Python files"
                )
        elif is_library(path):
            part = Skeleton(size)
        else:
            return None
        self._taken.append((path, mode, size, part))
        return part.feed

    def unclear(self) -> frozenset[str]:
        """Libraries that have to be kept whole: one reading was not enough for a skeleton."""
        return frozenset(path for path, _, _, part in self._taken if part.ranges() is None)

    def contents(self) -> tuple[list[Packed], dict[str, Any]]:
        """The parts that were kept, libraries first, and notes: folders, and the sources of each RECORD."""
        files, records = [], dict[str, list[str]]()
        for path, mode, size, part in sorted(self._taken, key=lambda one: (is_source(one[0]), one[0])):
            pieces = part.ranges()
            assert pieces is not None  # noqa: S101 - see unclear
            digest = hashlib.sha256(pieces[0][1]).hexdigest() if isinstance(part, _Whole) else ""
            ranges = tuple((offset, len(data)) for offset, data in pieces)
            files.append(Packed(path, mode, size, digest, ranges, [data for _, data in pieces]))
            if record := _RECORD.fullmatch(path):
                records[record[1]] = _sources(pieces[0][1])
        return files, {"folders": sorted(self.folders), "records": records}


def _sources(record: bytes) -> list[str]:
    """The Python files that a RECORD names, as the bytecode step reads it."""
    lines = io.StringIO(record.decode("utf-8", "surrogateescape"), newline="")
    try:
        return [row[0] for row in csv.reader(lines) if row and row[0].endswith(".py")]
    except csv.Error as problem:
        raise CellError(f"a RECORD of an installed package cannot be read: {problem}") from problem


def keep_excerpt(layer: Layer, excerpt: Excerpt, lease: Lease) -> None:
    """Keep the excerpt of a layer that was just made, unless a library in it needs another reading."""
    if not excerpt.unclear():
        keep_pack(_key(layer), _title(layer), excerpt.contents, lease)


def excerpt_of(layer: Layer, lease: Lease, cancel: threading.Event) -> Pack:
    """The excerpt of a layer, taken from its file if the store lacks it."""

    def make() -> tuple[Sequence[Packed], Mapping[str, Any]]:
        path = lease.path(layer)
        first = _read(path, layer.media_type, frozenset(), cancel)
        unclear = first.unclear()
        return (_read(path, layer.media_type, unclear, cancel) if unclear else first).contents()

    return keep_pack(_key(layer), _title(layer), make, lease)


def _read(blob: Path, media_type: str, whole: frozenset[str], cancel: threading.Event) -> Excerpt:
    excerpt = Excerpt(whole=whole)
    with open_layer(blob, media_type) as archive:
        for entry in archive:
            if cancel.is_set():
                raise CancelledError("looking into a layer was not finished")
            if entry.kind == "folder":
                excerpt.folders.add(entry.name)
            feed = excerpt.take(entry.name, entry.mode, entry.size) if entry.kind == "file" else None
            if feed is not None:
                for piece in archive.content():
                    feed(piece)
    return excerpt


def _key(layer: Layer) -> str:
    return f"excerpt{FORMAT}-{layer.diff_id.removeprefix('sha256:')}"


def _title(layer: Layer) -> str:
    return f"what is looked at in {layer.title}"


LAYOUT = 1
"""Version of the form of a wheel's layer. Goes up with every change to the bytes of a tar stream, and is
part of the layers' keys."""


def obtain_layer(
    trees: Sequence[Tree],
    lease: Lease,
    key: str,
    title: str,
    *,
    compression: Compression,
    as_listed: bool,
    advance: Callable[[int], None],
) -> Layer:
    """The layer of ``key`` in the store, made of ``trees`` by :func:`write_layer` if nobody has made it.

    Its excerpt is kept beside it.
    """
    excerpt = Excerpt()

    def make(target: Path) -> Layer:
        with target.open("wb") as blob:
            return write_layer(trees, blob, title, compression, advance, as_listed=as_listed, excerpt=excerpt)

    layer = lease.obtain(key, make)
    if layer.new:
        keep_excerpt(layer, excerpt, lease)
    return layer


def write_layer(
    trees: Sequence[Tree],
    target: BinaryIO,
    title: str,
    compression: Compression,
    advance: Callable[[int], None],
    *,
    as_listed: bool,
    excerpt: Excerpt,
) -> Layer:
    """Write one layer with all ``trees``; ``advance`` is told of each piece's size in bytes.

    What the recipe's steps look at goes into ``excerpt``, too. The layer's ``files`` are a listing for
    :func:`refuse_collisions`, as JSON; its ``details`` have the Python that each wheel asks for.

    Of two wheels that differ about a path where either file will do, and with ``as_listed`` about any, it has
    the file that pip would leave. Raises :class:`~builder.core.errors.CellError` for others that differ, and
    for a file that is not what its ``RECORD`` says.
    :class:`OSError` if the target cannot be written.
    """
    count = Counter(file.path for one in trees for file in one.files)
    listing = {
        one.wheel.name: {
            file.path: _describe(one, file) if count[file.path] > 1 else "" for file in one.files
        }
        for one in trees
    }
    refuse_collisions([listing], as_listed=as_listed)
    last = sorted(trees, key=lambda one: one.wheel.name, reverse=True)
    owners = {file.path: (one, file) for one in last for file in one.files}
    folders = {folder for path in owners for folder in parents(path)}
    size = sum(len(directory_header(folder)) for folder in folders) + len(END)
    for _, file in owners.values():
        size += len(file_header(file.path, mode=file.mode, size=file.size))
        size += file.size + len(padding(file.size))
    digests: dict[str, str] = {}
    with BlobWriter(target, title, compression, size) as writer:
        for path in sorted(folders | owners.keys()):
            if path in folders:
                writer.write(directory_header(path))
                continue
            owner, file = owners[path]
            writer.write(file_header(path, mode=file.mode, size=file.size))
            digest = hashlib.sha256()
            feed = excerpt.take(path, file.mode, file.size)
            for piece in owner.pieces(file):
                digest.update(piece)
                writer.write(piece)
                if feed is not None:
                    feed(piece)
                advance(len(piece))
            writer.write(padding(file.size))
            digests[path] = digest.hexdigest()
            if file.sha256 not in (None, digests[path]):
                raise owner.error(f"/{path} is not what its RECORD says: the hash differs")
        writer.write(END)
        layer = writer.finish()
    for one in trees:
        files = listing[one.wheel.name]
        files |= {
            file.path: f"{file.mode:o} {digests[file.path]}" for file in one.files if not files[file.path]
        }
    requires = {one.wheel.name: one.requires_python for one in trees}
    return replace(layer, details={"requires_python": requires}, files=canonical_json(listing))


def _describe(tree: Tree, file: File) -> str:
    digest = file.sha256 or hashlib.sha256(b"".join(tree.pieces(file))).hexdigest()
    return f"{file.mode:o} {digest}"


def refuse_collisions(
    listings: Sequence[Mapping[str, Mapping[str, str]]], *, as_listed: bool
) -> tuple[str, ...]:
    """A line for distributions that differ about paths where either file will do: pip's choice stands.

    A listing has for each distribution of a layer the paths below the root, and of each file mode and sha256
    as one text.

    The same content twice is fine: packages that share a namespace each bring its ``__init__.py``. So is
    another content of a file that is used by itself (:func:`_is_whole`), as long as the layers, lowest first,
    leave what pip would. So is every difference with ``as_listed``, of a list that is installed as it stands;
    no line is given then.

    Raises :class:`~builder.core.errors.CellError` for all other differences, and for a file of one that is a
    folder of another: a library, or a package, would be one half of each.
    """
    owners: dict[str, tuple[str, str]] = {}
    folders: dict[str, str] = {}
    clashes: dict[tuple[str, str], list[str]] = {}
    either: dict[tuple[str, ...], set[str]] = {}
    for name, files in ((name, files) for listing in listings for name, files in listing.items()):
        for path, content in files.items():
            owner, owned = owners.setdefault(path, (name, content))
            if owned != content and (as_listed or _is_whole(path)) and _as_pip_leaves_it(path, listings):
                every = (one for listing in listings for one in listing if path in listing[one])
                either.setdefault(tuple(sorted(every)), set()).add(path)
            elif owned != content:
                clashes.setdefault((owner, name), []).append(path)
            for folder in parents(path):
                if folder in folders:
                    break
                folders[folder] = name
    for path in folders.keys() & owners.keys():
        clashes.setdefault((owners[path][0], folders[path]), []).append(path)
    if clashes:
        raise CellError(
            "\n".join(
                f"{_own(pair, paths)}, with different content" for pair, paths in sorted(clashes.items())
            ),
            hint="the packages cannot live in one environment; drop one of them, or pin versions that agree",
        )
    if as_listed:
        return ()
    return tuple(
        f"{_own(names, paths)}, with different content: that of {names[0]} stays, as with pip"
        for names, paths in sorted(either.items())
    )


def _own(names: tuple[str, ...], paths: Collection[str]) -> str:
    more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
    return f"{' and '.join(names)} {'both' if len(names) == 2 else 'all'} own /{min(paths)}{more}"


def _is_whole(path: str) -> bool:
    """Whether a file is used by itself: no library, and no part of a package of which the other wheel has
    other parts. So are a module of one file (jupyter 1.0 and jupyter-core both bring ``jupyter.py``), what
    lies beside modules, a script, and what is below ``tests`` or ``docs``, which no import comes to.
    """
    inside = path.removeprefix(f"{SITE}/")
    top, below, _ = inside.partition("/")
    if re.search(r"\.(?:so(?:\.[\w.]+)?|a|pth)$", path):
        return False
    return inside == path or not below or top in NO_ROOTS


def _as_pip_leaves_it(path: str, listings: Sequence[Mapping[str, Mapping[str, str]]]) -> bool:
    """Whether the topmost layer has the file of the distribution that pip installs last."""
    layers = [{name: files[path] for name, files in listing.items() if path in files} for listing in listings]
    top = next(layer for layer in reversed(layers) if layer)
    every = {name: content for layer in layers for name, content in layer.items()}
    return top[min(top)] == every[min(every)]
