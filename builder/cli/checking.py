"""``rtbuild check`` and ``rtbuild explain``: can these cells work, before anything is built?"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from builder.cli.options import choose
from builder.compat import Outcome, Truth, check, explain, summary, truth_of_pinned
from builder.console import Terminal, print_json
from builder.errors import UsageError
from builder.lock import Lockfile, lock_path, pinned_cell, read_lock

if TYPE_CHECKING:
    from builder.compat import Finding
    from builder.model import Cell, Matrix

_MARKS = {
    Outcome.WORKS: ("ok", "32"),
    Outcome.WARNS: ("warn", "33"),
    Outcome.UNKNOWN: ("skip", "33"),
    Outcome.CANNOT_WORK: ("bad", "31;1"),
}


def findings_of(cell: Cell, lockfile: Lockfile | None, *, driver: str | None = None) -> tuple[Finding, ...]:
    """The rules over one cell, with what its lock knows; a stale lock is as good as none."""
    pinned = pinned_cell(cell, lockfile) if lockfile is not None else None
    truth = truth_of_pinned(pinned) if pinned is not None else Truth()
    return check(cell, truth, driver=driver)


def run(
    matrices: list[Matrix],
    select: list[str] | None,
    skip: list[str] | None,
    *,
    driver: str | None,
    json: bool,
    verbose: int,
) -> int:
    """Exit 1 where a cell cannot work."""
    locks = {matrix.name: read_lock(lock_path(matrix.path)) for matrix in matrices}
    selection = choose(matrices, select, skip)
    found = {
        cell.id: (cell, findings_of(cell, locks[cell.matrix], driver=driver)) for cell in selection.chosen
    }
    refused = [cell for cell, findings in found.values() if summary(findings) is Outcome.CANNOT_WORK]
    if json:
        rows = [
            {
                "id": cell.id,
                "matrix": cell.matrix,
                "outcome": summary(findings).value,
                "findings": [f.as_json() for f in findings],
            }
            for cell, findings in found.values()
        ]
        print_json({"schema": 1, "cells": rows})
        return 1 if refused else 0
    terminal = Terminal.of()
    width = max(len(cell) for cell in found)
    for cell, findings in found.values():
        outcome = summary(findings)
        symbol, code = _MARKS[outcome]
        color_on = terminal.color and sys.stdout.isatty()
        mark = terminal.style(terminal.symbol(symbol), code) if color_on else terminal.symbol(symbol)
        sys.stdout.write(f"{mark} {cell.id:<{width}}  {outcome.value}\n")
        for finding in findings:
            if finding.outcome is Outcome.WORKS and not verbose:
                continue
            sys.stdout.write(f"    {finding.rule}: {finding.message}\n")
            if finding.nearest is not None:
                sys.stdout.write(f"    would work: {finding.nearest}\n")
    if refused:
        sys.stdout.write(f"{len(refused)} of {len(found)} cannot work; `rtbuild explain CELL` says why\n")
    return 1 if refused else 0


def explain_one(matrices: list[Matrix], wanted: str, *, driver: str | None) -> int:
    """Everything about one cell's verdict."""
    selection = choose(matrices, [wanted], None)
    if len(selection.chosen) != 1:
        ids = ", ".join(cell.id for cell in selection.chosen)
        raise UsageError(f"'{wanted}' matches {len(selection.chosen)} cells: {ids}", hint="name one of them")
    cell = selection.chosen[0]
    matrix = next(m for m in matrices if m.name == cell.matrix)
    findings = findings_of(cell, read_lock(lock_path(matrix.path)), driver=driver)
    sys.stdout.write(explain(cell, findings))
    return 1 if summary(findings) is Outcome.CANNOT_WORK else 0
