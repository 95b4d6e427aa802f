"""Which commands the probe prints for which fault made of doubles, to hold each kind against the tried ones.

``remedies.json`` has for each such fault that ends in commands its cause and their forms; the test of a fault
fails if it saw others, and ``pytest --update-golden tests/faults/test_faults_quick.py`` writes them anew.
"""

from __future__ import annotations

import fcntl
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fault_scene import Outcome

TABLE = Path(__file__).with_name("remedies.json")
Remedies = dict[str, dict[str, Any]]
_FAULT = re.compile(r"test_fault_gets_its_cause\[(.+)\]")


def read() -> Remedies:
    return json.loads(TABLE.read_text() or "{}") if TABLE.exists() else {}


def form(where: str, text: str) -> str:
    """A command without the versions, paths and names that differ from machine to machine."""
    text = re.sub(r"/[^\s'\";&|)$]*/", "/…/", text)
    text = re.sub(r"-cu1\d", "-cuNN", text)
    text = re.sub(r"(==|>=|<=|<|>)[\d][\w.*]*", r"\1V", text)
    return f"[{where}] {text}"


def compare(test: str, outcomes: Sequence[Outcome], *, update: bool) -> None:
    """Fail the test of a fault whose commands are not those of the table."""
    named = _FAULT.fullmatch(test)
    if named is None:
        return
    report = outcomes[0].report
    forms = list(dict.fromkeys(form(c["where"], c["text"]) for c in report.get("commands") or ()))
    found = {"cause": report.get("cause"), "commands": forms} if forms else None
    if update:
        _write(named[1], found)
    elif read().get(named[1]) != found:
        pytest.fail(f"tests/faults/remedies.json has not {found} for {named[1]}: `pytest --update-golden`")


def _write(name: str, found: dict[str, Any] | None) -> None:
    with TABLE.open("a") as lock:  # several processes may run the tests
        fcntl.flock(lock, fcntl.LOCK_EX)
        table = read()
        table.pop(name, None)
        if found is not None:
            table[name] = found
        TABLE.write_text(json.dumps(dict(sorted(table.items())), indent=1, ensure_ascii=False) + "\n")
