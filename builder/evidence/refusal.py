"""Reasons why a report does not count, or why a cell is not published."""

from dataclasses import dataclass
from typing import Literal

Kind = Literal[
    "missing", "unverified", "host", "busy", "broken", "unsupported-gpu", "test-double", "no-proof",
    "old", "future", "digest", "content", "probe", "edited", "differs", "claim", "unknown-gpu", "clock",
    "not-staged", "unproven", "unsigned", "moved", "other-image", "tag", "evidence",
]  # fmt: skip
"""The table in docs/publish.md says what each means."""


@dataclass(frozen=True)
class Refusal:
    """One reason against a report or a publication."""

    kind: Kind
    text: str
    hint: str | None = None
