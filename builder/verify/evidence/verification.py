"""Reports as test-result predicates, and the reasons against one.

https://github.com/in-toto/attestation/blob/main/spec/predicates/test-result.md names result, configuration
and tests, but no hardware; GPU, driver and time are in the extension field ``rtbuildVerification``, with the
probe's whole report, so that readers need not believe a summary.
"""

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from builder.core.digests import canonical_json
from builder.core.documents import parse_moment
from builder.core.errors import CellError, EvidenceError
from builder.plan.facts.tables import class_of
from builder.sources.oci import CELL_LABEL, INPUTS_LABEL, MATRIX_LABEL, Staged
from builder.verify.runner import AGAINST_IMAGE, CONVOLUTIONS, ProbeDocument, SealedReport, parse

EXTENSION = "rtbuildVerification"

_DRIVER = re.compile(r"[0-9]{1,6}(\.[0-9]{1,6}){0,4}")
_SHA256 = r"^sha256:[0-9a-f]{64}$"
Moment = Annotated[datetime, BeforeValidator(parse_moment)]
"""In UTC: a time of the year 9999 in a zone behind it is none that a calendar has."""


class _PredicatePart(BaseModel):
    model_config = ConfigDict(extra="allow", frozen=True)


class Details(_PredicatePart):
    """Fields that the test-result predicate lacks."""

    schema_version: Literal[1] = Field(alias="schema")
    cell: str
    matrix: str
    inputs: str = Field(pattern=_SHA256)
    """The image's label ``io.rtbuild.inputs``."""
    content: str = Field(pattern=_SHA256)
    """Digest over platform, layers and config of the image; see :func:`builder.core.digests.content_of`."""
    verified: Moment
    """When the probe ended, by the clock of the machine that ran it."""
    claims: list[str]
    """GPU classes that the image is published for because of this report."""
    exempt: list[str]
    """GPU classes that the matrix names and the image is not published for."""
    as_of: Moment | None = Field(default=None, alias="asOf")
    """The time of the newest report that was known when ``exempt`` was stated. Reports up to then do not
    support claims for these classes, whatever an earlier statement claims."""
    report: dict[str, Any]
    """What ``cudnn-verify --json`` printed, unchanged; its schema is docs/report.schema.json."""


class Resource(_PredicatePart):
    """https://github.com/in-toto/attestation/blob/main/spec/v1/resource_descriptor.md"""

    name: str
    digest: dict[str, str]


class TestResult(_PredicatePart):
    """The predicate ``https://in-toto.io/attestation/test-result/v0.1`` as rtbuild writes it."""

    __test__ = False  # pytest takes every class of this name for one of its own

    result: Literal["PASSED", "WARNED", "FAILED"]
    configuration: list[Resource]
    passed: list[str] = Field(alias="passedTests")
    warned: list[str] = Field(alias="warnedTests")
    failed: list[str] = Field(alias="failedTests")
    details: Details = Field(alias="rtbuildVerification")


def predicate_of(
    sealed: SealedReport,
    image: Staged,
    *,
    claims: tuple[str, ...],
    exempt: tuple[str, ...],
    as_of: datetime | None = None,
) -> dict[str, Any]:
    """The predicate, without the claims that another report has to cover."""
    report = parse(canonical_json(sealed.document))
    probe = report.probe.sha256.removeprefix("sha256:")
    covered = covered_class(report)
    return {
        "result": "PASSED" if report.verdict == "works" else "FAILED",
        "configuration": [{"name": "cudnn-verify", "digest": {"sha256": probe}}],
        "passedTests": sorted(_checks(report, "passed")),
        "warnedTests": [],
        "failedTests": sorted(_checks(report, "failed")),
        EXTENSION: {
            "schema": 1,
            "cell": image.label(CELL_LABEL) or "",
            "matrix": image.label(MATRIX_LABEL) or "",
            "inputs": image.label(INPUTS_LABEL) or "",
            "content": sealed.key.content,
            "verified": timestamp(sealed.verified),
            "claims": [name for name in claims if name == covered],
            "exempt": sorted(exempt),
            **({"asOf": timestamp(as_of)} if exempt and as_of is not None else {}),
            "report": sealed.document,
        },
    }


