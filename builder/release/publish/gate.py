"""The gate: which cells may be published, for which GPUs, and by which reports.

Pure functions over values. A report counts only for the manifest, the content, the probe, the GPU and the
driver that it names, and only if it is undamaged, new enough, and proves a convolution.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from builder.core.errors import CellError
from builder.core.model import Cell, Exemption
from builder.plan.facts.tables import known_class
from builder.plan.matrix import matches
from builder.release.publish.tags import measure
from builder.sources.oci import Staged
from builder.verify.evidence import (
    CLOCKS,
    JudgedReport,
    Policy,
    Refusal,
    broken,
    denied,
    drivers_of,
    judge,
    standing,
)
from builder.verify.runner import Damaged, SealedReport


@dataclass(frozen=True, kw_only=True)
class Decision:
    """The gate's decision about one cell."""

    refusals: tuple[Refusal, ...]
    counted: tuple[SealedReport, ...] = ()
    """The reports that allow the publication, the newest first."""
    claims: tuple[str, ...] = ()
    """GPU classes that the image may be published for: only classes on which it was verified."""
    drivers: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """{claimed class: the drivers with which it ran there, the oldest first}"""
    exempt: tuple[str, ...] = ()
    """GPU classes that the cell names and its matrix exempts."""
    measured: str | None = None
    """The versions that the reports measured, as a tag."""
    as_of: datetime | None = None
    """The time of the newest report about the image, whatever it says."""
    against: tuple[SealedReport, ...] = ()
    """Reports against this very image that no newer one takes back; only signed ones if signatures are
    demanded, since the publisher attaches them in public."""


def decide(
    cell: Cell,
    image: Staged,
    reports: Iterable[SealedReport | Damaged],
    *,
    policy: Policy,
    exemptions: Sequence[Exemption] = (),
    published: Iterable[JudgedReport] = (),
) -> Decision:
    """Decide by the reports whether the image of the cell may be published.

    ``published`` are the standing judgements beside the public image, if it was published before.
    """
    entries, unreadable = _about(cell, image, reports)
    words = [(judge(entry, image, policy), policy.accepts(entry)) for entry in entries]
    # A report without a demanded signature does not allow a publication, but it can prevent one.
    heard = [word for word, signed in words if signed or word.side == "against"]
    unsigned = [_unsigned(word) for word, signed in words if not signed and word.side != "against"]
    # In this order, so that a report stands and not its own published statement.
    judged = standing([*published, *heard])
    counting = [row for row in judged if row.reason is None]
    own = [rule.gpu for rule in exemptions if rule.gpu in cell.gpus and matches(cell.id, rule.cells)]
    exempt = {known_class(gpu) or gpu for gpu in own}
    classes = {row.gpu_class for row in counting}
    claims = tuple(sorted({name for name in classes if name is not None} - exempt))
    measured, unlike = _measured(cell, counting)
    refusals = [row.reason for row in broken(judged) if row.reason is not None]
    # Each damaged report may be one that said broken.
    refusals += [Refusal("edited", row.why, "remove the file, and verify again") for row in unreadable]
    if counting:
        refusals += _uncovered(cell, [*judged, *unsigned], exempt)
        hint = "exempt the class in the matrix (publish: exempt), or correct the cell"
        contradicted = (row.reason for row in denied(judged, claims))
        refusals += [replace(reason, hint=hint) for reason in contradicted if reason is not None]
        refusals += unlike
        if not claims and not refusals:
            refusals.append(_nothing_to_claim(cell, counting, classes))
    else:
        refusals += [row.reason for row in (*judged, *unsigned) if row.reason is not None]
    if not counting and not refusals:
        hint = "verify it on a machine with a GPU: rtbuild verify --from"
        refusals.append(Refusal("missing", f"there is no report about {image.digest}", hint))
    known = [entry.verified for entry in entries if entry.verified <= policy.now + CLOCKS]
    accepted = standing([*published, *(word for word, signed in words if signed)])
    return Decision(
        refusals=tuple(dict.fromkeys(refusals)),
        counted=_sealed(sorted(counting, key=lambda row: row.when, reverse=True)),
        claims=claims,
        drivers={name: drivers_of(row for row in counting if row.gpu_class == name) for name in claims},
        exempt=tuple(sorted(exempt)),
        measured=measured,
        as_of=max(known, default=None),
        against=_sealed(row for row in accepted if row.side == "against"),
    )


