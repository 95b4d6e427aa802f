"""Reports as test-result predicates, and what a report proves about an image: for the gate, for attaching and
for the audit.

A report is a sealed file or the predicate of a published statement. Either counts only for the image, the
GPU and the driver that it names, and only if it proves a convolution. A statement's summary counts only if
the report inside agrees.

https://github.com/in-toto/attestation/blob/main/spec/predicates/test-result.md names result, configuration
and tests, but no hardware; GPU, driver and time are in the extension field ``rtbuildVerification``, with the
probe's whole report, so that readers need not believe a summary.
"""

import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from builder.core.digests import canonical_json
from builder.core.documents import parse_moment
from builder.core.errors import CellError, EvidenceError
from builder.core.versions import key
from builder.plan.facts.tables import class_of
from builder.sources.oci import CELL_LABEL, INPUTS_LABEL, MATRIX_LABEL, Registry, Staged
from builder.verify.evidence.statement import People
from builder.verify.runner import (
    AGAINST_IMAGE,
    CONVOLUTIONS,
    Expectation,
    ProbeDocument,
    ReportKey,
    SealedReport,
    compare,
    key_of,
    parse,
)

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
    """The time at which the probe ended, by the clock of the machine that ran it."""
    claims: list[str]
    """GPU classes that the image is published for because of this report."""
    exempt: list[str]
    """GPU classes that the matrix names and the image is not published for."""
    as_of: Moment | None = Field(default=None, alias="asOf")
    """The time of the newest report that was known when ``exempt`` was stated. Reports up to then do not
    support claims for these classes, whatever an earlier statement claims."""
    report: dict[str, Any]
    """The report as ``cudnn-verify --json`` printed it, unchanged; its schema is docs/report.schema.json."""


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
    for name, stated, said in (
        ("inputs", INPUTS_LABEL, details.inputs),
        ("cell", CELL_LABEL, details.cell),
        ("matrix", MATRIX_LABEL, details.matrix),
    ):
        label = image.label(stated)
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


# -- judgement

CLOCKS = timedelta(minutes=10)
"""The most that the clock of a verifying machine may be ahead of this one's."""


def clocks_apart(registry: Registry, reference: str) -> float:
    """Seconds by which this machine's clock is ahead of the registry's, negative if it is behind.

    0.0 if they are no more than :data:`CLOCKS` apart, or if the registry has not said its time. Behind, what
    was found since then is taken for the future and left out: nothing is known to work.
    """
    ahead = registry.clock_ahead(reference) or 0.0
    return ahead if abs(ahead) > CLOCKS.total_seconds() else 0.0


def clock_behind(registry: Registry, reference: str) -> str:
    """The consequence for an answer of a clock that is behind the registry's; empty if it is not."""
    if (ahead := clocks_apart(registry, reference)) >= 0:
        return ""
    return (
        f"the clock of this machine is {-ahead / 60:.0f} minutes behind its registry's: what was found "
        "since then is not known here"
    )


_NEVER = datetime.min.replace(tzinfo=UTC)

Side = Literal["for", "against", "neither"]
"""``neither``: the report says nothing about the image, or proves nothing."""


@dataclass(frozen=True)
class Refusal:
    """One reason against a report, or why a cell is not published."""

    kind: Literal[
        "missing", "unverified", "host", "busy", "broken", "unsupported-gpu", "test-double", "no-proof",
        "old", "future", "digest", "content", "probe", "edited", "differs", "claim", "unknown-gpu", "clock",
        "not-staged", "unproven", "unsigned", "moved", "other-image", "tag", "evidence",
        "suite",
    ]  # fmt: skip
    """The table in docs/publish.md says what each means."""
    text: str
    hint: str | None = None


@dataclass(frozen=True, kw_only=True)
class Policy:
    """Additional demands on a report."""

    now: datetime
    max_age: timedelta | None = None
    """The greatest age of a report for the image; one against it has no limit."""
    probe: str | None = None
    """sha256 of the probe that the image carries, 64 hex digits. None: not known."""
    expect: Expectation = field(default_factory=Expectation)
    """The lock's demands on the image. A statement is not compared with them."""
    suites: frozenset[str] = frozenset()
    """Suites that a sealed report has to have run; without any, it has to prove a convolution."""
    reporters: People | None = None
    """People one of whom must have signed a sealed report. None: nobody must. A statement has its own."""

    def accepts(self, report: SealedReport) -> bool:
        """True if one of the reporters signed the report, or no signature is needed."""
        return self.reporters is None or bool(self.reporters.who(report.text.encode(), report.signature))


