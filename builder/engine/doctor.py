"""What this machine has and lacks, each with its remedy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from pathlib import Path

    from builder.engine.engine import Engine
    from builder.errors import MissingToolError

Outcome = Literal["passed", "failed", "not_run"]


@dataclass(frozen=True, kw_only=True)
class DoctorCheck:
    """One thing that was looked for. ``required`` is False for what only some matrices need."""

    name: str
    outcome: Outcome
    found: str
    remedy: str | None = None
    required: bool = True


def diagnose(engine: Engine | MissingToolError, *, cache: Path) -> list[DoctorCheck]:
    """Check the engine (or the error that connecting to it gave), tools, disk and GPU of this machine."""
    raise NotImplementedError
