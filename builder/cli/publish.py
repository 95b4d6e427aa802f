"""``rtbuild publish``: declared here, done in :mod:`builder.cli.publishing`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from builder.cli import options as opt
from builder.cli.app import app


@app.command()
def publish(
    matrices: opt.Matrices = None,
    select: opt.Select = None,
    skip: opt.Skip = None,
    source: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="REPOSITORY",
            help="Where images were pushed by `build --push`; by default as the matrix says.",
        ),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(
            "--to", metavar="REPOSITORY", help="Where they are published; by default as the matrix says."
        ),
    ] = None,
    max_age: Annotated[
        str | None,
        typer.Option(
            "--max-age",
            metavar="AGE",
            help="How old a report may be: 30d, 12h. By default as the matrix says, else 30d.",
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be published, and change nothing.")
    ] = False,
    key: Annotated[
        str | None,
        typer.Option(
            "--key", metavar="KEY", help="Sign the evidence by cosign with this key: a file, or a KMS URI."
        ),
    ] = None,
    keyless: Annotated[
        bool, typer.Option("--keyless", help="Sign the evidence by cosign with the identity of the CI.")
    ] = False,
    overwrite: Annotated[
        bool,
        typer.Option("--overwrite", help="Move also tags that another matrix or another tool has put."),
    ] = False,
    jobs: Annotated[int, typer.Option("--jobs", "-j", min=1, help="Images at a time.")] = 2,
    results: opt.Results = Path("results"),
    progress: opt.Progress = "auto",
    color: opt.Color = "auto",
    quiet: opt.Quiet = False,
    verbose: opt.Verbose = 0,
    json_: opt.Json = False,
) -> int:
    """Put public tags on the digests that are known to work, with the evidence beside them; exit 6 else."""
    from builder.cli.publishing import Signing, publish_cells

    return publish_cells(
        opt.load_all(matrices),
        select,
        skip,
        source=source,
        target=target,
        max_age=opt.age(max_age),
        dry_run=dry_run,
        signing=Signing(key=key, keyless=keyless),
        overwrite=overwrite,
        jobs=jobs,
        results=results,
        terminal=opt.terminal(progress, color, quiet=quiet, verbose=verbose),
        json=json_,
    )
