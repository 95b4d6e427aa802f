"""The line of ``rtbuild build``: which cells there is something to do for, and how each ends.

A cell whose image the engine or a repository has already is neither built nor fetched again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

from builder.core.errors import CellError, UsageError
from builder.core.items import item
from builder.core.model import Cell, DebianPackage, Image, Matrix, Pinned
from builder.image.recipe import Recipe
from builder.pipeline import stages
from builder.pipeline.events import BUILDING, CellOutcome, CellResult, Note, RunStarted, Stage
from builder.pipeline.options import BuildOptions
from builder.pipeline.record import read_packages, remember
from builder.pipeline.schedule import Hooks, Walk, each
from builder.pipeline.site import Site, layer_cache, open_site, report_store

if TYPE_CHECKING:
    from builder.image.engine import Engine, StoredImage
    from builder.pipeline.image_build import Maker
    from builder.sources.oci import Staged
    from builder.verify.runner import ReportStore


def build(
    matrices: Sequence[Matrix], cells: Sequence[Cell], options: BuildOptions, hooks: Hooks
) -> list[CellResult]:
    """Check, lock, build and verify every cell; without an engine nothing is verified.

    All cells are locked before the first is built, so that the disk is checked against all of them. Raises
    MissingToolError before anything is done if no engine answers or the disk is too small, StaleLockError if
    ``locked`` forbids to go on, and UsageError if an image would have nowhere to go.
    """
    if options.push is not None:
        from builder.sources.oci import repository_of

        repository_of(options.push)
    engine = _engine(options)
    site = open_site(matrices, hooks.emit, engine=engine, mirrors=options.mirrors, key=options.key)
    site.layer_cache = layer_cache(site, source=options.layers, target=options.push)
    reports = report_store(site, options.results) if engine is not None and options.gpus is not None else None
    site.stores.layers.sweep()
    if options.locked:
        site.stores.locks.fresh(cells)
    skipped = {
        Stage.PUSH: options.push is None and options.output is None,
        Stage.VERIFY: reports is None,
    }
    order = tuple(stage for stage in BUILDING if not skipped.get(stage))
    site.emit(RunStarted(cells=tuple(cell.id for cell in cells), stages=order))
    recipes: dict[str, Recipe] = {}

    def settle(walk: Walk) -> None:
        stages.check_cell(walk, site, refuse=options.refuse)
        pinned = stages.lock_cell(walk, site)
        if engine is None and pinned.installs:
            _refuse_engine_work(pinned)
        recipes[walk.cell.id] = stages.render_cell(walk, site, pinned)

    walks = [Walk(cell, hooks.emit, hooks.cancel) for cell in cells]
    early = each(walks, settle, hooks, jobs=options.jobs)
    going = [walk for walk, result in zip(walks, early, strict=True) if result is None]
    staged = staged_before(site, options, recipes.values()) if options.output is None else {}
    here = {} if options.no_cache else built_before(site, recipes.values())

    def wanted_there(recipe: Recipe) -> StoredImage | None:
        """The engine's image, if it is also where it is to be pushed."""
        there, pushed = here.get(recipe.inputs), staged.get(recipe.inputs)
        if there is None or options.push is None:
            return there
        if pushed is None or there.digest not in {pushed.digest, pushed.config_digest}:  # either is its name
            return None
        return there if there.content == pushed.content else None

    finished = partial(_finished, site=site, options=options, reports=reports)

    def make(walk: Walk) -> CellResult:
        recipe = recipes[walk.cell.id]
        there, pushed = wanted_there(recipe), staged.get(recipe.inputs)
        log = log_path(options.results, walk.cell)
        if there is not None:
            return finished(walk, recipe, log, partial(_reuse, walk, site, there, pushed))
        if pushed is not None and recipe.inputs not in here:
            return _end_staged(walk, pushed, verifies=options.gpus is not None)
        making = maker()(walk=walk, recipe=recipe, log=log, staged=pushed)
        return finished(walk, recipe, log, making.make)

    with ExitStack() as stack:
        new = [recipe.pinned for recipe in recipes.values() if recipe.inputs not in {*here, *staged}]
        maker = cache(partial(_maker, site, options, stack, new))
        if new or any(wanted_there(recipe) is None for recipe in recipes.values() if recipe.inputs in here):
            maker()  # a full disk is said before the first cell goes on
        made = iter(each(going, make, hooks, jobs=options.jobs))
    return [result or next(made) for result in early]  # type: ignore[misc]  # make always ends a cell


