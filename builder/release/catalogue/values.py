"""The catalogue's knowledge as values, and the compatibility rules' part of it, for every release on every
kind of card. Three answers that never blur: ran, possible, impossible.
"""

import functools
import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Literal, cast

from packaging.requirements import Requirement

from builder.core.model import Cell
from builder.core.versions import key, release
from builder.plan.facts.rules import Choice, Finding, Outcome, check, check_candidate, choices, platform_of
from builder.plan.facts.tables import FrameworkRow, Source, load
from builder.plan.lock import Outdated
from builder.plan.resolve import Proposal, needs_standalone, to_matrix_yaml
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
        for one in self.releases:
            found.setdefault(one.framework, []).append(one)
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


_CANDIDATES = 12
"""Cells of one release that are tried: its Pythons on a few bases."""


def cards_of() -> tuple[Card, ...]:
    """Every GPU model of the tables, by compute capability; with the platform if the card is bound to one."""
    facts = load()
    kinds = {capability: kind for kind in facts.architectures for capability in kind.capabilities}
    rows = []
    for row in facts.gpus.values():
        kind, listed = kinds.get(row.capability), facts.card_drivers.get(row.name)
        rows.append(
            Card(
                name=row.name,
                capability=", ".join(filter(None, (row.capability, row.platform))),
                title=_spelled(row.name, consumer=bool(row.consumer)),
                since=kind.since if kind is not None else None,
                listed=listed.since if listed is not None else None,
                before=kind.before if kind is not None else None,
                sources=tuple(
                    dict.fromkeys(source for one in (row, kind, listed) if one for source in one.sources)
                ),
            )
        )
    return tuple(sorted(rows, key=lambda card: (key(card.capability), card.name)))


def _spelled(name: str, *, consumer: bool) -> str:
    """The name as drivers print it; the tables leave out words that tell no cards apart."""
    words = re.sub(r"^(RTX|GTX|GT|MX)(?=\d)", r"\1 ", name.replace("-", " "))
    if words.startswith(("GeForce", "Quadro", "Jetson", "GRID", "Tesla")):
        return f"NVIDIA {words}"
    return f"NVIDIA GeForce {words}" if consumer else f"NVIDIA {words}"


def releases_of() -> Iterator[Release]:
    """The releases on record, framework by framework, each with its newest first."""
    models: dict[str, str] = {}
    for card in cards_of():
        models.setdefault(card.capability, card.name)
    for table in load().frameworks.values():
        rows = _distinct(table.name, table.rows)
        for row in sorted(rows, key=lambda row: release(row.version), reverse=True):
            yield _release(table.name, table.title, row, models)


def _distinct(framework: str, rows: Sequence[FrameworkRow]) -> list[FrameworkRow]:
    """One row for each version and variant: of tensorflow and tensorflow-gpu the one built for CUDA."""
    found: dict[tuple[str, str], FrameworkRow] = {}
    for row in sorted(rows, key=lambda row: row.distribution != framework):
        known = found.get((row.version, row.variant))
        if known is None or set(known.cpu_only) == set(known.platforms):
            found[row.version, row.variant] = row
    return list(found.values())


def judgement(findings: Sequence[Finding]) -> Judgement:
    """The worst finding decides, and says why; reservations about a yes are warnings."""
    outcome = Outcome.of(findings)
    if outcome.is_possible:
        warned = (finding for finding in findings if finding.outcome is Outcome.WARNS)
        return Judgement(answer="possible", warnings=tuple(map(_remark, warned)))
    worst = _remark(next(finding for finding in findings if finding.outcome is outcome))
    return Judgement(answer=cast("Answer", outcome.answer), reason=worst.text, sources=worst.sources)


def _remark(finding: Finding) -> Remark:
    public = (value.source for value in finding.values if value.source.kind != "cell")
    return Remark(rule=finding.rule, text=finding.message, sources=tuple(dict.fromkeys(public)))


