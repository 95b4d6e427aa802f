"""What a build says while it runs, as values; a console or a log makes text of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class StepStarted:
    """A step of the Dockerfile began. ``number`` counts from 1; ``total`` grows while stages are read."""

    name: str
    number: int
    total: int


@dataclass(frozen=True, kw_only=True)
class StepFinished:
    """A step ended: done, taken from the cache, cancelled with its neighbours, or failed with ``error``."""

    name: str
    number: int
    total: int
    seconds: float
    cached: bool = False
    error: str | None = None


@dataclass(frozen=True, kw_only=True)
class StepOutput:
    """One line that a step printed, without its newline."""

    step: str
    line: str
    stream: Literal["stdout", "stderr"]


@dataclass(frozen=True, kw_only=True)
class Transfer:
    """Data on its way: context sent, layers exported, image unpacked.

    ``done`` and ``total`` are bytes; ``total`` is None where the builder does not know it, and both are 0
    or None for the parts of an export that BuildKit does not measure.
    """

    step: str
    what: str
    done: int
    total: int | None
    finished: bool


BuildEvent = StepStarted | StepFinished | StepOutput | Transfer
