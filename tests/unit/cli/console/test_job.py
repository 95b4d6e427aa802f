"""What a CI system reads of a run: JUnit by its schema, and a page that nothing in a run can break."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import pytest
import xmlschema

from builder.cli.console.results import Case, CaseStatus, case_of, junit_xml, page, write_job_files
from builder.cli.console.terminal import Terminal
from builder.core.errors import CellError
from builder.core.model import Base, Cell, Cuda, Image, Report, Verdict
from builder.pipeline.events import CellOutcome, CellResult, Stage

if TYPE_CHECKING:
    from tests.conftest import Golden

SCHEMA = xmlschema.XMLSchema(str(Path(__file__).resolve().parents[4] / "docs" / "junit.xsd"))
PLAIN = Terminal(progress="plain", color=False, github=False)
STARTED = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
CELL = Cell(
    id="torch2.4.1-py3.11-bookworm",
    matrix="torch",
    frameworks=("torch==2.4.1",),
    python="3.11",
    base=Base(kind="rootfs", name="debian/bookworm"),
    cuda=Cuda(provider="wheels"),
)
IMAGE = Image(
    cell=CELL,
    reference="registry.example.invalid/staging@sha256:" + "a" * 64,
    digest="sha256:" + "b" * 64,
    content="sha256:" + "c" * 64,
    size=5_600_000_000,
    pushed="registry.example.invalid/staging@sha256:" + "a" * 64,
)


def report(verdict: Verdict, summary: str, cause: str | None = None) -> Report:
    return Report(
        image=IMAGE.content,
        digest=IMAGE.manifest,
        verdict=verdict,
        cause=cause,
        differences=(),
        summary=summary,
        document={
            "gpus": [{"name": "Tesla T4", "compute_capability": "7.5"}],
            "driver": {"version": "535.104.05"},
            "frameworks": [{"name": "torch", "loaded": {"cudnn": "9.1.0"}}],
        },
    )


def result(name: str, outcome: CellOutcome, stage: Stage = Stage.VERIFY, **more: object) -> CellResult:
    cell = dataclasses.replace(CELL, id=name)
    return CellResult(cell=cell, outcome=outcome, stage=stage, seconds={stage: 4.2}, **more)  # type: ignore[arg-type]


SHADOWED = report(Verdict.BROKEN, "two copies of cuDNN | are <here>", "cudnn-shadowed")
TAKEN = report(Verdict.BUSY, "the memory is taken", "gpu-memory-taken")
UNBUILT = CellError("step 3 failed\nat once", hint="read ```it```")
RESULTS = [
    result("good", CellOutcome.WORKS, image=IMAGE, report=report(Verdict.WORKS, "all convolutions ran")),
    result("bad", CellOutcome.FAILED, image=IMAGE, report=SHADOWED),
    result("unbuilt", CellOutcome.FAILED, Stage.BUILD, error=UNBUILT),
    result("busy", CellOutcome.HOST, image=IMAGE, report=TAKEN),
    result("blind", CellOutcome.UNVERIFIED, image=IMAGE, report=report(Verdict.UNVERIFIED, "no GPU here")),
    result("stopped", CellOutcome.CANCELLED, Stage.BUILD),
]
CASES = [case_of(result) for result in RESULTS]


def test_junit_is_what_its_schema_says(golden: Golden) -> None:
    document = junit_xml(CASES, command="rtbuild verify torch.yaml", started=STARTED)
    SCHEMA.validate(document.decode())
    golden("console/junit.xml", document)


def test_the_machines_fault_is_not_the_images() -> None:
    root = ET.fromstring(junit_xml(CASES, command="rtbuild", started=STARTED))
    found = {case.get("name"): [part.tag for part in case][:1] for case in root.iter("testcase")}
    assert found == {
        "good": ["system-out"],
        "bad": ["failure"],
        "unbuilt": ["error"],
        "busy": ["skipped"],
        "blind": ["skipped"],
        "stopped": ["skipped"],
    }
    suite = root.find("testsuite")
    assert suite is not None
    assert [suite.get(name) for name in ("tests", "failures", "errors", "skipped")] == ["6", "1", "1", "3"]


def test_the_page(golden: Golden) -> None:
    golden("console/page.md", page("rtbuild verify torch.yaml", CASES))


def test_no_text_breaks_out_of_its_place() -> None:
    evil = "a|b `c` </details><img src=x>\x1b[31m\x00\n```\n| # ![x](y) |"
    case = Case(
        suite="s",
        name=evil,
        status=CaseStatus.FAILED,
        word=evil,
        message=evil,
        text=evil,
        facts={"GPU": evil},
    )
    SCHEMA.validate(junit_xml([case], command=evil, started=STARTED).decode())
    text = page(evil, [case])
    row = next(line for line in text.splitlines() if line.startswith("| <code>"))
    assert row.count(" | ") == 3
    assert "<img" not in text.split("````text")[0]
    assert text.count("````") == 2, "the fence is longer than any inside"


def test_a_page_has_a_limit_and_says_what_it_left_out() -> None:
    cases = [
        Case(suite="s", name=f"cell{n}", status=CaseStatus.FAILED, word="FAILED", text="x" * 5000)
        for n in range(99)
    ]
    text = page("rtbuild build", cases, largest=100_000)
    assert len(text.encode()) < 100_000
    assert "more would not fit here" in text
    assert "<code>cell98</code>" in text, "rows come before reasons"


def test_files_are_put_where_ci_looks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    summary = tmp_path / "summary.md"
    summary.write_text("before\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    for _ in range(2):
        write_job_files(CASES, PLAIN, tmp_path / "results", command="rtbuild verify", started=STARTED)
    assert [file.name for file in (tmp_path / "results").iterdir()] == ["junit.xml"]
    SCHEMA.validate(str(tmp_path / "results" / "junit.xml"))
    assert summary.read_text().startswith("before\n### rtbuild verify\n")
    assert summary.read_text().count("### ") == 2


def test_without_a_job_there_is_no_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    write_job_files([], PLAIN, tmp_path, command="x", started=STARTED)
    SCHEMA.validate(str(tmp_path / "junit.xml"))
    assert capsys.readouterr().err == ""
    write_job_files([], PLAIN, tmp_path / "junit.xml", command="x", started=STARTED)
    assert capsys.readouterr().err.startswith("warning: no report for the job's page: ")