def _engine(options: BuildOptions) -> Engine | None:
    if options.engine is not None:
        from builder.image.engine import Engine  # with Docker's client: a tenth of a second

        return Engine.connect(context=options.engine.context, builder=options.engine.builder)
    if options.push is None and options.output is None:
        raise UsageError(
            "without an engine there is no store to keep an image in",
            hint="say where it goes: --push REPOSITORY, or --output FOLDER",
        )
    return None


def _refuse_engine_work(pinned: Pinned) -> None:
    """Raise CellError, before anything is fetched, for a cell that only an engine can build."""
    cell = pinned.cell
    packages = f"the packages {', '.join(cell.apt)}" if cell.apt else ""
    python = "Python if the base lacks it" if pinned.python is None else ""
    raise CellError(
        f"{cell.id} stands on {cell.base}, where apt-get has to install "
        f"{', and '.join(filter(None, (packages, python)))}: that runs in the base, which needs an engine",
        hint="build it where Docker is (leave out `--engine none`), or take a base of "
        "rootfs:debian/<suite>, whose packages are in the lock",
    )


def _maker(
    site: Site, options: BuildOptions, stack: ExitStack, missing: Sequence[Pinned]
) -> Callable[..., Maker]:
    """Makers of images, while ``stack`` is open, once the disk has room for those that are ``missing``."""
    from builder.image.compose import Workbench
    from builder.pipeline.disk import check_room
    from builder.pipeline.image_build import Maker, runner_for

    if site.engine is not None:
        from builder.image.engine import sweep_passing

        sweep_passing(site.engine)
        if any(one.installs for one in missing):
            _ = site.engine.buildx  # a lack of it is said before gigabytes are fetched
    check_room(site, missing)
    bench = stack.enter_context(Workbench())
    return partial(Maker, site=site, options=options, bench=bench, runner=runner_for(site.engine))


def _finished(
    walk: Walk,
    recipe: Recipe,
    log: Path,
    image_of_cell: Callable[[], Image],
    *,
    site: Site,
    options: BuildOptions,
    reports: ReportStore | None,
) -> CellResult:
    """The end of a cell: its image, the packages in it, its verification if there are ``reports`` to keep."""
    image = None
    packages: tuple[DebianPackage, ...] = ()
    try:
        image = image_of_cell()
        if site.engine is None:
            outcome = CellOutcome.UNVERIFIED if options.gpus is not None else CellOutcome.DONE
            return walk.ended(outcome, image=image)
        if recipe.pinned.installs:  # a rootfs is made of the lock's own packages
            packages = read_packages(site.engine, image)
            drifted = remember(options.results / "apt", walk.cell, image, packages)
            if drifted is not None:
                walk.note(drifted, warning=True)
        if reports is None or options.gpus is None:
            return walk.ended(CellOutcome.DONE, image=image, log=log, packages=packages)
        report = stages.verify_cell(
            walk, site.engine, image, recipe.pinned, reports=reports, gpus=options.gpus
        )
    except CellError as error:
        return walk.failed(error, log=log, image=image, packages=packages)
    return walk.ended(stages.outcome_of(report), image=image, report=report, log=log, packages=packages)


