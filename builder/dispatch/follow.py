"""Follows tasks until each has a verdict in the registry, or the scheduler has given it up.

Nothing is kept but in registry and scheduler: a dispatcher that was killed and started again goes on there.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, Literal

from builder.dispatch.plan import AnyTask
from builder.errors import RegistryError, RtbuildError, SchedulerError

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Mapping, Sequence

    from builder.dispatch.client import Scheduled
    from builder.dispatch.plan import Task, TaskVerdict

State = Literal["verdict", "waiting", "lost"]

_PATIENCE = 3
"""Looks in a row at which a task is neither known to the scheduler nor in the registry: then it is lost. One
look is not enough, since a report arrives a moment after its job has ended."""
_AWAY = 600.0
"""Seconds of waiting for which registry or scheduler may fail to answer, before that ends the waiting."""


@dataclass(frozen=True, kw_only=True)
class TaskState:
    """Where a task stands."""

    task: Task
    state: State
    verdict: TaskVerdict | None = None
    word: str = ""
    """The scheduler's own word for a task that has no verdict."""


@dataclass(kw_only=True)
class Follower(Generic[AnyTask]):
    """Looks at the registry and the scheduler, and remembers how often a task was nowhere."""

    tasks: Sequence[AnyTask]
    known: Callable[[Sequence[AnyTask]], Mapping[str, TaskVerdict]]
    """Verdicts on these tasks by key, from the registry."""
    under_way: Callable[[], Mapping[str, Scheduled]]
    """Each task that the scheduler still has, by key."""
    refused: Mapping[str, str] = field(default_factory=dict)
    """Why the scheduler did not take a task, by key."""
    _verdicts: dict[str, TaskVerdict] = field(default_factory=dict)
    _absent: dict[str, int] = field(default_factory=dict)

    def look(self) -> tuple[TaskState, ...]:
        """The state of every task, in the order of the plan. The registry is asked about those that may have
        a report since the last look.

        Raises RegistryError, SchedulerError.
        """
        alive = self.under_way()  # before the registry: a job that ends in between has its report there
        self._verdicts |= self.known(
            [
                task
                for task in self.tasks
                if task.key not in self._verdicts and not (task.key in alive and alive[task.key].queued)
            ]
        )
        return tuple(self._state(task, alive.get(task.key)) for task in self.tasks)

    def _state(self, task: Task, scheduled: Scheduled | None) -> TaskState:
        found = self._verdicts.get(task.key)
        if found is not None:
            return TaskState(task=task, state="verdict", verdict=found)
        if scheduled is not None:
            self._absent.pop(task.key, None)
            return TaskState(task=task, state="waiting", word=scheduled.word)
        if task.key in self.refused:
            return TaskState(task=task, state="lost", word=f"not submitted: {self.refused[task.key]}")
        self._absent[task.key] = self._absent.get(task.key, 0) + 1
        if self._absent[task.key] < _PATIENCE:
            return TaskState(task=task, state="waiting", word="ended, or not there yet")
        return TaskState(
            task=task, state="lost", word="ended without a verdict: its log on the node says why"
        )

    def wait(
        self,
        cancel: threading.Event,
        *,
        seconds: float,
        say: Callable[[Sequence[TaskState]], None],
        warn: Callable[[RtbuildError | None], None],
    ) -> tuple[TaskState, ...]:
        """Look every ``seconds`` until nothing is waited for, or ``cancel`` is set; ``say`` what changed.

        A look that fails is told to ``warn``, and so is, by None, the first one after it. Raises
        RegistryError and SchedulerError after ten minutes of them.
        """
        before: tuple[TaskState, ...] = ()
        away = 0.0
        while True:
            try:
                rows = self.look()
            except (RegistryError, SchedulerError) as error:
                away += seconds
                if away > _AWAY:
                    raise
                warn(error)
            else:
                if away:
                    warn(None)
                away = 0.0
                old = before or (None,) * len(rows)
                changed = [row for row, last in zip(rows, old, strict=True) if row != last]
                if changed:
                    say(changed)
                before = rows
                if not any(row.state == "waiting" for row in rows):
                    return rows
            if cancel.wait(seconds):
                return before


def exit_code(rows: Sequence[TaskState]) -> int:
    """0: every task works, or is built; 1: some image is at fault; 5: some task has no verdict."""
    if any(row.verdict is not None and row.verdict.verdict not in {"works", "built"} for row in rows):
        return 1
    return 5 if any(row.verdict is None for row in rows) else 0
