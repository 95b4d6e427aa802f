"""Gate and audit agree: whatever the reports are, published they come to what the gate made of them."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from doubles import small_image
from doubles.project import A100, MATRIX, T4, Project, policy, report

from builder.release.audit.checks import Question, Weighed, judge_all
from builder.release.publish.gate import Decision, decide
from builder.verify.evidence.attach import failure_statement
from builder.verify.evidence.judgement import judge, predicate_of
from builder.verify.evidence.statement import TEST_RESULT, Gathered, Piece, Statement
from builder.verify.runner.reports import AGAINST_IMAGE, SealedReport, key_of, parse, read_entry, seal

if TYPE_CHECKING:
    from pathlib import Path

    from builder.core.model import Cell
    from builder.sources.oci.staging import Staged

NOW = datetime.now(UTC).replace(microsecond=0)
GPUS = (T4, A100, {"name": "NVIDIA L4", "compute_capability": "8.9"})
VERDICTS = ("works", "works", "works", "broken", "unsupported-gpu")
SILENT = ("busy", "host", "unverified")
"""Of these nothing is published: a claim is not renewed for one, and stays with those who have it already."""


@pytest.fixture(scope="module")
def staged(tmp_path_factory: pytest.TempPathFactory) -> tuple[Cell, Staged]:
    """A cell that claims what it was verified on, and its image."""
    folder: Path = tmp_path_factory.mktemp("project")
    project = Project(folder, MATRIX.replace("  gpus: [T4]\n", "") + "include: [{}]\n")
    return project.cell, project.stage(small_image.Memory(), "registry.example/team/tf")


POLICY = policy(now=NOW)


def entry(cell: Cell, image: Staged, chance: random.Random, verdicts: tuple[str, ...]) -> SealedReport:
    """A double of a report: of one of six machines, in one of five hours, so that many meet."""
    driver = {"version": chance.choice(("535.1", "550.1")), "api": "12.4"}
    document = report(image, gpu=chance.choice(GPUS), driver=driver, verdict=chance.choice(verdicts))
    key = key_of(image.content, parse(json.dumps(document)), image.digest)
    assert key is not None
    when = NOW - timedelta(hours=chance.randint(1, 5))
    return read_entry(seal(key, document, cell=cell.id, matrix=cell.matrix, verified=when), "x.json")


def published(image: Staged, entries: list[SealedReport]) -> Gathered:
    """All of them beside the image, as each would have been by a publication of its own."""
    pieces = []
    for found in entries:
        if found.verdict in AGAINST_IMAGE:
            statement = failure_statement(image, found)
        elif found.verdict == "works":
            predicate = predicate_of(
                found, image, claims=(judge(found, image, POLICY).gpu_class or "",), exempt=()
            )
            statement = Statement(subjects=(image.digest,), predicate_type=TEST_RESULT, predicate=predicate)
        else:
            continue
        pieces.append(Piece(statement=statement, digest=""))
    return Gathered(pieces=tuple(pieces), refused=(), kept="tag", signatures=False)


def both(cell: Cell, image: Staged, entries: list[SealedReport]) -> tuple[Decision, Weighed]:
    return (
        decide(cell, image, entries, policy=POLICY),
        judge_all(published(image, entries), image, Question(), NOW),
    )


@pytest.mark.parametrize("verdicts", [VERDICTS, VERDICTS + SILENT], ids=["speaking", "and silent"])
def test_they_agree(staged: tuple[Cell, Staged], verdicts: tuple[str, ...]) -> None:
    cell, image = staged
    seen = {"open": 0, "broken": 0, "denied": 0}
    for number in range(150):
        chance = random.Random(number)
        entries = [entry(cell, image, chance, verdicts) for _ in range(chance.randint(1, 7))]
        gate, audit = both(cell, image, entries)
        kinds = {refusal.kind for refusal in gate.refusals}
        findings = {finding.what for finding in audit.findings(Question())}
        claims = {name for found in audit.verified for name in found.claims}
        denied = {found.gpu_class for found in audit.denied}

        assert ("broken" in kinds) == ("broken" in findings), number
        assert {found.key for found in audit.against} == {found.key for found in gate.against}, number
        assert claims >= set(gate.claims) - denied, number
        if verdicts is VERDICTS:
            assert claims == set(gate.claims) - denied, number
        if not gate.refusals:
            assert claims, number
            assert not denied & set(gate.claims), number
        seen["open"] += not gate.refusals
        seen["broken"] += "broken" in kinds
        seen["denied"] += kinds == {"unsupported-gpu"} and bool(gate.counted)
    assert min(seen.values()) > 5, f"the reports are too much alike: {seen}"
