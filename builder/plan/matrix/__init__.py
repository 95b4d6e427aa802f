"""A matrix file to cells, and the selection among them."""

from builder.plan.matrix.expand import load
from builder.plan.matrix.selection import Selection, select

__all__ = ["Selection", "load", "select"]
