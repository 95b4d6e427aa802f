"""``docs/verdicts.md`` says what the code does."""

from __future__ import annotations

import re
from pathlib import Path

from builder.verify.runner.probe_run import _FAULTS
from builder.verify.runner.reports import EXIT_CODES

PAGE = (Path(__file__).resolve().parents[4] / "docs" / "verdicts.md").read_text("utf-8")


def test_the_table_of_verdicts() -> None:
    rows = re.findall(r"^\| `([a-z-]+)` \| .* \| (\d+) \|$", PAGE, re.MULTILINE)
    assert [(verdict, int(code)) for verdict, code in rows] == list(EXIT_CODES.items())


def test_the_table_of_the_engine_s_words() -> None:
    rows = re.findall(r"^\| (`.*`) \| `([a-z-]+)` \| [^|]+ \|$", PAGE, re.MULTILINE)
    assert rows
    found = set()
    for words, cause in rows:
        for text in re.findall(r"`([^`]+)`", words):
            said = text.replace("…", "12.4")
            known = next(fault for fault in _FAULTS if re.search(fault.said, said, re.IGNORECASE))
            assert known.cause == cause, text
            found.add(known)
    assert found == set(_FAULTS)
