"""``rtbuild init``: a first matrix of the best cell for a framework, from words or by asking."""

import re
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path

import typer

from builder.cli import options as opt
from builder.cli.commands.resolve import asked_machine, wishes
from builder.cli.console import say, show
from builder.core import resources
from builder.core.errors import UsageError
from builder.core.files import write_whole
from builder.plan.resolve import propose
from builder.sources.index import Index


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
        words=tuple(words), python=python, gpu=gpu, driver=driver, jupyter=jupyter, offline=offline, name=name
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


@dataclass(frozen=True, kw_only=True)
class MatrixWish:
    """The contents of a first matrix."""

    words: tuple[str, ...]
    """Requirements: ``torch``, ``tensorflow==2.15.*``."""
    python: str | None = None
    gpu: str | None = None
    driver: str | None = None
    platform: str | None = None
    """None for that of the card, else of this machine if the card is its own."""
    jupyter: bool = False
    offline: bool = False
    name: str | None = None

    @property
    def title(self) -> str:
        """The matrix's name: the one given, or that of the first framework."""
        if self.name:
            return self.name.lower()
        found = re.match(r"[A-Za-z0-9][A-Za-z0-9._-]*", self.words[0])
        if found is None:
            raise UsageError(f"'{self.words[0]}' is no requirement", hint="as in `rtbuild init torch`")
        return found[0].lower()


def matrix_text(wish: MatrixWish) -> str:
    """One cell, the best proposal of ``rtbuild resolve``. Raises as :func:`wishes` and :func:`propose`."""
    on = asked_machine([wish.gpu] if wish.gpu else [], opt.driver(wish.driver), wish.platform)
    index = None if wish.offline else Index.from_user(once=True)
    found = propose(wishes(wish.words), on, python=wish.python, limit=1, name=wish.title, index=index)
    defaults = "\ndefaults: {profile: colab}\n" if wish.jupyter else ""
    return found.text.replace("\ninclude:\n", f"{defaults}\ninclude:\n", 1)


def write_matrix(text: str, path: Path) -> None:
    """Write it with the line by which editors find its schema. UsageError if it cannot be written."""
    name = where = "matrix.schema.json"
    if (path.parent.parent / "docs" / name).is_file():
        where = f"../docs/{name}"
    with opt.writing(path):
        if where == name:
            write_whole(path.parent / name, (resources.schemas() / name).read_bytes())
        write_whole(path, f"# yaml-language-server: $schema={where}\n{text}".encode())
    say(f"{path} is written")
