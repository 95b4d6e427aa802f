"""The commands about Google Colab's runtimes: declared here, done in :mod:`builder.cli.colabing`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from builder.cli import options as opt
from builder.cli.app import app

colab = typer.Typer(
    help="Google Colab's runtimes: import one as a matrix, and measure how near an image is to it.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.add_typer(colab, name="colab")


@colab.command("import")
def import_(
    source: Annotated[
        Path | None,
        typer.Argument(
            metavar="[DIR]", help="A folder with the lists, or a clone of Google's repository of them."
        ),
    ] = None,
    at: Annotated[
        str | None,
        typer.Option("--at", metavar="COMMIT|RUNTIME", help="Read a clone at this commit, or at 2025.07's."),
    ] = None,
    freeze: Annotated[
        Path | None, typer.Option("--freeze", metavar="FILE", help="The output of pip freeze.")
    ] = None,
    apt: Annotated[
        Path | None, typer.Option("--apt", metavar="FILE", help="The output of apt list --installed.")
    ] = None,
    os_info: Annotated[
        Path | None, typer.Option("--os-info", metavar="FILE", help="The distribution and Python's version.")
    ] = None,
    python: Annotated[
        str | None, typer.Option("--python", help="The Python, where no OS info says it: 3.7.")
    ] = None,
    name: Annotated[str | None, typer.Option("--name", help="The runtime's name: 2025.07.")] = None,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="DIR", help="Where the matrix and its record go.")
    ] = Path("matrices"),
    profile: Annotated[
        Literal["plain", "colab"], typer.Option("--profile", help="colab: with Jupyter for Colab's page.")
    ] = "colab",
    lock: Annotated[
        bool, typer.Option("--lock/--no-lock", help="Lock the cells whose base this machine can reach.")
    ] = True,
    build: Annotated[
        bool,
        typer.Option(
            "--from-source", help="Build what the index has only sources of: runs their setup code."
        ),
    ] = False,
    mirror: opt.Mirror = None,
    progress: opt.Progress = "auto",
    color: opt.Color = "auto",
    json_: opt.Json = False,
) -> int:
    """Make a matrix and its lock of the lists that Colab publishes, each package at its version."""
    from builder.cli.colabing import import_lists
    from builder.colab.runtimes import read_runtime

    runtime = read_runtime(source, at=at, freeze=freeze, apt=apt, system=os_info, name=name, python=python)
    return import_lists(
        runtime,
        output,
        profile=profile,
        lock=lock,
        build=build,
        mirrors=opt.mirrors(mirror),
        terminal=opt.terminal(progress, color),
        json=json_,
    )


@colab.command("diff")
def diff(
    image: Annotated[str, typer.Argument(help="An image in the engine's store; rtbuild's or any other.")],
    against: Annotated[
        str,
        typer.Option(
            "--against", metavar="RUNTIME", help="2025.07, an import's record, or a folder of lists."
        ),
    ],
    check: Annotated[
        bool, typer.Option("--check", help="Exit 1 where the goals of an imported runtime are not reached.")
    ] = False,
    gpus: opt.Gpus = "none",
    context: opt.Context = None,
    color: opt.Color = "auto",
    verbose: opt.Verbose = 0,
    json_: opt.Json = False,
) -> int:
    """Measure in an image how near it is to a Colab runtime: the same, another version, missing, extra."""
    from builder.cli.colabing import diff_image

    return diff_image(
        image,
        against,
        check=check,
        gpus=gpus == "all",
        context=context,
        terminal=opt.terminal("auto", color, verbose=verbose),
        json=json_,
    )
