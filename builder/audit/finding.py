"""The question that an audit answers, and its findings."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import timedelta

    from builder.evidence.cosign import Verifier


@dataclass(frozen=True, kw_only=True)
class Question:
    """The asker's conditions beyond whether the image works at all."""

    verifier: Verifier | None = None
    """Whose signature counts. Without one, nobody's is checked."""
    gpu: str | None = None
    """A class of ``facts/gpus.toml``."""
    driver: str | None = None
    """``535`` or ``535.104.05``."""
    max_age: timedelta | None = None
    """Verifications older than this do not count."""


class AuditOutcome(enum.StrEnum):
    """Only ``fails`` makes a no; a check that could not run counts neither as a yes nor as a no."""

    PASSES = "passes"
    MIND = "mind"
    FAILS = "fails"
    NOT_RUN = "not_run"


@dataclass(frozen=True, kw_only=True)
class AuditFinding:
    """``what`` is a stable id, listed in ``docs/evidence.md``: ``base``, ``cudnn-patch``, ``machine`` …"""

    what: str
    outcome: AuditOutcome
    message: str
    hint: str | None = None
