"""The gate: which cells may be published, for which GPUs, by which reports, and under which tags, which are
made of the versions that were measured in the image, whatever the matrix says; and the state of a
publication, with its document.

A report counts only for the manifest, the content, the probe, the GPU and the driver that it names, and only
if it is undamaged, new enough, and proves a convolution.
"""

import contextlib
import hashlib
import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Literal

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from builder.core import resources
from builder.core.errors import CellError
from builder.core.model import Cell, Exemption
from builder.image.recipe import Recipe, first_parts
from builder.pipeline import error_document, heading
from builder.plan.facts.tables import known_class
from builder.plan.matrix import matches
from builder.sources.oci import CELL_LABEL, MATRIX_LABEL, NoImageError, Registry, Staged, Tally, look
from builder.verify.evidence import (
    CLOCKS,
    Attached,
    ImageOrigin,
    JudgedReport,
    People,
    Policy,
    Refusal,
    Signer,
    broken,
    denied,
    drivers_of,
    judge,
    python_packages,
    standing,
)
from builder.verify.runner import Damaged, ProbeDocument, SealedReport, family

LONGEST = 128
"""A tag's limit, in characters:
https://github.com/opencontainers/distribution-spec/blob/main/spec.md#pulling-manifests"""
_DIGITS = 12

TagKind = Literal["immutable", "measured", "cell", "alias"]


@dataclass(frozen=True, kw_only=True)
class TagStep:
    """The change of a tag: none if it names the digest already."""

    name: str
    kind: TagKind
    was: str | None
    """The digest that the tag names now; None without such a tag."""
    digest: str

    @property
    def action(self) -> Literal["there", "put", "move"]:
        if self.was == self.digest:
            return "there"
        return "put" if self.was is None else "move"


def measure(report: ProbeDocument, cell: Cell) -> str:
    """The versions in a report, as part of a tag: ``tensorflow2.8.4-py3.9.2-cuda11.8-cudnn8.6.0-bullseye``.

    CUDA and the system are left out if nothing in the image says them. Raises CellError if another version is
    missing.
    """
    python, cudnn = report.python_version(), _cudnn(report)
    missing = [name for name, found in (("Python", python), ("cuDNN", cudnn)) if found is None]
    if missing:
        raise CellError(f"the report does not say which {' and '.join(missing)} the image holds")
    parts = [f"{name}{version}" for name, version in _frameworks(report, cell)]
    cuda = _cuda(report)
    parts += [f"py{python}", f"cuda{cuda}" if cuda else "", f"cudnn{cudnn}", _system(report)]
    return re.sub(r"[^a-z0-9_.-]", "_", "-".join(filter(None, parts)).lower())


def _frameworks(report: ProbeDocument, cell: Cell) -> Iterator[tuple[str, str]]:
    """The cell's frameworks in its order: as the probe imported them, else as Python lists them."""
    imported = {family(row.name): row.version for row in report.frameworks}
    listed = _packages(report)
    for text in cell.frameworks:
        name = canonicalize_name(Requirement(text).name)
        version = imported.get(family(name)) or listed.get(name)
        if version is None:
            raise CellError(f"the report does not say which version of {name} the image holds")
        yield name, version


def _cudnn(report: ProbeDocument) -> str | None:
    """The cuDNN that was loaded, by the frameworks' own report or from the mapped library."""
    loaded = report.loaded("cudnn")
    versions = {first_parts(version, 3) or version for version in loaded}
    if len(versions) > 1:
        raise CellError(f"several cuDNN were loaded: {', '.join(sorted(versions))}")
    return next(iter(versions), None)


def _cuda(report: ProbeDocument) -> str | None:
    """The CUDA runtime that was loaded; if that is not known, the one that is installed or compiled in."""
    loaded = report.loaded("cuda")
    installed = [
        version
        for name, version in sorted(_packages(report).items())
        if re.fullmatch(r"nvidia-cuda-runtime(-cu\d+)?", name)
    ]
    compiled = [
        str(row.compiled["cuda"]) for row in report.frameworks if row.compiled and row.compiled.get("cuda")
    ]
    return first_parts(next(iter(loaded or installed or compiled), None), 2)


