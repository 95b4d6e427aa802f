"""The stations of one cell, each a step from a frozen value to the next, and the lines of the first two."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.requirements import Requirement

from builder import __version__
from builder.core.errors import CellError, NoSolutionError, UsageError
from builder.core.model import (
    Cell,
    Image,
    Matrix,
    Pinned,
    RegistryBase,
    Report,
    RootfsBase,
    StandalonePython,
    Verdict,
    Wheel,
)
from builder.core.versions import canonical
from builder.image.recipe import Recipe, render, write
from builder.pipeline.events import CellOutcome, CellResult, CellRun, Hooks, Stage, walk_all
from builder.pipeline.run_context import Gpus, LockOptions, Locks, RenderOptions, RunContext, open_context
from builder.plan.facts.reading import ReadingCache, system_of
from builder.plan.facts.rules import (
    OF_SET,
    Finding,
    Outcome,
    broken_set,
    check,
    free_bounds,
    unknown,
    with_bound,
)
from builder.plan.facts.tables import load

if TYPE_CHECKING:
    from builder.image.compose import ComposedImage
    from builder.image.engine import Engine, StoredImage
    from builder.sources.oci import Staged
    from builder.verify.runner import ReportStore

    Described = ComposedImage | Staged | StoredImage


def check_cell(cell_run: CellRun, context: RunContext, *, refuse: bool = True) -> None:
    """Judge a cell by its lock, if there is one, and the facts.

    Raises CellError for an impossible one, unless it is not to ``refuse`` any.
    """
    with cell_run.stage(Stage.CHECK):
        pinned = context.stores.locks.pinned(cell_run.cell)
        readings = ReadingCache(mirrors=context.sources.mirrors, cache=context.stores.cache)
        findings = check(cell_run.cell, readings.truth(cell_run.cell, pinned))
        outcome = Outcome.of(findings)
        cell_run.done(outcome.answer)
        for finding in findings:
            if finding.outcome is Outcome.WARNS:
                cell_run.note(f"{finding.rule}: {finding.message}", warning=True)
        if outcome is not Outcome.IMPOSSIBLE:
            return
        worst = next(finding for finding in findings if finding.outcome is Outcome.IMPOSSIBLE)
        if not refuse:
            cell_run.note(f"built although refused: {worst.rule}: {worst.message}", warning=True)
            return
        raise CellError(
            f"this cell is impossible ({worst.rule}): {worst.message}",
            hint=f"possible instead: {worst.nearest}" if worst.nearest else "`rtbuild explain` says why",
        )


def judge_set(cell_run: CellRun, context: RunContext, pinned: Pinned) -> tuple[Finding, ...]:
    """Read what loader and interpreter go by of the wheels that were resolved, and judge the set by it."""
    readings = ReadingCache(mirrors=context.sources.mirrors, cache=context.stores.cache)
    cell_run.go_on()
    cell_run.progress("reading what the wheels are linked with, and what their modules import", quiet=False)
    index = context.sources.index.with_extra(pinned.cell.index)
    _, lacking = readings.read_proofs(pinned.cell, pinned.wheels, pinned.base, index)
    truth = readings.with_proofs(readings.truth(pinned.cell, pinned), pinned.wheels, lacking)
    unproven = () if truth.unproven is None else (unknown(truth.unproven, rule=_UNPROVEN),)
    return (*unproven, *check(pinned.cell, truth, only=OF_SET))


def tell_set(cell_run: CellRun, context: RunContext, findings: Sequence[Finding], *, refuse: bool) -> None:
    """Note what is found of a set.

    Raises CellError for one that cannot load or be imported, or is known to fail, unless it is not to
    ``refuse`` any.
    """
    for finding in findings:
        if finding.outcome is Outcome.IMPOSSIBLE and refuse:
            problem = CellError(broken_set(finding), hint=_NOT_KEPT.get(finding.rule, _PIN_ANOTHER))
            readings = ReadingCache(mirrors=context.sources.mirrors, cache=context.stores.cache)
            readings.keep_failure(cell_run.cell, problem.message)
            raise problem
        if finding.rule == _UNPROVEN:
            cell_run.note(f"not wholly proven that the wheels load: {finding.message}", warning=True)
        elif finding.outcome is not Outcome.POSSIBLE:
            cell_run.note(f"{finding.rule}: {finding.message}", warning=True)


_UNPROVEN = "unproven"
_MOST_TRIED = 6
"""Resolutions with a bound more, for one cell."""


@dataclass(frozen=True, kw_only=True)
class _Resolution:
    """A set of wheels that was resolved with some bounds beside what the cell asks for, and what is found of
    it."""

    pinned: Pinned
    findings: tuple[Finding, ...]
    added: tuple[tuple[str, str], ...] = ()

    @property
    def refused(self) -> Finding | None:
        return next((one for one in self.findings if one.outcome is Outcome.IMPOSSIBLE), None)

    def has(self, finding: Finding) -> bool:
        """Whether the same is found of it, in other releases, too."""
        alike = ((one.rule, one.bounds, one.outcome) for one in self.findings)
        return (finding.rule, finding.bounds, finding.outcome) in alike


def _mended(first: _Resolution, resolve: Callable[[Cell, Pinned], _Resolution]) -> _Resolution:
    """A set that no rule refuses, with bounds that the rules name on what the cell leaves open; the first one
    if there is none.

    What the cell asks for stands: a bound that contradicts it is none.
    """
    at, left = first, _MOST_TRIED
    while (refused := at.refused) is not None:
        names, better = {canonical(wheel.name) for wheel in at.pinned.wheels}, None
        for text, bounded in free_bounds(at.pinned.cell, refused, names):
            if left == 0:
                return first
            left -= 1
            try:
                found = resolve(bounded, at.pinned)
            except NoSolutionError:
                continue  # what the packages ask for has no such release
            if found.has(refused):
                continue
            found = replace(found, added=(*at.added, (text, f"{refused.rule}: {refused.message}")))
            if found.refused is None:
                return found
            better = better or found
        if better is None:
            return first
        at = better
    return at


def resolve_set(
    cell_run: CellRun,
    context: RunContext,
    before: Pinned | None,
    *,
    upgrade: bool | frozenset[str],
    refuse: bool,
) -> Pinned:
    """The cell, resolved, with bounds that keep a resolver from what the rules refuse and nobody asked for;
    each is told, and stands in the lock.

    Raises CellError as :func:`tell_set`, and :func:`builder.plan.lock.pin`.
    """
    from builder.plan.lock import pin

    def resolved(cell: Cell, previous: Pinned | None, upgrade: bool | frozenset[str]) -> _Resolution:
        cell_run.progress("resolving", quiet=False)
        with cell_run.span("resolve"):
            pinned = pin(
                cell,
                index=context.sources.index,
                registry=context.sources.registry,
                debian=context.sources.debian,
                previous=previous,
                upgrade=upgrade,
                note=cell_run.note,
                workshop=context.sources.workshop(cell_run),
                pythons=context.sources.pythons,
            )
        with cell_run.span("prove links and imports"):
            return _Resolution(pinned=pinned, findings=judge_set(cell_run, context, pinned))

    cell, kept = cell_run.cell, list[tuple[str, str]]()
    if before is not None and upgrade is not True:
        for text, why in before.added:
            name = canonical(Requirement(text).name)
            if not upgrade:  # a changed cell may need it no more: the rules say so again
                rest = tuple(wheel for wheel in before.wheels if canonical(wheel.name) != name)
                before = replace(before, wheels=rest)
            elif name not in upgrade and (bounded := with_bound(cell, text)) is not None:
                cell, kept = bounded, [*kept, (text, why)]
    found = replace(resolved(cell, before, upgrade), added=(*kept,))
    if refuse:
        found = _mended(found, lambda other, near: resolved(other, near, False))
    tell_set(cell_run, context, found.findings, refuse=refuse)
    for text, why in found.added:
        cell_run.note(f"resolved with {text}, which the matrix does not ask for: {why}", warning=True)
    return replace(found.pinned, cell=cell_run.cell, added=found.added)


_PIN_ANOTHER = "the lock stays as it was; pin another release of one of the two in the matrix"
_NOT_KEPT = {"same-files": "the lock stays as it was; name the one that is kept in place of the other"}


def lock_cell(
    cell_run: CellRun,
    context: RunContext,
    *,
    upgrade: bool | frozenset[str] = False,
    refuse: bool = True,
) -> Pinned:
    """The cell with everything fixed by content: from the lock, or resolved now and written to it.

    ``upgrade`` is that of :class:`LockOptions`; a set of wheels that cannot load is refused, if it is to
    ``refuse`` any.
    """
    with cell_run.stage(Stage.LOCK):
        pinned = context.stores.locks.pinned(cell_run.cell)
        # also a stale one: a new resolution moves away from it no more than it must
        before = context.stores.locks.pinned(cell_run.cell, stale=True)
        if not isinstance(upgrade, bool):
            upgrade = frozenset() if before is None else _named_in(before, upgrade)
        if pinned is None or upgrade:
            pinned = resolve_set(cell_run, context, before, upgrade=upgrade, refuse=refuse)
            context.stores.locks.keep(pinned)
            if before is not None and upgrade and not isinstance(upgrade, bool):
                cell_run.note(_moved(before, pinned, upgrade))
        size = sum(wheel.size for wheel in pinned.wheels)
        cell_run.done(f"{len(pinned.wheels)} wheels, {size / 1e9:.2f} GB")
        return pinned


def _named_in(pinned: Pinned, names: frozenset[str]) -> frozenset[str]:
    """The ``names`` that the locked cell has, as it spells them."""
    from builder.plan.lock import movable

    return movable(pinned) & {text for name in names for text in (name, canonical(name))}


def _moved(before: Pinned, now: Pinned, named: frozenset[str]) -> str:
    """The packages that moved, those that nobody named apart, in words."""
    old = {canonical(wheel.name): wheel for wheel in before.wheels}
    new = {canonical(wheel.name): wheel for wheel in now.wheels}
    texts: tuple[list[str], list[str]] = [], []
    for name in sorted(old.keys() | new.keys()):
        was, is_ = old.get(name), new.get(name)
        if was is None or is_ is None or was.sha256 != is_.sha256:
            versions = [one.version if one is not None else "none" for one in (was, is_)]
            texts[name not in named].append(f"{name} {' -> '.join(versions)}")
    if before.base != now.base:
        texts[0].append(f"the base {now.cell.base}")
    if before.python != now.python and now.python is not None:
        texts[0].append(f"Python {now.python.version}")
    forced = f"; with them {', '.join(texts[1])}" if texts[1] else ""
    return f"moved: {', '.join(texts[0]) or 'none of those named'}{forced}"


def _refuse_unknown(names: frozenset[str], cells: Sequence[Cell], locks: Locks) -> None:
    """Raise UsageError if a name is in no lock of the cells: a slip would move nothing without a word."""
    from builder.plan.lock import movable

    known: set[str] = set()
    for cell in cells:
        pinned = locks.pinned(cell, stale=True)
        known |= movable(pinned) if pinned is not None else set()
    for name in sorted(names):
        if known.isdisjoint((name, canonical(name))):
            near = difflib.get_close_matches(name, known, n=3)
            lists = "`rtbuild export CELL --format constraints` lists the packages of a cell"
            hint = f"did you mean {' or '.join(near)}?" if near else lists
            raise UsageError(f"no lock of these cells has {name}", hint=hint)


def render_cell(cell_run: CellRun, context: RunContext, pinned: Pinned) -> Recipe:
    with cell_run.stage(Stage.RENDER):
        recipe = render(pinned, probe=context.stores.probe, version=__version__)
        cell_run.done(recipe.inputs[:19])
        return recipe


def fetch_blobs(cell_run: CellRun, context: RunContext, recipe: Recipe) -> dict[str, Path]:
    """Bring the recipe's large files into the cache; their paths by their names in it."""
    found = {}
    with cell_run.stage(Stage.FETCH):
        for name, blob in recipe.blobs.items():
            if isinstance(blob, RootfsBase):
                found[name] = rootfs_tar(cell_run, context, blob)
            elif isinstance(blob, StandalonePython):
                found[name] = python_tar(cell_run, context, blob, recipe.pinned.base)
            else:
                found[name] = fetch_wheels(cell_run, context, (blob,))[blob.sha256]
    return found


