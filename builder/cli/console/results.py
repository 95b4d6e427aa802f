"""The results of a run as text: for people, and for CI systems as JUnit XML and as Markdown for a job's page.

JUnit XML is read by GitLab, Jenkins and most other CI systems (``docs/junit.xsd``); each cell is a test case.
"""

import enum
import html
import os
import re
import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import accumulate
from pathlib import Path

from builder.cli.console.terminal import Terminal, counted, human_bytes, human_seconds
from builder.core.documents import harmless
from builder.core.errors import CommandError, MatrixError, RtbuildError
from builder.core.files import write_whole
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


class CaseStatus(enum.StrEnum):
    """How a case ended; the value is JUnit's element for it."""

    PASSED = "passed"
    FAILED = "failure"
    """The image is at fault."""
    ERROR = "error"
    """The check itself could not run."""
    SKIPPED = "skipped"
    """Nothing is known for or against the image."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """One cell in one run."""

    suite: str
    """The matrix."""
    name: str
    status: CaseStatus
    word: str
    """The result as shown in the table: ``works``, ``not verified: the machine``."""
    seconds: float = 0.0
    kind: str = ""
    """The cause of a verdict, or the class of an error."""
    message: str = ""
    """One line."""
    text: str = ""
    facts: Mapping[str, str] = field(default_factory=dict)
    """Further columns of the table."""


_STATUS = {
    CellOutcome.DONE: CaseStatus.PASSED,
    CellOutcome.WORKS: CaseStatus.PASSED,
    CellOutcome.FAILED: CaseStatus.FAILED,
}


def case_of(result: CellResult) -> Case:
    """The case of a cell in a run."""
    status, word = _STATUS.get(result.outcome, CaseStatus.SKIPPED), MARKS[result.outcome][2]
    if result.outcome is CellOutcome.FAILED and result.report is None:
        status, word = CaseStatus.ERROR, f"FAILED at {result.stage}"
    elif result.outcome is CellOutcome.UNVERIFIED:
        word += ": no GPU"
    kind = message = ""
    if result.error is not None:
        kind, message = type(result.error).__name__, result.error.message
    elif result.report is not None:
        verdict = result.report.verdict.value
        kind = result.report.cause or verdict
        message = f"{verdict}: {result.report.summary}" if result.report.summary else verdict
    return Case(
        suite=result.cell.matrix,
        name=result.cell.id,
        status=status,
        word=word,
        seconds=sum(result.seconds.values()),
        kind=kind,
        message=message.partition("\n")[0],
        text=failure_text(result),
        facts=_facts(result),
    )


def _facts(result: CellResult) -> dict[str, str]:
    found: dict[str, str] = {}
    if result.report is not None:
        document = result.report.document
        found["GPU"] = ", ".join(str(gpu.get("name")) for gpu in document.get("gpus") or ()) or "none"
        found["driver"] = str((document.get("driver") or {}).get("version") or "none")
        loaded = [(row.get("loaded") or {}).get("cudnn") for row in document.get("frameworks") or ()]
        found["cuDNN"] = ", ".join(sorted({str(version) for version in loaded if version})) or "none"
    if result.image is not None:
        found["digest"] = result.image.manifest
    return found


LARGEST = 1 << 20
"""Bytes that one step may add to the page (GitHub Actions: "Adding a job summary", docs.github.com)."""

_MARK = {CaseStatus.PASSED: "✅", CaseStatus.FAILED: "❌", CaseStatus.ERROR: "❌", CaseStatus.SKIPPED: "⚠️"}
_ROOM = 4096
"""Bytes that are kept for the last line."""
_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that no XML document may hold, not even escaped (https://www.w3.org/TR/xml/#charsets)."""


def write_job_files(
    cases: Sequence[Case], terminal: Terminal, results: Path, *, command: str, started: datetime
) -> None:
    """Write ``junit.xml`` into ``results``, and the job's page if there is one; else only a warning says so.

    Each run overwrites the file, because CI systems look for one name. ``GITHUB_STEP_SUMMARY`` names the file
    to which a step of GitHub Actions adds Markdown for its job's page.
    """
    try:
        write_whole(results / "junit.xml", junit_xml(cases, command=command, started=started))
        if summary := os.environ.get("GITHUB_STEP_SUMMARY"):
            with Path(summary).open("a", encoding="utf-8") as file:
                file.write(page(command, cases) + "\n")
    except OSError as error:
        terminal.say(f"warning: no report for the job's page: {error}")


