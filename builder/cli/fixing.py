"""``rtbuild check --fix``: each impossible cell gives way to the nearest possible one, in the matrix file."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from builder.console import say
from builder.facts import Finding, Outcome
from builder.facts.finding import entry
from builder.matrix.amend import Replacement, amend
from builder.matrix.ids import cell_id
from builder.model import Cell, Matrix

_REASON = 200
"""Characters of a reason that go into the file."""


def fix(matrices: Sequence[Matrix], found: Mapping[str, tuple[Finding, ...]]) -> list[str]:
    """Rewrite the matrices of impossible cells; the ids of cells without a possible neighbour.

    Raises:
        UsageError: A program cannot change the file; it stays as it is.
    """
    helpless = []
    for matrix in matrices:
        there = {cell.id for cell in matrix.cells}
        replacements = []
        for cell in matrix.cells:
            refusals = [f for f in found.get(cell.id, ()) if f.outcome is Outcome.IMPOSSIBLE]
            if not refusals or cell.excluded is not None:
                continue
            nearest = refusals[0].nearest
            if nearest is None:
                helpless.append(cell.id)
                continue
            reason = f"{refusals[0].rule}: {refusals[0].message}"[:_REASON]
            lines = _entry(nearest.cell, cell, there)
            replacements.append(Replacement(cell=cell.id, reason=reason, entry=lines))
            say(f"{matrix.path}: {cell.id} excluded; in its place: {nearest}")
        if replacements:
            amend(matrix.path, replacements)
    return helpless


def _entry(new: Cell, old: Cell, there: set[str]) -> tuple[str, ...]:
    """The entry of the new cell under an id of its own; nothing if the matrix has the cell already."""
    mine = _id(new)
    if mine == old.id:
        new = replace(new, variant=f"{old.variant}-fixed" if old.variant else "fixed")
    elif mine in there:
        return ()
    there.add(_id(new))
    return tuple(entry(new))


def _id(cell: Cell) -> str:
    return cell_id(
        frameworks=cell.frameworks,
        python=cell.python,
        base=cell.base,
        cuda=cell.cuda,
        platform=cell.platform,
        profile=cell.profile,
        variant=cell.variant,
    )
