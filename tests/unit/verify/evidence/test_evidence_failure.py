"""A statement against an image counts only where the report itself bears it out, for this very image."""

from __future__ import annotations

import json
from copy import deepcopy
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest
from doubles import small_image
from pages import model_schemas

from builder.core.errors import EvidenceError
from builder.sources.oci.spec import parse_reference
from builder.verify.evidence.attach import attach_statements, failure_statement
from builder.verify.evidence.judgement import EXTENSION, JudgedReport, Policy, judge, predicate_of
from builder.verify.evidence.statement import gather

if TYPE_CHECKING:
    from collections.abc import Callable

    from doubles.registry import RegistryDouble

    from builder.sources.oci.registry import Registry
    from builder.sources.oci.staging import Staged
    from builder.verify.runner.reports import SealedReport

NOW = datetime.now(UTC)
OTHER = "sha256:" + "9" * 64


def judge_failure(predicate: dict[str, Any], image: Staged) -> JudgedReport:
    found = judge(predicate, image, Policy(now=NOW))
    assert found.side == "against"
    return found


def found_broken(image: Staged, **changes: Any) -> SealedReport:
    """A double of a report on a T4 in whose image another cuDNN comes first."""
    checks = deepcopy(small_image.double_report()["checks"])
    checks[1]["outcome"] = "failed"
    said = {"verdict": "broken", "cause": "cudnn-shadowed", "checks": checks} | changes
    return small_image.verification(image, document=small_image.double_report(**said))


@pytest.fixture
def predicate(image: Staged) -> dict[str, Any]:
    return json.loads(json.dumps(predicate_of(found_broken(image), image, claims=(), exempt=())))


def test_one_that_counts(predicate: dict[str, Any], image: Staged) -> None:
    assert predicate["result"] == "FAILED"
    assert predicate["failedTests"] == ["convolution/C07"]
    jsonschema.validate(predicate, model_schemas.of_verification())
    found = judge_failure(predicate, image)
    assert (found.verdict, found.report.cause, found.driver, found.gpu_class) == (
        "broken",
        "cudnn-shadowed",
        "535.104.05",
        "T4",
    )
    assert found.text.startswith("broken, cudnn-shadowed, on Tesla T4 with driver 535.104.05, 20")
    assert found.key.digest == image.digest


def test_found_without_a_gpu(image: Staged) -> None:
    said = predicate_of(
        found_broken(image, gpus=[], driver=None, cause="cudnn-missing"), image, claims=(), exempt=()
    )
    assert judge_failure(said, image).text.startswith("broken, cudnn-missing, without a GPU, 20")


def report(**changes: Any) -> Callable[[dict[str, Any]], object]:
    return lambda predicate: predicate[EXTENSION]["report"].update(changes)


def details(**changes: Any) -> Callable[[dict[str, Any]], object]:
    return lambda predicate: predicate[EXTENSION].update(changes)


EDITS: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "other content": (details(content=OTHER), "other content"),
    "other inputs": (details(inputs=OTHER), "about inputs"),
    "other cell": (details(cell="x"), "about cell"),
    "another cell's expectation": (report(expectation="else"), "expected to be else"),
    "a claim": (details(claims=["T4"]), "bears out no claim"),
    "no report": (details(report={}), "no report of cudnn-verify"),
    "without the extension": (lambda p: p.pop(EXTENSION), "no test result"),
    "passed": (lambda p: p.update(result="PASSED"), "result is PASSED"),
    "tests that never failed": (lambda p: p["failedTests"].append("x/C01"), "list of failed"),
    "tests that never ran": (lambda p: p["passedTests"].append("jax/F05"), "list of passed"),
    "another probe": (lambda p: p.update(configuration=[]), "another cudnn-verify"),
    "works": (report(verdict="works"), "says works, which does not speak against"),
    "busy": (report(verdict="busy"), "says busy, which does not speak against"),
    "host": (report(verdict="host"), "says host, which does not speak against"),
    "unverified": (report(verdict="unverified"), "says unverified, which does not speak against"),
    "a test double": (report(test_double=True), "test double"),
    "no GPU that it does not run on": (report(verdict="unsupported-gpu", gpus=[]), "names no GPU"),
    "a GPU without capability": (
        report(gpus=[{"name": "Tesla T4", "compute_capability": None}]),
        "names no GPU",
    ),
}


@pytest.mark.parametrize("name", EDITS)
def test_edited_by_hand(name: str, predicate: dict[str, Any], image: Staged) -> None:
    edit, reason = EDITS[name]
    edit(predicate)
    with pytest.raises(EvidenceError, match=reason):
        judge_failure(predicate, image)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"document": small_image.double_report()}, "not speak against the image"),
        ({"document": small_image.double_report(verdict="broken", test_double=True)}, "test double"),
        ({"manifest": OTHER, "document": small_image.double_report(verdict="broken")}, "not about"),
        ({"content": OTHER, "document": small_image.double_report(verdict="broken")}, "other content"),
    ],
)
def test_what_is_not_attached(changes: dict[str, Any], reason: str, image: Staged) -> None:
    with pytest.raises(EvidenceError, match=reason):
        failure_statement(image, small_image.verification(image, **changes))


@pytest.mark.parametrize("referrers", [True, False], ids=["referrers", "tag"])
def test_attached_once(referrers: bool, server: RegistryDouble, registry: Registry, pushed: Staged) -> None:
    server.referrers = referrers
    two = [
        found_broken(pushed),
        found_broken(pushed, driver={"version": "550.1", "api": "12.4"}, verdict="unsupported-gpu"),
    ]
    made = attach_statements(registry, pushed, [failure_statement(pushed, one) for one in two])
    assert [(row.kind, row.new, row.signed) for row in made] == [("verification", True, False)] * 2
    assert {row.by for row in made} == {"referrers" if referrers else "tag"}
    before = dict(server.manifests), dict(server.tags)
    again = attach_statements(registry, pushed, [failure_statement(pushed, one) for one in two])
    assert [(row.digest, row.new) for row in again] == [(row.digest, False) for row in made]
    assert (dict(server.manifests), dict(server.tags)) == before
    name = parse_reference(pushed.repository).at(pushed.digest)
    statements = [piece.statement for piece in gather(registry, name).pieces]
    assert statements == [failure_statement(pushed, one) for one in two]