def junit_xml(cases: Sequence[Case], *, command: str, started: datetime) -> bytes:
    """The document: a suite for each matrix, a test case for each cell. Times are in seconds."""
    from xml.etree import ElementTree as ET  # an error's text needs no XML

    root = ET.Element("testsuites", {"name": _clean(command), **_counts(cases)})
    for suite in dict.fromkeys(case.suite for case in cases):
        inside = [case for case in cases if case.suite == suite]
        at = started.replace(tzinfo=None).isoformat(timespec="seconds")
        element = ET.SubElement(
            root, "testsuite", {"name": _clean(suite), "timestamp": at, **_counts(inside)}
        )
        # Jenkins' schema knows this one on a suite only.
        element.set("skipped", str(sum(case.status is CaseStatus.SKIPPED for case in inside)))
        for case in inside:
            name = {"name": _clean(case.name), "classname": _clean(f"rtbuild.{case.suite}")}
            test = ET.SubElement(element, "testcase", name, time=f"{case.seconds:.2f}")
            if case.status is not CaseStatus.PASSED:
                said = {"type": _clean(case.kind or case.word), "message": _clean(case.message or case.word)}
                ET.SubElement(test, case.status.value, said).text = _clean(case.text)
            if case.facts:
                lines = (f"{name}: {value}" for name, value in case.facts.items())
                ET.SubElement(test, "system-out").text = _clean("\n".join(lines))
    ET.indent(root)
    text = ET.tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{text}\n'.encode()


def _counts(cases: Sequence[Case]) -> dict[str, str]:
    return {
        "tests": str(len(cases)),
        "failures": str(sum(case.status is CaseStatus.FAILED for case in cases)),
        "errors": str(sum(case.status is CaseStatus.ERROR for case in cases)),
        "time": f"{sum(case.seconds for case in cases):.2f}",
    }


def _clean(text: str) -> str:
    return _FORBIDDEN.sub("\N{REPLACEMENT CHARACTER}", text)


def page(title: str, cases: Sequence[Case], *, largest: int = LARGEST) -> str:
    """A heading, a table of the cells, and the reason of each cell that did not succeed.

    Beyond ``largest`` bytes, reasons are left out and counted; then rows.
    """
    counts = Counter(case.word for case in cases)
    heading = [f"### {_inline(title)}", "", ", ".join(f"{n} {_inline(word)}" for word, n in counts.items())]
    columns = tuple(dict.fromkeys(name for case in cases for name in case.facts))
    cells = ("cell", "", *columns, "time")
    blocks = ["\n".join([*heading, "", _row(cells), _row(["---"] * len(cells))])]
    blocks += [_row(_values(case, columns)) for case in cases]
    if any(case.status is CaseStatus.SKIPPED for case in cases):
        blocks.append(
            "\n⚠️ says nothing against an image, and nothing for it: the machine could not try it. "
            "Try again on another one."
        )
    blocks += [_details(case) for case in cases if case.text]
    sizes = accumulate(len(block.encode()) + 1 for block in blocks)
    kept = [block for block, size in zip(blocks, sizes, strict=True) if size <= largest - _ROOM]
    if left := len(blocks) - len(kept):
        kept.append(f"\n{left} more would not fit here: they are in the run's own record.")
    return "\n".join(kept) + "\n"


def _values(case: Case, columns: Sequence[str]) -> list[str]:
    found = [_code(case.name), f"{_MARK[case.status]} {_inline(case.word)}"]
    for name in columns:
        value = case.facts.get(name, "")
        found.append(_code(value[:19]) if value.startswith("sha256:") else _inline(value))
    return [*found, human_seconds(case.seconds)]


def _details(case: Case) -> str:
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", case.text)), default=0))
    summary = html.escape(f"{case.name}: {case.message or case.word}")
    return f"\n<details><summary>{summary}</summary>\n\n{fence}text\n{case.text}\n{fence}\n\n</details>"


def _row(values: Sequence[str]) -> str:
    return f"| {' | '.join(values)} |"


def _code(text: str) -> str:
    return f"<code>{_inline(text)}</code>" if text else ""


def _inline(text: str) -> str:
    """Text that stays text in a cell of a table."""
    escaped = html.escape(" ".join(text.split()), quote=False)
    return re.sub(r"([\\|`*_\[\]])", r"\\\1", escaped)
