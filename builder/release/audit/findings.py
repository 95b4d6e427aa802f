"""The question and its findings, and the statements beside an image, judged one by one and weighed.

If a verifier is named, only statements that it accepts count, in either direction: an unsigned one neither
makes a yes nor takes one away. An unsigned statement that would take one away is mentioned, because a
publisher may have forgotten to sign it.
"""

import enum
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial

from builder.core.errors import CellError, EvidenceError
from builder.core.items import item
from builder.sources.oci import Staged
from builder.verify.evidence import (
    KINDS,
    Gathered,
    JudgedReport,
    Piece,
    Policy,
    Verifier,
    broken,
    denied,
    judge,
    standing,
    without_exempt,
)


@dataclass(frozen=True, kw_only=True)
class Question:
    """The user's conditions, besides that the image works at all."""

    verifier: Verifier | None = None
    """The accepted signer. None: signatures are not checked."""
    gpu: str | None = None
    """A class of ``facts/gpus.toml``."""
    driver: str | None = None
    """``535`` or ``535.104.05``."""
    suites: tuple[str, ...] = ()
    """Suites of the probe that have to have run, besides the convolution."""
    max_age: timedelta | None = None
    """Verifications older than this do not count."""
    at_least: datetime | None = None
    """Time of the newest verification that the user has seen; an older one means a tag moved back."""


class AuditOutcome(enum.StrEnum):
    """Only ``fails`` makes a no; a check that could not run counts neither as a yes nor as a no.

    ``should``: the rules say that it works there, and nobody has seen it; less than a yes, and no no.
    """

    PASSES = "passes"
    MIND = "mind"
    SHOULD = "should"
    FAILS = "fails"
    NOT_RUN = "not_run"


class DriverAnswer(enum.StrEnum):
    """How much is known of an image with a driver."""

    RAN = "ran"
    """It ran with a driver of that branch."""
    NEWER = "newer"
    """It ran with older ones only; a newer driver runs what an older one does."""
    SHOULD = "should"
    """It ran with newer ones only, and the rules say that it should."""
    NO = "no"


@dataclass(frozen=True)
class AuditFinding:
    """``what`` is a stable id, listed in ``docs/evidence.md``: ``base``, ``cudnn-patch``, ``machine`` …"""

    what: str
    message: str
    outcome: AuditOutcome
    hint: str | None = None


passes = partial(AuditFinding, outcome=AuditOutcome.PASSES)
mind = partial(AuditFinding, outcome=AuditOutcome.MIND)
should = partial(AuditFinding, outcome=AuditOutcome.SHOULD)
fails = partial(AuditFinding, outcome=AuditOutcome.FAILS)
not_run = partial(AuditFinding, outcome=AuditOutcome.NOT_RUN)


FAILED = "failed-verification"
"""The kind of a test result against the image."""


@dataclass(frozen=True, kw_only=True)
class Held:
    """A piece of evidence, and whether it holds for this image. ``reason`` says why not."""

    kind: str
    digest: str
    signed: bool
    holds: bool
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class Weighed:
    """The evidence, weighed."""

    held: tuple[Held, ...]
    verified: tuple[JudgedReport, ...]
    """The verifications that hold and that nothing newer about the same GPU and driver contradicts, with
    the claims that are left."""
    against: tuple[JudgedReport, ...]
    """Judgements against the image that no newer one takes back."""
    denied: tuple[JudgedReport, ...]
    """Judgements among them that took a claim away."""
    unheard: tuple[JudgedReport, ...]
    """Judgements that would be among them if the accepted signer had signed them."""
    unread: int
    """Documents that would count, and could not be read or judged: each may be against the image."""

    def findings(self, question: Question) -> Iterator[AuditFinding]:
        """The findings of an audit about them."""
        for found in broken(self.against):
            yield fails(
                found.verdict,
                f"it was found {found.text}",
                hint="use another digest; its publisher can mend it, or verify it again where it was found",
            )
        left = any(found.claims for found in self.verified)
        for found in self.denied:
            mine = question.gpu == found.gpu_class or not left
            yield (fails if mine else mind)(
                found.verdict,
                f"it is no longer known to work on {found.gpu_class}: found {found.text}",
                hint="use another digest on this GPU",
            )
        for found in self.unheard:
            yield mind(
                found.verdict,
                f"a statement says {found.text}; it is not signed by {question.verifier}, and does not count",
                hint="ask the publisher; without the check of signatures it counts",
            )


