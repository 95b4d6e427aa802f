"""``rtbuild check``: can these cells work, before anything is built?"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from builder.cli import options as opt
from builder.cli.fixing import fix as rewrite
from builder.console import Terminal, human_bytes, print_json_rows
from builder.facts import Outcome, summary
from builder.facts import check as apply_rules
from builder.facts.memory import Memory
from builder.lock import lock_path, pinned_cell, read_lock

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from builder.facts import Finding
    from builder.facts.reading import Reading
    from builder.model import Cell, Matrix, Pinned

_MARKS = {
    Outcome.POSSIBLE: ("ok", "32"),
    Outcome.WARNS: ("warn", "33"),
    Outcome.UNKNOWN: ("skip", "33"),
    Outcome.IMPOSSIBLE: ("bad", "31;1"),
}


def judge(
    matrices: list[Matrix],
    cells: Sequence[Cell],
    *,
    driver: str | None = None,
    read: bool = False,
    deep: bool = False,
    mirrors: Mapping[str, str] | None = None,
) -> tuple[dict[str, tuple[Finding, ...]], Reading | None]:
    """The rules over cells: findings by id, with what locks know and what was read; a stale lock is none.

    ``read`` reads wheels and bases anew, with ``deep`` up to 16 MiB of a wheel; without it, what was read
    before counts, and no network is asked.
    """
    locks = {matrix.name: read_lock(lock_path(matrix.path)) for matrix in matrices}

    def pinned_of(cell: Cell) -> Pinned | None:
        lockfile = locks[cell.matrix]
        return pinned_cell(cell, lockfile) if lockfile is not None else None

    pairs = [(cell, pinned_of(cell)) for cell in cells]
    memory = Memory(mirrors=mirrors)
    reading = None
    if read or deep:
        from builder.facts.reading import read as read_all  # with an HTTP client: a tenth of a second
        from builder.index.client import Index  # with an HTTP client: a tenth of a second
        from builder.oci.registry import Registry  # with an HTTP client: a tenth of a second

        registry = Registry.from_user(mirrors)
        index = Index.from_user(brief=True)
        reading = read_all(pairs, index=index, registry=registry, memory=memory, deep=deep)
        truths = reading.truths
    else:
        truths = tuple(memory.truth(cell, pinned) for cell, pinned in pairs)
    return {
        cell.id: apply_rules(cell, truth, driver=driver) for cell, truth in zip(cells, truths, strict=True)
    }, reading


def check(
    matrices: opt.Matrices = None,
    select: opt.Select = None,
    skip: opt.Skip = None,
    driver: opt.Driver = None,
    read: opt.Read = False,
    deep: opt.Deep = False,
    mirror: opt.Mirror = None,
    fix: Annotated[
        bool,
        typer.Option(
            "--fix", help="Exclude impossible cells in their files, with the nearest possible ones."
        ),
    ] = False,
    json_: opt.Json = False,
    verbose: opt.Verbose = 0,
) -> int:
    """Exit 1 if a cell is impossible; with ``fix``, if nothing could be done for one."""
    loaded = opt.load_all(matrices)
    cells = opt.choose(loaded, select, skip).chosen
    found, reading = judge(
        loaded, cells, driver=opt.driver(driver), read=read, deep=deep, mirrors=opt.mirrors(mirror)
    )
    refused = [cell for cell, findings in found.items() if summary(findings) is Outcome.IMPOSSIBLE]
    helpless = rewrite(loaded, found) if fix else refused
    if json_:
        print_json_rows(document(cells, found, reading), "cells")
        return 1 if helpless else 0
    if reading is not None:
        _say_read(reading)
    terminal = Terminal.of()
    width = max(len(cell) for cell in found)
    for cell, findings in found.items():
        outcome = summary(findings)
        symbol, code = _MARKS[outcome]
        color_on = terminal.color and sys.stdout.isatty()
        mark = terminal.style(terminal.symbol(symbol), code) if color_on else terminal.symbol(symbol)
        sys.stdout.write(f"{mark} {cell:<{width}}  {outcome.answer}\n")
        for finding in findings:
            if finding.outcome is Outcome.POSSIBLE and not verbose:
                continue
            sys.stdout.write(f"    {finding.rule}: {finding.message}\n")
        way_out = next((finding.nearest for finding in findings if finding.nearest is not None), None)
        if way_out is not None:
            sys.stdout.write(f"    possible instead ({way_out}):\n{way_out.yaml}")
    if refused:
        sys.stdout.write(f"{len(refused)} of {len(found)} impossible; `rtbuild explain CELL` says why\n")
    return 1 if helpless else 0


def document(
    cells: Sequence[Cell], found: Mapping[str, tuple[Finding, ...]], reading: Reading | None
) -> dict[str, Any]:
    rows = [
        {
            "id": cell.id,
            "matrix": cell.matrix,
            "outcome": summary(found[cell.id]).old_name,
            "answer": summary(found[cell.id]).answer,
            "findings": [f.as_json() for f in found[cell.id]],
        }
        for cell in cells
    ]
    document: dict[str, Any] = {"schema": 1, "cells": rows}
    if reading is not None:
        document["read"] = {
            "wheels": reading.wheels,
            "bases": reading.bases,
            "bytes": reading.transferred,
            "seconds": round(reading.seconds, 3),
        }
    return document


def _say_read(reading: Reading) -> None:
    sys.stderr.write(
        f"read {reading.wheels} wheels ({human_bytes(reading.transferred)}) and {reading.bases} bases "
        f"in {reading.seconds:.1f} s\n"
    )
