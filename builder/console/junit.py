"""A run as JUnit XML: what GitLab, Jenkins and most other CI systems read (``docs/junit.xsd``)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

from builder.console.case import Case, CaseStatus

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that no XML document may hold, not even escaped (https://www.w3.org/TR/xml/#charsets)."""

_TAG = {CaseStatus.FAILED: "failure", CaseStatus.ERROR: "error", CaseStatus.SKIPPED: "skipped"}


def junit_xml(cases: Sequence[Case], *, command: str, started: datetime) -> bytes:
    """The document: a suite for each matrix, a test case for each cell. Times are in seconds."""
    root = ET.Element("testsuites", {"name": _clean(command), **_counts(cases)})
    for suite in dict.fromkeys(case.suite for case in cases):
        inside = [case for case in cases if case.suite == suite]
        head = {
            "name": _clean(suite),
            "timestamp": started.replace(tzinfo=None).isoformat(timespec="seconds"),
        }
        # Jenkins' schema knows this one on a suite only.
        skipped = {"skipped": str(sum(case.status is CaseStatus.SKIPPED for case in inside))}
        element = ET.SubElement(root, "testsuite", head | _counts(inside) | skipped)
        for case in inside:
            _add(element, case)
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


def _add(suite: ET.Element, case: Case) -> None:
    element = ET.SubElement(
        suite,
        "testcase",
        name=_clean(case.name),
        classname=_clean(f"rtbuild.{case.suite}"),
        time=f"{case.seconds:.2f}",
    )
    if case.status is not CaseStatus.PASSED:
        said = ET.SubElement(element, _TAG[case.status], type=_clean(case.kind or case.word))
        said.set("message", _clean(case.message or case.word))
        said.text = _clean(case.text)
    if case.facts:
        lines = "\n".join(f"{name}: {value}" for name, value in case.facts)
        ET.SubElement(element, "system-out").text = _clean(lines)


def _clean(text: str) -> str:
    return _FORBIDDEN.sub("\N{REPLACEMENT CHARACTER}", text)
