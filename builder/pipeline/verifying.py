"""Verification of images: those in the engine's store, or another machine's.

The latter are pulled from a staging repository by digest, and reported there.
"""

from collections.abc import Sequence

from builder.core.errors import CellError, ImageMissingError, RegistryError
from builder.core.model import Cell, Image, Matrix, Report
from builder.image.engine import Engine
from builder.pipeline import stages
from builder.pipeline.events import CellResult, CellRun, Hooks, Stage, walk_all
from builder.pipeline.run_context import RunContext, VerifyOptions, open_context, report_store
from builder.sources.oci import Registry, Staged, find_staged, repository_of, staged_reference
from builder.verify.evidence import People, origin_of, share
from builder.verify.runner import ReportStore, SealedReport


def verify_cells(
    matrices: Sequence[Matrix], cells: Sequence[Cell], options: VerifyOptions, hooks: Hooks
) -> list[CellResult]:
    """Run the probe in images that are in the engine's store already, or come from a staging repository.

    Raises MissingToolError if no engine answers, and StaleLockError if images come from elsewhere and
    the lock does not say which.
    """
    source = repository_of(options.source) if options.source is not None else None
    engine = Engine.connect(context=options.context)
    context = open_context(matrices, hooks.emit, engine=engine, key=options.key)
    builders = People.named(options.built_by, "--built-by")
    reports = report_store(context, options.results)
    order: tuple[Stage, ...] = (Stage.VERIFY,)
    if source is not None:
        context.stores.locks.fresh(cells)
        order = (Stage.LOCK, Stage.RENDER, Stage.PULL, Stage.VERIFY, Stage.REPORT)

    def one(cell_run: CellRun) -> CellResult:
        if source is not None:
            return verify_staged(cell_run, context, source, options, reports=reports, builders=builders)
        name = cell_run.cell.image_name()
        stored = engine.inspect(name)
        if stored is None:
            raise CellError(f"there is no image {name}", hint="build it first: rtbuild build")
        image = stages.image_of(cell_run.cell, name, stored, reused=True)
        pinned = context.stores.locks.pinned(cell_run.cell)
        report = stages.verify_cell(
            cell_run, engine, image, pinned, reports=reports, gpus=options.gpus, again=options.again
        )
        return cell_run.ended(stages.outcome_of(report), image=image, report=report)

    return walk_all(cells, order, one, hooks)


def verify_staged(
    cell_run: CellRun,
    context: RunContext,
    repository: str,
    options: VerifyOptions,
    *,
    reports: ReportStore,
    builders: People | None,
) -> CellResult:
    """Pull a cell's image out of ``repository``, probe it, and put the report beside it there.

    ``builders``: whose signature an image needs that was not made here; None if it needs none.
    """
    engine, registry = context.connected, context.sources.writing
    recipe = stages.render_cell(cell_run, context, stages.lock_cell(cell_run, context))
    with cell_run.stage(Stage.PULL):
        staged = _find(registry, repository, recipe.inputs)
        origin = origin_of(
            registry, staged, recipe, here=context.stores.made.digest(recipe.inputs), builders=builders
        )
        if origin.refused is not None:
            raise CellError(origin.refused.text, hint=origin.refused.hint)
        if not origin.proven:
            cell_run.note(f"{staged.digest[:19]}…: {origin.text}", warning=True)
        image = _pull(cell_run, engine, staged)
    report = None
    try:
        report = stages.verify_cell(
            cell_run, engine, image, recipe.pinned, reports=reports, gpus=options.gpus, again=options.again
        )
        if options.share_reports:
            _share(cell_run, registry, reports, staged, report)
    except CellError as error:
        return cell_run.failed(error, image=image, report=report)
    finally:
        if options.remove and not image.reused:
            engine.remove(image.reference)
    return cell_run.ended(stages.outcome_of(report), image=image, report=report)


def _find(registry: Registry, repository: str, inputs: str) -> Staged:
    staged = find_staged(registry, repository, inputs)
    if staged is None:
        raise ImageMissingError(
            f"{repository} has no image of this cell as it is locked here"
            f" ({staged_reference(repository, inputs)})",
            hint="push it from the machine that builds: rtbuild build --push; rtbuild, matrix and lock must "
            "be the same on both",
        )
    return staged


def _pull(cell_run: CellRun, engine: Engine, staged: Staged) -> Image:
    """The image in this machine's engine: the very content that the registry describes."""
    stored = engine.inspect(staged.reference)
    reused = stored is not None
    if stored is None:
        cell_run.progress(f"{staged.reference}, {staged.size / 1e9:.2f} GB", quiet=False)
        engine.pull(
            staged.reference,
            progress=lambda layer, done, total: cell_run.progress(f"layer {layer}", done, total),
            cancel=cell_run.cancel,
        )
        stored = engine.inspect(staged.reference)
    # With a graph driver the engine's name for an image is its config's digest.
    if stored is None or stored.digest not in (staged.digest, staged.config_digest):
        raise RegistryError(
            f"{staged.reference} was pulled, and the engine has {stored.digest if stored else 'nothing'}"
        )
    if stored.content != staged.content:
        raise RegistryError(
            f"{staged.reference} is {stored.content} in the engine, {staged.content} in the registry"
        )
    cell_run.done(
        f"{staged.digest[:19]}, {stored.size / 1e9:.2f} GB in the engine"
        + (", there already" if reused else "")
    )
    return stages.image_of(cell_run.cell, staged.reference, stored, reused=reused, pushed=staged.reference)


def _share(
    cell_run: CellRun, registry: Registry, reports: ReportStore, staged: Staged, report: Report
) -> None:
    """Attach every report on this digest that is kept here; note if there is none that may travel."""
    if report.test_double:
        cell_run.note("the report stays here: a test double took part in it", warning=True)
        return
    sealed = [entry for entry in reports.entries() if isinstance(entry, SealedReport)]
    kept = [entry for entry in sealed if entry.key.digest == staged.digest and not entry.test_double]
    if not kept:
        cell_run.note(f"no report goes to {staged.repository}: this one is about this machine", warning=True)
        return
    with cell_run.stage(Stage.REPORT):
        try:
            new = share(registry, staged, kept)
        except RegistryError as error:
            raise RegistryError(
                f"the report is kept in {reports.folder}, and could not be put beside the image: "
                f"{error.message}",
                hint=f"{error.hint or 'try again'}; or --no-report: `publish` reads that folder as well",
            ) from error
        cell_run.done(f"{new} new of {len(kept)} beside {staged.digest[:19]}")
