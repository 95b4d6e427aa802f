"""The document of a run: its schema holds, and it is written whole or not at all."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import jsonschema

from builder.core.errors import CommandError
from builder.core.model import Base, Cell, Cuda, Difference, Image, Report, Verdict
from builder.pipeline.events import CellOutcome, CellResult, Stage, run_document, write_record

SCHEMA = json.loads((Path(__file__).resolve().parents[3] / "docs" / "run.schema.json").read_text())
CELL = Cell(
    id="tensorflow2.8.4-py3.9-bullseye",
    matrix="tf28",
    frameworks=("tensorflow==2.8.4",),
    python="3.9",
    base=Base(kind="rootfs", name="debian/bullseye"),
    cuda=Cuda(provider="wheels"),
)
IMAGE = Image(
    cell=CELL, reference="rtbuild/tf28:x", digest="sha256:" + "a" * 64, content="sha256:" + "b" * 64, size=5
)
REPORT = Report(
    image=IMAGE.content,
    digest=IMAGE.digest,
    verdict=Verdict.BROKEN,
    cause="expect-mismatch",
    differences=(Difference(what="cudnn", asked="8.6.0", found="8.4.0"),),
    document={"schema": 1, "verdict": "works"},
    summary="cuDNN differs",
)
RESULTS = [
    CellResult(cell=CELL, outcome=CellOutcome.FAILED, stage=Stage.VERIFY, image=IMAGE, report=REPORT),
    CellResult(
        cell=CELL,
        outcome=CellOutcome.FAILED,
        stage=Stage.BUILD,
        seconds={Stage.BUILD: 1.234},
        error=CommandError("boom", command=("docker", "buildx"), returncode=1, tail=("a", "b"), hint="look"),
        notes=("slow way",),
    ),
    CellResult(cell=CELL, outcome=CellOutcome.CANCELLED, stage=Stage.CHECK),
]
STARTED = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def test_the_document_is_what_its_schema_says() -> None:
    document = run_document(RESULTS, command="rtbuild build", started=STARTED)
    jsonschema.Draft202012Validator(SCHEMA).validate(json.loads(json.dumps(document)))
    verified, failed, _ = document["cells"]
    assert verified["verification"]["differences"] == [{"what": "cudnn", "asked": "8.6.0", "found": "8.4.0"}]
    assert verified["verification"]["report"] == REPORT.document
    assert failed["error"]["command"] == ["docker", "buildx"]
    assert failed["seconds"] == {"build": 1.23}


def test_the_schema_would_notice_a_field_that_is_not_in_it() -> None:
    document = run_document(RESULTS, command="rtbuild build", started=STARTED)
    document["cells"][0]["surprise"] = 1
    assert not jsonschema.Draft202012Validator(SCHEMA).is_valid(json.loads(json.dumps(document)))


def test_it_is_written_whole_under_the_time_it_started(tmp_path: Path) -> None:
    document = run_document(RESULTS, command="rtbuild build", started=STARTED)
    path = write_record(document, tmp_path / "results")
    assert path.name.startswith("run-20260102T030405Z-")
    assert json.loads(path.read_text()) == json.loads(json.dumps(document))
    assert list(path.parent.iterdir()) == [path]
