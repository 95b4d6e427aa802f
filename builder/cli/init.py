"""``rtbuild init``: a first matrix, from words or by asking."""

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from builder.cli import options as opt
from builder.cli.proposing import MatrixWish, matrix_text, refuse_existing, write_matrix
from builder.console import show
from builder.errors import UsageError


def init(
    words: opt.Words = None,
    python: opt.Python = None,
    gpu: opt.Gpu = None,
    driver: opt.Driver = None,
    jupyter: Annotated[bool, opt.of("--jupyter: With Jupyter in the image (profile: colab).")] = False,
    name: Annotated[str | None, opt.of("--name: The matrix's name and its file's.")] = None,
    output: Annotated[Path, opt.of("--output, -o: The folder to write to.")] = Path("matrices"),
    force: Annotated[bool, opt.of("--force: Replace a matrix that is there.")] = False,
    offline: opt.Offline = False,
) -> int:
    """Write a first matrix: the best cell for a framework, this card and this Python."""
    if not words:
        words, gpu = _ask(gpu)
    wish = MatrixWish(
        words=tuple(words),
        python=python,
        gpu=gpu,
        driver=driver,
        jupyter=jupyter,
        offline=offline,
        name=name,
    )
    path = output / f"{wish.title}.yaml"
    refuse_existing(path, force=force)
    write_matrix(matrix_text(wish), path, force=force)
    file = shlex.quote(str(path))
    show(
        f"rtbuild check {file}    # can it work? in milliseconds",
        f"rtbuild build {file}    # lock, build and verify the image",
        f"rtbuild venv {file}     # or the same without Docker",
    )
    return 0


def _ask(gpu: str | None) -> tuple[list[str], str | None]:
    """A framework and a card, asked at the terminal."""
    if not sys.stdin.isatty():
        raise UsageError("no framework is named", hint="as in `rtbuild init torch`")
    words = shlex.split(
        typer.prompt("Framework (torch, tensorflow==2.15.*, jax …)", default="torch", err=True)
    )
    card = gpu or typer.prompt("Card (T4, H100; empty for any)", default="", show_default=False, err=True)
    return words, card or None
