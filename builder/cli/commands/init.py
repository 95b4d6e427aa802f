"""``rtbuild init``: a first matrix of the best cell for a framework, from words or by asking."""

import itertools
import shlex
import sys
from dataclasses import replace
from pathlib import Path

import typer

from builder.cli import options as opt
from builder.cli.console import say, show
from builder.cli.first_matrix import MatrixWish, matrix_text, write_matrix
from builder.core.errors import UsageError


def init(
    words: list[str] | None = opt.WORDS,
    python: str | None = opt.PYTHON,
    gpu: str | None = opt.GPU,
    driver: str | None = opt.DRIVER,
    jupyter: bool = opt.of("--jupyter: With Jupyter in the image (profile: colab).", False),
    name: str | None = opt.of(
        "--name: The matrix's name and its file's; by default the framework's, or NAME-2 if that is taken."
    ),
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
    if not force and name is None:
        wish, path = _free(wish, output)
    elif not force:
        opt.refuse_existing(path, hint="--force replaces it; without --name the next free one is taken")
    write_matrix(matrix_text(wish), path)
    file = shlex.quote(str(path))
    show(
        f"rtbuild check {file}    # can it work? in half a second",
        f"rtbuild build {file}    # lock, build and verify the image",
        f"rtbuild venv {file}     # or the same without Docker",
    )
    return 0


def _free(wish: MatrixWish, output: Path) -> tuple[MatrixWish, Path]:
    """The wish, and its file, under the first name that no file has: torch, torch-2, torch-3."""
    first = wish.title
    names = itertools.chain([first], (f"{first}-{number}" for number in itertools.count(2)))
    with opt.writing(output):
        name = next(name for name in names if not (output / f"{name}.yaml").exists())
    if name != first:
        say(f"{output / first}.yaml is there and stays (--force replaces it): this one is {name}")
    return replace(wish, name=name), output / f"{name}.yaml"


def _ask(gpu: str | None) -> tuple[list[str], str | None]:
    """A framework and a card, asked at the terminal."""
    if not sys.stdin.isatty():
        raise UsageError("no framework is named", hint="as in `rtbuild init torch`")
    words = typer.prompt("Framework (torch, tensorflow==2.15.*, jax …)", default="torch", err=True)
    card = gpu or typer.prompt("Card (T4, H100; empty for any)", default="", show_default=False, err=True)
    return shlex.split(words), card or None