@dataclass(frozen=True, kw_only=True)
class JudgedReport:
    """The result for one report: for an image, against it, or neither."""

    key: ReportKey
    when: datetime
    """When the probe ended; UTC."""
    report: ProbeDocument
    document: Mapping[str, Any]
    """The probe's own JSON, unchanged."""
    reason: Refusal | None
    """Why the report does not count for the image; None if it does."""
    sealed: SealedReport | None = None
    """The file; None for a published statement."""
    claims: tuple[str, ...] = ()
    """GPU classes that a statement says the image is published for."""
    exempt: tuple[str, ...] = ()
    """GPU classes that a statement says the image is not published for."""
    exempt_until: datetime = _NEVER
    """``exempt`` also removes the claims of other statements until this time."""

    @property
    def side(self) -> Side:
        if self.reason is None:
            return "for"
        return "against" if self.reason.kind in AGAINST_IMAGE else "neither"

    @property
    def verdict(self) -> str:
        return self.report.verdict

    @property
    def gpus(self) -> tuple[tuple[str, str, str | None], ...]:
        """Name, compute capability and, if any table has it, class of each GPU; empty without a GPU."""
        rows = ((gpu.name, gpu.compute_capability) for gpu in self.report.gpus)
        return tuple((name, capability or "", class_of(name, capability)) for name, capability in rows)

    @property
    def gpu(self) -> str:
        """The GPU that convolved, as its driver calls it."""
        return self.report.gpus[0].name

    @property
    def gpu_class(self) -> str | None:
        """The class of the first GPU. None: in no table."""
        return covered_class(self.report)

    @property
    def driver(self) -> str | None:
        return self.report.driver.version if self.report.driver is not None else None

    @property
    def text(self) -> str:
        """``broken, cudnn-shadowed, on Tesla T4 with driver 535.104.05, 2026-11-20T07:12:35Z``"""
        cause = f", {self.report.cause}" if self.report.cause else ""
        names = ", ".join(gpu.name for gpu in self.report.gpus)
        place = f"on {names} with driver {self.driver or '?'}" if names else "without a GPU"
        return f"{self.verdict}{cause}, {place}, {timestamp(self.when)}"


def judge(report: SealedReport | Mapping[str, Any], image: Staged, policy: Policy) -> JudgedReport:
    """Judge a report, or the predicate of a statement, about an image.

    A sealed report that does not count has a ``reason``. For a statement that is about another image, or
    contradicts the report inside, EvidenceError with all reasons is raised.
    """
    if not isinstance(report, SealedReport):
        return _stated(report, image, policy)
    document = parse(canonical_json(report.document))
    return JudgedReport(
        key=report.key,
        when=report.verified,
        report=document,
        document=report.document,
        reason=next(_reasons(report, image, document, policy), None),
        sealed=report,
    )


def _reasons(
    report: SealedReport, image: Staged, document: ProbeDocument, policy: Policy
) -> Iterator[Refusal]:
    """Why a sealed report does not count for the image, the deciding reason first."""
    key, where, age = report.key, report.where, policy.now - report.verified
    if report.test_double:
        yield Refusal("test-double", f"{where}: a test double stood in for the GPU or driver")
    if key.digest != image.digest:
        yield Refusal(
            "digest",
            f"{where} is about {key.digest[:19]}…, but this image is {image.digest[:19]}…",
            "verify this very digest: rtbuild verify --from",
        )
    if key.content != image.content:
        yield Refusal("content", f"{where} is about other content than the image's config names")
    if policy.probe not in (None, key.probe):
        said = f"{where} is by cudnn-verify {key.probe[:12]}…, the image has {policy.probe[:12]}…"
        yield Refusal("probe", said)
    verdict = document.verdict
    if verdict in ("broken", "unsupported-gpu"):  # before the age: a report against the image has no limit
        yield Refusal(verdict, _says(report), _HINTS.get(verdict))
    if -age > CLOCKS:
        yield Refusal(
            "future",
            f"{where} was made at {timestamp(report.verified)}, but here it is {timestamp(policy.now)}",
            "the clock of this machine or of the one that verified is wrong",
        )
    if policy.max_age is not None and age > policy.max_age:
        yield Refusal(
            "old",
            f"{where} is of {timestamp(report.verified)}: {_days(age)} old, and "
            f"{_days(policy.max_age)} are allowed",
            "verify again: rtbuild verify --again; or allow more by --max-age",
        )
    if verdict in ("unverified", "host", "busy"):
        yield Refusal(verdict, _says(report), _HINTS[verdict])
    if lacking := list(no_proof(document)):
        yield Refusal("no-proof", f"{where} proves nothing: {'; '.join(lacking)}")
    if lacking := sorted(policy.suites - document.suites_that_ran()):
        yield Refusal("suite", f"{where}: {'; '.join(_why_not(document, name) for name in lacking)}", _AGAIN)
    if differences := compare(policy.expect, document):
        listed = "; ".join(f"{row.what}: asked {row.asked}, found {row.found}" for row in differences)
        yield Refusal("differs", f"{where} differs from the lock: {listed}")


