"""Reports against images that are public already, attached to them as failed verifications.

A published digest that is found broken later keeps its tags: the gate refuses a new publication and undoes
none. So the report is attached to the public digest as a failed verification, for users who check it. This
applies to the digest that is staged now, to those that the cell's moving tags name, and to those that reports
in the results folder name.
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import groupby

from builder.core.errors import EvidenceError, RegistryError
from builder.release.publish.gate import decide
from builder.release.publish.publication import Failing, Publication
from builder.sources.oci import (
    CELL_LABEL,
    MATRIX_LABEL,
    NoImageError,
    Registry,
    Staged,
    parse_reference,
    read_image,
)
from builder.verify.evidence import (
    JudgedReport,
    Policy,
    Signer,
    Statement,
    attach_statements,
    denied,
    failure_statement,
    gather,
    judge,
    shared,
    standing,
    without_exempt,
)
from builder.verify.runner import AGAINST_IMAGE, Damaged, SealedReport


def public_failures(registry: Registry, target: str, image: Staged) -> tuple[JudgedReport, ...]:
    """Standing judgements against an image, from all statements beside it in the public repository.

    Raises RegistryError.
    """
    if registry.digest_of(f"{target}@{image.digest}") is None:
        return ()
    gathered = gather(registry, parse_reference(target).at(image.digest))
    if gathered.unread:
        raise RegistryError(
            f"{gathered.unread} of the documents beside {target}@{image.digest} could not be read, and one "
            "may say that the image is broken",
            hint="try again; if the registry never gives them, delete those entries there",
        )
    words = _credible([piece.statement for piece in gathered.pieces], image, datetime.now(UTC))
    return tuple(word for word in standing(words) if word.side == "against")


def _credible(statements: Iterable[Statement], image: Staged, now: datetime) -> list[JudgedReport]:
    """Judgements of the test results among statements, without those that an audit would refuse."""
    judged = []
    for statement in statements:
        with contextlib.suppress(EvidenceError):  # an SBOM, or no evidence about this image
            judged.append(judge(statement.predicate, image, Policy(now=now)))
    return judged


def find_failures(
    registry: Registry,
    row: Publication,
    *,
    reports: Sequence[SealedReport | Damaged],
    policy: Policy,
    warn: Callable[[str], None],
) -> tuple[Failing, ...]:
    """The statements to attach to the cell's public images; nothing is written. Raises RegistryError.

    ``reports`` lie on this machine; the policy names the signers whose reports may be published.
    """
    look = _Look(registry, row, policy, warn)
    on = {name: registry.digest_of(f"{row.target}:{name}") for name in row.moving}
    mine = row.cell.id, row.cell.matrix
    own = [one for one in reports if isinstance(one, SealedReport) and (one.cell, one.matrix) == mine]
    staged = row.found.staged.digest if row.found is not None else None
    decided = row.decision.against if row.decision is not None else ()
    digests = {report.key.digest for report in own if report.verdict in AGAINST_IMAGE}
    found: list[Failing] = []
    for digest in sorted(digests | set(filter(None, (staged, *on.values())))):
        image = look.public(digest) if digest != staged or decided else None
        if image is None:
            continue
        against = decided if digest == staged else look.against(image, own)
        if against:
            found += look.failing(image, against, tuple(name for name in on if on[name] == digest))
    return tuple(found)


def say_failures(
    registry: Registry, found: Sequence[Failing], *, signer: Signer | None, note: Callable[[str], None]
) -> tuple[Failing, ...]:
    """Attach the statements, sign them if there is a signer. Raises as :func:`attach_statements`."""
    done: list[Failing] = []
    for _, group in groupby(found, key=lambda one: one.image.digest):
        rows = list(group)
        failed = [failure_statement(one.image, one.entry) for one in rows]
        made = attach_statements(registry, rows[0].image, failed, signer=signer, note=note)
        done += [replace(one, attached=piece) for one, piece in zip(rows, made, strict=True)]
    return tuple(done)


@dataclass(frozen=True)
class _Look:
    """A look at the images of one cell that are public already."""

    registry: Registry
    row: Publication
    policy: Policy
    warn: Callable[[str], None]

    def public(self, digest: str) -> Staged | None:
        """A public image of the cell; None if there is none, or it is another cell's."""
        target, cell = self.row.target, self.row.cell
        if self.registry.digest_of(f"{target}@{digest}") is None:
            return None
        try:
            image = read_image(self.registry, target, digest)
        except NoImageError:
            return None
        labels = image.label(CELL_LABEL), image.label(MATRIX_LABEL)
        return image if labels == (cell.id, cell.matrix) else None

    def against(self, image: Staged, own: Sequence[SealedReport]) -> tuple[SealedReport, ...]:
        """The reports that stand against an image other than the staged one.

        The gate decides, without the lock's demands: matrix and lock may have changed since that image was
        built, so a report that takes one back only has to prove a convolution.
        """
        reports: list[SealedReport | Damaged] = [*own]
        if self.registry.digest_of(f"{self.row.source}@{image.digest}") is not None:
            reports += shared(self.registry, replace(image, repository=self.row.source))
        for report in reports:
            if isinstance(report, Damaged):
                self.warn(f"{report.why}: it may speak against the public image {image.reference}")
        return decide(self.row.cell, image, reports, policy=self.policy).against

    def failing(
        self, image: Staged, against: Sequence[SealedReport], tags: tuple[str, ...]
    ) -> Iterator[Failing]:
        gathered = gather(self.registry, parse_reference(image.repository).at(image.digest))
        statements = [piece.statement for piece in gathered.pieces]
        now = self.policy.now
        verified = [word for word in _credible(statements, image, now) if word.side == "for"]
        claimed = {name for found in without_exempt(verified) for name in found.claims}
        for entry in sorted(against, key=lambda entry: (entry.verified, entry.where)):
            says = f"{entry.where} speaks against {image.reference}, but"
            try:
                statement = failure_statement(image, entry)
                failure = judge(statement.predicate, image, Policy(now=now))
            except EvidenceError as error:
                self.warn(f"{says} cannot be attached: {error.message}")
                continue
            if failure.verdict == "unsupported-gpu" and not denied([failure], claimed):
                continue  # the image never claimed to run there
            there = statement in statements
            yield Failing(image=image, entry=entry, failure=failure, tags=tags, there=there)
