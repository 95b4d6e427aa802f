"""``rtbuild init``: a first matrix, from words or by asking."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from builder.cli import options as opt  # noqa: TC001 - typer reads annotations when it runs
from builder.cli.proposing import MatrixWish, matrix_text, write_matrix
from builder.errors import UsageError


def init(
    words: opt.Words = None,
    python: opt.Python = None,
    gpu: opt.Gpu = None,
    driver: opt.Driver = None,
    jupyter: Annotated[
        bool, typer.Option("--jupyter", help="With Jupyter in the image (profile: colab).")
    ] = False,
    name: Annotated[str | None, typer.Option("--name", help="The matrix's name and its file's.")] = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="The folder to write to.")] = Path(
        "matrices"
    ),
    force: Annotated[bool, typer.Option("--force", help="Replace a matrix that is there.")] = False,
    offline: opt.Offline = False,
) -> int:
    """Write a first matrix: the best cell for a framework, this card and this Python."""
    asked = not words
    if asked:
        words, gpu = _ask(gpu)
    wish = MatrixWish(
        words=tuple(words or ()),
        python=python,
        gpu=gpu,
        driver=driver,
        jupyter=jupyter,
        offline=offline,
        name=name,
    )
    path = output / f"{wish.title}.yaml"
    if path.exists() and not force:
        raise UsageError(f"{path} is there already", hint="--force replaces it; --name names another")
    write_matrix(matrix_text(wish), path, force=force)
    file = shlex.quote(str(path))
    sys.stdout.write(
        f"rtbuild check {file}    # can it work? in milliseconds\n"
        f"rtbuild build {file}    # lock, build and verify the image\n"
        f"rtbuild venv {file}     # or the same without Docker\n"
    )
    return 0


def _ask(gpu: str | None) -> tuple[list[str], str | None]:
    """A framework and a card, from whoever sits before the terminal."""
    if not sys.stdin.isatty():
        raise UsageError("no framework is named", hint="as in `rtbuild init torch`")
    words = shlex.split(
        typer.prompt("Framework (torch, tensorflow==2.15.*, jax …)", default="torch", err=True)
    )
    card = gpu or typer.prompt("Card (T4, H100; empty for any)", default="", show_default=False, err=True)
    return words, card or None
