"""The commands, each prefix of the line from a matrix to a report one that can be stopped at."""

from __future__ import annotations

import sys
from pathlib import Path  # noqa: TC003 - typer reads annotations when it runs
from typing import Annotated, Literal

import typer
from typer.exceptions import TyperException

from builder import __version__
from builder.cli import options as opt
from builder.cli.boundary import guarded

_EPILOG = """
Exit codes: 0 done as asked · 1 a cell failed · 2 usage, or a matrix that is wrong · 3 nothing selected ·
4 the lock is missing or stale (--locked) · 5 this machine lacks something · 6 publication refused ·
70 a bug in rtbuild · 130 interrupted
"""

app = typer.Typer(
    name="rtbuild",
    help="Images of CUDA, cuDNN, framework and Python that are known to work.",
    epilog=_EPILOG,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def main() -> None:
    """The console script."""
    sys.exit(guarded(_program))


def _program() -> int:
    try:
        result = app(standalone_mode=False)
    except TyperException as error:
        message = error.format_message()
        if not message.startswith("Usage:"):  # rtbuild without arguments: the message is the help
            message = (
                f"error: {message}\nhint: `rtbuild --help` lists commands, `rtbuild COMMAND --help` options"
            )
        sys.stderr.write(message + "\n")
        return 2
    return result if isinstance(result, int) else 0


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"rtbuild {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of a bug.")] = False,
) -> None:
    """Options that come before the command; both are read elsewhere, before and after parsing."""
    del version, debug


@app.command("list")
def list_(
    matrices: opt.Matrices = None,
    select: opt.Select = None,
    skip: opt.Skip = None,
    format_: Annotated[
        Literal["table", "id", "image", "github"],
        typer.Option("--format", help="A table; bare ids; image names; or job matrices for GitHub Actions."),
    ] = "table",
    json_: opt.Json = False,
) -> int:
    """Show the cells of matrices: which are chosen, and why the others are not."""
    from builder.cli.listing import run

    return run(opt.load_all(matrices), select, skip, style="json" if json_ else format_)


@app.command()
def check(
    matrices: opt.Matrices = None,
    select: opt.Select = None,
    skip: opt.Skip = None,
    driver: opt.Driver = None,
    read: opt.Read = False,
    deep: opt.Deep = False,
    mirror: opt.Mirror = None,
    fix: Annotated[
        bool,
        typer.Option(
            "--fix", help="Exclude impossible cells in their files, with the nearest possible ones."
        ),
    ] = False,
    json_: opt.Json = False,
    verbose: opt.Verbose = 0,
) -> int:
    """Say in milliseconds which cells are possible, and why the others are not; nothing is built."""
    from builder.cli.checking import run

    return run(
        opt.load_all(matrices),
        select,
        skip,
        driver=opt.driver(driver),
        online=read or deep,
        deep=deep,
        mirrors=opt.mirrors(mirror),
        json=json_,
        verbose=verbose,
        fix=fix,
    )


@app.command()
def explain(
    cell: opt.CellOrText,
    matrices: opt.Matrices = None,
    driver: Annotated[str | None, typer.Option("--driver", help="The driver to answer for.")] = None,
    read: opt.Read = False,
    deep: opt.Deep = False,
    mirror: opt.Mirror = None,
    json_: opt.Json = False,
) -> int:
    """Say why a cell gets its verdict; or what a cause, or a text that a program printed, means."""
    from builder.cli.checking import explain_one
    from builder.cli.probing import explain_text, is_text
    from builder.errors import NothingSelectedError, UsageError

    if is_text(cell) or not (matrices or opt.matrix_files()):
        return explain_text(cell)
    try:
        return explain_one(
            opt.load_all(matrices),
            cell,
            driver=opt.driver(driver),
            online=read or deep,
            deep=deep,
            mirrors=opt.mirrors(mirror),
            json=json_,
        )
    except NothingSelectedError as none:
        try:
            return explain_text(cell)
        except UsageError:
            raise none from None


