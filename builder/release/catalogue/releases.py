"""What the compatibility rules say of every release on every kind of card."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import cast

from packaging.requirements import Requirement

from builder.core.model import Cell
from builder.core.versions import key, release
from builder.plan.facts.rules import Choice, Finding, Outcome, check, choices, summary
from builder.plan.facts.tables import FrameworkRow, load
from builder.plan.resolve import Proposal, needs_standalone, to_matrix_yaml
from builder.release.catalogue.values import Answer, Card, Judgement, Release

_CANDIDATES = 12
"""Cells of one release that are tried: its Pythons on a few bases."""


def cards_of() -> tuple[Card, ...]:
    """Every GPU model of the tables, by compute capability; with the platform if the card is bound to one."""
    rows = [
        Card(name=row.name, capability=", ".join(filter(None, (row.capability, row.platform))))
        for row in load().gpus.values()
    ]
    return tuple(sorted(rows, key=lambda card: (key(card.capability), card.name)))


def releases_of() -> Iterator[Release]:
    """The releases on record, framework by framework, each with its newest first."""
    models: dict[str, str] = {}
    for card in cards_of():
        models.setdefault(card.capability, card.name)
    for table in load().frameworks.values():
        rows = _distinct(table.name, table.rows)
        for row in sorted(rows, key=lambda row: release(row.version), reverse=True):
            yield _release(table.name, table.title, row, models)


def _distinct(framework: str, rows: Sequence[FrameworkRow]) -> list[FrameworkRow]:
    """One row for each version and variant: of tensorflow and tensorflow-gpu the one built for CUDA."""
    found: dict[tuple[str, str], FrameworkRow] = {}
    for row in sorted(rows, key=lambda row: row.distribution != framework):
        known = found.get((row.version, row.variant))
        if known is None or set(known.cpu_only) == set(known.platforms):
            found[row.version, row.variant] = row
    return list(found.values())


def judgement(findings: Sequence[Finding]) -> Judgement:
    """The worst finding decides, and says why."""
    outcome = summary(findings)
    if outcome is Outcome.POSSIBLE:
        return Judgement(answer="possible")
    worst = next(finding for finding in findings if finding.outcome is outcome)
    source = worst.values[0].source.reference if worst.values else ""
    return Judgement(answer=cast("Answer", outcome.answer), reason=worst.message, source=source)


def _release(framework: str, title: str, row: FrameworkRow, models: Mapping[str, str]) -> Release:
    asked = _requirement(framework, row)
    found = _cells_by_python(asked, row)
    base = Release(
        framework=framework,
        title=title,
        version=row.version,
        variant=row.variant,
        requirement=f"{row.distribution}=={row.version}",
        pythons=row.python,
        cuda=row.cuda,
        cudnn=row.cudnn,
        cards={},
        source=row.source.reference,
    )
    if not found:
        offered = any(choice.row is row for choice in choices(asked))
        reason = "its wheels for this CUDA are on no package index that cells are proposed from"
        if offered:
            reason = "no base on record has a Python and the CUDA that it needs"
        return replace(base, cards=dict.fromkeys(models, Judgement(answer="unknown", reason=reason)))
    choice, cell, findings = found[0]
    whole = judgement(findings)
    floors = (value.text for finding in check(cell, only=("driver",)) for value in finding.values)
    base = replace(base, requirement=choice.text, index=choice.index, driver=next(floors, None))
    if whole.answer != "possible":
        return replace(base, cards=dict.fromkeys(models, whole))
    return replace(
        base,
        cards={capability: _on_card(cell, model) for capability, model in models.items()},
        matrix=to_matrix_yaml([Proposal(cell=cell, findings=tuple(findings))], name=framework),
        bases={
            other.python: str(other.base)
            for _, other, _ in reversed(found)
            if (other.cuda, other.pip) == (cell.cuda, cell.pip)
        },
    )


def _on_card(cell: Cell, model: str) -> Judgement:
    """Only the card differs from a cell that is possible, so only the rules about cards are asked."""
    return judgement(check(replace(cell, gpus=(model,)), only=("gpu",)))


def _cells_by_python(asked: Requirement, row: FrameworkRow) -> list[tuple[Choice, Cell, tuple[Finding, ...]]]:
    """The first possible cell of each Python, those that a base has before standalone ones, and the newest
    Python first; else the first that was tried."""
    possible: dict[str, tuple[Choice, Cell, tuple[Finding, ...]]] = {}
    refused: list[tuple[Choice, Cell, tuple[Finding, ...]]] = []
    for choice in choices(asked):
        if choice.row is not row:
            continue
        for cell in choice.cells(()):
            if cell.python in possible or len(refused) == _CANDIDATES:
                continue
            findings = check(cell, suggest=False)
            if judgement(findings).answer == "possible":
                possible[cell.python] = (choice, cell, findings)
            else:
                refused.append((choice, cell, findings))
    found = sorted(possible.values(), key=lambda one: needs_standalone(one[1]))
    return found or refused[:1]


def _requirement(framework: str, row: FrameworkRow) -> Requirement:
    local = f"+{row.variant}" if framework == "torch" and not row.default else ""
    extra = f"[{row.extra}]" if framework == "jax" and row.extra else ""
    return Requirement(f"{row.distribution}{extra}=={row.version}{local}")
