"""The input of the evidence, the record of an attached piece, and a reason against one."""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from builder.image.recipe import Recipe
from builder.verify.runner import SealedReport

Kind = Literal["verification", "sbom", "provenance"]


@dataclass(frozen=True, kw_only=True)
class Evidence:
    recipe: Recipe
    verifications: tuple[SealedReport, ...]
    claims: tuple[str, ...]
    """GPU classes that the image is published for."""
    exempt: tuple[str, ...] = ()
    """GPU classes that its cell names but that it is not published for."""
    as_of: datetime | None = None
    """The time of the newest report that was known when the exemptions were made."""
    matrix: bytes = b""
    """The matrix file; empty if it is not known."""
    lock: bytes = b""
    """The lock file; empty if it is not known."""


@dataclass(frozen=True, kw_only=True)
class Attached:
    kind: Kind
    predicate_type: str
    digest: str
    """Of the artifact's manifest."""
    size: int
    """Of the statement, in bytes."""
    by: Literal["referrers", "tag"]
    """The list that has it: the registry's referrers API, or the tag ``sha256-<hex>``."""
    new: bool
    """False if it and the requested signature were there already."""
    signed: bool


@dataclass(frozen=True)
class Refusal:
    """One reason against a report, or why a cell is not published."""

    kind: Literal[
        "missing", "unverified", "host", "busy", "broken", "unsupported-gpu", "test-double", "no-proof",
        "old", "future", "digest", "content", "probe", "edited", "differs", "claim", "unknown-gpu", "clock",
        "not-staged", "unproven", "unsigned", "moved", "other-image", "tag", "evidence",
        "suite",
    ]  # fmt: skip
    """The table in docs/publish.md says what each means."""
    text: str
    hint: str | None = None