@app.command()
def resolve(
    requirements: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="REQUIREMENT...", help="Frameworks, and what goes beside: 'tensorflow==2.15.*' numpy."
        ),
    ] = None,
    requirement_file: Annotated[
        list[Path] | None,
        typer.Option("--requirement", "-r", metavar="FILE", help="A requirements.txt; may be repeated."),
    ] = None,
    pyproject: Annotated[
        Path | None, typer.Option("--pyproject", metavar="FILE", help="The dependencies of a pyproject.toml.")
    ] = None,
    notebook: Annotated[
        Path | None,
        typer.Option("--notebook", metavar="FILE", help="The `!pip install` lines of a notebook."),
    ] = None,
    conda: Annotated[
        Path | None,
        typer.Option(
            "--conda",
            metavar="FILE",
            help="A conda environment to tell in wheels: environment.yml, or `conda list --export`.",
        ),
    ] = None,
    python: Annotated[
        str | None, typer.Option("--python", help="These Pythons only: 3.11, or '>=3.9,<3.12'.")
    ] = None,
    gpu: Annotated[
        list[str] | None,
        typer.Option(
            "--gpu",
            help="A GPU that images must run on, as nvidia-smi names it or by compute capability: T4, "
            "'NVIDIA GeForce RTX 4090', 7.5; may be repeated. By default this machine's own.",
        ),
    ] = None,
    driver: opt.Driver = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="Cells at most.")] = 5,
    name: Annotated[str, typer.Option("--name", help="The matrix's name.")] = "resolved",
    offline: Annotated[
        bool, typer.Option("--offline", help="Ask no package index: the tables alone, without the resolver.")
    ] = False,
    json_: opt.Json = False,
) -> int:
    """Propose possible cells for given frameworks, best first, and print a matrix file of them."""
    from builder.cli.resolving import Sources, machine, run, wishes
    from builder.index.client import Index

    asked = wishes(
        Sources(
            arguments=tuple(requirements or ()),
            requirements=tuple(requirement_file or ()),
            pyproject=pyproject,
            notebook=notebook,
            environment=conda,
        )
    )
    return run(
        asked,
        machine(gpu or (), opt.driver(driver)),
        python=python,
        limit=limit,
        name=name,
        index=None if offline else Index.from_user(brief=True),
        json=json_,
    )


facts = typer.Typer(
    help="The compatibility tables that ship with rtbuild.", no_args_is_help=True, rich_markup_mode=None
)
app.add_typer(facts, name="facts")


@facts.command("refresh")
def facts_refresh(
    check_: Annotated[
        bool, typer.Option("--check", help="Change nothing; exit 1 if something differs.")
    ] = False,
    only: Annotated[
        list[str] | None, typer.Option("--only", metavar="NAME", help="One framework's table; repeatable.")
    ] = None,
    again: Annotated[
        bool, typer.Option("--again", help="Read every release, not only missing and changed ones.")
    ] = False,
    mebibytes: Annotated[
        int, typer.Option("--budget", metavar="MIB", help="Stop after so many MiB.")
    ] = 16384,
    minutes: Annotated[int, typer.Option("--minutes", help="Stop after so many minutes.")] = 360,
    mirror: opt.Mirror = None,
    json_: opt.Json = False,
) -> int:
    """Read again what the tables say of releases and of nvidia/cuda tags; show what differs and write it."""
    from builder.cli.facts import run
    from builder.facts.survey import Budget
    from builder.index.client import Index
    from builder.oci.registry import Registry

    index, registry = Index.from_user(brief=True), Registry.from_user(opt.mirrors(mirror))
    budget = Budget(bytes=mebibytes << 20, seconds=minutes * 60.0)
    return run(
        index=index,
        registry=registry,
        check=check_,
        json=json_,
        only=only or (),
        again=again,
        budget=budget,
    )


@app.command()
def doctor(context: opt.Context = None, color: opt.Color = "auto", json_: opt.Json = False) -> int:
    """Look at this machine: engine, image store, disk, NVIDIA toolkit, driver; each with its remedy."""
    from builder.cli.doctoring import run

    return run(context=context, color=opt.color(color), json=json_)


@app.command()
def size(
    cell: opt.OneCell,
    matrices: opt.Matrices = None,
    against: Annotated[
        str | None, typer.Option("--against", metavar="CELL", help="What it shares with another cell.")
    ] = None,
    json_: opt.Json = False,
) -> int:
    """Say how large a locked cell is: by layer, package and file; exit 1 where CUDA is in it twice."""
    from builder.cli.sizing import run

    return run(opt.load_all(matrices), cell, against=against, json=json_)


@app.command()
def cache(
    prune: Annotated[
        str | None,
        typer.Option("--prune", metavar="SIZE", help="Remove the least recently used until it fits: 20GB."),
    ] = None,
    verify_: Annotated[
        bool, typer.Option("--verify", help="Hash every layer, and remove what is damaged.")
    ] = False,
    json_: opt.Json = False,
) -> int:
    """Show what is kept between runs, and make it smaller."""
    from builder.cli.caching import run

    return run(prune=prune, verify=verify_, json=json_)


@app.command()
def probe(
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write it there; without, to stdout.")
    ] = None,
) -> int:
    """Print cudnn-verify, the one file that runs in an image, on Colab or on bare metal."""
    from builder.recipe.bundle import bundle

    if output is None:
        sys.stdout.buffer.write(bundle())
    else:
        output.write_bytes(bundle())
        output.chmod(0o755)
    return 0
