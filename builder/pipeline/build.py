"""The line of ``rtbuild build``: which cells there is something to do for, and how each ends.

A cell whose image the engine or a repository has already is neither built nor fetched again. On a registry's
base the distribution's packages are those that its archives hold on the day of the build, and no lock fixes
them: the build leaves a list in the image, which is read here and compared with the time before.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from builder.core.errors import CellError, UsageError
from builder.core.files import write_whole
from builder.core.items import item
from builder.core.model import Cell, DebianPackage, Image, Matrix, Pinned
from builder.image.recipe import Recipe
from builder.pipeline import stages
from builder.pipeline.events import (
    BUILDING,
    CellOutcome,
    CellResult,
    CellRun,
    Hooks,
    Note,
    RunStarted,
    Stage,
    each,
    span,
)
from builder.pipeline.run_context import BuildOptions, RunContext, open_context, report_store, share_layers

if TYPE_CHECKING:
    from builder.image.engine import Engine, StoredImage
    from builder.pipeline.image_build import ImageBuild
    from builder.sources.oci import Staged
    from builder.verify.runner import ReportStore

LIST = "/usr/local/share/rtbuild/apt.txt"
"""A line for each package that apt brought in: name, version, architecture."""
_NAMED = 6
"""Differences that are written out; the files have all of them."""


@dataclass(frozen=True, kw_only=True)
class Reuse:
    """The engine has the image, and so has the repository, if there is one to push to."""

    stored: StoredImage
    staged: Staged | None


@dataclass(frozen=True, kw_only=True)
class Make:
    """The image is made, and pushed if there is a repository to push to."""

    staged: Staged | None
    """Another image of the same inputs that the repository has: of equal digests none is pushed."""
    new: bool
    """Neither has any image of these inputs: the disk needs room for it."""


def plan_cells(
    recipes: Iterable[Recipe],
    in_engine: Mapping[str, StoredImage],
    in_registry: Mapping[str, Staged] | None,
) -> list[Reuse | Staged | Make]:
    """The step of each recipe, by the images that are there of its inputs.

    One that is only ``Staged`` needs nothing: it is there already, and the engine is not given it.
    ``in_registry`` is None if no repository is pushed to. An engine's image that is to be pushed is used only
    if the repository has the same: an engine gives no bytes back from which a push could be made.
    """
    return [
        _step(in_engine.get(one.inputs), in_registry is not None, (in_registry or {}).get(one.inputs))
        for one in recipes
    ]


def _step(stored: StoredImage | None, pushes: bool, staged: Staged | None) -> Reuse | Staged | Make:
    if stored is None:
        return staged if staged is not None else Make(staged=None, new=True)
    if not pushes or (staged is not None and _same(stored, staged)):
        return Reuse(stored=stored, staged=staged)
    return Make(staged=staged, new=False)


def _same(stored: StoredImage, staged: Staged) -> bool:
    """An engine calls an image by the digest of its manifest, or by that of its config."""
    return stored.digest in {staged.digest, staged.config_digest} and stored.content == staged.content


def images_in_engine(context: RunContext, recipes: Iterable[Recipe]) -> dict[str, StoredImage]:
    """The images that the engine has, by the inputs of their recipes.

    A label finds them, and whether this machine made them decides: an engine also has what was pulled.

    They are looked for under their cells' own names, and only the others in a list of all images: for one,
    Engine 26.1 with the containerd store adds up the sizes of every image, which takes longer than
    a hundred questions.
    """
    engine = context.engine
    if engine is None:
        return {}
    wanted = {one.inputs: one.cell for one in recipes}

    def look(inputs: str, names: Sequence[str]) -> StoredImage | None:
        cell = wanted[inputs]
        try:
            with item(cell.id):
                return engine.find(inputs, names)
        except CellError as problem:
            context.emit(Note(cell=cell.id, text=f"built again: {problem.message}", warning=True))
            return None

    named = [[context.stores.image_name(cell)] for cell in wanted.values()]
    with ThreadPoolExecutor(8, thread_name_prefix="built") as pool:  # the client keeps ten connections
        found = dict(zip(wanted, pool.map(look, wanted, named), strict=True))
    if None in found.values():
        listed = engine.built()
        missing = [inputs for inputs, image in found.items() if image is None]
        found |= {inputs: look(inputs, listed.get(inputs, ())) for inputs in missing}
    return {
        inputs: image
        for inputs, image in found.items()
        if image is not None and image.content == context.stores.made.content(inputs)
    }


def images_in_registry(context: RunContext, repository: str, recipes: Iterable[Recipe]) -> dict[str, Staged]:
    """The images that a repository has, by the inputs of their recipes.

    A tag that leads to other inputs counts as no image, and is put right by the push, and so does an image of
    which this machine made another, or that is not proven if a key is given. Raises RegistryError if the
    registry does not answer.
    """
    registry = context.sources.writing
    from builder.sources.oci import find_staged

    def look(recipe: Recipe) -> Staged | None:
        try:
            with item(recipe.cell.id):
                configs = context.stores.cache / "configs"
                found = find_staged(registry, repository, recipe.inputs, kept=configs)
                if found is None:
                    return None
                from builder.verify.evidence import origin_of

                origin = origin_of(
                    registry,
                    found,
                    recipe,
                    here=context.stores.made.digest(recipe.inputs),
                    builders=context.own,
                )
        except CellError as problem:
            if registry.digest_of(f"{repository}:nothing") is not None:
                raise
            why = problem.message  # it answers: the image is at fault
        else:
            if origin.refused is None:
                return found
            why = origin.refused.text
        context.emit(Note(cell=recipe.cell.id, text=f"built again: {why}", warning=True))
        return None

    wanted = list(recipes)
    with ThreadPoolExecutor(16, thread_name_prefix="staged") as pool:
        found = list(pool.map(look, wanted))
    return {recipe.inputs: one for recipe, one in zip(wanted, found, strict=True) if one is not None}


def build_cells(
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
    context = open_context(matrices, hooks.emit, engine=engine, mirrors=options.mirrors, key=options.key)
    share_layers(context, source=options.layers, target=options.push)
    reports = (
        report_store(context, options.results) if engine is not None and options.gpus is not None else None
    )
    context.stores.layers.sweep()
    if options.locked:
        context.stores.locks.fresh(cells)
    skipped = {
        Stage.PUSH: options.push is None and options.output is None,
        Stage.VERIFY: reports is None,
    }
    order = tuple(stage for stage in BUILDING if not skipped.get(stage))
    context.emit(RunStarted(cells=tuple(cell.id for cell in cells), stages=order))
    cell_runs = [CellRun(cell, hooks.emit, hooks.cancel) for cell in cells]
    early = each(cell_runs, partial(_settle, context, options), hooks, jobs=options.jobs)
    settled = dict(zip(cell_runs, early, strict=True))
    recipes = {cell_run: one for cell_run, one in settled.items() if isinstance(one, Recipe)}
    with span(hooks.emit, "plan"):
        steps = dict(zip(recipes, _plan(context, options, list(recipes.values())), strict=True))
    with ExitStack() as stack:
        makes = {cell_run: step for cell_run, step in steps.items() if isinstance(step, Make)}
        make = None
        if makes:  # a full disk is said before the first cell goes on
            new = [recipes[cell_run].pinned for cell_run, step in makes.items() if step.new]
            with span(hooks.emit, "look at engine and disk"):
                make = stack.enter_context(_image_builds(context, options, new))

        def execute(cell_run: CellRun) -> CellResult:
            return _execute(
                cell_run, recipes[cell_run], steps[cell_run], context, options, reports=reports, make=make
            )

        results = each(list(steps), execute, hooks, jobs=options.jobs)
    ended = {cell_run: one for cell_run, one in settled.items() if isinstance(one, CellResult)}
    ended |= zip(steps, results, strict=True)
    return [ended[cell_run] for cell_run in cell_runs]


def _settle(context: RunContext, options: BuildOptions, cell_run: CellRun) -> Recipe:
    """Check, lock and render a cell. Raises CellError for one that cannot be built as the options say."""
    stages.check_cell(cell_run, context, refuse=options.refuse)
    pinned = stages.lock_cell(cell_run, context, refuse=options.refuse)
    if context.engine is None and pinned.installs:
        _refuse_engine_work(pinned)
    return stages.render_cell(cell_run, context, pinned)


def _plan(
    context: RunContext, options: BuildOptions, recipes: Sequence[Recipe]
) -> list[Reuse | Staged | Make]:
    """The step of each recipe, by what engine and repository have; ``no_cache`` looks at neither."""
    in_engine: Mapping[str, StoredImage] = {}
    in_registry: Mapping[str, Staged] | None = None if options.push is None else {}
    if not options.no_cache:
        if options.push is not None and options.output is None:
            in_registry = images_in_registry(context, options.push, recipes)
        in_engine = images_in_engine(context, recipes)
    return plan_cells(recipes, in_engine, in_registry)


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
    packages = f"the packages {', '.join(pinned.apt)}" if pinned.apt else ""
    python = "Python if the base lacks it" if pinned.python is None else ""
    raise CellError(
        f"{cell.id} stands on {cell.base}, where apt-get has to install "
        f"{', and '.join(filter(None, (packages, python)))}: that runs in the base, which needs an engine",
        hint="build it where Docker is (leave out `--engine none`), or take a base of "
        "rootfs:debian/<suite>, whose packages are in the lock",
    )


@contextmanager
def _image_builds(
    context: RunContext, options: BuildOptions, new: Sequence[Pinned]
) -> Iterator[Callable[..., ImageBuild]]:
    """Gives what makes the image of a cell, once the disk has room for the cells that are ``new``."""
    from builder.image.compose import BaseCache, check_room, step_runner
    from builder.pipeline.image_build import ImageBuild

    if context.engine is not None:
        from builder.image.engine import sweep_passing

        sweep_passing(context.engine)
        if any(one.installs for one in new):
            _ = context.engine.buildx  # a lack of it is said before gigabytes are fetched
    if new:
        stores, engine = context.stores, context.engine
        free, root = (None, "") if engine is None else (engine.disk_free(), engine.facts().root)
        check_room(new, cache=stores.cache, store=stores.layers, engine_free=free, engine_root=root)
    with BaseCache() as base_cache:
        yield partial(
            ImageBuild,
            context=context,
            options=options,
            base_cache=base_cache,
            runner=step_runner(context.engine),
        )


def _execute(
    cell_run: CellRun,
    recipe: Recipe,
    step: Reuse | Staged | Make,
    context: RunContext,
    options: BuildOptions,
    *,
    reports: ReportStore | None,
    make: Callable[..., ImageBuild] | None,
) -> CellResult:
    """Take the step of a cell to its end: image, its packages, its verification if there are ``reports``.

    ``make`` is there if any cell's step is to make an image.
    """
    if not isinstance(step, (Reuse, Make)):
        return _end_staged(cell_run, step, verifies=options.gpus is not None)
    log = log_path(options.results, cell_run.cell)
    image = None
    packages: tuple[DebianPackage, ...] = ()
    try:
        if isinstance(step, Reuse):
            image = _reuse(cell_run, context, step)
        elif make is None:
            raise TypeError("nothing was prepared to make an image")
        else:
            image = make(cell_run=cell_run, recipe=recipe, log=log, staged=step.staged).make()
        if context.engine is None:
            outcome = CellOutcome.UNVERIFIED if options.gpus is not None else CellOutcome.DONE
            return cell_run.ended(outcome, image=image)
        if recipe.pinned.installs:  # a rootfs is made of the lock's own packages
            packages = read_packages(context.engine, image)
            drifted = remember(options.results / "apt", cell_run.cell, image, packages)
            if drifted is not None:
                cell_run.note(drifted, warning=True)
        if reports is None or options.gpus is None:
            return cell_run.ended(CellOutcome.DONE, image=image, log=log, packages=packages)
        report = stages.verify_cell(
            cell_run, context.engine, image, recipe.pinned, reports=reports, gpus=options.gpus
        )
    except CellError as error:
        return cell_run.failed(error, log=log, image=image, packages=packages)
    return cell_run.ended(stages.outcome_of(report), image=image, report=report, log=log, packages=packages)


def _reuse(cell_run: CellRun, context: RunContext, step: Reuse) -> Image:
    """The image that the engine has, under the cell's name."""
    there, staged = step.stored, step.staged
    name = context.stores.image_name(cell_run.cell)
    with cell_run.stage(Stage.BUILD):
        if context.engine is not None and there.reference != name:
            context.engine.tag(there.reference, name)
        cell_run.done("there already, nothing to build")
    if staged is None:
        return stages.image_of(cell_run.cell, name, there, reused=True)
    with cell_run.stage(Stage.PUSH):
        if context.own is not None:
            from builder.pipeline.image_build import sign_pushed

            sign_pushed(context, staged.reference)
        cell_run.done(f"there already, {staged.digest[:19]}")
    return stages.image_of(cell_run.cell, name, there, reused=True, pushed=staged.reference)


