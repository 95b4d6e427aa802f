"""A matrix out of words: what ``rtbuild resolve`` proposes, as ``init`` and ``up`` write it."""

from __future__ import annotations

import contextlib
import io
import json
import re
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from builder import resources
from builder.cli.resolve import resolve
from builder.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

_SCHEMA = "matrix.schema.json"


@dataclass(frozen=True, kw_only=True)
class MatrixWish:
    """What a first matrix is to hold."""

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
    """One cell, the best that the resolver proposes; what it says of it goes to stderr.

    Raises:
        UsageError: A word is no requirement, or names a framework that rtbuild does not cover.
        CellError: Nothing works here.
    """
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        resolve(
            list(wish.words),
            python=wish.python,
            gpu=[wish.gpu] if wish.gpu else None,
            driver=wish.driver,
            limit=1,
            name=wish.title,
            offline=wish.offline,
            json_=True,
        )
    text: str = json.loads(printed.getvalue())["matrix"]
    if wish.jupyter:
        text = text.replace("\ninclude:\n", "\ndefaults: {profile: colab}\n\ninclude:\n", 1)
    return text


def write_matrix(text: str, path: Path, *, force: bool) -> None:
    """Write it with the line by which editors find its schema. UsageError if there is one already."""
    if path.exists() and not force:
        raise UsageError(f"{path} is there already", hint="--force replaces it; --name names another")
    path.parent.mkdir(parents=True, exist_ok=True)
    project = path.parent.parent / "docs" / _SCHEMA
    if not project.is_file():
        (path.parent / _SCHEMA).write_text((resources.schemas() / _SCHEMA).read_text("utf-8"), "utf-8")
    where = f"../docs/{_SCHEMA}" if project.is_file() else _SCHEMA
    beside = path.with_suffix(".part")
    beside.write_text(f"# yaml-language-server: $schema={where}\n{text}", "utf-8")
    beside.replace(path)
    sys.stderr.write(f"{path} is written\n")
