"""The stations of one cell. Each is one step from a frozen value to the next."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from builder import __version__, resources
from builder.errors import CellError
from builder.facts import Outcome as Judgement
from builder.facts import check, summary
from builder.facts.memory import Memory
from builder.lock.resolve import pin
from builder.model import Image, RootfsBase
from builder.oci.registry import Registry
from builder.pipeline.events import CellResult, Outcome, Stage
from builder.pipeline.stacking import fetch_blobs, mirrored, ready_made, takes_layers
from builder.recipe import render, write
from builder.recipe.bundle import kept_bundle
from builder.sdist import Workshop
from builder.verify import Expectation, verify

if TYPE_CHECKING:
    from collections.abc import Mapping

    from builder.debian.archive import Debian
    from builder.engine import BuildEvent, Engine, StoredImage
    from builder.index.client import Index
    from builder.layers import LayerStore
    from builder.model import Cell, Pinned, Report
    from builder.pipeline.locks import LockKeeper
    from builder.pipeline.schedule import Walk
    from builder.pipeline.settings import Settings
    from builder.pipeline.sharing import SharedLayers
    from builder.recipe.values import Recipe
    from builder.verify import ReportStore


@dataclass(frozen=True, kw_only=True)
class Site:
    """What the stages work with: the outer world by its four doors, and rtbuild's own stores."""

    settings: Settings
    registry: Registry
    debian: Debian
    index: Index
    keepers: Mapping[str, LockKeeper]
    probe: bytes = field(default_factory=lambda: kept_bundle(resources.cache()))
    """``cudnn-verify``, the one file."""
    engine: Engine | None = None
    layers: LayerStore | None = None
    shared: SharedLayers | None = None
    """Where layers are looked for that this machine has not made."""
    leaving: SharedLayers | None = None
    """Where layers are left for others: beside the images that are pushed."""
    reports: ReportStore | None = None
    writing: Registry = field(default_factory=Registry.to_write)
    """The door to repositories that are pushed to, and never to a mirror."""

    def workshop(self, walk: Walk) -> Workshop:
        """Where a cell's wheels are built from sources."""
        return Workshop(
            debian=self.debian, cache=self.settings.cache, cancel=walk.cancel, progress=walk.progress
        )


def check_cell(walk: Walk, site: Site) -> None:
    """Stop an impossible cell, by its lock where there is one and by the facts. CellError."""
    with walk.stage(Stage.CHECK):
        pinned = site.keepers[walk.cell.matrix].pinned(walk.cell)
        memory = Memory(mirrors=site.settings.mirrors, cache=site.settings.cache)
        findings = check(walk.cell, memory.truth(walk.cell, pinned))
        outcome = summary(findings)
        walk.done(outcome.answer)
        for finding in findings:
            if finding.outcome is Judgement.WARNS:
                walk.note(f"{finding.rule}: {finding.message}", warning=True)
        if outcome is not Judgement.IMPOSSIBLE:
            return
        worst = next(f for f in findings if f.outcome is Judgement.IMPOSSIBLE)
        if not site.settings.refuse:
            walk.note(f"built although refused: {worst.rule}: {worst.message}", warning=True)
            return
        raise CellError(
            f"this cell is impossible ({worst.rule}): {worst.message}",
            hint=f"possible instead: {worst.nearest}" if worst.nearest else "`rtbuild explain` says why",
        )


def lock_cell(walk: Walk, site: Site) -> Pinned:
    """The cell with everything fixed by content: from the lock, or resolved now and written to it."""
    with walk.stage(Stage.LOCK):
        keeper = site.keepers[walk.cell.matrix]
        pinned = keeper.pinned(walk.cell)
        if pinned is None or site.settings.upgrade:
            walk.progress("resolving", quiet=False)
            pinned = keeper.pin(
                walk.cell,
                lambda previous: pin(
                    walk.cell,
                    index=site.index.with_extra(walk.cell.index),
                    registry=site.registry,
                    debian=site.debian,
                    previous=previous,
                    upgrade=site.settings.upgrade,
                    note=walk.note,
                    workshop=site.workshop(walk),
                ),
            )
        size = sum(wheel.size for wheel in pinned.wheels)
        walk.done(f"{len(pinned.wheels)} wheels, {size / 1e9:.2f} GB")
        return pinned


def render_cell(walk: Walk, site: Site, pinned: Pinned) -> Recipe:
    with walk.stage(Stage.RENDER):
        recipe = render(pinned, probe=site.probe, version=__version__)
        walk.done(recipe.inputs[:19])
        return recipe


