"""The catalogue's knowledge as values. Three answers that never blur: ran, possible, impossible."""

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from builder.core.model import Cell
from builder.core.versions import key
from builder.plan.facts.tables import Source
from builder.plan.lock import Outdated
from builder.release.colab import Listed

_LONGEST = 100
"""Letters of a text in a file's name, of whose 255 two texts, a digest and an ending have their part."""
Answer = Literal["possible", "impossible", "unknown"]
"""The rules' answer before anything ran. ``ran`` is said by a :class:`Run` alone."""


def slug(text: str) -> str:
    """A text as a part of a file's name: nothing in it leaves its folder, and no two texts have the same."""
    made = re.sub(r"[^a-z0-9.+_]+", "-", text.casefold()).strip("-.")
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    return made if made == text and len(made) <= _LONGEST else f"{made[:_LONGEST]}-{digest}".lstrip("-")


@dataclass(frozen=True, kw_only=True)
class Remark:
    """A rule's remark, and the public sources of the values that it weighed."""

    rule: str
    text: str
    sources: tuple[Source, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """One answer, why, and the public sources that decided; ``warnings`` are reservations about a yes."""

    answer: Answer
    reason: str = ""
    sources: tuple[Source, ...] = ()
    warnings: tuple[Remark, ...] = ()

    @property
    def source(self) -> str:
        """The last source, that of the value which others were held against; empty if the matrix decided."""
        return self.sources[-1].reference if self.sources else ""


@dataclass(frozen=True, kw_only=True)
class Extension:
    """A compiled package beside a framework's release: the newest that the rules accept there."""

    requirement: str
    """``torchvision==0.21.0``."""
    cards: Mapping[str, Judgement]
    """By :attr:`Card.capability`: of the package alone."""
    sources: tuple[Source, ...]


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
    pins: tuple[str, ...] = ()
    """Requirements for pip beside it: NVIDIA's wheels that it does not ask for, bounds on others."""
    outside: bool = False
    """True if CUDA and cuDNN do not come with its wheel."""
    pythons: tuple[str, ...]
    cuda: str | None
    cudnn: str | None
    driver: str | None = None
    """The oldest driver that runs it."""
    cards: Mapping[str, Judgement]
    """By :attr:`Card.capability`; the reservations are those about the card alone."""
    warnings: tuple[Remark, ...] = ()
    """Reservations on every card."""
    extensions: tuple[Extension, ...] = ()
    cells: Mapping[str | None, Cell] = field(default_factory=dict)
    """That of :attr:`matrix`, and by the platform that a card is bound to the one that is judged there."""
    matrix: str = ""
    """A matrix file with one cell of it; empty if there is no possible cell."""
    bases: Mapping[str, str] = field(default_factory=dict)
    """The base to stand on by Python: the matrix with these two in it is possible, too."""
    elsewhere: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By the platform that a card is bound to: the Pythons of :attr:`bases` that are possible there, too."""
    sources: tuple[Source, ...]

    @property
    def label(self) -> str:
        """``2.9.1+cu128``: unique among a framework's."""
        return f"{self.version}+{self.variant}" if self.variant else self.version

    @property
    def read(self) -> str:
        """The day on which its facts were read last, ``YYYY-MM-DD``; empty if no source has a day."""
        return max((source.date or "" for source in self.sources), default="")


@dataclass(frozen=True, kw_only=True, order=True)
class Card:
    """A GPU model."""

    name: str
    capability: str
    """``9.0``; ``9.0, linux/arm64`` of a card that is bound to a platform."""
    title: str = ""
    """As ``nvidia-smi`` spells it: ``NVIDIA GeForce RTX 3090`` of ``RTX3090``."""
    since: str | None = None
    """The oldest driver of its generation."""
    listed: str | None = None
    """The first driver that lists the card itself, if its generation is older."""
    before: str | None = None
    """The first driver branch that serves its generation no more."""
    sources: tuple[Source, ...] = ()

    def may_run_on(self, branch: str) -> bool:
        """Whether no release of a driver branch is known to be too old for the card itself."""
        return self.listed is None or key(branch)[:1] >= key(self.listed)[:1]


@dataclass(frozen=True, kw_only=True)
class Fit:
    """The newest release of one framework for a kind of card and a driver branch, and what was dropped."""

    framework: str
    release: Release | None
    """None if none on record is known to run."""
    dropped: str = ""
    """The release after it, or the newest on record if none runs; empty if the newest on record runs."""
    why: Judgement | None = None
    """The judgement on the dropped one."""


@dataclass(frozen=True, kw_only=True)
class Branch:
    """One driver branch and what fits it."""

    name: str
    """``535``."""
    first: str | None
    """Its first public release; None if no table has it."""
    fits: Mapping[str, tuple[Fit, ...]]
    """By :attr:`Card.capability`, one for each framework."""
    sources: tuple[Source, ...]


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
    """The place of the report."""


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
    """Newer things than those of the image, or of its lock if it is not published; None if nobody asked."""
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
    """All contents of the site."""

    releases: tuple[Release, ...]
    cards: tuple[Card, ...]
    images: tuple[CataloguedImage, ...]
    causes: tuple[Cause, ...]
    runtimes: tuple[Listed, ...]
    branches: tuple[Branch, ...] = ()
    """Driver branches, the newest first."""
    notes: tuple[str, ...] = ()
    """Files that could not be read, and why; the site says so."""

    def by_framework(self) -> dict[str, list[Release]]:
        """Each framework's releases, the newest first."""
        found: dict[str, list[Release]] = {}
        for release in self.releases:
            found.setdefault(release.framework, []).append(release)
        return found

    def newest(self) -> dict[str, tuple[Fit, ...]]:
        """By compute capability: the newest possible release of each framework, and what was dropped."""
        frameworks = self.by_framework()
        return {
            capability: tuple(_newest(name, mine, capability) for name, mine in frameworks.items())
            for capability in self.capabilities()
        }

    def capabilities(self) -> dict[str, list[str]]:
        """The models by compute capability; the rules were asked about the first of each."""
        found: dict[str, list[str]] = {}
        for card in self.cards:
            found.setdefault(card.capability, []).append(card.name)
        return found


def _newest(framework: str, releases: Sequence[Release], capability: str) -> Fit:
    best = next((one for one in releases if one.cards[capability].answer == "possible"), None)
    newer = releases[: releases.index(best)] if best is not None else releases
    after = next((one for one in reversed(newer) if best is not None and one.version != best.version), None)
    if best is None:
        after = next(iter(releases), None)
    return Fit(
        framework=framework,
        release=best,
        dropped=after.label if after is not None else "",
        why=after.cards[capability] if after is not None else None,
    )