def _system(report: ProbeDocument) -> str:
    """``bullseye`` of ``Debian GNU/Linux 11 (bullseye)``, ``ubuntu22.04`` of ``Ubuntu 22.04.4 LTS``."""
    machine = (report.model_extra or {}).get("machine")
    said = str((machine if isinstance(machine, dict) else {}).get("distribution") or "")
    if said.startswith("Debian") and (suite := re.search(r"\((\w+)\)", said)):
        return suite[1].lower()
    found = re.match(r"(\w+)\D*(\d+(?:\.\d+)?)", said)
    return f"{found[1]}{found[2]}".lower() if found else ""


def _packages(report: ProbeDocument) -> dict[str, str]:
    return python_packages(report.model_extra or {}) or {}


def tag_of(measured: str, cell: Cell) -> str:
    """The measured tag, with the architecture unless it is amd64, and with the cell's variant."""
    parts = [measured, cell.platform.partition("/")[2].replace("amd64", ""), cell.variant]
    return _cut("-".join(filter(None, parts)), LONGEST)


def immutable_tag(measured: str, cell: Cell, digest: str) -> str:
    """The measured tag with the first digits of the digest; it never names another digest."""
    end = f"-{digest.removeprefix('sha256:')[:_DIGITS]}"
    return _cut(tag_of(measured, cell), LONGEST - len(end)) + end


def _cut(text: str, length: int) -> str:
    if len(text) <= length:
        return text
    return f"{text[: length - _DIGITS - 1]}-{hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]}"


def moving_tags(cell: Cell, aliases: Sequence[tuple[str, str]]) -> tuple[str, ...]:
    """The cell's id and its aliases, out of all aliases of its matrix with the cells that they name."""
    return (cell.id, *(alias for alias, named in aliases if named == cell.id))


def tags_of(cell: Cell, measured: str, digest: str, moving: Sequence[str]) -> dict[str, TagKind]:
    """All tags of one image in the order in which they are put: the immutable one first, aliases last."""
    tags: dict[str, TagKind] = {immutable_tag(measured, cell, digest): "immutable"}
    tags.setdefault(tag_of(measured, cell), "measured")
    for name in moving:
        tags.setdefault(name, "cell" if name == cell.id else "alias")
    return tags


def steps(
    registry: Registry,
    repository: str,
    cell: Cell,
    tags: Mapping[str, TagKind],
    digest: str,
    *,
    others: Container[str] = (),
    overwrite: bool,
) -> tuple[tuple[TagStep, ...], tuple[Refusal, ...]]:
    """The changes that tags need, and refusals for tags that may not move. Raises RegistryError.

    An immutable tag stays where it is. A tag that another matrix or another program put is moved only by
    ``overwrite``, and so is one of another cell of this matrix, unless it is an alias: ``others`` are the ids
    of the other cells.
    """
    found, against = [], []
    for tag, kind in tags.items():
        name = f"{repository}:{tag}"
        step = TagStep(name=tag, kind=kind, was=registry.digest_of(name), digest=digest)
        found.append(step)
        if step.action != "move" or (overwrite and kind != "immutable"):
            continue
        if kind == "immutable":
            text = f"names {step.was} and never moves, so it cannot name {digest}"
            hint = "somebody put it there by hand; delete it in the registry"
            against.append(Refusal("tag", f"{name} {text}", hint))
            continue
        image = None
        with contextlib.suppress(NoImageError):  # rtbuild did not make it
            image = look(registry, name)
        matrix, other = (image.label(MATRIX_LABEL), image.label(CELL_LABEL)) if image else (None, None)
        if matrix != cell.matrix:
            by = f"the matrix {matrix} published" if matrix else "rtbuild did not publish"
            hint = "publish to another repository, or use --overwrite"
            against.append(Refusal("tag", f"{name} is {step.was}, which {by}", hint))
        elif kind != "alias" and other in others:
            text = f"is {step.was}, the image of {other}, which has the same tag"
            hint = "give one of them a 'variant'; --overwrite moves the tag"
            against.append(Refusal("tag", f"{name} {text}", hint))
    return tuple(found), tuple(against)


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


State = Literal["published", "unchanged", "planned", "refused", "failed", "cancelled"]


@dataclass(frozen=True, kw_only=True)
class PublishOptions:
    """The options of a publication. None: the matrix decides."""

    results: Path
    source: str | None = None
    target: str | None = None
    max_age: timedelta | None = None
    dry_run: bool = False
    overwrite: bool = False
    """Move also tags that another matrix, or another program, has put."""
    signer: Signer | None = None
    """None: the evidence is not signed."""
    builders: People | None = None
    """People one of whom must have signed an image of another machine. None: signatures are not checked."""
    reporters: People | None = None
    """People one of whom must have signed a report. None: a report needs no signature."""
    cache: Path = field(default_factory=resources.cache)
    jobs: int = 2
    """Images at a time."""


