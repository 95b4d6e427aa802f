"""The commands whose cells walk the line: declared here, done in :mod:`builder.cli.walking`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from builder.cli import options as opt
from builder.cli.app import app
from builder.errors import UsageError


@app.command()
def lock(
    matrices: opt.Matrices = None,
    select: opt.Select = None,
    skip: opt.Skip = None,
    check_: Annotated[
        bool, typer.Option("--check", help="Change nothing; exit 4 where a lock is missing or stale.")
    ] = False,
    upgrade: Annotated[bool, typer.Option("--upgrade", help="Lock everything anew.")] = False,
    upgrade_package: Annotated[
        list[str] | None, typer.Option("--upgrade-package", metavar="NAME", help="Lock these anew.")
    ] = None,
    mirror: opt.Mirror = None,
    progress: opt.Progress = "auto",
    color: opt.Color = "auto",
    json_: opt.Json = False,
) -> int:
    """Fix what cells resolve to: bases by digest, wheels and Debian packages by hash."""
    from builder.cli.walking import lock_cells

    return lock_cells(
        opt.load_all(matrices),
        select,
        skip,
        check=check_,
        upgrade=upgrade or frozenset(upgrade_package or ()),
        mirrors=opt.mirrors(mirror),
        terminal=opt.terminal(progress, color),
        json=json_,
    )


@app.command()
def render(
    matrices: opt.Matrices = None,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Where recipes go, a folder for each cell.")
    ] = Path("recipes"),
    select: opt.Select = None,
    skip: opt.Skip = None,
    locked: opt.Locked = False,
    text_only: Annotated[
        bool, typer.Option("--text-only", help="Without the large files that docker build would need.")
    ] = False,
    mirror: opt.Mirror = None,
    progress: opt.Progress = "auto",
    color: opt.Color = "auto",
    json_: opt.Json = False,
) -> int:
    """Write the recipe of each cell: a folder that plain `docker build` accepts."""
    from builder.cli.walking import render_cells

    return render_cells(
        opt.load_all(matrices),
        select,
        skip,
        output=output,
        locked=locked,
        text_only=text_only,
        mirrors=opt.mirrors(mirror),
        terminal=opt.terminal(progress, color),
        json=json_,
    )


@app.command()
def build(
    matrices: opt.Matrices = None,
    select: opt.Select = None,
    skip: opt.Skip = None,
    locked: opt.Locked = False,
    jobs: Annotated[int | None, typer.Option("--jobs", "-j", min=1, help="Cells at a time.")] = None,
    verify_: Annotated[
        bool, typer.Option("--verify/--no-verify", help="Run cudnn-verify in what was built.")
    ] = True,
    require_verified: Annotated[
        bool, typer.Option("--require-verified", help="Exit 5 where no GPU could be asked.")
    ] = False,
    gpus: opt.Gpus = "auto",
    no_cache: Annotated[
        bool, typer.Option("--no-cache", help="Build anew even where the image is there already.")
    ] = False,
    no_check: Annotated[
        bool, typer.Option("--no-check", help="Build also what the compatibility rules refuse.")
    ] = False,
    push: opt.Push = None,
    engine: Annotated[
        Literal["docker", "none"],
        typer.Option("--engine", help="none: put images together here and push them, without Docker."),
    ] = "docker",
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="With --engine none: write images there, as an OCI layout."),
    ] = None,
    layers_from: Annotated[
        str | None,
        typer.Option(
            "--layers-from",
            metavar="REPO",
            help="Take ready-made layers from there, as whoever may write to it made them.",
            envvar="RTBUILD_LAYERS_FROM",
        ),
    ] = None,
    cache_from: Annotated[
        list[str] | None,
        typer.Option(
            "--cache-from",
            metavar="TYPE=...",
            help="As of docker buildx build; {cell} stands for the cell's id.",
        ),
    ] = None,
    cache_to: Annotated[
        list[str] | None, typer.Option("--cache-to", metavar="TYPE=...", help="As --cache-from.")
    ] = None,
    check_reproducible: Annotated[
        bool,
        typer.Option(
            "--check-reproducible",
            help="Build twice, the second time from nothing, and name every file that differs; no probe.",
        ),
    ] = False,
    results: opt.Results = Path("results"),
    mirror: opt.Mirror = None,
    context: opt.Context = None,
    builder: opt.Builder = None,
    progress: opt.Progress = "auto",
    color: opt.Color = "auto",
    quiet: opt.Quiet = False,
    verbose: opt.Verbose = 0,
    json_: opt.Json = False,
) -> int:
    """Build every selected cell, and run cudnn-verify in each."""
    from builder.cli.walking import build_cells
    from builder.pipeline.settings import Settings

    defaults = Settings()
    settings = Settings(
        jobs=jobs or defaults.jobs,
        locked=locked,
        refuse=not no_check,
        engine=engine == "docker",
        no_cache=no_cache,
        verify=verify_,
        gpus=opt.GPUS[gpus],
        results=results,
        mirrors=opt.mirrors(mirror),
        context=context,
        builder=builder,
        push=push,
        output=output,
        layers_from=layers_from,
        cache_from=tuple(cache_from or ()),
        cache_to=tuple(cache_to or ()),
    )
    terminal = opt.terminal(progress, color, quiet=quiet, verbose=verbose)
    opt.refuse_idle(
        engine,
        output=output,
        push=push,
        require_verified=require_verified,
        check_reproducible=check_reproducible,
    )
    if check_reproducible:
        from builder.cli.reproducing import check_cells

        found = opt.load_all(matrices)
        cells = opt.choose(found, select, skip).chosen
        return check_cells(found, cells, settings=settings, terminal=terminal, json=json_)
    return build_cells(
        opt.load_all(matrices),
        select,
        skip,
        settings=settings,
        terminal=terminal,
        require_verified=require_verified,
        json=json_,
    )


@app.command()
def verify(
    matrices: opt.Matrices = None,
    select: opt.Select = None,
    skip: opt.Skip = None,
    gpus: opt.Gpus = "auto",
    again: Annotated[
        bool, typer.Option("--again", help="Run the probe even where its report is there already.")
    ] = False,
    from_: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="REPOSITORY",
            help="Pull the images by digest from where `build --push` put them, and report there.",
        ),
    ] = None,
    report: Annotated[
        bool,
        typer.Option("--report/--no-report", help="With --from: put the report beside the image, too."),
    ] = True,
    remove: Annotated[
        bool, typer.Option("--rm", help="With --from: remove each image here after its verification.")
    ] = False,
    results: opt.Results = Path("results"),
    context: opt.Context = None,
    progress: opt.Progress = "auto",
    color: opt.Color = "auto",
    quiet: opt.Quiet = False,
    verbose: opt.Verbose = 0,
    json_: opt.Json = False,
) -> int:
    """Run cudnn-verify in images built here or elsewhere; exit 0 only where all are known to work."""
    from builder.cli.walking import verify_cells
    from builder.pipeline.settings import Settings

    if from_ is None and (remove or not report):
        raise UsageError("--rm and --no-report are about images that --from pulled")
    settings = Settings(
        gpus=opt.GPUS[gpus],
        no_cache=again,
        results=results,
        context=context,
        source=from_,
        share_reports=report,
        remove=remove,
    )
    terminal = opt.terminal(progress, color, quiet=quiet, verbose=verbose)
    return verify_cells(
        opt.load_all(matrices), select, skip, settings=settings, terminal=terminal, json=json_
    )