def _end_staged(cell_run: CellRun, staged: Staged, *, verifies: bool) -> CellResult:
    """The end of a cell that needs nothing. Its verification is a matter of `rtbuild verify --from`."""
    with cell_run.stage(Stage.BUILD):
        cell_run.done(f"there already, in {staged.repository}")
    image = stages.image_of(cell_run.cell, staged.reference, staged, reused=True, pushed=staged.reference)
    return cell_run.ended(CellOutcome.UNVERIFIED if verifies else CellOutcome.DONE, image=image)


def log_path(results: Path, cell: Cell) -> Path:
    """The path of a cell's build log; ids are legal tags, so they are legal file names too."""
    return results / "logs" / re.sub(r"[^A-Za-z0-9._-]", "-", cell.matrix) / f"{cell.id}.log"


def read_packages(engine: Engine, image: Image) -> tuple[DebianPackage, ...]:
    """The packages that apt brought in; none if no step had to install any. Raises CellError."""
    content = engine.read_file(image.digest, LIST)
    if content is None:
        return ()
    try:
        rows = (line.split(" ") for line in content.decode().splitlines())
        found = [DebianPackage(name=row[0], version=row[1], architecture=row[2]) for row in rows]
        return tuple(sorted(found))
    except (ValueError, IndexError) as problem:
        raise CellError(f"{image.reference}: {LIST} is not as rtbuild wrote it: {problem}") from problem


