"""Follows tasks until each has a verdict in the registry, or the scheduler has given it up.

Everything is asked anew each time: a dispatcher that was killed and started again goes on where the registry
and the
scheduler stand.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Mapping, Sequence

    from builder.dispatch.plan import TaskVerdict, VerifyTask

State = Literal["verdict", "waiting", "lost"]

_PATIENCE = 3
"""Looks in a row at which a task is neither known to the scheduler nor in the registry: then it is lost. One
look is
not enough, since a report arrives a moment after its job has ended."""


@dataclass(frozen=True, kw_only=True)
class TaskState:
    """Where a task stands."""

    task: VerifyTask
    state: State
    verdict: TaskVerdict | None = None
    word: str = ""
    """The scheduler's own word for a task that has no verdict."""


@dataclass(kw_only=True)
class Follower:
    """Looks at the registry and the scheduler, and remembers how often a task was nowhere."""

    tasks: Sequence[VerifyTask]
    known: Callable[[], Mapping[str, TaskVerdict]]
    """Verdicts by key, from the registry."""
    under_way: Callable[[], Mapping[str, str]]
    """The scheduler's word for each task that it still has, by key."""
    _absent: dict[str, int] = field(default_factory=dict)

    def look(self) -> tuple[TaskState, ...]:
        """The state of every task, in the order of the plan."""
        alive = self.under_way()  # before the registry: a job that ends in between has its report there
        verdicts = self.known()
        rows = []
        for task in self.tasks:
            found = verdicts.get(task.key)
            if found is not None:
                rows.append(TaskState(task=task, state="verdict", verdict=found))
                continue
            if task.key in alive:
                self._absent.pop(task.key, None)
                rows.append(TaskState(task=task, state="waiting", word=alive[task.key]))
                continue
            self._absent[task.key] = self._absent.get(task.key, 0) + 1
            lost = self._absent[task.key] >= _PATIENCE
            word = (
                "ended without a report: its log on the node says why" if lost else "ended, or not there yet"
            )
            rows.append(TaskState(task=task, state="lost" if lost else "waiting", word=word))
        return tuple(rows)

    def wait(
        self,
        cancel: threading.Event,
        *,
        seconds: float,
        say: Callable[[Sequence[TaskState]], None],
    ) -> tuple[TaskState, ...]:
        """Look every ``seconds`` until nothing is waited for, or ``cancel`` is set; ``say`` what changed."""
        before: tuple[TaskState, ...] = ()
        while True:
            rows = self.look()
            changed = [
                row for row, old in zip(rows, before or (None,) * len(rows), strict=True) if row != old
            ]
            if changed:
                say(changed)
            before = rows
            if not any(row.state == "waiting" for row in rows) or cancel.wait(seconds):
                return rows


def exit_code(rows: Sequence[TaskState]) -> int:
    """0: every task works; 1: some image is at fault; 5: some task has no verdict."""
    if any(row.verdict is not None and row.verdict.verdict != "works" for row in rows):
        return 1
    return 5 if any(row.verdict is None for row in rows) else 0
