"""The commands by name: each is a function in a module of its own, which is imported when it is asked for."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.exceptions import TyperException

from builder import __version__
from builder.cli.boundary import guarded

_EPILOG = """
Exit codes: 0 done as asked · 1 a cell failed · 2 usage, or a matrix that is wrong · 3 nothing selected ·
4 the lock is missing or stale (--locked) · 5 this machine lacks something · 6 publication refused ·
70 a bug in rtbuild · 130 interrupted
"""

COMMANDS = {
    "init": "Write a first matrix: the best cell for a framework, this card and this Python.",
    "up": "Resolve a framework for this machine's card and driver, build and verify the image, and start it.",
    "resolve": "Propose possible cells for given frameworks, best first, and print a matrix file of them.",
    "venv": "Make the locked cell an environment here: its very wheels by hash, and cudnn- verify run in it.",
    "list": "Show the cells of matrices: which are chosen, and why the others are not.",
    "check": "Say in milliseconds which cells are possible, and why the others are not; nothing is built.",
    "explain": "Say why a cell gets its verdict; or what a cause, or a text that a program printed, means.",
    "lock": "Fix what cells resolve to: bases by digest, wheels and Debian packages by hash.",
    "render": "Write the recipe of each cell: a folder that plain `docker build` accepts.",
    "build": "Build every selected cell, and run cudnn-verify in each.",
    "verify": "Run cudnn-verify in images built here or elsewhere; exit 0 only if all are known to work.",
    "publish": "Put public tags on digests that are known to work, evidence beside them; else exit 6.",
    "audit": "Say from the registry alone whether an image is known to work: exit 0 yes, 1 no.",
    "run": "Start an image as this machine needs it: GPU, memory, folders, a port on loopback only.",
    "devcontainer": "Write a devcontainer.json, so that VS Code and others work inside an image.",
    "dispatch": "Have Slurm or Kubernetes verify each cell on each GPU that it claims and has no verdict of.",
    "verify-digest": "Verify an image by its digest, and put the report beside it: what a node does.",
    "catalogue": "Write a static site: which image, release and card work together, and how that is known.",
    "diagnose": "Say which line of a text names which cause, and what mends it; nothing leaves this machine.",
    "probe": "Print cudnn-verify, the one file that runs in an image, on Colab or on bare metal.",
    "doctor": "Look at this machine: engine, image store, disk, NVIDIA toolkit, driver; with remedies.",
    "size": "Say how large a locked cell is: by layer, package and file; exit 1 if CUDA is in it twice.",
    "cache": "Show what is kept between runs, and make it smaller.",
    "schema": "Print a document's JSON schema; without a name, the names.",
    "facts": "The compatibility tables that ship with rtbuild.",
    "colab": "Google Colab's runtimes: import one, measure how near an image is to it, run the probe on one.",
}
"""Their help, in its order. The module and the function of a command have its name, as Python writes it."""


class _Commands(TyperGroup):
    """Lists commands by their help, and imports the one that is to run."""

    def __init__(self, **settings: Any) -> None:
        known = {name: TyperCommand(name, help=text) for name, text in COMMANDS.items()}
        super().__init__(**settings | {"commands": known})

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        name, found, rest = super().resolve_command(ctx, args)
        return name, loaded(name) if name and found else None, rest


def loaded(name: str) -> Any:
    """The command, or the group of commands, of that name."""
    word = "list_" if name == "list" else name.replace("-", "_")
    made = getattr(import_module(f"builder.cli.{word}"), word)
    if not isinstance(made, typer.Typer):
        function, made = made, typer.Typer(rich_markup_mode=None, add_completion=False)
        made.command(name, help=COMMANDS[name])(function)
    return typer.main.get_command(made)


app = typer.Typer(
    cls=_Commands,
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
    words = sys.argv[1:]
    if words[:1] == ["diagnose"] and all(word in {"-", "--json"} or word[:1] != "-" for word in words[1:]):
        # the parser's own imports take longer than reading a text does
        from builder.cli.diagnose import diagnose

        return diagnose([word for word in words[1:] if word != "--json"], json_="--json" in words)
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
