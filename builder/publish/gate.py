"""The gate: which cells may be published, for which GPUs, and on the strength of which reports.

Pure functions over values. A report counts only for the manifest, the content, the probe, the GPU and the
driver that it names, and only if it is whole, new enough, and proves a convolution.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from builder.errors import CellError
from builder.evidence.standing import broken, denied, standing
from builder.evidence.verification import CLOCKS
from builder.facts.gpus import known_class
from builder.matrix.globs import matches
from builder.publish.measure import Measured, measure
from builder.publish.reports import Candidate, Refusal, damaged, gpu_class, read, why_not
from builder.verify.entry import AGAINST_IMAGE, Damaged, SealedReport

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime, timedelta

    from builder.evidence import Failure
    from builder.evidence.standing import Side
    from builder.model import Cell, Exemption
    from builder.verify.entry import ReportKey


@dataclass(frozen=True, kw_only=True)
class Policy:
    """What a publication demands beyond what is always demanded."""

    max_age: timedelta | None = None
    exempt: tuple[Exemption, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Decision:
    """What the gate says of one cell."""

    cell: Cell
    refusals: tuple[Refusal, ...]
    counted: tuple[SealedReport, ...] = ()
    """The reports that it stands on, the newest first."""
    claims: tuple[str, ...] = ()
    """GPU classes that the image may be published for: those that it was verified on, and no other."""
    exempt: tuple[str, ...] = ()
    """GPU classes that the cell names and that its matrix takes back."""
    measured: Measured | None = None
    as_of: datetime | None = None
    """The time of the newest report about the image, whatever it says."""
    against: tuple[SealedReport, ...] = ()
    """Reports that speak against this very image, and that no newer one has mended."""

    @property
    def open(self) -> bool:
        return not self.refusals


@dataclass(frozen=True, kw_only=True)
class _Judged:
    """A report that concerns the cell, and why it does not count, if so; or what was published of one."""

    key: ReportKey
    when: datetime
    verdict: str
    gpu_class: str | None
    reason: Refusal | None
    entry: SealedReport | None = None
    """None for what stands beside the public image."""

    @property
    def side(self) -> Side:
        if self.reason is None:
            return "for"
        return "against" if self.reason.kind in AGAINST_IMAGE else "neither"


def decide(
    candidate: Candidate,
    reports: Iterable[SealedReport | Damaged],
    *,
    now: datetime,
    policy: Policy,
    published: Iterable[Failure] = (),
) -> Decision:
    """Whether the candidate may be published, by the reports that are there.

    ``published`` is what is said against it beside the public image, if it was published before.
    """
    cell = candidate.cell
    entries, unreadable = _about(candidate, reports)
    said = [_said(failure) for failure in published]
    # In this order, so that of a report and its own publication the report is the one that stands.
    judged = standing([*said, *(_judged(entry, candidate, now, policy) for entry in entries)])
    counting = [row.entry for row in judged if row.reason is None and row.entry is not None]
    exempt = _exempt(cell, policy.exempt)
    classes = {row.gpu_class for row in judged if row.reason is None}
    claims = tuple(sorted({name for name in classes if name is not None} - exempt))
    measured, unlike = _measured(cell, counting)
    refusals = [row.reason for row in broken(judged) if row.reason is not None]
    refusals += [damaged(row) for row in unreadable]  # each may be one that said broken
    if counting:
        refusals += _uncovered(cell, judged, exempt)
        refusals += _contradicted(judged, claims)
        refusals += unlike
        if not claims and not refusals:
            refusals.append(_nothing_to_claim(cell, counting, classes))
    else:
        refusals += [row.reason for row in judged if row.reason is not None]
    if not counting and not refusals:
        refusals.append(_missing(candidate))
    return Decision(
        cell=cell,
        refusals=tuple(dict.fromkeys(refusals)),
        counted=tuple(sorted(counting, key=lambda entry: entry.verified, reverse=True)),
        claims=claims,
        exempt=tuple(sorted(exempt)),
        measured=measured,
        as_of=max((entry.verified for entry in entries if entry.verified <= now + CLOCKS), default=None),
        against=tuple(row.entry for row in judged if row.side == "against" and row.entry is not None),
    )


def _judged(entry: SealedReport, candidate: Candidate, now: datetime, policy: Policy) -> _Judged:
    return _Judged(
        key=entry.key,
        when=entry.verified,
        verdict=entry.verdict,
        gpu_class=gpu_class(entry),
        reason=why_not(entry, candidate, now=now, max_age=policy.max_age),
        entry=entry,
    )


def _said(failure: Failure) -> _Judged:
    return _Judged(
        key=failure.key,
        when=failure.when,
        verdict=failure.verdict,
        gpu_class=failure.gpu_class,
        reason=Refusal(
            kind=failure.verdict,
            text=f"beside the public image it says {failure.text}, and no newer report takes that back",
            hint="verify it again where it was found; or delete the statement there if it is not true",
        ),
    )


def _about(
    candidate: Candidate, reports: Iterable[SealedReport | Damaged]
) -> tuple[list[SealedReport], list[Damaged]]:
    """What concerns the candidate."""
    entries: list[SealedReport] = []
    unreadable: list[Damaged] = []
    prefix = candidate.content.removeprefix("sha256:")[:16]
    for report in reports:
        if isinstance(report, Damaged):
            if not report.name or report.name.startswith(prefix):
                unreadable.append(report)
            continue
        key = report.key
        named = (report.cell, report.matrix) == (candidate.cell.id, candidate.cell.matrix)
        if named or candidate.digest == key.digest or candidate.content == key.content:
            entries.append(report)
    return entries, unreadable


def _exempt(cell: Cell, exemptions: Sequence[Exemption]) -> frozenset[str]:
    """The classes that are not claimed, as the tables write them."""
    own = [rule.gpu for rule in exemptions if rule.gpu in cell.gpus and matches(cell.id, rule.cells)]
    return frozenset(known_class(gpu) or gpu for gpu in own)


def _missing(candidate: Candidate) -> Refusal:
    return Refusal(
        kind="missing",
        text=f"there is no report about {candidate.digest}",
        hint="verify it on a machine with a GPU: rtbuild verify --from",
    )


def _uncovered(cell: Cell, judged: Sequence[_Judged], exempt: frozenset[str]) -> list[Refusal]:
    """The classes that the matrix claims and that no report bears out, with what is there instead."""
    covered = {row.gpu_class for row in judged if row.reason is None}
    missing = []
    for name in sorted({known_class(gpu) or gpu for gpu in cell.gpus} - exempt):
        if name in covered:
            continue
        instead = [row.reason.text for row in judged if row.gpu_class == name and row.reason is not None]
        missing.append(
            Refusal(
                kind="claim",
                text=f"the matrix claims {name}, and " + ("; ".join(instead) or "no report comes from one"),
                hint=f"verify it on {name}, or take the claim back in the matrix (publish: exempt)",
            )
        )
    return missing


def _contradicted(judged: Sequence[_Judged], claims: Sequence[str]) -> list[Refusal]:
    """Claims that another report about this image denies."""
    hint = "take the claim back in the matrix (publish: exempt), or mend the cell"
    return [replace(row.reason, hint=hint) for row in denied(judged, claims) if row.reason is not None]


def _nothing_to_claim(cell: Cell, counting: Sequence[SealedReport], classes: set[str | None]) -> Refusal:
    if classes == {None}:
        names = sorted({name for entry in counting for name, _ in entry.key.gpus})
        return Refusal(
            kind="unknown-gpu",
            text=f"it was verified on {', '.join(names)}, which is in no table: nothing can be claimed",
            hint="add the model to builder/facts/tables/gpus.toml",
        )
    names = sorted(name for name in classes if name is not None)
    return Refusal(
        kind="claim",
        text=f"{cell.id} was verified on {', '.join(names)} alone, which its matrix exempts",
        hint="verify it on a GPU that is to be claimed",
    )


def _measured(cell: Cell, counting: Sequence[SealedReport]) -> tuple[Measured | None, list[Refusal]]:
    """What the reports measured, if they say the same."""
    found: dict[Measured, str] = {}
    for entry in counting:
        try:
            found.setdefault(measure(read(entry), cell), entry.where)
        except CellError as error:
            reason = Refusal(kind="differs", text=f"{entry.where}: {error.message}", hint=error.hint)
            return None, [reason]
    if len(found) > 1:
        places = " and ".join(f"{row.text} in {where}" for row, where in found.items())
        return None, [Refusal(kind="differs", text=f"the reports measured different versions: {places}")]
    return next(iter(found), None), []