def fetch_wheels(
    cell_run: CellRun,
    context: RunContext,
    wheels: tuple[Wheel, ...],
    arrived: Callable[[Wheel, Path], None] = lambda _wheel, _path: None,
) -> dict[str, Path]:
    """Bring wheels into the cache; paths by sha256. ``arrived`` is told of each, from several threads."""
    total, cache = sum(wheel.size for wheel in wheels), context.sources.cache
    advance = cell_run.counter("of wheels", total)
    index = context.sources.index.with_extra(cell_run.cell.index)
    offered = [wheel for wheel in wheels if wheel.source is None]
    found = index.fetch_all(
        offered, cache=cache, progress=advance, stop=cell_run.cancel, arrived=arrived, span=cell_run.span
    )
    for wheel in wheels:
        if wheel.source is not None:
            with cell_run.span(f"build {wheel.name} {wheel.version} from source"):
                found[wheel.sha256] = context.sources.workshop(cell_run).make(wheel, index)
            arrived(wheel, found[wheel.sha256])
            advance(wheel.size)
    cell_run.done(f"{len(wheels)} wheels, {total / 1e9:.2f} GB")
    return found


def python_tar(
    cell_run: CellRun, context: RunContext, python: StandalonePython, base: RegistryBase | RootfsBase
) -> Path:
    """The tar of a standalone Python, held against the base's glibc."""
    cell_run.progress(f"CPython {python.version}", quiet=False)
    system = system_of(base)
    return context.sources.pythons.tar(
        python,
        glibc=system.glibc if system is not None else None,
        progress=cell_run.counter("of Python", python.size),
        stop=cell_run.cancel.is_set,
    )


