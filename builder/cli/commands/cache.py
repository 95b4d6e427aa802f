"""``rtbuild cache``: the files kept between runs: their size, and ways to make it smaller."""

import contextlib
import re
import shlex
import stat
from pathlib import Path

from builder.cli import options as opt
from builder.cli.console import human_bytes, print_json, say, show
from builder.core import resources
from builder.core.documents import shown
from builder.core.errors import CellError, UsageError
from builder.core.items import item
from builder.image.layers import LayerStore
from builder.pipeline import LAYER_LIMIT

_CONTENTS = {
    "wheels": "wheels, as downloaded",
    "layers": "image layers made of wheels and bases",
    "home": "what frameworks keep between starts of `rtbuild run`",
    "debs": "Debian packages, as downloaded",
    "rootfs": "operating systems put together from them",
    "apt": "package lists of Debian's archives",
    "pages": "lists of package indexes, asked for again each time",
    "basemeta": "metadata of bases in registries",
    "configs": "configs of images that are in a repository to push to",
    "pythons": "standalone Pythons, as downloaded",
    "sdists": "source packages, as downloaded",
    "built": "which wheel was built from which source package",
    "made": "digests of images that were made here",
    "received": "layers that engines have",
    "probe": "the one-file probe",
    "wheelfacts": "metadata of wheels, and values read in them",
    "lockfail": "cells that could not be locked, and why",
    "up": "matrices of rtbuild up",
    "dispatch": "locks by which two dispatches do not submit at a time",
    "pulled-images": "which images this node pulled for tasks of a cluster",
    "reports-to-hand-in": "reports of a node that no registry has yet",
}
_DOWNLOADS = ("wheels", "debs", "rootfs")
_PRUNED = ("layers", *_DOWNLOADS)
"""The large folders, which `--prune` makes smaller: each file in them is made again when it is needed."""

_MOST = 2.0**63
"""Bytes: what a file system counts."""


def cache(
    prune: str | None = opt.of(
        "--prune SIZE: Remove the least recently used layers and downloads until these fit: 20GB."
    ),
    verify_: bool = opt.of("--verify: Hash every layer, and remove what is damaged.", False),
    json_: bool = opt.JSON,
) -> int:
    """Show the cache; with ``prune`` remove the least recently used until the size holds.

    Exit 1 if ``--verify`` found layers that are not what they claim to be; they are removed.
    """
    limit = None if prune is None else size_of(prune)
    folder, freed = resources.cache(), 0
    store = LayerStore(folder / "layers", limit=LAYER_LIMIT)
    damaged = store.verify() if verify_ else []
    if limit is not None:
        downloads = [folder / name for name in _DOWNLOADS]
        freed = store.prune(max(0, limit - sum(map(_size, downloads))))
        freed += _prune_files(downloads, _size(folder / "layers") + sum(map(_size, downloads)) - limit)
    sizes = {path.name: _size(path) for path in sorted(folder.glob("*")) if path.is_dir()}
    if json_:
        print_json({"schema": 1, "folder": str(folder), "bytes": sizes, "freed": freed, "damaged": damaged})
    else:
        rows = {**sizes, "in all": sum(sizes.values())}
        width = max(map(len, rows))
        show(str(folder))
        for name, size in rows.items():
            what = "" if name == "in all" else _CONTENTS.get(name, "no folder of this rtbuild's")
            show(f"  {name:<{width}} {human_bytes(size):>9}  {what}".rstrip())
        if prune is not None:
            show(f"{human_bytes(freed)} freed", *_kept(folder, sizes))
        show(*(f"{one} was damaged and is removed; it is made again when it is needed" for one in damaged))
    return 1 if damaged else 0


def _kept(folder: Path, sizes: dict[str, int]) -> list[str]:
    """Why not all is gone, and what removes that."""
    kept = sum(size for name, size in sizes.items() if name not in _PRUNED)
    return [
        f"--prune removes from {', '.join(_PRUNED)}, but no layer that a running build uses",
        f"the other folders ({human_bytes(kept)}) stay:",
        "  they are small, or hold what is not made again, such as home and reports-to-hand-in",
        f"all of it, when nothing of rtbuild runs: rm -r {shlex.quote(str(folder))}",
    ]


def size_of(text: str) -> int:
    """``10GB`` → bytes; decimal units. Raises UsageError."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kKMGT]?)B?\s*", text)
    if match is None:
        raise UsageError(f"'{text}' is not a size", hint="such as 500MB or 20GB")
    size = float(match[1]) * {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}[match[2].upper()]
    if size >= _MOST:
        raise UsageError(f"'{shown(text, most=40)}' is more than any disk holds")
    return round(size)


def _size(folder: Path) -> int:
    """Bytes of the files in a folder; one that is gone meanwhile, or that nobody may read, has none."""
    found = 0
    for path in folder.rglob("*"):
        with contextlib.suppress(FileNotFoundError, PermissionError):
            status = path.lstat()
            found += status.st_size if stat.S_ISREG(status.st_mode) else 0
    return found


def _prune_files(folders: list[Path], excess: int) -> int:
    """Remove the files used longest ago, at least ``excess`` bytes; each is made again when it is needed."""
    files = []
    for path in (path for folder in folders for path in folder.rglob("[!.]*")):
        with contextlib.suppress(FileNotFoundError, PermissionError):
            status = path.stat()
            if stat.S_ISREG(status.st_mode) and status.st_size:  # an empty one is a lock, maybe held
                files.append((status.st_atime, path.name, status.st_size, path))
    freed = 0
    for _, _, size, path in sorted(files):
        if freed >= excess:
            break
        try:
            with item(str(path)):
                path.unlink(missing_ok=True)
        except CellError as error:
            say(f"warning: {error.message}")
        else:
            freed += size
    return freed
