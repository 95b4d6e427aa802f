"""A verification counts only where the report itself bears it out, for this very image."""

from __future__ import annotations

import json
from copy import deepcopy
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest
from doubles import small_image
from pages import model_schemas

from builder.core.errors import EvidenceError
from builder.verify.evidence.judgement import EXTENSION, Policy, judge, predicate_of, timestamp

if TYPE_CHECKING:
    from collections.abc import Callable

    from builder.sources.oci.staging import Staged

NOW = datetime.now(UTC)


@pytest.fixture
def predicate(image: Staged) -> dict[str, Any]:
    made = predicate_of(small_image.verification(image), image, claims=("T4", "A100"), exempt=("K80",))
    return json.loads(json.dumps(made))


def test_one_that_holds(predicate: dict[str, Any], image: Staged) -> None:
    found = judge(predicate, image, Policy(now=NOW))
    assert (found.gpu, found.gpu_class, found.driver) == ("Tesla T4", "T4", "535.104.05")
    assert (found.claims, found.exempt) == (("T4",), ("K80",)), "a claim that it does not cover is another's"
    assert predicate["passedTests"] == ["convolution/C07", "driver/D03", "tensorflow/F05"]
    assert predicate["result"] == "PASSED"


def report(edit: Callable[[dict[str, Any]], object]) -> Callable[[dict[str, Any]], object]:
    return lambda predicate: edit(predicate[EXTENSION]["report"])


def details(**changes: Any) -> Callable[[dict[str, Any]], object]:
    return lambda predicate: predicate[EXTENSION].update(changes)


OTHER = "sha256:" + "9" * 64
LATER = timestamp(NOW + timedelta(hours=1))
EDITS: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "other content": (details(content=OTHER), "other content"),
    "other inputs": (details(inputs=OTHER), "about inputs"),
    "other cell": (details(cell="x"), "about cell"),
    "other matrix": (details(matrix="x"), "about matrix"),
    "from the future": (details(verified=LATER), "from the future"),
    "a time without a zone": (details(verified="2026-01-01T00:00:00"), "no test result"),
    "a claim of another GPU": (details(claims=["T4", "H100"]), "claims H100"),
    "no report": (details(report={}), "no report of cudnn-verify"),
    "another schema": (details(schema=2), "no test result"),
    "without the extension": (lambda p: p.pop(EXTENSION), "no test result"),
    "failed": (lambda p: p.update(result="FAILED"), "says works, which does not speak against"),
    "warned": (lambda p: p.update(result="WARNED"), "result is WARNED"),
    "failed tests": (lambda p: p.update(failedTests=["x/C01"]), "failed: x/C01"),
    "tests that never ran": (lambda p: p["passedTests"].append("jax/F05"), "differs from its report"),
    "another probe": (
        lambda p: p["configuration"][0]["digest"].update(sha256="0" * 64),
        "another cudnn-verify",
    ),
    "no probe": (lambda p: p.update(configuration=[]), "another cudnn-verify"),
    "unverified": (report(lambda r: r.update(verdict="unverified")), "says unverified"),
    "broken": (report(lambda r: r.update(verdict="broken", cause="cudnn-missing")), "broken, cudnn-missing"),
    "host": (report(lambda r: r.update(verdict="host")), "says host"),
    "busy": (report(lambda r: r.update(verdict="busy")), "says busy"),
    "a test double": (report(lambda r: r.update(test_double=True)), "test double"),
    "differences": (
        report(lambda r: r.update(differences=[{"what": "cuda", "asked": "1", "found": "2"}])),
        "1 differences",
    ),
    "no GPU": (report(lambda r: r.update(gpus=[])), "names no GPU"),
    "a GPU without capability": (
        report(lambda r: r["gpus"][0].update(compute_capability=None)),
        "names no GPU",
    ),
    "no driver": (report(lambda r: r.update(driver=None)), "names no driver"),
    "a driver that is none": (report(lambda r: r["driver"].update(version="\x1b[2J")), "names no driver"),
    "other digits": (report(lambda r: r["driver"].update(version="5\uff13\uff15.104")), "names no driver"),
    "a check that failed": (report(lambda r: r["checks"][0].update(outcome="failed")), "checks failed"),
    "no convolution": (
        report(lambda r: [c.update(outcome="not_run") for c in r["checks"]]),
        "no convolution ran",
    ),
    "another cell's expectation": (report(lambda r: r.update(expectation="else")), "expected to be else"),
    "a report that is a text": (details(report="works"), "no test result"),
    "a text for a flag": (report(lambda r: r.update(test_double="false")), "no report"),
}


@pytest.mark.parametrize("name", EDITS)
def test_edited_by_hand(name: str, predicate: dict[str, Any], image: Staged) -> None:
    edit, reason = EDITS[name]
    edited = deepcopy(predicate)
    edit(edited)
    with pytest.raises(EvidenceError, match=reason):
        judge(edited, image, Policy(now=NOW))


def test_every_reason_is_given(predicate: dict[str, Any], image: Staged) -> None:
    predicate[EXTENSION]["report"].update(test_double=True, gpus=[])
    with pytest.raises(EvidenceError) as caught:
        judge(predicate, image, Policy(now=NOW))
    assert "test double" in caught.value.message
    assert "no GPU" in caught.value.message


def test_of_several_gpus_the_first_is_the_one_that_convolved(image: Staged) -> None:
    gpus = [
        {"name": "NVIDIA A100-SXM4-40GB", "compute_capability": "8.0"},
        {"name": "Tesla T4", "compute_capability": "7.5"},
    ]
    both = small_image.verification(image, document=small_image.double_report(gpus=gpus))
    made = predicate_of(both, image, claims=("A100", "T4"), exempt=())
    assert made[EXTENSION]["claims"] == ["A100"]


def test_the_schema(predicate: dict[str, Any], generated: Callable[[str, str], None]) -> None:
    schema = model_schemas.of_verification()
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(predicate, schema)
    generated("docs/verification.schema.json", json.dumps(schema, indent=2) + "\n")
