"""``rtbuild check``: can these cells work, before anything is built?"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

from builder.cli import options as opt
from builder.cli.fixing import fix as rewrite
from builder.console import human_bytes, print_json_rows, say, show
from builder.facts import Finding, Outcome, summary
from builder.facts import check as apply_rules
from builder.facts.memory import Memory
from builder.lock.file import lock_path, pinned_cell, read_lock
from builder.model import Cell, Matrix

if TYPE_CHECKING:
    from builder.facts.reading import Reading

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
    """Findings of the rules by cell id, from locks and from metadata that was read; a stale lock is none.

    ``read`` reads wheels and bases anew, ``deep`` up to 16 MiB of a wheel; without them, earlier readings
    count, and no network is asked.
    """
    locks = {matrix.name: read_lock(lock_path(matrix.path)) for matrix in matrices}
    pairs = [(cell, pinned_cell(cell, locks[cell.matrix])) for cell in cells]
    memory = Memory(mirrors=mirrors)
    reading = None
    if read or deep:
        from builder.facts.reading import read as read_all  # with an HTTP client: a tenth of a second
        from builder.index.client import Index
        from builder.oci.registry import Registry

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
        bool, opt.of("--fix: Exclude impossible cells in their files, with the nearest possible ones.")
    ] = False,
    json_: opt.Json = False,
    verbose: opt.Verbose = 0,
) -> int:
    """Exit 1 if a cell is impossible; with ``fix``, if nothing could be done for one."""
    loaded, cells = opt.choose(matrices, select, skip)
    found, reading = judge(
        loaded, cells, driver=opt.driver(driver), read=read, deep=deep, mirrors=opt.mirrors(mirror)
    )
    refused = [cell for cell, findings in found.items() if summary(findings) is Outcome.IMPOSSIBLE]
    helpless = rewrite(loaded, found) if fix else refused
    if json_:
        print_json_rows(document(cells, found, reading), "cells")
        return 1 if helpless else 0
    if reading is not None:
        size = human_bytes(reading.transferred)
        say(f"read {reading.wheels} wheels ({size}) and {reading.bases} bases in {reading.seconds:.1f} s")
    terminal = opt.terminal(color="auto" if sys.stdout.isatty() else "never")
    width = max(len(cell) for cell in found)
    for cell, findings in found.items():
        outcome = summary(findings)
        symbol, code = _MARKS[outcome]
        show(f"{terminal.style(terminal.symbol(symbol), code)} {cell:<{width}}  {outcome.answer}", hang=2)
        for finding in findings:
            if finding.outcome is not Outcome.POSSIBLE or verbose:
                show(f"    {finding.rule}: {finding.message}", hang=2)
        way_out = next((finding.nearest for finding in findings if finding.nearest is not None), None)
        if way_out is not None:
            show(f"    possible instead ({way_out}):", way_out.yaml.removesuffix("\n"))
    if refused:
        show(f"{len(refused)} of {len(found)} impossible; `rtbuild explain CELL` says why")
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