def _sealed(judged: Iterable[JudgedReport]) -> tuple[SealedReport, ...]:
    """The reports themselves; a statement beside the public image has none."""
    return tuple(row.sealed for row in judged if row.sealed is not None)


def _unsigned(word: JudgedReport) -> JudgedReport:
    """The judgement of a report that would count if one of the named people had signed it."""
    if word.reason is not None or word.sealed is None:
        return word
    text = f"{word.sealed.where}: none of the named people signed this report"
    hint = "verify it where the key is: rtbuild verify --from … --key KEY"
    return replace(word, reason=Refusal("unsigned", text, hint))


def _about(
    cell: Cell, image: Staged, reports: Iterable[SealedReport | Damaged]
) -> tuple[list[SealedReport], list[Damaged]]:
    """The reports that concern the cell or its image."""
    entries: list[SealedReport] = []
    unreadable: list[Damaged] = []
    prefix = image.content.removeprefix("sha256:")[:16]
    for report in reports:
        if isinstance(report, Damaged):
            if not report.name or report.name.startswith(prefix):
                unreadable.append(report)
        elif (
            (report.cell, report.matrix) == (cell.id, cell.matrix)
            or image.digest == report.key.digest
            or image.content == report.key.content
        ):
            entries.append(report)
    return entries, unreadable


def _uncovered(cell: Cell, judged: Sequence[JudgedReport], exempt: set[str]) -> list[Refusal]:
    """Refusals for claimed classes without a report; they name the reports that do not count."""
    covered = {row.gpu_class for row in judged if row.reason is None}
    missing = []
    for name in sorted({known_class(gpu) or gpu for gpu in cell.gpus} - exempt - covered):
        instead = [row.reason.text for row in judged if row.gpu_class == name and row.reason is not None]
        missing.append(
            Refusal(
                "claim",
                f"the matrix claims {name}, but " + ("; ".join(instead) or "no report comes from one"),
                f"verify it on {name}, or exempt it in the matrix (publish: exempt)",
            )
        )
    return missing


def _nothing_to_claim(cell: Cell, counting: Sequence[JudgedReport], classes: set[str | None]) -> Refusal:
    if classes == {None}:
        names = sorted({name for row in counting for name, _ in row.key.gpus})
        return Refusal(
            "unknown-gpu",
            f"it was verified on {', '.join(names)}, which no table lists: no GPU class can be claimed",
            "add the model to builder/plan/facts/tables/data/gpus.toml",
        )
    names = sorted(name for name in classes if name is not None)
    return Refusal(
        "claim",
        f"{cell.id} was verified only on {', '.join(names)}, which its matrix exempts",
        "verify it on a GPU that the matrix does not exempt",
    )


def _measured(cell: Cell, counting: Sequence[JudgedReport]) -> tuple[str | None, list[Refusal]]:
    """The versions that the reports measured, if they agree."""
    found: dict[str, str] = {}
    for row in counting:
        where = row.sealed.where if row.sealed is not None else ""
        try:
            found.setdefault(measure(row.report, cell), where)
        except CellError as error:
            return None, [Refusal("differs", f"{where}: {error.message}", error.hint)]
    if len(found) > 1:
        places = " and ".join(f"{measured} in {where}" for measured, where in found.items())
        return None, [Refusal("differs", f"the reports measured different versions: {places}")]
    return next(iter(found), None), []
