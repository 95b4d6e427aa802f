"""``rtbuild lock``, ``render`` and ``verify``: stations of a build, each as a command."""

from functools import partial
from pathlib import Path

from builder.cli import options as opt
from builder.cli.walking import finished
from builder.console import Terminal, counted, print_json, say
from builder.errors import UsageError
from builder.pipeline import stages, verifying
from builder.pipeline.settings import Settings
from builder.pipeline.site import LockKeeper, refuse_stale


def lock(
    matrices: opt.Matrices = None,
    select: opt.Select = None,
    skip: opt.Skip = None,
    check_: bool = opt.of("--check: Change nothing; exit 4 if a lock is missing or stale.", False),
    upgrade: bool = opt.of("--upgrade: Lock everything anew.", False),
    upgrade_package: list[str] | None = opt.of("--upgrade-package NAME: Lock these anew.", None),
    mirror: opt.Mirror = None,
    progress: opt.Progress = "auto",
    json_: opt.Json = False,
) -> int:
    """Exit 4 with ``--check`` if a lock is missing or stale; then nothing is changed."""
    loaded, cells = opt.choose(matrices, select, skip)
    if check_:
        refuse_stale({matrix.name: LockKeeper(matrix) for matrix in loaded}, cells)
        say(f"{counted(cells, 'cell')}: the lock is up to date")
        if json_:
            print_json({"schema": 1, "cells": [{"id": cell.id, "locked": True} for cell in cells]})
        return 0
    settings = Settings(upgrade=upgrade or frozenset(upgrade_package or ()), mirrors=opt.mirrors(mirror))
    run = partial(stages.lock_cells, loaded, cells, settings=settings)
    return finished(Terminal.of(progress), run, json=json_)


def render(
    matrices: opt.Matrices = None,
    output: Path = opt.of(
        "--output, -o: The folder of the recipes, one folder for each cell.", Path("recipes")
    ),
    select: opt.Select = None,
    skip: opt.Skip = None,
    locked: opt.Locked = False,
    text_only: bool = opt.of("--text-only: Leave out the large files that docker build would need.", False),
    mirror: opt.Mirror = None,
    progress: opt.Progress = "auto",
    json_: opt.Json = False,
) -> int:
    """Exit 1 if a recipe could not be written."""
    loaded, cells = opt.choose(matrices, select, skip)
    settings = Settings(locked=locked, mirrors=opt.mirrors(mirror))
    run = partial(stages.render_cells, loaded, cells, output, settings=settings, text_only=text_only)
    return finished(Terminal.of(progress), run, json=json_)


def verify(
    matrices: opt.Matrices = None,
    select: opt.Select = None,
    skip: opt.Skip = None,
    gpus: opt.Gpus = "auto",
    again: bool = opt.of("--again: Run the probe even if its report is there already.", False),
    from_: str | None = opt.of(
        "--from REPOSITORY: Pull the images by digest from where `build --push` put them; report there.", None
    ),
    built_by: opt.BuiltBy = None,
    key: opt.ReportKey = None,
    report: bool = opt.of("--report/--no-report: With --from: put the report beside the image, too.", True),
    remove: bool = opt.of("--rm: With --from: remove each image here once it is verified.", False),
    results: opt.Results = Path("results"),
    context: opt.Context = None,
    progress: opt.Progress = "auto",
    quiet: opt.Quiet = False,
    verbose: opt.Verbose = 0,
    json_: opt.Json = False,
) -> int:
    """Unlike ``build``, exit 5 if a cell stays unverified."""
    if from_ is None and (remove or not report or built_by):
        raise UsageError("--rm, --no-report and --built-by are about images that --from pulls")
    settings = Settings(
        gpus=opt.GPUS[gpus],
        no_cache=again,
        results=results,
        context=context,
        source=from_,
        share_reports=report,
        remove=remove,
        built_by=tuple(built_by or ()),
        key=key,
    )
    loaded, cells = opt.choose(matrices, select, skip)
    run = partial(verifying.verify, loaded, cells, settings=settings)
    terminal = Terminal.of(progress, quiet=quiet, verbose=verbose)
    return finished(terminal, run, results, require_verified=True, json=json_)