def judge_all(gathered: Gathered, image: Staged, question: Question, now: datetime) -> Weighed:
    """Every statement by itself, then all of them together."""
    policy = Policy(now=now, max_age=question.max_age)
    judged = [_one(piece, image, question, policy) for piece in gathered.pieces]
    rows = [(row, word) for row, word, _ in judged]
    unjudged = sum(unjudged for *_, unjudged in judged)
    verified = [word for row, word in rows if row.holds and word is not None and word.side == "for"]
    failures = [word for _, word in rows if word is not None and word.side == "against"]
    heard = [word for row, word in rows if row.holds and word is not None and word.side == "against"]
    against = [word for word in standing([*verified, *heard]) if word.side == "against"]
    claiming = without_exempt(verified)  # an exemption holds even if its statement is contradicted
    taken = denied(against, {name for found in claiming for name in found.claims})
    lost = {word.gpu_class for word in taken}
    left = [found for found in claiming if found.key not in {word.key for word in against}]
    unheard = [word for word in standing([*verified, *failures]) if word.side == "against"]
    return Weighed(
        held=tuple(_placed(row, word, against) for row, word in rows),
        verified=tuple(
            replace(found, claims=tuple(name for name in found.claims if name not in lost)) for found in left
        ),
        against=tuple(sorted(against, key=lambda word: word.when, reverse=True)),
        denied=tuple(taken),
        unheard=tuple(word for word in unheard if word not in heard),
        # of documents that count by their signature alone, cosign has the list
        unread=unjudged + (gathered.unread if question.verifier is None else 0),
    )


def _placed(row: Held, word: JudgedReport | None, against: list[JudgedReport]) -> Held:
    """The row, not holding if another statement has the last word about its GPU and driver."""
    if word is None or not row.holds or word in against:
        return row
    over = next((other for other in against if other.key == word.key), None)
    if word.side == "against":
        return replace(row, holds=False, reason=f"{word.text}; a newer report has taken it back")
    return row if over is None else replace(row, holds=False, reason=f"it was found {over.text}")


def _one(
    piece: Piece, image: Staged, question: Question, policy: Policy
) -> tuple[Held, JudgedReport | None, bool]:
    """The row of a piece, its judgement, and whether it counts and could not be judged."""
    predicate = piece.statement.predicate
    kind = KINDS.get(piece.statement.predicate_type, "other")
    failed = kind == "verification" and predicate.get("result") == "FAILED"
    heard = question.verifier is None or piece.signed
    word, reason, unjudged = None, "", False
    try:
        with item(piece.digest):
            if failed or (heard and kind == "verification"):
                word = judge(predicate, image, policy)
                reason = word.text if failed else ""
            elif heard:
                reason = _other(kind, piece, image)
        holds = failed or not reason
        if not heard:
            holds, reason = False, f"not signed by {question.verifier}"
    except CellError as error:
        holds, reason = False, error.message
        unjudged = heard and not isinstance(error, EvidenceError)
    shown = FAILED if failed else str(kind)
    row = Held(kind=shown, digest=piece.digest, signed=piece.signed, holds=holds, reason=reason)
    return row, word, unjudged


def _other(kind: str, piece: Piece, image: Staged) -> str:
    """Why an SBOM or a provenance is not about this image; empty if it is."""
    predicate = piece.statement.predicate
    try:
        if kind == "sbom":
            said = predicate["metadata"]["component"]["version"]
            return "" if said == image.digest else f"it is the SBOM of {said}"
        if kind == "provenance":
            inside = predicate["buildDefinition"]["internalParameters"]
            mine = (inside["content"], inside["inputs"]) == (image.content, image.inputs)
            return "" if mine else "it is the provenance of other content or inputs"
    except (LookupError, TypeError):
        return f"it is no {kind} that rtbuild wrote"
    return "rtbuild does not know this kind of statement"