_AGAIN = "verify it with that suite (rtbuild verify --again), or take it out of the matrix (verify)"


def _why_not(document: ProbeDocument, suite: str) -> str:
    """Why a suite that the matrix names does not count, in the report's own words."""
    said = [row.reason or row.outcome for row in document.suites if row.suite == suite]
    return f"the matrix wants the suite {suite}, which did not run ({'; '.join(said) or 'not asked for'})"


_HINTS = {
    "broken": "correct the cell; or verify again on the machine that found it broken",
    "unverified": "verify it on a machine with a GPU: rtbuild verify --from",
    "host": "the machine is at fault: rtbuild doctor there, then rtbuild verify --again",
    "busy": "try again when the GPU is free: rtbuild verify --again",
}


def _says(report: SealedReport) -> str:
    cause = f", {report.document['cause']}" if report.document.get("cause") else ""
    gpus = ", ".join(name for name, _ in report.key.gpus)
    on = f" on {gpus} with driver {report.key.driver}" if gpus else ""
    return f"{report.where} says {report.verdict}{cause}{on}: {report.document.get('summary')}"


def _days(length: timedelta) -> str:
    days = length.total_seconds() / 86400
    return f"{days:.1f} days" if days >= 2 else f"{days * 24:.1f} hours"


def _stated(predicate: Mapping[str, Any], image: Staged, policy: Policy) -> JudgedReport:
    """A statement against the image counts at any age.

    None counts whose time is in the future, in neither direction: no newer report could take it back.
    """
    found, report = read(predicate)
    details, failed = found.details, found.result == "FAILED"
    against = list(doubts(found, report, image))
    if details.verified > policy.now + CLOCKS:
        against.append(f"it is from the future ({timestamp(details.verified)}): a clock is wrong")
    key = key_of(image.content, report, image.digest)
    if key is None and failed:
        against.append("its report names no GPU")
    if against or key is None:
        raise EvidenceError("; ".join(against))
    when = details.verified.astimezone(UTC)
    if not failed and policy.max_age is not None and policy.now - when > policy.max_age:
        raise EvidenceError(f"it is of {timestamp(when)} and older than {policy.max_age}")
    judged = JudgedReport(
        key=key,
        when=when,
        report=report,
        document=details.report,
        reason=None,
        claims=tuple(details.claims),
        exempt=tuple(details.exempt),
        exempt_until=max(details.verified, details.as_of or details.verified),
    )
    if not failed:
        return judged
    said = f"a statement beside the public image says {judged.text}, and no newer report takes it back"
    hint = "verify again on such a machine; or delete the statement if it is wrong"
    kind: Literal["broken", "unsupported-gpu"] = "broken" if judged.verdict == "broken" else "unsupported-gpu"
    return replace(judged, reason=Refusal(kind, said, hint))


def standing(words: Iterable[JudgedReport]) -> list[JudgedReport]:
    """The newest judgement for each key; of two in one second the one against the image.

    Only a newer judgement for or against the image replaces one against it; a later report of a busy GPU, a
    wrong clock or a test double does not.
    """
    latest: dict[ReportKey, JudgedReport] = {}
    for word in sorted(words, key=lambda word: (word.when, word.side == "against")):
        before = latest.get(word.key)
        if before is None or before.side != "against" or word.side != "neither":
            latest[word.key] = word
    return list(latest.values())


def drivers_of(judged: Iterable[JudgedReport]) -> list[str]:
    """Their drivers, the oldest first."""
    return sorted({row.driver or "" for row in judged}, key=key)


def claim_text(drivers: Mapping[str, Sequence[str]]) -> str:
    """``A100 from driver 550.54.15 on, T4 from driver 535.104.05 on``; of {class: its drivers in order}"""
    return ", ".join(f"{name} from driver {ran_with[0]} on" for name, ran_with in drivers.items())


def broken(stand: Sequence[JudgedReport]) -> list[JudgedReport]:
    """Standing judgements that exclude an image, at any age and whatever other GPUs report."""
    return [word for word in stand if word.side == "against" and word.verdict == "broken"]


def denied(stand: Sequence[JudgedReport], claims: Container[str | None]) -> list[JudgedReport]:
    """Standing judgements that deny a claim, for instance with another driver on a GPU of that class."""
    return [
        word
        for word in stand
        if word.side == "against" and word.verdict == "unsupported-gpu" and word.gpu_class in claims
    ]


def without_exempt(claiming: Sequence[JudgedReport]) -> list[JudgedReport]:
    """The judgements without the claims that another statement takes back.

    Statements are never removed: one that claims a class stays beside the image if its matrix exempts the
    class later. A report that is newer than the exemption restores the claim.
    """
    return [
        replace(
            found,
            claims=tuple(
                name
                for name in found.claims
                if not any(name in other.exempt and found.when <= other.exempt_until for other in claiming)
            ),
        )
        for found in claiming
    ]