def built_before(site: Site, recipes: Iterable[Recipe]) -> dict[str, StoredImage]:
    """The images that the engine has, by the inputs of their recipes.

    A label finds them, and whether this machine made them decides: an engine also has what was pulled.

    They are looked for under their cells' own names, and only the others in a list of all images: for one,
    Engine 26.1 with the containerd store adds up the sizes of every image, which takes longer than
    a hundred questions.
    """
    engine = site.engine
    if engine is None:
        return {}
    names = {one.inputs: [site.stores.image_name(one.cell)] for one in recipes}
    with ThreadPoolExecutor(8, thread_name_prefix="built") as pool:  # the client keeps ten connections
        found = dict(zip(names, pool.map(engine.find, names, names.values()), strict=True))
    if None in found.values():
        listed = engine.built()
        missing = [inputs for inputs, image in found.items() if image is None]
        found |= {inputs: engine.find(inputs, listed.get(inputs, ())) for inputs in missing}
    return {
        inputs: image
        for inputs, image in found.items()
        if image is not None and image.content == site.stores.made.content(inputs)
    }


def staged_before(site: Site, options: BuildOptions, recipes: Iterable[Recipe]) -> dict[str, Staged]:
    """The images that the repository to push to has, by the inputs of their recipes.

    A tag that leads to other inputs counts as no image, and is put right by the push, and so does an image of
    which this machine made another, or that is not proven if a key is given. Raises RegistryError if the
    registry does not answer.
    """
    repository = options.push
    if repository is None or options.no_cache:
        return {}
    registry = site.sources.writing
    from builder.sources.oci import find_staged

    def look(recipe: Recipe) -> Staged | None:
        try:
            with item(recipe.cell.id):
                configs = site.stores.cache / "configs"
                found = find_staged(registry, repository, recipe.inputs, kept=configs)
                if found is None:
                    return None
                from builder.verify.evidence import origin_of

                origin = origin_of(registry, found, recipe, made=site.stores.made, builders=site.own)
        except CellError as problem:
            if registry.digest_of(f"{repository}:nothing") is not None:
                raise
            why = problem.message  # it answers: the image is at fault
        else:
            if origin.refused is None:
                return found
            why = origin.refused.text
        site.emit(Note(cell=recipe.cell.id, text=f"built again: {why}", warning=True))
        return None

    wanted = list(recipes)
    with ThreadPoolExecutor(16, thread_name_prefix="staged") as pool:
        found = list(pool.map(look, wanted))
    return {recipe.inputs: one for recipe, one in zip(wanted, found, strict=True) if one is not None}


def _reuse(walk: Walk, site: Site, there: StoredImage, staged: Staged | None) -> Image:
    """The image that the engine has, under the cell's name; ``staged`` is the same in the repository."""
    name = site.stores.image_name(walk.cell)
    with walk.stage(Stage.BUILD):
        if site.engine is not None and there.reference != name:
            site.engine.tag(there.reference, name)
        walk.done("there already, nothing to build")
    if staged is None:
        return stages.image_of(walk.cell, name, there, reused=True)
    with walk.stage(Stage.PUSH):
        if site.own is not None:
            from builder.pipeline.upload import sign_pushed

            sign_pushed(site, staged.reference)
        walk.done(f"there already, {staged.digest[:19]}")
    return stages.image_of(walk.cell, name, there, reused=True, pushed=staged.reference)


def _end_staged(walk: Walk, staged: Staged, *, verifies: bool) -> CellResult:
    """The end of a cell that needs nothing. Its verification is a matter of `rtbuild verify --from`."""
    with walk.stage(Stage.BUILD):
        walk.done(f"there already, in {staged.repository}")
    image = stages.image_of(walk.cell, staged.reference, staged, reused=True, pushed=staged.reference)
    return walk.ended(CellOutcome.UNVERIFIED if verifies else CellOutcome.DONE, image=image)


def log_path(results: Path, cell: Cell) -> Path:
    """Where the build log of a cell goes; ids are legal tags, so they are legal file names too."""
    return results / "logs" / re.sub(r"[^A-Za-z0-9._-]", "-", cell.matrix) / f"{cell.id}.log"
