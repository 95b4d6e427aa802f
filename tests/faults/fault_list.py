"""The list of faults: each a function that breaks one thing, with the verdict and the cause it has to get."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from fault_scene import Scene


@dataclass(frozen=True, kw_only=True)
class Fault:
    name: str
    title: str
    parts: str
    """``doubles`` where gcc is all it takes, ``real`` where it needs NVIDIA's own wheels."""
    verdict: str
    cause: str | None
    prepare: Callable[[Scene], None]


FAULTS: list[Fault] = []


def add(
    name: str,
    title: str,
    verdict: str,
    cause: str | None,
    prepare: Callable[[Scene], None],
    parts: str = "doubles",
) -> None:
    """Register a fault of a family that differs in a few values."""
    FAULTS.append(Fault(name=name, title=title, parts=parts, verdict=verdict, cause=cause, prepare=prepare))


def fault(
    title: str, *, verdict: str, cause: str | None, parts: str = "doubles"
) -> Callable[[Callable[[Scene], None]], Callable[[Scene], None]]:
    """Register a function as a fault; its name is the test's."""

    def register(prepare: Callable[[Scene], None]) -> Callable[[Scene], None]:
        name = prepare.__name__.replace("_", "-")
        add(name, title, verdict, cause, prepare, parts)
        return prepare

    return register