def build_cell(
    walk: Walk, site: Site, recipe: Recipe, log: Path, *, there: StoredImage | None = None
) -> Image:
    """Build the recipe, or find that an image with the same inputs is there.

    ``there`` is the image that was found before; without, the engine is asked.
    """
    from builder.engine import user_network

    engine, settings, cell = site.engine, site.settings, walk.cell
    assert engine is not None  # noqa: S101 - the scheduler connects before it sends cells here
    name = settings.image_name(cell.matrix, cell.id)
    if not settings.no_cache:
        there = there or engine.find(recipe.inputs)
        if there is not None:
            with walk.stage(Stage.BUILD):
                if there.reference != name:
                    engine.tag(there.reference, name)
                walk.done("there already, nothing to build")
            return image_of(cell, name, there, reused=True)
    with ExitStack() as stack:
        if takes_layers(walk, site):
            contexts, blobs = ready_made(walk, site, recipe, stack), {}
        else:
            contexts, blobs = mirrored(site, recipe.pinned), fetch_blobs(walk, site, recipe, ())
        indexes = site.index.with_extra(cell.index).settings
        network = stack.enter_context(user_network(indexes=(indexes.default, *indexes.extra)))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rtbuild-")))
        with walk.stage(Stage.BUILD):
            context = folder / cell.id
            # Ready-made layers stand in for the stages that take the large files.
            write(recipe if blobs else replace(recipe, blobs={}), context, blobs=blobs)
            built = engine.build(
                context,
                tag=name,
                platform=cell.platform,
                epoch=recipe.pinned.epoch,
                log=log,
                on_event=lambda event: _tell(walk, event),
                cancel=walk.cancel,
                compression=cell.options.compression,
                recompress=isinstance(recipe.pinned.base, RootfsBase),
                build_contexts=contexts,
                secrets=network.secrets,
                build_args=network.build_args,
                no_cache=settings.no_cache,
                cache_from=[text.replace("{cell}", cell.id) for text in settings.cache_from],
                cache_to=[text.replace("{cell}", cell.id) for text in settings.cache_to],
            )
            walk.done(f"{name} {built.image.size / 1e9:.2f} GB {built.image.digest[:19]}")
    image = image_of(cell, name, built.image, reused=False)
    refuse_large(recipe.pinned, image.size)
    return image


def refuse_large(pinned: Pinned, size: int) -> None:
    """Raise CellError where an image has more bytes, unpacked, than its matrix allows."""
    budget = pinned.cell.options.max_size
    if budget is not None and size > budget:
        largest = sorted(pinned.wheels, key=lambda wheel: -wheel.size)[:3]
        named = ", ".join(f"{one.name} {one.version} ({one.size / 1e6:.1f} MB as a wheel)" for one in largest)
        raise CellError(
            f"the image has {size / 1e9:.2f} GB, its budget is {budget / 1e9:.2f} GB; largest are {named}",
            hint=f"`rtbuild size {pinned.cell.id}` says more; raise `max-size`, or leave packages out",
        )


def _tell(walk: Walk, event: BuildEvent) -> None:
    from builder.engine import StepFinished, StepOutput, StepStarted, Transfer

    match event:
        case StepStarted():
            walk.progress(f"[{event.number}/{event.total}] {event.name}", event.number, event.total)
        case StepFinished():
            pass
        case StepOutput():
            walk.progress(event.line.strip()[:120])
        case Transfer():
            walk.progress(f"{event.what}", event.done, event.total)


def verify_cell(walk: Walk, site: Site, image: Image, expect: Expectation) -> Report:
    """Run the probe in the image, or find a report about this very content, probe, GPU and driver."""
    assert site.engine is not None  # noqa: S101 - the scheduler connects before it sends cells here
    with walk.stage(Stage.VERIFY):
        walk.progress("cudnn-verify", quiet=False)
        report = verify(
            image,
            engine=site.engine,
            expect=expect,
            gpus=site.settings.gpus,
            timeout=site.settings.timeout,
            store=site.reports,
            cancel=walk.cancel,
            waits=lambda: walk.progress("waits for the GPU, which another probe has", quiet=False),
        )
        walk.done(report.verdict.value + (f", {report.cause}" if report.cause else ""))
        return report


def outcome_of(report: Report) -> Outcome:
    """What a verdict means for a cell: the image's fault fails it, the machine's does not."""
    match report.verdict.value:
        case "works":
            return Outcome.WORKS
        case "unverified":
            return Outcome.UNVERIFIED
        case "host" | "busy":
            return Outcome.HOST
        case _:
            return Outcome.FAILED


def image_of(cell: Cell, name: str, stored: StoredImage, *, reused: bool) -> Image:
    return Image(
        cell=cell,
        reference=name,
        digest=stored.digest,
        content=stored.content,
        size=stored.size,
        reused=reused,
    )


def ended(
    walk: Walk,
    outcome: Outcome,
    *,
    image: Image | None = None,
    report: Report | None = None,
    log: Path | None = None,
) -> CellResult:
    return CellResult(
        cell=walk.cell,
        outcome=outcome,
        stage=walk.current,
        seconds=dict(walk.seconds),
        image=image,
        report=report,
        log=str(log) if log is not None and log.is_file() else None,
        notes=tuple(walk.notes),
    )


def write_recipe(walk: Walk, site: Site, recipe: Recipe, folder: Path, *, text_only: bool) -> None:
    """The recipe as a folder. Without its large files it is for reading, not for building."""
    target = folder / walk.cell.id
    if text_only:
        write(replace(recipe, blobs={}), target, blobs={})
        return
    write(recipe, target, blobs=fetch_blobs(walk, site, recipe, ()))
