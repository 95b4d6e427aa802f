"""Can this combination work? Facts and rules that answer before anything is built.

``check(cell, truth)`` puts findings on a cell, ``summary`` says what they come to, and ``explain`` tells why.
:mod:`builder.plan.resolve` goes the other way, from requirements to cells. Nothing here touches a network:
what was read from wheels and registries arrives as :class:`Truth`, and the tables in ``tables/`` fill in the
rest.
"""

from builder.plan.facts.check import check, explain
from builder.plan.facts.finding import Finding, Outcome, summary
from builder.plan.facts.truth import BaseTruth, Truth, WheelTruth

__all__ = ["BaseTruth", "Finding", "Outcome", "Truth", "WheelTruth", "check", "explain", "summary"]
