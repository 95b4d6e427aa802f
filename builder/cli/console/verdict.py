"""The verdict of the rules on one cell, as text for people."""

from collections.abc import Sequence

from builder.core.model import Cell
from builder.plan.facts.reading import system_of
from builder.plan.facts.rules import Finding, Outcome


def verdict_text(cell: Cell, found: Sequence[Finding]) -> str:
    """The answer, what the cell is, what each rule says of it with its sources, the nearest possible cell."""
    lines = [
        f"{cell.id}: {_WORDS[Outcome.of(found)][0]}",
        "",
        f"  frameworks  {', '.join(cell.frameworks)}",
        f"  python      {_python(cell)}",
        f"  base        {cell.base}",
        f"  cuda        {', '.join((cell.cuda.provider, *cell.cuda.packages))}",
    ]
    if cell.gpus:
        lines.append(f"  gpus        {', '.join(cell.gpus)}")
    for outcome, (_, heading) in _WORDS.items():
        group = [finding for finding in found if finding.outcome is outcome]
        lines += ["", heading] if group else []
        for finding in group:
            lines.append(f"  {finding.rule}: {finding.message}")
            lines += [f"      {value.what}: {value.text}  [{value.source}]" for value in finding.values]
    way_out = next((finding.nearest for finding in found if finding.nearest is not None), None)
    if way_out is not None:
        lines += ["", f"The nearest possible cell ({way_out}):", way_out.yaml.rstrip()]
    return "\n".join(lines) + "\n"


_WORDS = {
    Outcome.IMPOSSIBLE: ("impossible", "Refused because:"),
    Outcome.UNKNOWN: ("unknown", "Not known:"),
    Outcome.WARNS: ("possible, with a reservation", "Mind:"),
    Outcome.POSSIBLE: ("possible: nothing speaks against it", "Checked:"),
}
"""For a whole cell, and above the findings; the worst first."""


def _python(cell: Cell) -> str:
    """``3.12, standalone (Debian bookworm has 3.11)``; the version alone if it is the base's own."""
    system = system_of(cell)
    if cell.has_own_python(system):
        return cell.python
    there = f" ({system.name} has {', '.join(system.python)})" if system is not None else ""
    return f"{cell.named_python}, standalone{there}"