def _checks(report: ProbeDocument, outcome: str) -> set[str]:
    return {f"{check.stage}/{check.id}" for check in report.checks if check.outcome == outcome}


def covered_class(report: ProbeDocument) -> str | None:
    """The class of the first GPU, which convolved. None: in no table."""
    gpus = report.gpus
    return class_of(gpus[0].name, gpus[0].compute_capability) if gpus else None


def timestamp(moment: datetime) -> str:
    """``2026-11-21T06:30:00Z``"""
    return moment.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def read(predicate: Mapping[str, Any]) -> tuple[TestResult, ProbeDocument]:
    """A predicate and the report in it, not yet checked against each other. Raises EvidenceError."""
    try:
        found = TestResult.model_validate(predicate)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise EvidenceError(f"it is no test result of rtbuild: {place}: {first['msg']}") from error
    try:
        report = parse(canonical_json(found.details.report))
    except (CellError, ValueError) as error:
        raise EvidenceError(f"it holds no report of cudnn-verify ({error})") from error
    return found, report


def doubts(found: TestResult, report: ProbeDocument, image: Staged) -> Iterator[str]:
    """Why a predicate does not count for the image, or, if it failed, against it."""
    details, failing = found.details, found.result == "FAILED"
    if details.content != image.content:
        yield f"its report is about other content ({details.content[:19]}…) than this image's"
    for name, key, said in (
        ("inputs", INPUTS_LABEL, details.inputs),
        ("cell", CELL_LABEL, details.cell),
        ("matrix", MATRIX_LABEL, details.matrix),
    ):
        label = image.label(key)
        if label != said:
            yield f"it is about {name} {said or '(none)'}, and the image's label says {label or '(none)'}"
    expected = details.report.get("expectation")
    if expected not in (None, details.cell):
        yield f"the image that was probed expected to be {expected}"
    if not failing:
        yield from no_proof(report)
    yield from _contradictions(found, report, failing=failing)
    if failing:
        if report.verdict not in AGAINST_IMAGE:
            yield f"its report says {report.verdict}, which does not speak against the image"
        if report.test_double:
            yield "a test double stood in for the GPU or the driver"
        if report.verdict == "unsupported-gpu" and not report.gpus:
            yield "its report names no GPU"


def no_proof(report: ProbeDocument) -> Iterator[str]:
    if report.verdict != "works" or report.cause is not None:
        yield f"its report says {report.verdict}" + (f", {report.cause}" if report.cause else "")
    if report.test_double:
        yield "a test double stood in for the GPU or the driver"
    if report.differences:
        yield f"its report lists {len(report.differences)} differences to what the image should be"
    if not report.gpus or not all(gpu.compute_capability for gpu in report.gpus):
        yield "its report names no GPU"
    if report.driver is None or not _DRIVER.fullmatch(report.driver.version or ""):
        yield "its report names no driver"
    failed = sorted({check.id for check in report.checks if check.outcome == "failed"})
    if failed:
        yield f"checks failed in its report: {', '.join(failed)}"
    if not any(check.id in CONVOLUTIONS and check.outcome == "passed" for check in report.checks):
        yield "no convolution ran in its report"


def _contradictions(found: TestResult, report: ProbeDocument, *, failing: bool) -> Iterator[str]:
    """Contradictions between a predicate and its report; it has to have passed unless it is ``failing``."""
    if not failing and (found.result != "PASSED" or found.failed):
        failed = f", failed: {', '.join(found.failed)}" if found.failed else ""
        yield f"its result is {found.result}{failed}"
    if set(found.passed) != _checks(report, "passed"):
        yield "its list of passed tests differs from its report"
    if failing and set(found.failed) != _checks(report, "failed"):
        yield "its list of failed tests differs from its report"
    probe = report.probe.sha256.removeprefix("sha256:")
    probes = {row.digest.get("sha256") for row in found.configuration if row.name == "cudnn-verify"}
    if probes != {probe}:
        yield "it names another cudnn-verify than the one that reported"
    beyond = sorted(set(found.details.claims) - (set() if failing else {covered_class(report)}))
    if beyond:
        why = "bears out no claim" if failing else "is from another GPU"
        yield f"it claims {', '.join(beyond)}, and its report {why}"
