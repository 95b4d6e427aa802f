"""The order for a publication, and the state of each cell in it."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from builder import resources
from builder.errors import CellError
from builder.model import Cell

if TYPE_CHECKING:
    from builder.evidence.cosign import Signer
    from builder.evidence.documents import Attached
    from builder.evidence.judgement import JudgedReport
    from builder.evidence.refusal import Refusal
    from builder.evidence.signatures import People
    from builder.oci.copying import Tally
    from builder.oci.staging import Staged
    from builder.publish.candidate import Found
    from builder.publish.gate import Decision
    from builder.publish.tags import TagStep
    from builder.verify.entry import SealedReport

State = Literal["published", "unchanged", "planned", "refused", "failed", "cancelled"]


@dataclass(frozen=True, kw_only=True)
class Order:
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
    """Whose signature an image of another machine needs. None: signatures are not checked."""
    reporters: People | None = None
    """Whose signature a report needs. None: nobody's."""
    cache: Path = field(default_factory=resources.cache)
    jobs: int = 2
    """Images at a time."""


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
