"""A bound with which a resolver keeps from what a rule refuses, where the cell leaves it free to."""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from builder.core.model import Cell
from builder.core.versions import apart, canonical, names_of, pinned, requirement
from builder.plan.facts.rules.cell_packages import asked_once
from builder.plan.facts.rules.finding import Finding, Outcome
from builder.plan.facts.tables import BadRow, load

NO_PACKAGES = frozenset({"gpu", "cuda", "cudnn", "cublas"})
"""Names in conditions of ``known-bad.toml``, beside ``python`` and packages."""


def bounds_of_row(row: BadRow) -> Iterator[str]:
    """The bounds each of which keeps a set from a row of ``known-bad.toml``: what the row names of its own
    packages, or of those without which it fails, then an older release of what is too new, then a newer one
    of what is too old.
    """
    conditions = [Requirement(text) for text in (*row.when, *row.open)]
    known = {canonical(one.name) for one in conditions} | {*row.without}
    yield from (text for text in row.mend if canonical(Requirement(text).name) in known)
    for kind, instead in ((">=", "<"), ("<", ">=")):
        for one in conditions:
            clauses = [clause.version for clause in one.specifier if clause.operator == kind]
            if len(clauses) == 1 and not one.extras and one.name not in NO_PACKAGES | {"python"}:
                yield f"{canonical(one.name)}{instead}{clauses[0]}"


def kept_from_bad(cell: Cell, findings: Iterable[Finding]) -> tuple[Cell, str] | None:
    """The cell with a bound that keeps a resolver from what ``known-bad`` refuses, and the bound with the
    finding; None if no bound does.

    It is one on a package that the cell asks for, or that nothing else bounds, and an older release of it
    meets what is asked for, too: ``transformers<5.20`` beside an old PyTorch.
    """
    asked = {canonical(parsed.name) for parsed in map(requirement, cell.pip) if parsed is not None}
    for one in findings:
        rows = [row for row in load().bad if one.values and row.id == one.values[-1].what]
        for row in rows if one.rule == "known-bad" and one.outcome is Outcome.IMPOSSIBLE else ():
            open_ = {canonical(Requirement(text).name) for text in row.open}
            for wanted in map(Requirement, (*row.when, *row.open)):
                name, lower = canonical(wanted.name), [c for c in wanted.specifier if c.operator == ">="]
                if len(lower) != 1 or name not in asked | open_ or name in NO_PACKAGES | {"python"}:
                    continue
                below = f"{name}<{lower[0].version}"
                if (bounded := with_bound(cell, below)) is not None:
                    return bounded, f"{below}: {one.message}"
    return None


def free_bounds(
    cell: Cell, finding: Finding, there: Collection[str] | None = None
) -> Iterator[tuple[str, Cell]]:
    """The bounds of a finding which contradict nothing that the cell asks for, each with the cell that has
    it; those on what nobody asked for come first.

    ``there`` are the distributions of a set that was resolved: of others there is a bound only if it is their
    lack that is refused.
    """
    asked = {canonical(parsed.name) for parsed in map(requirement, cell.pip) if parsed is not None}
    for text in sorted(finding.bounds, key=lambda text: canonical(Requirement(text).name) in asked):
        name = canonical(Requirement(text).name)
        if there is None or name in there or name in finding.lacked:
            bounded = with_bound(cell, text)
            if bounded is not None:
                yield text, bounded


def with_bound(cell: Cell, text: str) -> Cell | None:
    """The cell with one more requirement; None if it contradicts, or adds nothing to, what the cell asks for:
    its frameworks, its CUDA, what it pins. A list of packages is taken as it is."""
    name = canonical(Requirement(text).name)
    asked = [parsed for parsed in map(requirement, cell.pip) if parsed is not None]
    mine = [parsed for parsed in asked if canonical(parsed.name) == name]
    fixed = {*names_of(cell.frameworks), *names_of(cell.cuda.packages)}
    if cell.dependencies == "listed" or name in fixed or any(pinned(one) is not None for one in mine):
        return None
    bound = SpecifierSet(str(Requirement(text).specifier))
    if any(apart(one.specifier, bound) for one in mine):
        return None
    bounded = replace(cell, pip=asked_once(cell.pip, (text,)))
    return bounded if bounded != cell else None
