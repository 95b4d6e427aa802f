"""Combinations known to fail although every other rule lets them pass."""

import re
from collections.abc import Iterator, Mapping, Sequence

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from builder.facts.finding import Finding, Outcome, Value
from builder.facts.gpus import card_of
from builder.facts.stack import Stack, component_versions
from builder.facts.tables import BadRow, GpuRow, load
from builder.facts.versions import contains, requirement, short


def known_bad(stack: Stack) -> Iterator[Finding]:
    """``known-bad``: combinations that others found broken, only if every part is known for certain."""
    gpus = [row for name in stack.cell.gpus if (row := card_of(name)) is not None]
    yield from bad_pairs(component_versions(stack), gpus)


def bad_pairs(known: Mapping[str, Value], gpus: Sequence[GpuRow]) -> Iterator[Finding]:
    """The rows whose conditions these versions all meet, by the names that ``known-bad.toml`` uses."""
    for row in load().bad:
        met = _met(row, known, gpus)
        if met:
            yield Finding(
                Outcome(row.outcome),
                f"{row.id}: {row.message}. Remedy: {row.remedy}",
                (*met, Value(row.id, " and ".join(row.when), row.source)),
            )


def _met(row: BadRow, known: Mapping[str, Value], gpus: Sequence[GpuRow]) -> tuple[Value, ...]:
    values = []
    for text in row.when:
        condition = requirement(text)
        if condition is None:
            return ()
        name = condition.name + "".join(f"[{extra}]" for extra in sorted(condition.extras))
        value = _gpu(gpus, condition) if name == "gpu" else known.get(name)
        if value is None or not _within(value.text, condition.specifier):
            return ()
        values.append(value)
    return tuple(values)


def _within(version: str, specifier: SpecifierSet) -> bool:
    exact = re.fullmatch(r"\d+(\.\d+)*(\.?(post|rc|a|b|dev)\d+)*", version)
    return contains(specifier, version if exact else short(version, 3))


def _gpu(gpus: Sequence[GpuRow], condition: Requirement) -> Value | None:
    for row in gpus:
        if contains(condition.specifier, row.capability):
            return Value(row.name, row.capability, row.source)
    return None
