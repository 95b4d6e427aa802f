"""A run as Markdown, for the page of a CI job."""

from __future__ import annotations

import html
import re
from typing import TYPE_CHECKING

from builder.console.case import Case, CaseStatus
from builder.console.terminal import human_seconds

if TYPE_CHECKING:
    from collections.abc import Sequence

LARGEST = 1 << 20
"""Bytes that one step may add to the page (GitHub Actions: "Adding a job summary", docs.github.com)."""

_MARK = {CaseStatus.PASSED: "✅", CaseStatus.FAILED: "❌", CaseStatus.ERROR: "❌", CaseStatus.SKIPPED: "⚠️"}
_ROOM = 4096
"""Bytes that are kept for the last line."""


def page(title: str, cases: Sequence[Case], *, largest: int = LARGEST) -> str:
    """A heading, a table of the cells, and below it why those that did not end well did not.

    What is about a cell's machine and not about its image is said to be so. Beyond ``largest`` bytes, reasons
    are left out and counted; then rows.
    """
    counts = {word: sum(case.word == word for case in cases) for word in dict.fromkeys(c.word for c in cases)}
    heading = [f"### {_inline(title)}", "", ", ".join(f"{n} {_inline(word)}" for word, n in counts.items())]
    columns = tuple(dict.fromkeys(name for case in cases for name, _ in case.facts))
    cells = ("cell", "", *columns, "time")
    blocks = ["\n".join([*heading, "", _row(cells), _row(["---"] * len(cells))])]
    blocks += [_row(_values(case, columns)) for case in cases]
    if any(case.status is CaseStatus.SKIPPED for case in cases):
        blocks.append(
            "\n⚠️ says nothing against an image, and nothing for it: the machine could not try it. "
            "Try again on another one."
        )
    blocks += [_details(case) for case in cases if case.text]
    return _fitting(blocks, largest)


def _values(case: Case, columns: Sequence[str]) -> list[str]:
    facts = dict(case.facts)
    found = [_code(case.name), f"{_MARK[case.status]} {_inline(case.word)}"]
    for name in columns:
        value = facts.get(name, "")
        found.append(_code(value[:19]) if value.startswith("sha256:") else _inline(value))
    return [*found, human_seconds(case.seconds)]


def _details(case: Case) -> str:
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", case.text)), default=0))
    summary = html.escape(f"{case.name}: {case.message or case.word}")
    return f"\n<details><summary>{summary}</summary>\n\n{fence}text\n{case.text}\n{fence}\n\n</details>"


def _fitting(blocks: Sequence[str], largest: int) -> str:
    kept: list[str] = []
    size = 0
    for number, block in enumerate(blocks):
        size += len(block.encode()) + 1
        if size > largest - _ROOM:
            left = len(blocks) - number
            kept.append(f"\n{left} more would not fit here: they are in the run's own record.")
            break
        kept.append(block)
    return "\n".join(kept) + "\n"


def _row(values: Sequence[str]) -> str:
    return f"| {' | '.join(values)} |"


def _code(text: str) -> str:
    return f"<code>{_inline(text)}</code>" if text else ""


def _inline(text: str) -> str:
    """Text that stays text in a cell of a table."""
    escaped = html.escape(" ".join(text.split()), quote=False)
    return re.sub(r"([\\|`*_\[\]])", r"\\\1", escaped)
