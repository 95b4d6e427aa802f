"""Distributions that write the same files, and which of them an image keeps."""

import re
from collections.abc import Iterator

from builder.core.versions import canonical, holds, major, requirement
from builder.plan.facts.rules.finding import Finding, Outcome, Value
from builder.plan.facts.rules.image_contents import Stack
from builder.plan.facts.tables import SameFilesRow, load


def same_files(stack: Stack) -> Iterator[Finding]:
    """``same-files``: no two distributions write the same files; their order decides which stays."""
    listed = stack.cell.dependencies == "listed"
    there = distributions(stack)
    for row, meeting, keep in one_of_each(stack):
        said = " and ".join(f"{name} ({there[name]})" if there[name] else name for name in meeting)
        reason = f"{said} write the same files ({row.file}): an image has one of them"
        yield Finding(
            Outcome.WARNS if listed else Outcome.IMPOSSIBLE,
            f"{reason}. Keep {keep}: {row.reason}",
            tuple(Value("distribution", name, row.source) for name in meeting),
        )


def one_of_each(stack: Stack) -> Iterator[tuple[SameFilesRow, list[str], str]]:
    """(row, distributions of it that meet in the image, the one to keep) where several do."""
    there = distributions(stack)
    for row in load().same_files:
        meeting = [name for name in row.names if name in there]
        if len(meeting) < 2:
            continue
        torch = next((f for f in stack.frameworks if f.cuda is not None), None)
        number = str(major(torch.cuda.text)) if torch is not None and torch.cuda is not None else ""
        keep = next(
            (name for name in meeting if number and re.search(rf"-cu(?:da)?{number}", name)), meeting[0]
        )
        yield row, meeting, keep


def distributions(stack: Stack) -> dict[str, str]:
    """Names of everything that is installed, as far as it is known, and who wants it if not the cell."""
    if stack.truth.locked:
        return dict.fromkeys((wheel.name for wheel in stack.truth.wheels), "")
    cell = stack.cell
    every = (*cell.frameworks, *cell.pip, *cell.cuda.packages)
    found = {canonical(parsed.name): "" for parsed in map(requirement, every) if parsed is not None}
    for framework in stack.frameworks:
        for parsed, _ in framework.pins:
            found.setdefault(canonical(parsed.name), f"{framework.label} wants it")
    for one in stack.beside:
        who = next((who for who, _ in one.wanted if who != "the cell"), "")
        found.setdefault(one.name, f"{who} wants it" if who else "")
        lines = (*one.row.requires, *one.row.extras.get("", ())) if one.row is not None else ()
        for parsed in filter(None, map(requirement, lines)):
            if holds(parsed, stack.markers):
                found.setdefault(canonical(parsed.name), f"{one.name} {one.version} wants it")
    return found
