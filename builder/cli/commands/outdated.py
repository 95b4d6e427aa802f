"""``rtbuild outdated``: what has appeared or gone since cells were locked."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from builder.cli import options as opt
from builder.cli.console import counted, print_json, say, show
from builder.core.errors import CellError, MissingToolError, StaleLockError
from builder.core.items import item
from builder.core.model import Cell, Matrix
from builder.pipeline import Locks
from builder.plan.lock import Outdated
from builder.plan.lock import outdated as ask
from builder.sources.debian import Debian
from builder.sources.index import Files, Index, pages
from builder.sources.oci import Registry


def outdated(
    matrices: list[Path] | None = opt.MATRICES,
    select: list[str] | None = opt.SELECT,
    skip: list[str] | None = opt.SKIP,
    fail_on: Literal["security", "any"] | None = opt.of(
        "--fail-on security|any: Exit 1 if a security update, or anything, is listed; 5 if that stays open."
    ),
    mirror: list[str] | None = opt.MIRROR,
    json_: bool = opt.JSON,
) -> int:
    """Ask Debian's archive, the package index, the registry and the rules of `check`; change nothing.

    `rtbuild lock --upgrade` takes all that is newer, `--upgrade-package NAME` one package.
    """
    loaded, cells = opt.choose(matrices, select, skip)
    clients = _Clients(loaded, mirrors=opt.mirrors(mirror))
    found: dict[str, Outdated] = {}
    for cell in cells:
        try:
            with item(cell.id):
                found[cell.id] = clients.ask(cell)
        except (CellError, StaleLockError) as problem:
            found[cell.id] = Outdated(changes=(), unknown=(problem.message,))
    if json_:
        print_json({"schema": 1, "cells": [_document(cell.id, found[cell.id]) for cell in cells]})
    else:
        show(*_page(found))
    changes = [change for one in found.values() for change in one.changes]
    listed = [change for change in changes if fail_on in {"any", change.kind}]
    if fail_on is None or listed:
        return 1 if listed else 0
    left_open = any(one.unknown or one.unasked for one in found.values())
    return MissingToolError.exit_code if left_open else 0


class _Clients:
    """The clients of one run; a lock is read once, and a project's page asked for once."""

    def __init__(self, matrices: Sequence[Matrix], mirrors: Mapping[str, str]) -> None:
        self._matrices = {matrix.name: matrix for matrix in matrices}
        self._locks: dict[str, Locks] = {}
        self._index = Index.from_user(brief=True)
        self._registry = Registry.from_user(mirrors)
        self._debian = Debian(note=say)
        self._pages: dict[tuple[str, ...], dict[str, Files]] = {}

    def ask(self, cell: Cell) -> Outdated:
        if cell.matrix not in self._locks:
            self._locks[cell.matrix] = Locks([self._matrices[cell.matrix]])
        pinned = self._locks[cell.matrix].fresh([cell])[0]
        known = self._pages.setdefault(cell.index, {})
        names = {wheel.name for wheel in pinned.wheels}
        known |= pages(names - known.keys(), self._index.with_extra(cell.index))
        return ask(pinned, pages=known, debian=self._debian, registry=self._registry)


def _document(cell: str, found: Outdated) -> dict[str, Any]:
    return {
        "cell": cell,
        "changes": [vars(change) for change in found.changes],
        "unknown": list(found.unknown),
        "unasked": list(found.unasked),
    }


def _page(found: Mapping[str, Outdated]) -> Iterator[str]:
    for cell, one in found.items():
        plain = "nothing newer" + " in what was asked" * bool(one.unasked)
        none = "not known" if one.unknown else plain
        yield f"{cell}: {counted(one.changes, 'change') if one.changes else none}"
        for change in one.changes:
            versions = f"{change.locked} → {change.newer}" if change.newer else change.locked
            yield f"  {change.kind:<9} {change.name} {versions}{f': {change.why}' if change.why else ''}"
        yield from (f"  unknown   {text}" for text in one.unknown)
        yield from (f"  unasked   {text}" for text in one.unasked)
