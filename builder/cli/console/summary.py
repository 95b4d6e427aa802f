"""The text about a finished cell and about a finished run."""

import textwrap
from collections.abc import Sequence

from builder.cli.console.terminal import Terminal, counted, human_bytes, human_seconds
from builder.core.documents import harmless
from builder.core.errors import CommandError, MatrixError, RtbuildError
from builder.pipeline import CellOutcome, CellResult

MARKS = {
    CellOutcome.DONE: ("✓", "32", "done"),
    CellOutcome.WORKS: ("✓", "32", "works"),
    CellOutcome.UNVERIFIED: ("!", "33;1", "UNVERIFIED"),
    CellOutcome.FAILED: ("✗", "31;1", "FAILED"),
    CellOutcome.HOST: ("!", "33;1", "not verified: the machine"),
    CellOutcome.PUBLISHED: ("✓", "32", "published"),
    CellOutcome.REFUSED: ("✗", "31;1", "REFUSED"),
    CellOutcome.CANCELLED: ("⊘", "33", "cancelled"),
}


def result_line(result: CellResult, terminal: Terminal) -> str:
    """``✓ works  rtbuild/tf:…  5.6 GB in the engine  in 3 min 05 s``; without an engine, unpacked."""
    symbol, color, word = MARKS[result.outcome]
    parts = [terminal.style(f"{symbol} {word}", color)]
    if result.outcome is CellOutcome.FAILED:
        parts.append(f"at {result.stage}")
    if result.image is not None:
        where = "in the engine" if result.image.reference else "unpacked"
        parts += [result.image.reference, f"{human_bytes(result.image.size)} {where}"]
        if result.image.reused:
            parts.append("there already")
    parts.append(f"in {human_seconds(sum(result.seconds.values()))}")
    return "  ".join(parts)


def error_text(error: RtbuildError) -> str:
    """An error in three parts: the event, the evidence, the remedy."""
    if isinstance(error, MatrixError):
        return harmless(error.message)
    parts = [f"error: {error.message}"]
    if isinstance(error, CommandError):
        if error.tail:
            parts.append(textwrap.indent("\n".join(error.tail), "    "))
        parts.append(f"  + {' '.join(error.command)}")
        parts.append(f"  exit status {error.returncode}" + (f", full log: {error.log}" if error.log else ""))
    if error.hint is not None:
        parts.append(f"hint: {error.hint}")
    return harmless("\n".join(parts))


def failure_text(result: CellResult) -> str:
    """Why the cell failed: its error, or the probe's finding. Empty if it succeeded."""
    if result.error is not None:
        return textwrap.indent(error_text(result.error), "  ")
    report = result.report
    if report is None or result.outcome in (CellOutcome.WORKS, CellOutcome.DONE):
        return ""
    lines = [f"verdict: {report.verdict}" + (f", cause: {report.cause}" if report.cause else "")]
    lines += [text for text in (report.summary, report.remedy) if text]
    lines += [f"asked for {d.what} {d.asked}, found {d.found}" for d in report.differences]
    return textwrap.indent(harmless("\n".join(dict.fromkeys(lines))), "  ")


def run_summary(results: Sequence[CellResult], terminal: Terminal) -> str:
    """The closing lines of a run: a count for each outcome, and a warning about unverified cells."""
    counts = {outcome: sum(r.outcome is outcome for r in results) for outcome in CellOutcome}
    words = [f"{count} {MARKS[outcome][2]}" for outcome, count in counts.items() if count]
    lines = [f"{counted(results, 'cell')}: " + ", ".join(words)]
    unverified = [result for result in results if result.outcome is CellOutcome.UNVERIFIED]
    if unverified:
        probed = any(result.report is not None for result in unverified)
        why = "no GPU on this machine, so no convolution ran." if probed else "no image was run here."
        lines.append(terminal.style(f"UNVERIFIED: {why} Nothing here may be called known to work.", "33;1"))
        pushed = next((one.image.pushed for one in unverified if one.image and one.image.pushed), None)
        if not probed and pushed:
            lines.append(f"next, on a machine with a GPU: rtbuild verify --from {pushed.partition('@')[0]}")
    return "\n".join(lines)
