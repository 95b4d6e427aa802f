"""The asker's machine: what was seen there, and what the rules say against it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from doubles import small_image

from builder.release.audit import checks
from builder.release.audit.checks import AuditOutcome
from builder.verify.evidence.contents import provenance
from builder.verify.evidence.judgement import Policy, judge, predicate_of
from builder.verify.runner.reports import Check, SuiteFound

if TYPE_CHECKING:
    from builder.sources.oci.staging import Staged
    from builder.verify.evidence.judgement import JudgedReport

NOW = datetime.now(UTC)


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Staged:
    folder = tmp_path_factory.mktemp("image")
    return small_image.push_image(small_image.Memory(), "registry.example/team/tf", folder)


def seen(image: Staged, name: str, capability: str, driver: str, *claims: str) -> JudgedReport:
    document = small_image.double_report(
        gpus=[{"name": name, "compute_capability": capability}], driver={"version": driver}
    )
    verification = small_image.verification(image, document=document)
    return judge(predicate_of(verification, image, claims=claims, exempt=()), image, Policy(now=NOW))


@pytest.fixture(scope="module")
def both(image: Staged) -> list[JudgedReport]:
    return [
        seen(image, "Tesla T4", "7.5", "535.104.05", "T4"),
        seen(image, "NVIDIA A100-SXM4-40GB", "8.0", "550.54.15", "A100"),
        seen(image, "NVIDIA L4", "8.9", "550.54.15"),
    ]


@pytest.mark.parametrize(
    ("gpu", "driver", "outcome", "text"),
    [
        ("T4", None, AuditOutcome.PASSES, "verified on Tesla T4"),
        ("T4", "535", AuditOutcome.PASSES, "driver 535.104.05"),
        ("T4", "535.54.03", AuditOutcome.PASSES, "it ran on Tesla T4 with driver 535.104.05, of the branch"),
        ("T4", "580.65", AuditOutcome.PASSES, "with driver 535.104.05 only; a newer one runs"),
        (
            "T4",
            "525.85",
            AuditOutcome.FAILS,
            "older than every driver that it was verified with (535.104.05)",
        ),
        ("A100", "535", AuditOutcome.FAILS, "(550.54.15)"),
        ("A100", "550", AuditOutcome.PASSES, "A100-SXM4"),
        ("H100", None, AuditOutcome.FAILS, "not verified on H100, only on A100, T4"),
        ("L4", None, AuditOutcome.FAILS, "it ran on L4, but is not published for it"),
        (None, "535", AuditOutcome.PASSES, "Tesla T4"),
        (None, "470.82", AuditOutcome.FAILS, "(535.104.05, 550.54.15)"),
    ],
)
def test_what_was_seen(
    gpu: str | None, driver: str | None, outcome: AuditOutcome, text: str, both: list[JudgedReport]
) -> None:
    found = checks.seen(both, gpu, driver)
    assert found.outcome is outcome
    assert text in found.message


def test_the_oldest_driver_of_a_class_is_named(image: Staged, both: list[JudgedReport]) -> None:
    more = [*both, seen(image, "Tesla T4", "7.5", "580.65.06", "T4")]
    assert (
        checks.seen(more, "T4", "580").message
        == "it ran on Tesla T4 with driver 580.65.06, of the branch of 580"
    )
    assert "535.104.05, 580.65.06 only" in checks.seen(more, "T4", "590").message
    assert "535.104.05" in checks.seen(more, "T4", None).message
    assert checks.seen(more, "T4", "525").outcome is AuditOutcome.FAILS


def test_a_suite_has_to_have_run_on_the_class(image: Staged, both: list[JudgedReport]) -> None:
    rows = [{"suite": "attention", "framework": "torch", "outcome": "passed", "ran": 3}]
    check = {"id": "W02", "stage": "attention", "outcome": "passed", "summary": "", "evidence": {}}
    ran = both[0].report.model_copy(
        update={
            "suites": [SuiteFound(**row) for row in rows],
            "checks": [*both[0].report.checks, Check(**check)],
        }
    )
    known = [replace(both[0], report=ran), *both[1:]]
    assert checks.ran(known, "T4", ["attention"]).outcome is AuditOutcome.PASSES
    assert checks.ran(known, None, ["attention", "conv"]).outcome is AuditOutcome.PASSES
    assert checks.ran(both, "A100", ["conv"]).outcome is AuditOutcome.PASSES
    for gpu, suites in (("A100", ["attention"]), ("T4", ["attention", "compile"]), ("H100", ["conv"])):
        assert checks.ran(known, gpu, suites).outcome is AuditOutcome.FAILS


def ruled(image: Staged, gpu: str, driver: str) -> dict[str, AuditOutcome]:
    predicate = provenance(small_image.evidence(image), image)
    found = checks.ruled(predicate, None, gpu=gpu, driver=driver)
    return {finding.message: finding.outcome for finding in found.findings}


def test_no_rule_speaks_against_it(image: Staged) -> None:
    assert ruled(image, "T4", "535") == {"no rule speaks against this machine": AuditOutcome.PASSES}


def test_the_rules_say_why_not(image: Staged) -> None:
    found = ruled(image, "K80", "470")
    assert set(found.values()) == {AuditOutcome.FAILS}
    assert any("driver 470 is older than 525.60.13" in text for text in found)
    assert any("K80" in text for text in found)


@pytest.mark.parametrize(
    "predicate",
    [
        {},
        {"buildDefinition": []},
        {"buildDefinition": {"externalParameters": {"cell": {}}}},
        {"buildDefinition": {"externalParameters": {"cell": {"base": 1, "cuda": "x", "id": ""}}}},
    ],
)
def test_a_provenance_of_somebody_else(predicate: dict[str, Any]) -> None:
    found = checks.ruled(predicate, None, gpu="T4", driver=None).findings
    assert [finding.outcome for finding in found] == [AuditOutcome.NOT_RUN]


@pytest.mark.parametrize("field", ["frameworks", "python", "pip", "apt", "platform", "index"])
@pytest.mark.parametrize("value", ["not a list", ["&&& rm -rf", "tensorflow==x.y", ""], "\x1b[2J", None, [5]])
def test_a_provenance_with_nonsense_in_it(field: str, value: Any, image: Staged) -> None:
    """Whoever may push can write it: it may take an answer away, and never raise."""
    predicate = provenance(small_image.evidence(image), image)
    predicate["buildDefinition"]["externalParameters"]["cell"][field] = value
    for finding in checks.ruled(predicate, None, gpu="T4", driver="535").findings:
        assert finding.message
