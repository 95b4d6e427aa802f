"""What the catalogue knows, as values. Three answers that never blur: ran, possible, impossible."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from builder.model import Cell

Answer = Literal["possible", "impossible", "unknown"]
"""What the rules say before anything ran. ``ran`` is said by a :class:`Run` alone."""


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """One answer, why, and the public source that decided."""

    answer: Answer
    reason: str = ""
    source: str = ""


@dataclass(frozen=True, kw_only=True)
class Release:
    """One release of a framework in one CUDA variant, and what the rules say of it on each kind of card."""

    framework: str
    title: str
    version: str
    variant: str
    requirement: str
    """As pip takes it: ``jax[cuda12]==0.6.2``."""
    index: tuple[str, ...]
    """Extra package indexes that pip needs."""
    pythons: tuple[str, ...]
    cuda: str | None
    cudnn: str | None
    driver: str | None
    """The oldest driver that runs it."""
    cards: Mapping[str, Judgement]
    """By compute capability: ``7.5``."""
    matrix: str
    """A matrix file with one cell of it; empty if there is no possible cell."""
    bases: Mapping[str, str]
    """The base to stand on by Python: the matrix with these two in it is possible, too."""
    source: str


@dataclass(frozen=True, kw_only=True, order=True)
class Card:
    """A GPU model."""

    name: str
    capability: str


@dataclass(frozen=True, kw_only=True)
class Run:
    """A report on one image on one GPU."""

    gpu: str
    """As the driver names it."""
    card: str | None
    """The model in the tables; None if no table has it."""
    driver: str
    when: datetime
    verdict: str
    cause: str | None
    digest: str
    evidence: str
    """Where the report is."""


@dataclass(frozen=True, kw_only=True)
class Part:
    """A wheel or the base of an image; ``size`` is in bytes, as downloaded."""

    name: str
    version: str
    size: int


@dataclass(frozen=True, kw_only=True)
class DatedRuntime:
    """One of Colab's dated runtimes: its packages by name."""

    name: str
    packages: Mapping[str, str | None]


@dataclass(frozen=True, kw_only=True)
class CataloguedImage:
    """One cell of a matrix: what it holds, where it is published, on which cards it ran."""

    cell: Cell
    possible: Judgement
    parts: tuple[Part, ...]
    """Largest first; empty if the cell is not locked."""
    runs: tuple[Run, ...] = ()
    """Newest first."""
    published: str | None = None
    """``repository:tag``."""
    digest: str | None = None

    @property
    def works_on(self) -> tuple[str, ...]:
        """Cards on which the newest report about this very digest says ``works``.

        Without a publication the newest report tells which digest the image has.
        """
        digest = self.digest or next((run.digest for run in self.runs), None)
        newest: dict[str, Run] = {}
        for run in self.runs:  # newest first
            if run.card is not None and run.digest == digest:
                newest.setdefault(run.card, run)
        return tuple(sorted(card for card, run in newest.items() if run.verdict == "works"))


@dataclass(frozen=True, kw_only=True)
class Cause:
    """A reason for a failed verdict, and the texts by which people meet it."""

    id: str
    title: str
    side: str
    explanation: str
    remedy: str
    source: str
    texts: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Catalogue:
    """All that the site shows."""

    releases: tuple[Release, ...]
    cards: tuple[Card, ...]
    images: tuple[CataloguedImage, ...]
    causes: tuple[Cause, ...]
    runtimes: tuple[DatedRuntime, ...]
    notes: tuple[str, ...] = ()
    """Files that could not be read, and why; the site says so."""
