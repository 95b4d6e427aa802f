"""``rtbuild size``: the size of a cell by layer, package and file, and its overlap with another cell."""

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from builder.cli import options as opt
from builder.cli.console import human_bytes, print_json, show
from builder.core import resources
from builder.core.items import item
from builder.core.model import Cell, Matrix
from builder.image.compose import CellSize, LayerSize, measure
from builder.image.layers import LayerStore
from builder.sources.index import cache_path

_PACKAGES = 15
_FILES = 10


def size(
    cell: str = opt.of("CELL: A cell's id, or a glob that matches one.", ...),
    matrices: list[Path] | None = opt.MATRICES,
    against: str | None = opt.of("--against CELL: What it shares with another cell."),
    json_: bool = opt.JSON,
) -> int:
    """Exit 1 if a library of CUDA is in the cell twice."""
    loaded = opt.load_all(matrices)
    one = opt.choose_one(loaded, cell)
    found = _measure(loaded, one)
    if against is not None:
        other = opt.choose_one(loaded, against)
        document = {"schema": 1, "cells": [one.id, other.id], **_compared(found, _measure(loaded, other))}
        pages = _compared_page(document)
    else:
        document, pages = {"schema": 1, "cell": one.id, **_document(found)}, _page(one.id, found)
    if json_:
        print_json(document)
    else:
        show(*pages)
    return 1 if found.doubled and against is None else 0


def _measure(matrices: list[Matrix], cell: Cell) -> CellSize:
    """The sizes of the cell as it is locked."""
    pinned = opt.locked_cell(matrices, cell)
    cache = resources.cache()
    with item(cell.id):
        return measure(pinned, store=LayerStore(cache / "layers"), place=partial(cache_path, cache=cache))


def _document(size: CellSize) -> dict[str, Any]:
    layers = [{name: value for name, value in vars(one).items() if name != "identity"} for one in size.layers]
    return {
        "unpacked": size.unpacked,
        "compressed": size.compressed,
        "compilers": size.compilers,
        "layers": layers,
        "packages": [vars(package) for package in size.packages],
        "largest": [vars(file) for file in size.largest],
        "doubled": {soname: list(paths) for soname, paths in size.doubled},
    }


def _page(name: str, size: CellSize) -> Iterator[str]:
    yield name
    yield f"  {'layer':<44} {'unpacked':>10} {'compressed':>10}"
    for layer in size.layers:
        yield _row(layer.title, layer.unpacked, layer.compressed, known=layer.made)
    made = all(layer.made for layer in size.layers)
    yield _row("in all", size.unpacked, size.compressed, known=made)
    if not made:
        yield "  ~ is estimated from the lock: not a layer yet"
    if size.compilers is not None:
        yield f"  compilers and headers (compilers, verify: [compile]): about {human_bytes(size.compilers)}"
    yield from ("", f"  {'package':<44} {'unpacked':>10} {'compressed':>10}")
    for one in size.packages[:_PACKAGES]:
        yield _row(f"{one.name} {one.version}", one.unpacked, one.compressed, known=one.known)
    rest = size.packages[_PACKAGES:]
    if rest:
        yield _row(f"{len(rest)} more", sum(p.unpacked for p in rest), sum(p.compressed for p in rest))
    if size.largest:
        yield from ("", f"  {'largest files':<44} {'unpacked':>10}")
        for file in size.largest[:_FILES]:
            short = file.path.replace("/opt/runtime/lib/python/site-packages/", "")
            yield f"  {_cut(short):<44} {human_bytes(file.size):>10}"
    for soname, paths in size.doubled:
        times = f"{len(paths)} times; which one is loaded depends on the order of imports:"
        yield from ("", f"  {soname} is there {times}")
        yield from (f"    {path}" for path in paths)
    yield from ("", "  without what the recipe adds: compiled Python, the environment, the probe")


def _compared_page(document: dict[str, Any]) -> Iterator[str]:
    yield f"  {'':<44} {'unpacked':>10} {'compressed':>10}"
    both = document["both"]
    yield _row("layers of both", both["unpacked"], both["compressed"], known=both["made"])
    for cell, part in zip(document["cells"], document["only"], strict=True):
        yield _row(f"only {cell}", part["unpacked"], part["compressed"], known=part["made"])
        yield from (f"    {layer}" for layer in part["layers"])
    yield from ("", f"  {'package':<44} {'unpacked':>10} {'difference':>10}")
    for row in document["packages"]:
        before, after = row["unpacked"]
        signed = f"{'+' if after >= before else '-'}{human_bytes(abs(after - before))}"
        yield f"  {row['change']:<44} {human_bytes(before):>10} {signed:>10}"


def _compared(size: CellSize, other: CellSize) -> dict[str, Any]:
    mine, theirs = ({layer.identity: layer for layer in one.layers} for one in (size, other))
    return {
        "both": _total([layer for key, layer in mine.items() if key in theirs]),
        "only": [
            _total([layer for key, layer in mine.items() if key not in theirs]),
            _total([layer for key, layer in theirs.items() if key not in mine]),
        ],
        "packages": _changes(size, other),
    }


def _total(layers: Sequence[LayerSize]) -> dict[str, Any]:
    return {
        "layers": [layer.title for layer in layers],
        "unpacked": sum(layer.unpacked for layer in layers),
        "compressed": sum(layer.compressed for layer in layers),
        "made": all(layer.made for layer in layers),
    }


def _changes(size: CellSize, other: CellSize) -> list[dict[str, Any]]:
    """Packages that differ: the versions, and bytes unpacked in each; the largest difference first."""
    mine, theirs = ({p.name: (p.version, p.unpacked) for p in one.packages} for one in (size, other))
    found = []
    for name in mine.keys() | theirs.keys():
        (before, old), (after, new) = mine.get(name, ("none", 0)), theirs.get(name, ("none", 0))
        if before != after:
            found.append({"change": f"{name} {before} → {after}", "unpacked": [old, new]})
    return sorted(found, key=lambda row: (-abs(row["unpacked"][1] - row["unpacked"][0]), row["change"]))


def _row(title: str, unpacked: int, compressed: int, *, known: bool = True) -> str:
    about = "" if known else "~"
    return f"  {_cut(title):<44} {about + human_bytes(unpacked):>10} {about + human_bytes(compressed):>10}"


def _cut(text: str) -> str:
    return text if len(text) <= 44 else f"…{text[-43:]}"
