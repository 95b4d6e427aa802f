"""A publication as text and as test cases for CI: one result per cell."""

from collections.abc import Sequence

from builder.console.job import Case, CaseStatus
from builder.console.terminal import Terminal, counted
from builder.publish.publication import Publication

_WORDS = {
    "published": "published",
    "unchanged": "there already, nothing changed",
    "planned": "would be published",
    "refused": "REFUSED",
    "failed": "FAILED",
    "cancelled": "cancelled",
}


def cases(rows: Sequence[Publication]) -> list[Case]:
    """The cells as test cases for CI: a refused cell is a failed case."""
    status = {
        "published": CaseStatus.PASSED,
        "unchanged": CaseStatus.PASSED,
        "cancelled": CaseStatus.SKIPPED,
        "failed": CaseStatus.ERROR,  # the registry, or cosign: the gate has said nothing against it
    }
    return [
        Case(
            suite=row.cell.matrix,
            name=row.cell.id,
            status=status.get(row.state, CaseStatus.FAILED),
            word=_WORDS[row.state],
            seconds=row.seconds,
            kind=row.refusals[0].kind if row.refusals else type(row.error).__name__ if row.error else "",
            message=(row.refusals[0].text if row.refusals else row.error.message if row.error else ""),
            text="\n".join([*_against(row), *_failures(row, dry_run=False)]),
            facts=_facts(row),
        )
        for row in rows
    ]


def _facts(row: Publication) -> tuple[tuple[str, str], ...]:
    if row.found is None or row.decision is None:
        return ()
    names = ", ".join(step.tag.name for step in row.steps)
    return (
        ("GPUs", ", ".join(row.decision.claims) or "none"),
        ("tags", names or "none"),
        ("digest", row.found.staged.digest),
    )


def _against(row: Publication) -> list[str]:
    """The reasons why a cell is not published, each with its hint."""
    lines = [
        f"REFUSED: {refusal.text} ({refusal.kind})" + (f"\n  hint: {refusal.hint}" if refusal.hint else "")
        for refusal in row.refusals
    ]
    if row.error is not None:
        lines.append(
            f"FAILED: {row.error.message}" + (f"\n  hint: {row.error.hint}" if row.error.hint else "")
        )
    return lines


def _failures(row: Publication, *, dry_run: bool) -> list[str]:
    """Failed verifications attached to public images of a cell, and the tags that still point there."""
    lines: list[str] = []
    for found in row.failures:
        if found.there:
            word = "was there, and is signed now" if found.new else "is there already"
        elif dry_run:
            word = "would be attached"
        else:
            word = "is attached" if found.attached is not None else "could not be attached"
        lines.append(f"{row.cell.id}: a FAILED verification of a public image {word}")
        lines += [f"  {row.target}@{found.image.digest}", f"    {found.failure.text}"]
        if found.tags:
            lines.append(f"    still on it, until a digest that works is published: {', '.join(found.tags)}")
    return lines


def summary(rows: Sequence[Publication], terminal: Terminal, *, signed: bool, dry_run: bool) -> str:
    """Digest, claims and tags of each published cell, the counts, and a warning if nothing is signed."""
    lines: list[str] = []
    for row in rows if terminal.progress == "none" else ():  # else it was said when the cell ended
        lines += [f"{row.cell.id}: {text}" for text in _against(row)]
    for row in rows:
        wanted = row.state in ("published", "unchanged", "planned")
        if not wanted or row.found is None or row.decision is None:
            continue
        lines.append(f"{row.cell.id}: {_WORDS[row.state]}")
        lines.append(f"  {row.target}@{row.found.staged.digest}")
        lines.append(f"  known to work on {', '.join(row.decision.claims)}")
        machines = {
            (", ".join(name for name, _ in entry.key.gpus), entry.key.driver or "?", f"{entry.verified:%F}")
            for entry in row.decision.counted
        }
        lines += [f"    {gpus}, driver {driver}, {day}" for gpus, driver, day in sorted(machines)]
        if row.decision.exempt:
            lines.append(f"  not claimed: {', '.join(row.decision.exempt)}")
        for step in row.steps:
            was = f" (was {step.was[:19]}…)" if step.was and step.action == "move" else ""
            lines.append(f"  {step.action:5} {row.target}:{step.tag.name}{was}")
    for row in rows:
        lines += _failures(row, dry_run=dry_run)
    counts = {state: sum(row.state == state for row in rows) for state in _WORDS}
    words = ", ".join(f"{count} {_WORDS[state]}" for state, count in counts.items() if count)
    lines.append(f"{counted(rows, 'cell')}: {words}")
    said = any(not found.there for row in rows for found in row.failures)
    if (counts["published"] + counts["planned"] or said) and not signed:
        verb = "would be" if dry_run else "is"
        warning = (
            f"NOT SIGNED: the evidence {verb} published without a signature. Sign it with --key or --keyless."
        )
        lines.append(terminal.style(warning, "33;1"))
    return "\n".join(lines)
