"""A matrix file to a :class:`~builder.model.Matrix`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from builder.matrix.expand import expand
from builder.matrix.nodes import compose
from builder.matrix.publishing import hold_against_cells
from builder.matrix.sections import read_document
from builder.matrix.source import read
from builder.model import Matrix

if TYPE_CHECKING:
    from pathlib import Path


def load(path: Path) -> Matrix:
    """Reads, checks and expands one matrix file.

    Raises :class:`~builder.errors.MatrixError` with every error of the file, each at its place, and
    :class:`~builder.errors.UsageError` if there is no such file to read.
    """
    text, problems = read(path)
    document = read_document(compose(text, path, problems), path, problems)
    before = problems.noted
    cells = expand(document, problems)
    complete = document.complete and problems.noted == before
    publish = hold_against_cells(document.publish, cells, problems, complete=complete)
    if problems.noted:
        raise problems.error()
    return Matrix(
        name=document.name, path=path, description=document.description, cells=cells, publish=publish
    )
