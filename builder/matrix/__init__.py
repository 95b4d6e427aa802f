"""A matrix file to cells, and the selection among them."""

from builder.matrix.expand import load
from builder.matrix.selection import Selection, select

__all__ = ["Selection", "load", "select"]
