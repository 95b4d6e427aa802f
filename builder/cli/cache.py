"""``rtbuild cache``: what is kept between runs, how large it is, and how to make it smaller."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from builder import resources
from builder.cli import options as opt  # noqa: TC001 - typer reads annotations when it runs
from builder.console import human_bytes, print_json
from builder.errors import UsageError
from builder.layers import LayerStore
from builder.pipeline.settings import Settings

if TYPE_CHECKING:
    from pathlib import Path

_WHAT = {
    "wheels": "wheels, as downloaded",
    "layers": "image layers made of wheels and bases",
    "debs": "Debian packages, as downloaded",
    "rootfs": "operating systems put together from them",
    "apt": "package lists of Debian's archives",
    "pages": "what package indexes list, asked for again each time",
    "wheelmeta": "what wheels say of themselves",
    "basemeta": "what registries said of bases",
    "configs": "configs of images that are in a repository to push to",
}
_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}


def cache(
    prune: Annotated[
        str | None,
        typer.Option("--prune", metavar="SIZE", help="Remove the least recently used until it fits: 20GB."),
    ] = None,
    verify_: Annotated[
        bool, typer.Option("--verify", help="Hash every layer, and remove what is damaged.")
    ] = False,
    json_: opt.Json = False,
) -> int:
    """Show the cache; with ``prune`` remove the least recently used until the size holds.

    Exit 1 if ``--verify`` found layers that are not what they claim to be; they are removed.
    """
    folder = resources.cache()
    store = LayerStore(folder / "layers", limit=Settings().layer_limit)
    freed = 0
    damaged = store.verify() if verify_ else []
    if prune is not None:
        limit = size_of(prune)
        downloads = [folder / name for name in ("wheels", "debs", "rootfs")]
        freed = store.prune(max(0, limit - sum(map(_size, downloads))))
        freed += _prune_files(downloads, _size(folder / "layers") + sum(map(_size, downloads)) - limit)
    sizes = {path.name: _size(path) for path in sorted(folder.glob("*")) if path.is_dir()}
    if json_:
        document: dict[str, Any] = {
            "schema": 1,
            "folder": str(folder),
            "bytes": sizes,
            "freed": freed,
            "damaged": damaged,
        }
        print_json(document)
        return 1 if damaged else 0
    sys.stdout.write(f"{folder}\n")
    for name, size in sizes.items():
        sys.stdout.write(f"  {name:<10} {human_bytes(size):>9}  {_WHAT.get(name, '')}".rstrip() + "\n")
    sys.stdout.write(f"  {'in all':<10} {human_bytes(sum(sizes.values())):>9}\n")
    if prune is not None:
        sys.stdout.write(f"{human_bytes(freed)} freed\n")
    for digest in damaged:
        sys.stdout.write(f"{digest} was damaged and is removed; it is made again when it is needed\n")
    return 1 if damaged else 0


def size_of(text: str) -> int:
    """``10GB`` → bytes; decimal units. Raises UsageError."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kKMGT]?B?)\s*", text)
    if match is None:
        raise UsageError(f"'{text}' is not a size", hint="such as 500MB or 20GB")
    unit = match[2].upper()
    return round(float(match[1]) * _UNITS[unit if unit.endswith("B") or not unit else f"{unit}B"])


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


def _prune_files(folders: list[Path], excess: int) -> int:
    """Remove what was used longest ago; what is removed is fetched or made again when it is needed."""
    files = [
        path
        for folder in folders
        for path in folder.rglob("*")
        if path.is_file() and not path.name.startswith(".")
    ]
    freed = 0
    for path in sorted(files, key=lambda p: (p.stat().st_atime, p.name)):
        if freed >= excess:
            break
        freed += path.stat().st_size
        path.unlink()
    return freed
