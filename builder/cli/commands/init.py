"""``rtbuild init``: a first matrix of the best cell for a framework, from words or by asking."""

import shlex
import sys
from pathlib import Path

import typer

from builder.cli import options as opt
from builder.cli.console import show
from builder.cli.first_matrix import MatrixWish, matrix_text, write_matrix
from builder.core.errors import UsageError


def init(
    words: list[str] | None = opt.WORDS,
    python: str | None = opt.PYTHON,
    gpu: str | None = opt.GPU,
    driver: str | None = opt.DRIVER,
    jupyter: bool = opt.of("--jupyter: With Jupyter in the image (profile: colab).", False),
    name: str | None = opt.of("--name: The matrix's name and its file's."),
    output: Path = opt.of("--output, -o: The folder to write to.", Path("matrices")),
    force: bool = opt.of("--force: Replace a matrix that is there.", False),
    offline: bool = opt.OFFLINE,
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
        rootfs=True,
    )
    path = output / f"{wish.title}.yaml"
    if not force:
        opt.refuse_existing(path, hint="--force replaces it; --name names another")
    write_matrix(matrix_text(wish), path)
    file = shlex.quote(str(path))
    show(
        f"rtbuild check {file}    # can it work? in half a second",
        f"rtbuild build {file}    # lock, build and verify the image",
        f"rtbuild venv {file}     # or the same without Docker",
    )
    return 0


def _ask(gpu: str | None) -> tuple[list[str], str | None]:
    """A framework and a card, asked at the terminal."""
    if not sys.stdin.isatty():
        raise UsageError("no framework is named", hint="as in `rtbuild init torch`")
    words = typer.prompt("Framework (torch, tensorflow==2.15.*, jax …)", default="torch", err=True)
    card = gpu or typer.prompt("Card (T4, H100; empty for any)", default="", show_default=False, err=True)
    return shlex.split(words), card or None
