"""What the catalogue knows, as values. Three answers that never blur: ran, possible, impossible."""

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from builder.core.model import Cell
from builder.plan.lock import Outdated
from builder.release.colab import Listed

_LONGEST = 100
"""Letters of a text in a file's name, of whose 255 two texts, a digest and an ending have their part."""
Answer = Literal["possible", "impossible", "unknown"]
"""What the rules say before anything ran. ``ran`` is said by a :class:`Run` alone."""


def slug(text: str) -> str:
    """A text as a part of a file's name: nothing in it leaves its folder, and no two texts have the same."""
    made = re.sub(r"[^a-z0-9.+_]+", "-", text.casefold()).strip("-.")
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    return made if made == text and len(made) <= _LONGEST else f"{made[:_LONGEST]}-{digest}".lstrip("-")


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """One answer, why, and the public source that decided."""

    answer: Answer
    reason: str = ""
    source: str = ""


@dataclass(frozen=True, kw_only=True)
class Release:
    """One release of a framework in one CUDA variant, and the judgement of the rules on each kind of card."""

    framework: str
    title: str
    version: str
    variant: str
    requirement: str
    """As pip takes it: ``jax[cuda12]==0.6.2``."""
    index: tuple[str, ...] = ()
    """Extra package indexes that pip needs."""
    pythons: tuple[str, ...]
    cuda: str | None
    cudnn: str | None
    driver: str | None = None
    """The oldest driver that runs it."""
    cards: Mapping[str, Judgement]
    """By :attr:`Card.capability`."""
    matrix: str = ""
    """A matrix file with one cell of it; empty if there is no possible cell."""
    bases: Mapping[str, str] = field(default_factory=dict)
    """The base to stand on by Python: the matrix with these two in it is possible, too."""
    source: str


@dataclass(frozen=True, kw_only=True, order=True)
class Card:
    """A GPU model."""

    name: str
    capability: str
    """``9.0``; ``9.0, linux/arm64`` of a card that is bound to a platform."""


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
    """A wheel, the base, or a layer as a registry has it; ``size`` is in bytes, as downloaded."""

    name: str
    version: str
    size: int


def newest_first(runs: Iterable[Run]) -> tuple[Run, ...]:
    return tuple(sorted(dict.fromkeys(runs), key=lambda run: run.when, reverse=True))


def largest_first(parts: Iterable[Part]) -> tuple[Part, ...]:
    return tuple(sorted(parts, key=lambda part: (-part.size, part.name)))


@dataclass(frozen=True, kw_only=True)
class CataloguedImage:
    """One cell of a matrix, or an image of a registry: its contents, places, and cards on which it ran."""

    cell: Cell
    possible: Judgement
    parts: tuple[Part, ...]
    """Largest first; empty if the cell is not locked and no registry was asked."""
    packages: Mapping[str, str] = field(default_factory=dict)
    """Python packages and their versions, by the lock or the SBOM."""
    runs: tuple[Run, ...] = ()
    """Newest first."""
    published: str | None = None
    """``repository:tag``."""
    digest: str | None = None
    outdated: Outdated | None = None
    """What is newer than the image, or its lock if it is not published; None if nobody asked."""
    earlier: tuple[str, ...] = ()
    """Digests of earlier publications of this cell, which the tag has left."""
    beside: bool = False
    """Another image has the cell's name as well, and the plain page: this one's page has the digest in it."""

    @property
    def size(self) -> int:
        """Bytes to download; 0 if nobody knows."""
        return sum(part.size for part in self.parts)

    @property
    def page(self) -> str:
        """The page's name; a cell's id is a legal tag, and two matrices may have the same."""
        name = f"{slug(self.cell.matrix)}--{slug(self.cell.id)}"
        return f"{name}--{slug((self.digest or '')[7:19])}.html" if self.beside else f"{name}.html"

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
    runtimes: tuple[Listed, ...]
    notes: tuple[str, ...] = ()
    """Files that could not be read, and why; the site says so."""

    def capabilities(self) -> dict[str, list[str]]:
        """The models by compute capability; the rules were asked about the first of each."""
        found: dict[str, list[str]] = {}
        for card in self.cards:
            found.setdefault(card.capability, []).append(card.name)
        return found
