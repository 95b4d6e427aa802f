"""``rtbuild publish``: the plan or the deed, cell by cell, and one exit code."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from builder.cli import options as opt
from builder.cli.boundary import INTERRUPTED, command_line
from builder.errors import PublishRefusedError, UsageError

if TYPE_CHECKING:
    from builder.evidence.cosign import People, Signer
    from builder.publish.publication import Publication


def publish(
    matrices: opt.Matrices = None,
    select: opt.Select = None,
    skip: opt.Skip = None,
    source: Annotated[
        str | None,
        opt.of(
            "--from REPOSITORY: Where images were pushed by `build --push`; by default as the matrix says."
        ),
    ] = None,
    target: Annotated[
        str | None, opt.of("--to REPOSITORY: Where they are published; by default as the matrix says.")
    ] = None,
    max_age: Annotated[
        str | None,
        opt.of("--max-age AGE: How old a report may be: 30d, 12h. By default as the matrix says, else 30d."),
    ] = None,
    dry_run: Annotated[bool, opt.of("--dry-run: Show what would be published, and change nothing.")] = False,
    key: Annotated[
        str | None, opt.of("--key KEY: Sign the evidence by cosign with this key: a file, or a KMS URI.")
    ] = None,
    keyless: Annotated[
        bool, opt.of("--keyless: Sign the evidence by cosign with the identity of the CI.")
    ] = False,
    built_by: opt.BuiltBy = None,
    reported_by: opt.ReportedBy = None,
    require_signed: Annotated[
        bool,
        opt.of(
            "--require-signed: Demand both signatures; for one without a named key, the signature of --key."
        ),
    ] = False,
    overwrite: Annotated[
        bool, opt.of("--overwrite: Move also tags that another matrix or another tool has put.")
    ] = False,
    jobs: Annotated[int, opt.of("--jobs, -j: Images at a time.", min=1)] = 2,
    results: opt.Results = Path("results"),
    progress: opt.Progress = "auto",
    color: opt.Color = "auto",
    quiet: opt.Quiet = False,
    verbose: opt.Verbose = 0,
    json_: opt.Json = False,
) -> int:
    """Put public tags on the digests that are known to work, with the evidence beside them; exit 6 else."""
    from builder.cli.walking import job_files, record
    from builder.console import print_json, reporter
    from builder.console.publication import cases, summary
    from builder.evidence.cosign import Signer
    from builder.publish.publication import Order, publication_document
    from builder.publish.run import publish as publish_cells

    if key and keyless:
        raise UsageError("--key and --keyless exclude each other", hint="take one of them")
    signer = Signer(key=key) if key or keyless else None
    builders, reporters = _people(signer, built_by, reported_by, both=require_signed)
    order = Order(
        source=source,
        target=target,
        results=results,
        max_age=opt.age(max_age),
        dry_run=dry_run,
        overwrite=overwrite,
        signer=signer,
        builders=builders,
        reporters=reporters,
        jobs=jobs,
    )
    terminal = opt.terminal(progress, color, quiet=quiet, verbose=verbose)
    loaded, cells = opt.choose(matrices, select, skip)
    started, command = datetime.now(UTC), command_line()
    with reporter(terminal) as report:
        rows = publish_cells(loaded, cells, order=order, emit=report, cancel=threading.Event())
    document = publication_document(rows, command=command, started=started, dry_run=dry_run)
    where = None
    if not dry_run:
        where = record(document, results)
        job_files(cases(rows), terminal, results, command=command, started=started)
    if json_:
        print_json(document)
    terminal.say(summary(rows, terminal, signed=signer is not None, dry_run=dry_run))
    if where is not None:
        terminal.say(f"record: {where}")
    return exit_code(rows)


def _people(
    signer: Signer | None, built_by: list[str] | None, reported_by: list[str] | None, *, both: bool
) -> tuple[People | None, People | None]:
    """The signers of whom an image and a report each need one. Raises UsageError."""
    from builder.evidence.cosign import People

    named = [
        People.named(keys or (), option)
        for keys, option in ((built_by, "--built-by"), (reported_by, "--reported-by"))
    ]
    if both and None in named:
        if signer is None or signer.key is None:
            raise UsageError(
                "--require-signed, and nobody is named whose signature would count",
                hint="--built-by cosign.pub and --reported-by cosign.pub; or --key, whose holder did both",
            )
        own = People.holding(signer)
        named = [people or own for people in named]
    return named[0], named[1]


def exit_code(rows: Sequence[Publication]) -> int:
    """The exit code of a publication: a cell that was refused outweighs one that only failed."""
    states = {row.state for row in rows}
    if "cancelled" in states:
        return INTERRUPTED
    if "refused" in states:
        return PublishRefusedError.exit_code
    return 1 if "failed" in states else 0
