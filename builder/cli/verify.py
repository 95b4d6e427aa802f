"""``rtbuild verify``: the probe, in images built here or elsewhere."""

from functools import partial
from pathlib import Path
from typing import Annotated

from builder.cli import options as opt
from builder.cli.walking import recorded
from builder.errors import UsageError
from builder.pipeline import verifying
from builder.pipeline.settings import Settings


def verify(
    matrices: opt.Matrices = None,
    select: opt.Select = None,
    skip: opt.Skip = None,
    gpus: opt.Gpus = "auto",
    again: Annotated[bool, opt.of("--again: Run the probe even if its report is there already.")] = False,
    from_: Annotated[
        str | None,
        opt.of(
            "--from REPOSITORY: Pull the images by digest from where `build --push` put them; report there."
        ),
    ] = None,
    built_by: opt.BuiltBy = None,
    key: opt.ReportKey = None,
    report: Annotated[
        bool, opt.of("--report/--no-report: With --from: put the report beside the image, too.")
    ] = True,
    remove: Annotated[bool, opt.of("--rm: With --from: remove each image here once it is verified.")] = False,
    results: opt.Results = Path("results"),
    context: opt.Context = None,
    progress: opt.Progress = "auto",
    color: opt.Color = "auto",
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
    terminal = opt.terminal(progress, color, quiet=quiet, verbose=verbose)
    return recorded(terminal, run, results, require_verified=True, json=json_)
