"""``rtbuild size``: the size of a cell by layer, package and file, and its overlap with another cell."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Annotated, Any

from builder import resources
from builder.cli import options as opt
from builder.console import counted, human_bytes, print_json, show
from builder.errors import StaleLockError
from builder.image.sizes import CellSize, LayerSize, PackageSize, measure
from builder.index.client import cache_path
from builder.layers.store import LayerStore
from builder.model import Cell, Matrix, Pinned
from builder.pipeline.locks import LockKeeper

_PACKAGES = 15
_FILES = 10


def size(
    cell: opt.OneCell,
    matrices: opt.Matrices = None,
    against: Annotated[str | None, opt.of("--against CELL: What it shares with another cell.")] = None,
    json_: opt.Json = False,
) -> int:
    """Exit 1 if a library of CUDA is in the cell twice."""
    loaded = opt.load_all(matrices)
    chosen = opt.choose_one(loaded, cell)
    keepers = {matrix.name: LockKeeper(matrix) for matrix in loaded}
    one = _pinned(keepers, chosen)
    found = _measure(one)
    if against is not None:
        other = _pinned(keepers, opt.choose_one(loaded, against))
        document = _compared(one.cell.id, found, other.cell.id, _measure(other))
        if json_:
            print_json(document)
        else:
            show(*_compared_page(document))
        return 0
    sharing = _sharing(loaded, keepers, one)
    if json_:
        print_json({"schema": 1, "cell": one.cell.id, **_document(found, sharing)})
    else:
        show(*_page(one.cell.id, found, sharing))
    return 1 if found.doubled else 0


def _pinned(keepers: Mapping[str, LockKeeper], cell: Cell) -> Pinned:
    """The cell as it is locked."""
    pinned = keepers[cell.matrix].pinned(cell)
    if pinned is None:
        raise StaleLockError(f"{cell.id} is not locked", hint="run `rtbuild lock` first")
    return pinned


def _measure(pinned: Pinned) -> CellSize:
    cache = resources.cache()
    return measure(pinned, store=LayerStore(cache / "layers"), place=partial(cache_path, cache=cache))


def _sharing(matrices: list[Matrix], keepers: Mapping[str, LockKeeper], one: Pinned) -> dict[str, int]:
    """The number of other locked cells with each of the cell's wheels, and with its base."""
    counts: dict[str, int] = {}
    others: list[Cell] = [c for m in matrices for c in m.cells if c.excluded is None and c.id != one.cell.id]
    for cell in others:
        pinned = keepers[cell.matrix].pinned(cell)
        if pinned is None:
            continue
        for wheel in pinned.wheels:
            counts[wheel.sha256] = counts.get(wheel.sha256, 0) + 1
        if pinned.base == one.base:
            counts["base"] = counts.get("base", 0) + 1
    return counts


def _shared(layer: LayerSize, number: int, sharing: dict[str, int]) -> int:
    return sharing.get("base" if number == 0 else layer.identity, 0)


def _document(size: CellSize, sharing: dict[str, int]) -> dict[str, Any]:
    return {
        "unpacked": size.unpacked,
        "compressed": size.compressed,
        "layers": [
            {
                "title": layer.title,
                "unpacked": layer.unpacked,
                "compressed": layer.compressed,
                "made": layer.made,
                "other_cells": _shared(layer, number, sharing),
            }
            for number, layer in enumerate(size.layers)
        ],
        "packages": [vars(package) for package in size.packages],
        "largest": [vars(file) for file in size.largest],
        "doubled": {soname: list(paths) for soname, paths in size.doubled},
    }


