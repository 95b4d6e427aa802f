"""``rtbuild lock``, ``render`` and ``verify``: stations of a build, each as a command."""

from functools import partial
from pathlib import Path

from builder.cli import options as opt
from builder.cli.console import Progress, Terminal, counted, print_json, say
from builder.cli.walking import finished
from builder.core.errors import UsageError
from builder.pipeline import (
    LockOptions,
    Locks,
    RenderOptions,
    VerifyOptions,
    lock_cells,
    render_cells,
    verify_cells,
)


def lock(
    matrices: list[Path] | None = opt.MATRICES,
    select: list[str] | None = opt.SELECT,
    skip: list[str] | None = opt.SKIP,
    check_: bool = opt.of("--check: Change nothing; exit 4 if a lock is missing or stale.", False),
    upgrade: bool = opt.of("--upgrade: Lock everything anew.", False),
    upgrade_only: list[str] | None = opt.of(
        "--upgrade-only NAME: Move these packages, or the base, and what they force; the rest stays."
    ),
    mirror: list[str] | None = opt.MIRROR,
    trace: Path | None = opt.TRACE,
    progress: Progress = opt.PROGRESS,
    json_: bool = opt.JSON,
) -> int:
    """Exit 4 with ``--check``, which changes nothing, if a chosen cell is not locked as it stands."""
    loaded, cells = opt.choose(matrices, select, skip)
    if check_:
        given = {"--upgrade": upgrade, "--upgrade-only": upgrade_only, "--trace": trace}
        if idle := [name for name, value in given.items() if value]:
            raise UsageError(f"--check changes and records nothing: {idle[0]} has no part in it")
        Locks(loaded).fresh(cells)
        say(f"{counted(cells, 'cell')}: the lock is up to date")
        if json_:
            print_json({"schema": 1, "cells": [{"id": cell.id, "locked": True} for cell in cells]})
        return 0
    if upgrade and upgrade_only:
        raise UsageError("--upgrade moves everything, --upgrade-only what it names: take one of them")
    options = LockOptions(upgrade=upgrade or frozenset(upgrade_only or ()), mirrors=opt.mirrors(mirror))
    run = partial(lock_cells, loaded, cells, options)
    return finished(Terminal.of(progress), run, trace=trace, json=json_)


def render(
    matrices: list[Path] | None = opt.MATRICES,
    output: Path = opt.of(
        "--output, -o: The folder of the recipes, one folder for each cell.", Path("recipes")
    ),
    select: list[str] | None = opt.SELECT,
    skip: list[str] | None = opt.SKIP,
    locked: bool = opt.LOCKED,
    text_only: bool = opt.of("--text-only: Leave out the large files that docker build would need.", False),
    mirror: list[str] | None = opt.MIRROR,
    progress: Progress = opt.PROGRESS,
    json_: bool = opt.JSON,
) -> int:
    """Exit 1 if a recipe could not be written."""
    loaded, cells = opt.choose_to_write(matrices, select, skip)
    options = RenderOptions(folder=output, locked=locked, text_only=text_only, mirrors=opt.mirrors(mirror))
    run = partial(render_cells, loaded, cells, options)
    return finished(Terminal.of(progress), run, json=json_)


def verify(
    matrices: list[Path] | None = opt.MATRICES,
    select: list[str] | None = opt.SELECT,
    skip: list[str] | None = opt.SKIP,
    gpus: opt.Gpus = opt.GPUS,
    again: bool = opt.of("--again: Run the probe even if its report is there already.", False),
    from_: str | None = opt.of(
        "--from REPOSITORY: Pull the images by digest from where `build --push` put them; report there."
    ),
    built_by: list[str] | None = opt.BUILT_BY,
    key: str | None = opt.REPORT_KEY,
    report: bool = opt.of("--report/--no-report: With --from: put the report beside the image, too.", True),
    remove: bool = opt.of("--rm: With --from: remove each image here once it is verified.", False),
    results: Path = opt.RESULTS,
    context: str | None = opt.CONTEXT,
    progress: Progress = opt.PROGRESS,
    quiet: bool = opt.QUIET,
    verbose: int = opt.VERBOSE,
    json_: bool = opt.JSON,
) -> int:
    """Unlike ``build``, exit 5 if a cell stays unverified."""
    if from_ is None and (remove or not report or built_by):
        raise UsageError("--rm, --no-report and --built-by are about images that --from pulls")
    options = VerifyOptions(
        gpus=opt.WANTED[gpus],
        again=again,
        results=results,
        context=context,
        source=from_,
        share_reports=report,
        remove=remove,
        built_by=tuple(built_by or ()),
        key=key,
    )
    loaded, cells = opt.choose_to_write(matrices, select, skip)
    run = partial(verify_cells, loaded, cells, options)
    terminal = Terminal.of(progress, quiet=quiet, verbose=verbose)
    return finished(terminal, run, results, require_verified=True, json=json_)
