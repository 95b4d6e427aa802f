"""What is asked of an audit, and what it says of each thing that it looked at."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import timedelta

    from builder.evidence import Verifier


@dataclass(frozen=True, kw_only=True)
class Question:
    """What the asker wants to know, beyond whether it works at all."""

    verifier: Verifier | None = None
    """Whose signature counts. Without one, nobody's is checked."""
    gpu: str | None = None
    """A class of ``facts/gpus.toml``."""
    driver: str | None = None
    """``535`` or ``535.104.05``."""
    max_age: timedelta | None = None
    """Verifications older than this do not count."""


class AuditOutcome(enum.StrEnum):
    """``fails`` alone makes a no; what could not be looked at is never counted as a yes or a no."""

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