def _page(name: str, size: CellSize, sharing: dict[str, int]) -> Iterator[str]:
    yield name
    yield f"  {'layer':<44} {'unpacked':>10} {'compressed':>10}  shared with"
    for number, layer in enumerate(size.layers):
        others = _shared(layer, number, sharing)
        with_ = counted(others, "other cell") if others else ""
        yield f"  {_row(layer.title, layer.unpacked, layer.compressed, known=layer.made)}  {with_}".rstrip()
    yield f"  {_row('in all', size.unpacked, size.compressed, known=all(one.made for one in size.layers))}"
    if not all(layer.made for layer in size.layers):
        yield "  ~ is estimated from the lock: not a layer yet"
    yield ""
    yield f"  {'package':<44} {'unpacked':>10} {'compressed':>10}"
    for package in size.packages[:_PACKAGES]:
        yield f"  {_package(package)}"
    rest = size.packages[_PACKAGES:]
    if rest:
        yield f"  {_row(f'{len(rest)} more', sum(p.unpacked for p in rest), sum(p.compressed for p in rest))}"
    if size.largest:
        yield ""
        yield f"  {'largest files':<44} {'unpacked':>10}"
        for file in size.largest[:_FILES]:
            short = file.path.replace("/opt/runtime/lib/python/site-packages/", "")
            yield f"  {_cut(short):<44} {human_bytes(file.size):>10}"
    for soname, paths in size.doubled:
        yield ""
        yield f"  {soname} is there {len(paths)} times; which one is loaded depends on the order of imports:"
        yield from (f"    {path}" for path in paths)
    yield ""
    yield "  without what the recipe adds: compiled Python, the environment, the probe"


def _compared_page(document: dict[str, Any]) -> Iterator[str]:
    yield f"  {'':<44} {'unpacked':>10} {'compressed':>10}"
    titles = ("layers of both", *(f"only {cell}" for cell in document["cells"]))
    for title, part in zip(titles, (document["both"], *document["only"]), strict=True):
        yield f"  {_row(title, part['unpacked'], part['compressed'], known=part['made'])}"
        if part is not document["both"]:
            yield from (f"    {layer}" for layer in part["layers"])
    yield ""
    yield f"  {'package':<44} {'unpacked':>10} {'difference':>10}"
    for row in document["packages"]:
        before, after = row["unpacked"]
        yield f"  {row['change']:<44} {human_bytes(before):>10} {_signed(after - before):>10}"


def _split(size: CellSize, other: CellSize) -> tuple[list[LayerSize], list[LayerSize], list[LayerSize]]:
    """The layers of both cells, of the first alone, and of the second alone."""
    mine = {layer.identity: layer for layer in size.layers}
    theirs = {layer.identity: layer for layer in other.layers}
    return (
        [layer for key, layer in mine.items() if key in theirs],
        [layer for key, layer in mine.items() if key not in theirs],
        [layer for key, layer in theirs.items() if key not in mine],
    )


def _changes(size: CellSize, other: CellSize) -> list[tuple[str, int, int]]:
    """Packages that differ: the versions, and bytes unpacked in each; the largest difference first."""
    mine = {package.name: package for package in size.packages}
    theirs = {package.name: package for package in other.packages}
    found = []
    for name in mine.keys() | theirs.keys():
        a, b = mine.get(name), theirs.get(name)
        versions = (a.version if a else None, b.version if b else None)
        if versions[0] != versions[1]:
            text = f"{name} {versions[0] or 'none'} → {versions[1] or 'none'}"
            found.append((text, a.unpacked if a else 0, b.unpacked if b else 0))
    return sorted(found, key=lambda row: (-abs(row[2] - row[1]), row[0]))


def _compared(one: str, size: CellSize, other: str, other_size: CellSize) -> dict[str, Any]:
    both, *only = _split(size, other_size)

    def total(layers: Sequence[LayerSize]) -> dict[str, Any]:
        return {
            "layers": [layer.title for layer in layers],
            "unpacked": sum(layer.unpacked for layer in layers),
            "compressed": sum(layer.compressed for layer in layers),
            "made": all(layer.made for layer in layers),
        }

    return {
        "schema": 1,
        "cells": [one, other],
        "both": total(both),
        "only": [total(layers) for layers in only],
        "packages": [
            {"change": text, "unpacked": [before, after]}
            for text, before, after in _changes(size, other_size)
        ],
    }


def _package(package: PackageSize) -> str:
    title = f"{package.name} {package.version}"
    return _row(title, package.unpacked, package.compressed, known=package.known)


def _row(title: str, unpacked: int, compressed: int, *, known: bool = True) -> str:
    about = "" if known else "~"
    return f"{_cut(title):<44} {about + human_bytes(unpacked):>10} {about + human_bytes(compressed):>10}"


def _cut(text: str) -> str:
    return text if len(text) <= 44 else f"…{text[-43:]}"


def _signed(count: int) -> str:
    return f"{'+' if count >= 0 else '-'}{human_bytes(abs(count))}"