def _release(framework: str, title: str, row: FrameworkRow, models: Mapping[str, str]) -> Release:
    asked = _requirement(framework, row)
    found = _cells_by_python(asked, row)
    base = Release(
        framework=framework,
        title=title,
        version=row.version,
        variant=row.variant,
        requirement=f"{row.distribution}=={row.version}",
        pythons=row.python,
        cuda=row.cuda,
        cudnn=row.cudnn,
        outside=row.brings == "outside" and not set(row.platforms) <= set(row.cpu_only),
        cards={},
        sources=tuple(dict.fromkeys((*row.sources, *row.added.values()))),
    )
    if not found:
        offered = any(choice.row is row for choice in choices(asked))
        reason = "its wheels for this CUDA are on no package index that cells are proposed from"
        if offered:
            reason = "no base on record has a Python and the CUDA that it needs"
        return replace(base, cards=dict.fromkeys(models, Judgement(answer="unknown", reason=reason)))
    choice, cell, findings = found[0]
    whole = judgement(findings)
    floors = (value.text for finding in check(cell, only=("driver",)) for value in finding.values)
    base = replace(
        base,
        requirement=choice.text,
        index=choice.index,
        pins=(*cell.cuda.packages, *cell.pip),
        driver=next(floors, None),
    )
    if whole.answer != "possible":
        return replace(base, cards=dict.fromkeys(models, whole))
    alike = [other for _, other, _ in found if (other.cuda, other.pip) == (cell.cuda, cell.pip)]
    there = {
        platform: [moved for other in alike if _is_possible(moved := replace(other, platform=platform))]
        for platform in filter(None, set(map(_platform, models.values())))
    }
    cells: dict[str | None, Cell] = {None: cell}
    cells |= {
        platform: (*possible, replace(cell, platform=platform))[0] for platform, possible in there.items()
    }
    return replace(
        base,
        cards={
            capability: _on_card(cells[_platform(model)], model, whole.warnings)
            for capability, model in models.items()
        },
        warnings=whole.warnings,
        extensions=tuple(_extensions(framework, cells, models)),
        cells=cells,
        matrix=to_matrix_yaml([Proposal(cell=cell, findings=tuple(findings))], name=framework),
        bases={other.python: str(other.base) for other in reversed(alike)},
        elsewhere={
            platform: tuple(dict.fromkeys(other.python for other in possible))
            for platform, possible in there.items()
            if possible
        },
    )


@functools.cache
def _platform(model: str) -> str | None:
    return platform_of((model,))


def _is_possible(cell: Cell) -> bool:
    return Outcome.of(check(cell, suggest=False)).is_possible


def _on_card(cell: Cell, model: str, known: Sequence[Remark]) -> Judgement:
    """The rules' judgement on a possible cell with another card: by those that look at cards; for a card that
    is bound to a platform by every rule, as none was yet asked there.
    """
    only = () if _platform(model) else ("gpu", "known-bad")
    found = judgement(check(replace(cell, gpus=(model,)), only=only, suggest=False))
    return replace(found, warnings=tuple(one for one in found.warnings if one not in known))


def _extensions(
    framework: str, cells: Mapping[str | None, Cell], models: Mapping[str, str]
) -> Iterator[Extension]:
    """The newest release of each package on record that asks for the framework and is possible beside it."""
    cell = cells[None]
    for name in _asking_for(framework):
        beside, _ = check_candidate(replace(cell, pip=(*cell.pip, name)), None, companions=True)
        text = beside.pip[-1]
        row = load().packages[name].row(text.partition("==")[2]) if "==" in text else None
        if row is None or not _is_possible(beside):
            continue
        bound = {capability: model for capability, model in models.items() if _platform(model)}
        free = {capability: model for capability, model in models.items() if capability not in bound}
        together = _packages_on(beside, tuple(free.values()))
        plain = together.answer == "possible" and not together.warnings
        cards = {
            capability: together if plain else _packages_on(beside, (model,))
            for capability, model in free.items()
        }
        for capability, model in bound.items():
            there = replace(cells[_platform(model)], gpus=(model,), pip=beside.pip)
            cards[capability] = judgement(check(there, suggest=False))
        yield Extension(requirement=text, cards=cards, sources=row.sources)


