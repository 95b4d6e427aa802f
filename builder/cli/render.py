"""``rtbuild render``: recipes as folders."""

from functools import partial
from pathlib import Path
from typing import Annotated

from builder.cli import options as opt
from builder.cli.walking import finished
from builder.pipeline import run as pipeline
from builder.pipeline.settings import Settings


def render(
    matrices: opt.Matrices = None,
    output: Annotated[
        Path, opt.of("--output, -o: The folder of the recipes, one folder for each cell.")
    ] = Path("recipes"),
    select: opt.Select = None,
    skip: opt.Skip = None,
    locked: opt.Locked = False,
    text_only: Annotated[
        bool, opt.of("--text-only: Leave out the large files that docker build would need.")
    ] = False,
    mirror: opt.Mirror = None,
    progress: opt.Progress = "auto",
    color: opt.Color = "auto",
    json_: opt.Json = False,
) -> int:
    """Exit 1 if a recipe could not be written."""
    loaded, cells = opt.choose(matrices, select, skip)
    settings = Settings(locked=locked, mirrors=opt.mirrors(mirror))
    run = partial(pipeline.render, loaded, cells, output, settings=settings, text_only=text_only)
    return finished(opt.terminal(progress, color), run, json=json_)
