"""The stations of one cell, each a step from a frozen value to the next, and the lines of the first two."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from builder import __version__
from builder.core.errors import CellError
from builder.core.model import Cell, Image, Matrix, Pinned, Report, Verdict
from builder.image.recipe import Recipe, render, write
from builder.pipeline.events import CellOutcome, CellResult, Stage
from builder.pipeline.options import Gpus, LockOptions, RenderOptions
from builder.pipeline.schedule import Hooks, Walk, walk_all
from builder.pipeline.site import Site, open_site
from builder.plan.facts.reading.cache import Memory
from builder.plan.facts.rules.checking import check
from builder.plan.facts.rules.finding import Outcome as Judgement
from builder.plan.facts.rules.finding import summary

if TYPE_CHECKING:
    from builder.image.compose import ComposedImage
    from builder.image.engine import Engine, StoredImage
    from builder.sources.oci import Staged
    from builder.verify.runner import ReportStore

    Described = ComposedImage | Staged | StoredImage


def check_cell(walk: Walk, site: Site, *, refuse: bool = True) -> None:
    """Judge a cell by its lock, if there is one, and the facts.

    Raises CellError for an impossible one, unless it is not to ``refuse`` any.
    """
    with walk.stage(Stage.CHECK):
        pinned = site.stores.locks.pinned(walk.cell)
        memory = Memory(mirrors=site.sources.mirrors, cache=site.stores.cache)
        findings = check(walk.cell, memory.truth(walk.cell, pinned))
        outcome = summary(findings)
        walk.done(outcome.answer)
        for finding in findings:
            if finding.outcome is Judgement.WARNS:
                walk.note(f"{finding.rule}: {finding.message}", warning=True)
        if outcome is not Judgement.IMPOSSIBLE:
            return
        worst = next(finding for finding in findings if finding.outcome is Judgement.IMPOSSIBLE)
        if not refuse:
            walk.note(f"built although refused: {worst.rule}: {worst.message}", warning=True)
            return
        raise CellError(
            f"this cell is impossible ({worst.rule}): {worst.message}",
            hint=f"possible instead: {worst.nearest}" if worst.nearest else "`rtbuild explain` says why",
        )


def lock_cell(walk: Walk, site: Site, *, upgrade: bool | frozenset[str] = False) -> Pinned:
    """The cell with everything fixed by content: from the lock, or resolved now and written to it.

    ``upgrade`` is that of :class:`LockOptions`.
    """
    with walk.stage(Stage.LOCK):
        pinned = site.stores.locks.pinned(walk.cell)
        if pinned is None or upgrade:
            from builder.plan.lock import pin

            walk.progress("resolving", quiet=False)
            pinned = pin(
                walk.cell,
                index=site.sources.index,
                registry=site.sources.registry,
                debian=site.sources.debian,
                # also a stale one: a new resolution moves away from it no more than it must
                previous=site.stores.locks.pinned(walk.cell, stale=True),
                upgrade=upgrade,
                note=walk.note,
                workshop=site.sources.workshop(walk),
                pythons=site.sources.pythons,
            )
            site.stores.locks.keep(pinned)
        size = sum(wheel.size for wheel in pinned.wheels)
        walk.done(f"{len(pinned.wheels)} wheels, {size / 1e9:.2f} GB")
        return pinned


def render_cell(walk: Walk, site: Site, pinned: Pinned) -> Recipe:
    with walk.stage(Stage.RENDER):
        recipe = render(pinned, probe=site.stores.probe, version=__version__)
        walk.done(recipe.inputs[:19])
        return recipe


def refuse_large(pinned: Pinned, size: int) -> None:
    """Raise CellError if an image has more bytes, unpacked, than its matrix allows."""
    budget = pinned.cell.options.max_size
    if budget is not None and size > budget:
        largest = sorted(pinned.wheels, key=lambda wheel: -wheel.size)[:3]
        named = ", ".join(f"{one.name} {one.version} ({one.size / 1e6:.1f} MB as a wheel)" for one in largest)
        raise CellError(
            f"the image has {size / 1e9:.2f} GB, its budget is {budget / 1e9:.2f} GB; largest are {named}",
            hint=f"`rtbuild size {pinned.cell.id}` says more; raise `max-size`, or leave packages out",
        )


def verify_cell(
    walk: Walk,
    engine: Engine,
    image: Image,
    pinned: Pinned | None,
    *,
    reports: ReportStore,
    gpus: Gpus,
    again: bool = False,
) -> Report:
    """Run the probe in the image, or find a report about this very content, probe, GPU and driver.

    ``pinned`` says what has to be in the image; None if no lock does. ``gpus`` and ``again`` are those of
    :func:`builder.verify.runner.probe_run.verify`.
    """
    from builder.verify.runner import Expectation, verify

    with walk.stage(Stage.VERIFY):
        walk.progress("cudnn-verify", quiet=False)
        report = verify(
            image,
            engine=engine,
            expect=Expectation.of(pinned) if pinned is not None else Expectation(),
            gpus=gpus,
            store=reports,
            again=again,
            cancel=walk.cancel,
            waits=lambda: walk.progress("waits for the GPU, which another probe has", quiet=False),
        )
        walk.done(report.verdict.value + (f", {report.cause}" if report.cause else ""))
        return report


def outcome_of(report: Report) -> CellOutcome:
    """The outcome of a cell by its verdict: the image's fault fails it, the machine's does not."""
    known = {
        Verdict.WORKS: CellOutcome.WORKS,
        Verdict.UNVERIFIED: CellOutcome.UNVERIFIED,
        Verdict.HOST: CellOutcome.HOST,
        Verdict.BUSY: CellOutcome.HOST,
    }
    return known.get(report.verdict, CellOutcome.FAILED)


def image_of(
    cell: Cell, reference: str, described: Described, *, reused: bool = False, pushed: str | None = None
) -> Image:
    """The image of a cell, as this machine made it, or a repository or an engine has it."""
    return Image(
        cell=cell,
        reference=reference,
        digest=described.digest,
        content=described.content,
        size=described.size,
        reused=reused,
        pushed=pushed,
    )


def lock_cells(
    matrices: Sequence[Matrix], cells: Sequence[Cell], options: LockOptions, hooks: Hooks
) -> list[CellResult]:
    """Bring the lock of every cell up to date."""
    site = open_site(matrices, hooks.emit, mirrors=options.mirrors)

    def one(walk: Walk) -> CellResult:
        lock_cell(walk, site, upgrade=options.upgrade)
        return walk.ended(CellOutcome.DONE)

    return walk_all(cells, (Stage.LOCK,), one, hooks)


def render_cells(
    matrices: Sequence[Matrix], cells: Sequence[Cell], options: RenderOptions, hooks: Hooks
) -> list[CellResult]:
    """Write the recipe of every cell."""
    site = open_site(matrices, hooks.emit, mirrors=options.mirrors)
    if options.locked:
        site.stores.locks.fresh(cells)

    def one(walk: Walk) -> CellResult:
        recipe, blobs = render_cell(walk, site, lock_cell(walk, site)), {}
        if options.text_only:
            recipe = replace(recipe, blobs={})
        else:
            from builder.pipeline.fetch import fetch_blobs

            blobs = fetch_blobs(walk, site, recipe)
        write(recipe, options.folder / walk.cell.id, blobs=blobs)
        return walk.ended(CellOutcome.DONE)

    return walk_all(cells, (Stage.LOCK, Stage.RENDER), one, hooks)