@dataclass(frozen=True, kw_only=True)
class Found:
    """An image in staging, before any report about it is read."""

    staged: Staged
    recipe: Recipe
    origin: ImageOrigin


@dataclass(frozen=True, kw_only=True)
class Failing:
    """A report against a public image, and the statement that says so there."""

    image: Staged
    """In the public repository."""
    entry: SealedReport
    failure: JudgedReport
    tags: tuple[str, ...]
    """Tags that move with the cell and point to this image."""
    there: bool
    """Whether the statement was there when it was looked for."""
    attached: Attached | None = None

    @property
    def new(self) -> bool:
        return self.attached is not None and self.attached.new


@dataclass(kw_only=True)
class Publication:
    """One cell during its publication: the image found, the decision, and the steps done so far."""

    cell: Cell
    source: str
    target: str
    moving: tuple[str, ...]
    """The tags that move with the cell: its id, and its aliases."""
    state: State = "cancelled"
    found: Found | None = None
    decision: Decision | None = None
    refusals: list[Refusal] = field(default_factory=list)
    steps: tuple[TagStep, ...] = ()
    copied: Tally | None = None
    evidence: tuple[Attached, ...] = ()
    failures: tuple[Failing, ...] = ()
    """Reports against images of the cell that are public already."""
    error: CellError | None = None
    seconds: float = 0.0


def refuse_clashes(rows: Sequence[Publication]) -> None:
    """Refuse every cell whose tag another one wants in the same repository: none of them gets it."""
    owners: dict[tuple[str, str], list[Publication]] = {}
    for row in rows:
        for step in row.steps:
            owners.setdefault((row.target, step.name), []).append(row)
    for row in rows:
        for name in (step.name for step in reversed(row.steps)):
            others = [one.cell for one in owners[row.target, name] if one is not row]
            if others:
                wanted = ", ".join(f"{cell.id} of {cell.matrix}" for cell in others)
                text = f"{row.target}:{name} is also wanted for {wanted}"
                hint = "give one of them a 'variant', or another repository"
                row.refusals.append(Refusal("tag", text, hint))
                break


def publication_document(
    rows: Sequence[Publication], *, command: str, started: datetime, dry_run: bool
) -> dict[str, Any]:
    """The document; its schema is ``docs/publication.schema.json``."""
    head = heading("publication", command, started)
    return {**head, "dry_run": dry_run, "cells": [_cell(row) for row in rows]}


def _cell(row: Publication) -> dict[str, Any]:
    staged = row.found.staged if row.found is not None else None
    decision = row.decision
    return {
        "id": row.cell.id,
        "matrix": row.cell.matrix,
        "outcome": row.state,
        "source": row.source,
        "target": row.target,
        "digest": staged.digest if staged else None,
        "content": staged.content if staged else None,
        "inputs": row.found.recipe.inputs if row.found else None,
        "origin": row.found.origin.kind if row.found else None,
        "claims": list(decision.claims) if decision else [],
        "drivers": dict(decision.drivers) if decision else {},
        "exempt": list(decision.exempt) if decision else [],
        "reports": [_report(entry) for entry in decision.counted] if decision else [],
        "refusals": [vars(refusal) for refusal in row.refusals],
        "tags": [
            {"name": step.name, "kind": step.kind, "action": step.action, "was": step.was}
            for step in row.steps
        ],
        "copied": row.copied
        and {name: getattr(row.copied, name) for name in ("there", "mounted", "sent", "bytes_sent")},
        "evidence": [vars(piece) for piece in row.evidence],
        "failures": [_failure(found) for found in row.failures],
        "error": error_document(row.error) if row.error is not None else None,
    }


def _failure(found: Failing) -> dict[str, Any]:
    return {
        "digest": found.image.digest,
        "verdict": found.failure.verdict,
        "cause": found.failure.report.cause,
        **_report(found.entry),
        "tags": list(found.tags),
        "action": "there" if found.there else "attach",
        "evidence": vars(found.attached) if found.attached is not None else None,
    }


def _report(entry: SealedReport) -> dict[str, Any]:
    return {
        "where": entry.where,
        "gpus": [list(gpu) for gpu in entry.key.gpus],
        "driver": entry.key.driver,
        "probe": entry.key.probe,
        "verified": entry.verified.isoformat(timespec="seconds"),
    }
