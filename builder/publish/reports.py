"""Why a report counts for an image, or does not. The first reason is the one that is said."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from builder.digests import canonical_json
from builder.evidence import Verification
from builder.evidence.verification import CLOCKS, covered_class, no_proof, timestamp
from builder.verify.document import parse
from builder.verify.expectation import compare

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime, timedelta

    from builder.model import Cell
    from builder.verify.document import ProbeDocument
    from builder.verify.entry import Damaged, SealedReport
    from builder.verify.expectation import Expectation

Kind = Literal[
    "missing",
    "unverified",
    "host",
    "busy",
    "broken",
    "unsupported-gpu",
    "test-double",
    "no-proof",
    "old",
    "future",
    "digest",
    "content",
    "probe",
    "edited",
    "differs",
    "claim",
    "unknown-gpu",
    "clock",
    "not-staged",
    "moved",
    "other-image",
    "tag",
    "evidence",
]
"""Why a cell is refused; the table in docs/publish.md says what each means."""


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """One reason against a publication."""

    kind: Kind
    text: str
    hint: str | None = None


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """An image that may be published."""

    cell: Cell
    digest: str
    content: str
    probe: str | None
    """sha256 of the probe that the image carries, 64 hex digits: its recipe says so. None: not known."""
    expect: Expectation


def why_not(
    entry: SealedReport, candidate: Candidate, *, now: datetime, max_age: timedelta | None
) -> Refusal | None:
    """Why a report does not count for the candidate; None for one that does."""
    reasons = (
        *_about_another(entry, candidate),
        *_image_at_fault(entry),
        *_out_of_time(entry, now, max_age),
        *_no_proof(entry, candidate),
    )
    return next(iter(reasons), None)


def _about_another(entry: SealedReport, candidate: Candidate) -> Iterator[Refusal]:
    key, where = entry.key, entry.where
    if entry.test_double:
        yield Refusal(kind="test-double", text=f"{where}: a test double stood in for the GPU or driver")
    if key.digest != candidate.digest:
        yield Refusal(
            kind="digest",
            text=f"{where} is about {key.digest[:19]}…, and this image is {candidate.digest[:19]}…",
            hint="verify this very digest: rtbuild verify --from",
        )
    if key.content != candidate.content:
        yield Refusal(kind="content", text=f"{where} is about other content than the image's config names")
    if candidate.probe is not None and candidate.probe != key.probe:
        yield Refusal(
            kind="probe",
            text=f"{where} is by cudnn-verify {key.probe[:12]}…, the image carries {candidate.probe[:12]}…",
        )


def _image_at_fault(entry: SealedReport) -> Iterator[Refusal]:
    """Before its age: what was found at fault does not mend by waiting."""
    match entry.verdict:
        case "broken":
            hint = "mend the cell; or verify again where it was found broken"
            yield Refusal(kind="broken", text=says(entry), hint=hint)
        case "unsupported-gpu":
            yield Refusal(kind="unsupported-gpu", text=says(entry))
        case _:
            pass


def _out_of_time(entry: SealedReport, now: datetime, max_age: timedelta | None) -> Iterator[Refusal]:
    if entry.verified > now + CLOCKS:
        yield Refusal(
            kind="future",
            text=f"{entry.where} was made at {timestamp(entry.verified)}, and here it is {timestamp(now)}",
            hint="the clock of this machine or of the one that verified is wrong",
        )
    if max_age is not None and now - entry.verified > max_age:
        yield Refusal(
            kind="old",
            text=f"{entry.where} is of {timestamp(entry.verified)}: {_days(now - entry.verified)} old, and "
            f"{_days(max_age)} are allowed",
            hint="verify again: rtbuild verify --again; or allow more by --max-age",
        )


def _no_proof(entry: SealedReport, candidate: Candidate) -> Iterator[Refusal]:
    match entry.verdict:
        case "unverified" | "host" | "busy" as kind:
            yield Refusal(kind=kind, text=says(entry), hint=_HINTS.get(kind))
            return
        case _:
            pass
    document = read(entry)
    if lacking := list(no_proof(document)):
        yield Refusal(kind="no-proof", text=f"{entry.where} proves nothing: {'; '.join(lacking)}")
    if differences := compare(candidate.expect, document):
        listed = "; ".join(f"{row.what}: asked {row.asked}, found {row.found}" for row in differences)
        yield Refusal(kind="differs", text=f"{entry.where} found something else than the lock says: {listed}")


def read(entry: SealedReport) -> ProbeDocument:
    """The probe's report in an entry."""
    return parse(canonical_json(entry.document))


def verification(entry: SealedReport) -> Verification:
    """An entry as evidence is made from it."""
    return Verification(
        document=entry.document,
        verified=entry.verified,
        manifest=entry.key.digest,
        content=entry.key.content,
    )


def gpu_class(entry: SealedReport) -> str | None:
    """:func:`builder.evidence.verification.covered_class` of the report in an entry."""
    return covered_class(read(entry))


_HINTS = {
    "unverified": "verify it on a machine with a GPU: rtbuild verify --from",
    "host": "the machine is at fault: rtbuild doctor there, then rtbuild verify --again",
    "busy": "try again when the GPU is free: rtbuild verify --again",
}


def says(entry: SealedReport) -> str:
    """What a report says, in one line."""
    cause = f", {entry.document['cause']}" if entry.document.get("cause") else ""
    gpus = ", ".join(name for name, _ in entry.key.gpus)
    on = f" on {gpus} with driver {entry.key.driver}" if gpus else ""
    return f"{entry.where} says {entry.verdict}{cause}{on}: {entry.document.get('summary')}"


def damaged(row: Damaged) -> Refusal:
    return Refusal(kind="edited", text=row.why, hint="remove the file, and verify again")


def _days(length: timedelta) -> str:
    days = length.total_seconds() / 86400
    return f"{days:.1f} days" if days >= 2 else f"{days * 24:.1f} hours"