def remember(folder: Path, cell: Cell, image: Image, packages: Sequence[DebianPackage]) -> str | None:
    """Keep ``packages`` below ``folder`` for the next time; what drifted since the last, in one line.

    Raises OSError if the folder cannot be written.
    """
    path = folder / cell.matrix / f"{cell.id}.json"
    before = None
    # None, or of another rtbuild, or cut short: nothing is known of the time before
    with suppress(FileNotFoundError, ValueError, TypeError, LookupError):
        before = [DebianPackage(**entry) for entry in json.loads(path.read_bytes())["packages"]]
    rows = [vars(package) for package in packages]
    document = {"schema": 1, "cell": cell.id, "digest": image.digest, "packages": rows}
    write_whole(path, (json.dumps(document, indent=2) + "\n").encode())
    return drift(before, packages) if before is not None else None


def drift(before: Sequence[DebianPackage], now: Sequence[DebianPackage]) -> str | None:
    """``libssl3 3.0.14-1 is now 3.0.15-1``: all that differs, in one line; None if nothing does."""
    old, new = ({(one.name, one.architecture): one.version for one in packages} for packages in (before, now))
    parts = []
    for key in sorted(old.keys() | new.keys()):
        if key not in new:
            parts.append(f"{key[0]} {old[key]} is gone")
        elif key not in old:
            parts.append(f"{key[0]} {new[key]} is new")
        elif old[key] != new[key]:
            parts.append(f"{key[0]} {old[key]} is now {new[key]}")
    if len(parts) > _NAMED:
        parts[_NAMED:] = [f"and {len(parts) - _NAMED} more"]
    return "the distribution's packages drifted: " + ", ".join(parts) if parts else None
