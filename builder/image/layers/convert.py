"""Wheels → one layer, in one pass: inflate, check against ``RECORD``, lay out as tar, compress, hash.

Of two wheels that own one path, pip lets the one that it installs last win, silently: by name, Z before A.
That is its order for requirements that know nothing of one another, as with ``--no-deps``:
``get_installation_order`` in https://github.com/pypa/pip/blob/main/src/pip/_internal/resolution/resolvelib/resolver.py.
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

from builder.core.digests import canonical_json
from builder.core.errors import CellError
from builder.image.layers.excerpt import Excerpt, keep_excerpt
from builder.image.layers.store import Compression, Layer, Lease
from builder.image.layers.tar import END, BlobWriter, directory_header, file_header, padding
from builder.image.layers.wheel import File, Tree, parents

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

    Raises :class:`~builder.core.errors.CellError` for a file that is not what its ``RECORD`` says, and for
    two wheels that differ about a path, unless ``as_listed``: then it is the file that pip would leave.
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


def refuse_collisions(listings: Sequence[Mapping[str, Mapping[str, str]]], *, as_listed: bool) -> None:
    """Raise :class:`~builder.core.errors.CellError` if two distributions differ about a path.

    A listing has for each distribution of a layer the paths below the root, and of each file mode and sha256
    as one text.

    The same content twice is fine: packages that share a namespace each bring its ``__init__.py``. With
    ``as_listed``, of a list that is installed as it stands, so is a difference, as long as the layers, lowest
    first, leave what pip would.
    """
    owners: dict[str, tuple[str, str]] = {}
    folders: dict[str, str] = {}
    clashes: dict[tuple[str, str], list[str]] = {}
    for name, files in ((name, files) for listing in listings for name, files in listing.items()):
        for path, content in files.items():
            owner, owned = owners.setdefault(path, (name, content))
            if owned != content and not (as_listed and _as_pip_leaves_it(path, listings)):
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
                f"{one} and {other} both own /{min(paths)}"
                f"{f' and {len(paths) - 1} more' if len(paths) > 1 else ''}, with different content"
                for (one, other), paths in sorted(clashes.items())
            ),
            hint="the packages cannot live in one environment; drop one of them, or pin versions that agree",
        )


def _as_pip_leaves_it(path: str, listings: Sequence[Mapping[str, Mapping[str, str]]]) -> bool:
    """Whether the topmost layer has the file of the distribution that pip installs last."""
    layers = [{name: files[path] for name, files in listing.items() if path in files} for listing in listings]
    top = next(layer for layer in reversed(layers) if layer)
    every = {name: content for layer in layers for name, content in layer.items()}
    return top[min(top)] == every[min(every)]
