"""One thing that an audit looked at, and what came of it."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Outcome(enum.StrEnum):
    """``fails`` alone makes a no; what could not be looked at is never counted as a yes or a no."""

    PASSES = "passes"
    MIND = "mind"
    FAILS = "fails"
    NOT_RUN = "not_run"


@dataclass(frozen=True, kw_only=True)
class Finding:
    """``what`` is a stable id, listed in ``docs/evidence.md``: ``base``, ``cudnn-patch``, ``machine`` …"""

    what: str
    outcome: Outcome
    message: str
    hint: str | None = None