def rootfs_tar(cell_run: CellRun, context: RunContext, base: RootfsBase) -> Path:
    """The tar of a rootfs, made at the first call."""
    cell_run.progress(f"Debian {base.suite} out of {len(base.debs)} packages", quiet=False)
    from builder.image.compose import cached_rootfs

    fetch = partial(context.sources.debian.fetch, stop=cell_run.cancel)
    return cached_rootfs(base, cache=context.sources.cache, fetch=fetch)


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
    cell_run: CellRun,
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

    with cell_run.stage(Stage.VERIFY):
        cell_run.progress(f"cudnn-verify: {load().suites_told(cell_run.cell)}", quiet=False)
        report = verify(
            image,
            engine=engine,
            expect=Expectation.of(pinned) if pinned is not None else Expectation(),
            gpus=gpus,
            suites=cell_run.cell.suites(),
            suggested=load().suggested_suites(cell_run.cell),
            store=reports,
            again=again,
            cancel=cell_run.cancel,
            waits=lambda: cell_run.progress("waits for the GPU, which another probe has", quiet=False),
        )
        cell_run.done(report.verdict.value + (f", {report.cause}" if report.cause else ""))
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
    """Bring the lock of every cell up to date. Raises UsageError if no lock has a name that is to move."""
    context = open_context(matrices, hooks.emit, mirrors=options.mirrors)

    if not isinstance(options.upgrade, bool):
        _refuse_unknown(options.upgrade, cells, context.stores.locks)

    def one(cell_run: CellRun) -> CellResult:
        lock_cell(cell_run, context, upgrade=options.upgrade)
        return cell_run.ended(CellOutcome.DONE)

    return walk_all(cells, (Stage.LOCK,), one, hooks)


def render_cells(
    matrices: Sequence[Matrix], cells: Sequence[Cell], options: RenderOptions, hooks: Hooks
) -> list[CellResult]:
    """Write the recipe of every cell."""
    context = open_context(matrices, hooks.emit, mirrors=options.mirrors)
    if options.locked:
        context.stores.locks.fresh(cells)

    def one(cell_run: CellRun) -> CellResult:
        recipe, blobs = render_cell(cell_run, context, lock_cell(cell_run, context)), {}
        if options.text_only:
            recipe = replace(recipe, blobs={})
        else:
            blobs = fetch_blobs(cell_run, context, recipe)
        write(recipe, options.folder / cell_run.cell.id, blobs=blobs)
        return cell_run.ended(CellOutcome.DONE)

    return walk_all(cells, (Stage.LOCK, Stage.RENDER), one, hooks)
