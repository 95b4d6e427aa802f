"""A matrix from a framework's name: the best proposal of ``rtbuild resolve``, for ``init`` and ``up``."""

import re
from dataclasses import dataclass
from pathlib import Path

from builder import resources
from builder.cli import options as opt
from builder.cli.resolve import machine, propose, wishes
from builder.console import say
from builder.errors import UsageError
from builder.files import write_whole
from builder.index.client import Index

_SCHEMA = "matrix.schema.json"


@dataclass(frozen=True, kw_only=True)
class MatrixWish:
    """The contents of a first matrix."""

    words: tuple[str, ...]
    """Requirements: ``torch``, ``tensorflow==2.15.*``."""
    python: str | None = None
    gpu: str | None = None
    driver: str | None = None
    jupyter: bool = False
    offline: bool = False
    name: str | None = None

    @property
    def title(self) -> str:
        """The matrix's name: the one given, or that of the first framework."""
        found = re.match(r"[A-Za-z0-9][A-Za-z0-9._-]*", self.words[0]) if self.words else None
        if self.name is None and found is None:
            raise UsageError(f"'{self.words[0]}' is no requirement", hint="as in `rtbuild init torch`")
        return (self.name or (found[0] if found else "")).lower()


def matrix_text(wish: MatrixWish) -> str:
    """One cell, the best proposal.

    Raises:
        UsageError: A word is no requirement, or names a framework that rtbuild does not cover.
        CellError: No cell is possible.
    """
    on = machine([wish.gpu] if wish.gpu else [], opt.driver(wish.driver))
    index = None if wish.offline else Index.from_user(once=True)
    found = propose(wishes(wish.words), on, python=wish.python, limit=1, name=wish.title, index=index)
    if wish.jupyter:
        return found.text.replace("\ninclude:\n", "\ndefaults: {profile: colab}\n\ninclude:\n", 1)
    return found.text


def refuse_existing(path: Path, *, force: bool) -> None:
    """Raise UsageError for a file that is there, unless ``force`` allows to replace it."""
    if path.exists() and not force:
        raise UsageError(f"{path} is there already", hint="--force replaces it; --name names another")


def write_matrix(text: str, path: Path, *, force: bool) -> None:
    """Write it with the line by which editors find its schema. Raises UsageError if there is one already."""
    refuse_existing(path, force=force)
    path.parent.mkdir(parents=True, exist_ok=True)
    project = path.parent.parent / "docs" / _SCHEMA
    if not project.is_file():
        (path.parent / _SCHEMA).write_text((resources.schemas() / _SCHEMA).read_text("utf-8"), "utf-8")
    where = f"../docs/{_SCHEMA}" if project.is_file() else _SCHEMA
    write_whole(path, f"# yaml-language-server: $schema={where}\n{text}".encode())
    say(f"{path} is written")
