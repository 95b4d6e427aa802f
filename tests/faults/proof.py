"""On what each check of the probe was proven: a card, NVIDIA's and the frameworks' own files, or a double.

``proof.json`` has for each check and kind of proof a test in which it passed and one in which it failed. A
test that is named there fails if it saw something else; ``pytest --update-golden tests/faults`` adds to it.
What was proven on a card is read from ``tests/gpu/reports/``.
"""

from __future__ import annotations

import fcntl
import json
import re
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fault_scene import Outcome

ROOT = Path(__file__).resolve().parents[2]
TABLE = Path(__file__).with_name("proof.json")
REPORTS = ROOT / "tests" / "gpu" / "reports"
Proof = dict[str, dict[str, dict[str, str]]]


def read() -> Proof:
    return json.loads(TABLE.read_text() or "{}") if TABLE.exists() else {}


def seen(outcomes: Iterable[Outcome]) -> set[tuple[str, str, str]]:
    """(check, kind, outcome) of all checks that ran; where a double took part, all are a double's."""
    return {
        (check["id"], "double" if outcome.report["test_double"] else "real", check["outcome"])
        for outcome in outcomes
        if outcome.report
        for check in outcome.report.get("checks", ())
        if check["outcome"] != "not_run"
    }


def compare(test: str, outcomes: Iterable[Outcome], *, update: bool) -> None:
    """Fail the test if the table names it for what it did not see."""
    found = seen(outcomes)
    if update:
        _add(test, found)
    table = read()
    lost = {
        (check, kind, outcome)
        for check, kinds in table.items()
        for kind, witnesses in kinds.items()
        for outcome, witness in witnesses.items()
        if witness == test and (check, kind, outcome) not in found
    }
    if lost:
        hint = "`pytest --update-golden` on this test takes that out"
        pytest.fail(f"tests/faults/proof.json has {sorted(lost)} of this test; {hint}")


def _add(test: str, found: set[tuple[str, str, str]]) -> None:
    with TABLE.open("a") as lock:  # several processes may run the tests
        fcntl.flock(lock, fcntl.LOCK_EX)
        table = read()
        for kinds in table.values():
            for kind, witnesses in kinds.items():
                kinds[kind] = {outcome: witness for outcome, witness in witnesses.items() if witness != test}
        for check, kind, outcome in found:
            table.setdefault(check, {}).setdefault(kind, {}).setdefault(outcome, test)
        kept = {
            check: {kind: dict(sorted(rows.items())) for kind, rows in sorted(kinds.items()) if rows}
            for check, kinds in sorted(table.items())
        }
        TABLE.write_text(json.dumps(kept, indent=1) + "\n")


def on_cards(folder: Path = REPORTS) -> dict[str, dict[str, set[str]]]:
    """{check: {outcome: cards}} out of the rows of the reports that came out as expected."""
    found: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for path in sorted(folder.glob("*.json")):
        report = json.loads(path.read_text())
        for row in report["rows"]:
            if row["found"] == row["expected"]:
                for _, check, outcome, _ in row["checks"]:
                    if outcome != "not_run":
                        found[check][outcome].add(report["gpu"]["name"])
    return found


def checks() -> list[str]:
    """All checks that the probe's sources name."""
    sources = "".join(
        path.read_text() for path in (ROOT / "builder" / "verify" / "cudnn_verify").rglob("*.py")
    )
    return sorted(set(re.findall(r'"([CDEFHPRX]\d\d)"', sources)))


def table(reports: Path = REPORTS) -> str:
    """The table in ``docs/probe.md``."""
    known, cards = read(), on_cards(reports)
    lines = ["| check | on a card | in real files | with doubles |", "|---|---|---|---|"]
    for check in checks():
        kinds = known.get(check, {})
        cells = [_words(set(kinds.get(kind, {}))) for kind in ("real", "double")]
        names = sorted({name for names in cards.get(check, {}).values() for name in names})
        hardware = f"{_words(set(cards[check]))}: {', '.join(names)}" if names else "—"
        lines.append(f"| {check} | {hardware} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _words(outcomes: set[str]) -> str:
    order = (("passed", "passes"), ("failed", "fails"))
    return " and ".join(word for outcome, word in order if outcome in outcomes) or "—"