@functools.cache
def _asking_for(framework: str) -> tuple[str, ...]:
    """Packages on record whose releases ask for a framework, and that are none themselves."""
    facts = load()
    names = (name for name in facts.packages if not facts.is_framework(name))
    return tuple(name for name in names if any(row.asks(framework) for row in facts.packages[name].rows))


def _packages_on(cell: Cell, models: tuple[str, ...]) -> Judgement:
    return judgement(check(replace(cell, gpus=models), only=("package-gpu",)))


def branches_of(releases: Sequence[Release], cards: Sequence[Card]) -> Iterator[Branch]:
    """The releases that fit each driver branch on record, the newest branch first.

    A branch stands for its first release, and a card for its compute capability, unless it is bound to a
    platform: then its own name is asked.
    """
    facts = load()
    asked: dict[str, str] = {}
    for card in cards:
        sm = f"sm_{card.capability.replace('.', '')}"
        asked.setdefault(card.capability, card.name if "," in card.capability else sm)
    by_framework: dict[str, list[Release]] = {}
    for one in releases:
        by_framework.setdefault(one.framework, []).append(one)
    names = {row.driver.partition(".")[0]: row.sources for row in reversed(facts.toolkits)}
    names |= {name: row.sources for name, row in facts.branches.items()}
    for name in sorted(names, key=key, reverse=True):
        first = facts.branches.get(name)
        yield Branch(
            name=name,
            first=first.first if first is not None else None,
            fits={
                capability: tuple(
                    _fit(framework, mine, capability, model, name) for framework, mine in by_framework.items()
                )
                for capability, model in asked.items()
            },
            sources=names[name],
        )


def _fit(framework: str, releases: Sequence[Release], capability: str, model: str, branch: str) -> Fit:
    """The newest of one framework's releases, which come newest first, that a card and a driver run."""
    dropped, why = "", None
    newest: Fit | None = None
    for one in releases:
        found = one.cards[capability]
        cell = one.cells.get(_platform(model))
        if found.answer == "possible" and cell is not None:
            found = _on_driver(cell, model, branch)
            if found.answer == "possible":
                return Fit(framework=framework, release=one, dropped=dropped, why=why)
        if one.version != dropped.partition("+")[0]:
            dropped, why = one.label, found
        newest = newest or Fit(framework=framework, release=None, dropped=dropped, why=why)
    return newest or Fit(framework=framework, release=None)


def _on_driver(cell: Cell, model: str, branch: str) -> Judgement:
    """The driver alone is asked first: its answer is that of every card."""
    found = _driver(cell, branch)
    if found.answer != "possible":
        return found
    return judgement(check(replace(cell, gpus=(model,)), driver=branch, only=("gpu",)))


@functools.lru_cache(maxsize=65536)
def _driver(cell: Cell, branch: str) -> Judgement:
    return judgement(check(cell, driver=branch, only=("driver",)))


def _cells_by_python(asked: Requirement, row: FrameworkRow) -> list[tuple[Choice, Cell, tuple[Finding, ...]]]:
    """The first possible cell of each Python, those that a base has before standalone ones, and the newest
    Python first; else the first that was tried."""
    possible: dict[str, tuple[Choice, Cell, tuple[Finding, ...]]] = {}
    refused: list[tuple[Choice, Cell, tuple[Finding, ...]]] = []
    for choice in choices(asked):
        if choice.row is not row:
            continue
        for cell in choice.cells(()):
            if cell.python in possible or len(refused) == _CANDIDATES:
                continue
            findings = check(cell, suggest=False)
            if judgement(findings).answer == "possible":
                possible[cell.python] = (choice, cell, findings)
            else:
                refused.append((choice, cell, findings))
    found = sorted(possible.values(), key=lambda one: needs_standalone(one[1]))
    return found or refused[:1]


def _requirement(framework: str, row: FrameworkRow) -> Requirement:
    local = f"+{row.variant}" if framework == "torch" and not row.default else ""
    extra = f"[{row.extra}]" if framework == "jax" and row.extra else ""
    return Requirement(f"{row.distribution}{extra}=={row.version}{local}")
