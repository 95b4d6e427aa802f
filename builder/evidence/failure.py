"""A report against an image as a test result that says ``FAILED``, and the judgement on one.

It is the predicate of :mod:`builder.evidence.verification` with the other result, so that whoever reads test
results reads this one too. Like there nothing is believed that the report itself does not bear out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, cast

from builder.errors import EvidenceError
from builder.evidence.verification import (
    about_another,
    contradictions,
    gpus_of,
    predicate_of,
    read,
    timestamp,
)
from builder.verify.entry import AGAINST_IMAGE, key_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from builder.evidence.documents import Verification
    from builder.evidence.standing import Side
    from builder.oci.staging import Staged
    from builder.verify.entry import ReportKey


@dataclass(frozen=True, kw_only=True)
class Failure:
    """What was found against an image: the verdict and its cause, on which GPU, with which driver, when."""

    key: ReportKey
    when: datetime
    verdict: Literal["broken", "unsupported-gpu"]
    cause: str | None
    summary: str
    gpus: tuple[tuple[str, str, str | None], ...]
    """Name, compute capability, and class if any table has it; empty where it was found without a GPU."""
    driver: str | None

    @property
    def side(self) -> Side:
        return "against"

    @property
    def gpu_class(self) -> str | None:
        """Of the GPU that was to convolve."""
        return self.gpus[0][2] if self.gpus else None

    @property
    def text(self) -> str:
        """``broken, cudnn-shadowed, on Tesla T4 with driver 535.104.05, 2026-11-20T07:12:35Z``"""
        cause = f", {self.cause}" if self.cause else ""
        names = ", ".join(name for name, _, _ in self.gpus)
        place = f"on {names} with driver {self.driver or '?'}" if names else "without a GPU"
        return f"{self.verdict}{cause}, {place}, {timestamp(self.when)}"


def is_failure(predicate: Mapping[str, Any]) -> bool:
    """Whether a test result is one for :func:`judge_failure`, by what it says of itself."""
    return predicate.get("result") == "FAILED"


def failure_predicate(verification: Verification, image: Staged) -> dict[str, Any]:
    """The predicate for a report against the image; it claims and exempts nothing."""
    return predicate_of(verification, image, claims=(), exempt=())


def judge_failure(predicate: Mapping[str, Any], image: Staged) -> Failure:
    """What speaks against the image, if it is this image and the report says so.

    It does not grow old, and one from the future counts as well: what was found at fault was found, whatever
    the clock. A test double proves nothing in this direction either. Raises EvidenceError with all the
    reasons against it.
    """
    found, report = read(predicate)
    against = [*about_another(found, image), *contradictions(found, report, "FAILED")]
    if report.verdict not in AGAINST_IMAGE:
        against.append(f"its report says {report.verdict}, which is no word against the image")
    if report.test_double:
        against.append("a test double stood in for the GPU or the driver")
    key = key_of(image.content, report, image.digest)
    if key is None or (report.verdict == "unsupported-gpu" and not report.gpus):
        against.append("its report names no GPU")
    if against or key is None:
        raise EvidenceError("; ".join(against))
    return Failure(
        key=key,
        when=found.details.verified,
        verdict=cast("Literal['broken', 'unsupported-gpu']", report.verdict),
        cause=report.cause,
        summary=report.summary,
        gpus=gpus_of(report),
        driver=report.driver.version if report.driver is not None else None,
    )
