"""Whether published images are known to work, answered from their registry alone."""

import enum
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial

from builder.verify.evidence import Verifier


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
