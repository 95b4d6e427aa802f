"""Combinations known to fail, and pins that no version satisfies together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from builder.facts.decide import CELL
from builder.facts.finding import Finding, Outcome, Source, Value
from builder.facts.gpus import card_of
from builder.facts.stack import component_versions
from builder.facts.versions import canonical, contains, pinned, requirement, short

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from packaging.requirements import Requirement

    from builder.facts.stack import Stack
    from builder.facts.tables import BadRow, Facts, GpuRow


def known_bad(stack: Stack) -> Iterator[Finding]:
    """``known-bad``: what others have found out the hard way. Only where every part is known for certain."""
    gpus = [row for name in stack.cell.gpus if (row := card_of(name, stack.facts)) is not None]
    yield from bad_pairs(component_versions(stack), gpus, stack.facts)


def bad_pairs(known: Mapping[str, Value], gpus: Sequence[GpuRow], facts: Facts) -> Iterator[Finding]:
    """The rows whose conditions these versions all meet, by the names that ``known-bad.toml`` uses."""
    for row in facts.bad:
        met = _met(row, known, gpus)
        if met:
            yield Finding(
                rule="known-bad",
                outcome=Outcome(row.outcome),
                message=f"{row.id}: {row.message}. Remedy: {row.remedy}",
                values=(*met, Value(what=row.id, text=" and ".join(row.when), source=row.source)),
            )


def _met(row: BadRow, known: Mapping[str, Value], gpus: Sequence[GpuRow]) -> tuple[Value, ...]:
    values = []
    for text in row.when:
        condition = requirement(text)
        if condition is None:
            return ()
        value = _gpu(gpus, condition) if condition.name == "gpu" else known.get(condition.name)
        if value is None or not contains(condition.specifier, short(value.text, 3)):
            return ()
        values.append(value)
    return tuple(values)


def _gpu(gpus: Sequence[GpuRow], condition: Requirement) -> Value | None:
    for row in gpus:
        if contains(condition.specifier, row.capability):
            return Value(what=row.name, text=row.capability, source=row.source)
    return None


def pins(stack: Stack) -> Iterator[Finding]:
    """``pins``: two requirements on the same wheel that no version satisfies."""
    asked: dict[str, list[tuple[str, Requirement, Source]]] = {}
    for text in (*stack.cell.cuda.packages, *stack.cell.pip):
        parsed = requirement(text)
        if parsed is not None:
            asked.setdefault(canonical(parsed.name), []).append(("the cell", parsed, CELL))
    for framework in stack.frameworks:
        for parsed, source in framework.pins:
            asked.setdefault(canonical(parsed.name), []).append((framework.label, parsed, source))
    for name, wishes in asked.items():
        clash = _clash(wishes)
        if clash is not None:
            one, other = clash
            yield Finding(
                rule="pins",
                # nobody resolves a list: what is pinned in it is what gets installed
                outcome=Outcome.WARNS if stack.cell.dependencies == "listed" else Outcome.IMPOSSIBLE,
                message=f"{one[0]} wants {name}{one[1].specifier} and {other[0]} wants "
                f"{name}{other[1].specifier}: "
                "no version is both",
                values=(
                    Value(what=f"{name} for {one[0]}", text=str(one[1].specifier), source=one[2]),
                    Value(what=f"{name} for {other[0]}", text=str(other[1].specifier), source=other[2]),
                ),
            )


Wish = tuple[str, "Requirement", Source]


def _clash(wishes: list[Wish]) -> tuple[Wish, Wish] | None:
    """The first exact pin that another wish does not admit. Two ranges are not compared."""
    for one in wishes:
        exact = pinned(one[1])
        if exact is None:
            continue
        for other in wishes:
            if other is not one and not contains(other[1].specifier, exact):
                return one, other
    return None
