"""Nothing is lost and nothing reported twice, whatever dies: a simulation driven by the real planner and
follower.
"""

from __future__ import annotations

import random
import threading
from typing import TYPE_CHECKING

import pytest

from builder.dispatch.client import Scheduled
from builder.dispatch.follow import Follower, TaskState, exit_code
from builder.dispatch.plan import StagedCell, TaskVerdict, VerifyTask, missing, tasks_of
from builder.errors import RegistryError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from builder.errors import RtbuildError

CLASSES = ("A100", "H100", "L4", "T4")
WORKS = TaskVerdict(verdict="works", cause=None, gpu="Tesla T4", driver="535.104.05")


def cells(count: int) -> list[StagedCell]:
    return [
        StagedCell(
            cell=f"cell-{number}",
            matrix="m",
            repository="r/s",
            digest=f"sha256:{number:064x}",
            probe="p",
            inputs=f"i{number}",
            classes=CLASSES,
        )
        for number in range(count)
    ]


class ClusterDouble:
    """A scheduler and a registry in memory: nodes die, jobs are requeued, reports come late or twice."""

    def __init__(self, seed: int, *, deaths: float) -> None:
        self.random = random.Random(seed)
        self.deaths = deaths
        self.waiting: dict[str, int] = {}
        self.late: list[str] = []
        self.reports: dict[str, int] = {}
        self.submitted: dict[str, int] = {}
        self.looks = 0
        self.silent: Callable[[int], bool] = lambda _look: False

    def submit(self, tasks: Iterable[VerifyTask]) -> None:
        for task in tasks:
            if task.key in self.waiting:
                continue  # as `submit` of the product does: what is under way is not said twice
            self.waiting[task.key] = self.random.randint(1, 4)
            self.submitted[task.key] = self.submitted.get(task.key, 0) + 1

    def tick(self) -> None:
        for key in self.late:
            self.reports[key] = self.reports.get(key, 0) + 1
        self.late = []
        for key in list(self.waiting):
            self.waiting[key] -= 1
            if self.waiting[key]:
                continue
            if self.random.random() < self.deaths:
                self.waiting[key] = 3  # the scheduler requeues it
                if self.random.random() < 0.3:
                    self.late.append(key)  # the node that was thought dead reports all the same
                continue
            del self.waiting[key]
            self.late.append(key)

    def known(self, tasks: Iterable[VerifyTask]) -> dict[str, TaskVerdict]:
        self.looks += 1
        if self.silent(self.looks):
            raise RegistryError("registry.example does not answer")
        return {task.key: WORKS for task in tasks if task.key in self.reports}

    def under_way(self) -> dict[str, Scheduled]:
        return {
            key: Scheduled(word="RUNNING", queued=left > 2 and key not in self.reports)
            for key, left in self.waiting.items()
        }


class Clock(threading.Event):
    """Each wait is a tick of the cluster; the dispatcher is killed after some."""

    def __init__(self, cluster: ClusterDouble, ticks: int) -> None:
        super().__init__()
        self.cluster, self.ticks = cluster, ticks

    def wait(self, timeout: float | None = None) -> bool:
        del timeout
        self.cluster.tick()
        self.ticks -= 1
        return self.ticks <= 0


def dispatched(cluster: ClusterDouble, tasks: Sequence[VerifyTask], ticks: int) -> tuple[TaskState, ...]:
    """One life of a dispatcher: plan, submit, follow."""
    cluster.submit(missing(tasks, cluster.reports))
    follower = Follower(tasks=tasks, known=cluster.known, under_way=cluster.under_way)
    warned: list[RtbuildError] = []
    return follower.wait(Clock(cluster, ticks), seconds=1, say=lambda _rows: None, warn=warned.append)


@pytest.mark.parametrize("seed", range(5))
def test_of_a_thousand_tasks_with_dying_nodes_all_are_reported(seed: int) -> None:
    tasks = tasks_of(cells(250))
    cluster = ClusterDouble(seed, deaths=0.1)
    cluster.silent = lambda look: look % 7 == 0
    rows = dispatched(cluster, tasks, 10_000)
    assert len(rows) == 1000
    assert {row.state for row in rows} == {"verdict"}
    assert exit_code(rows) == 0
    assert set(cluster.submitted.values()) == {1}


def test_a_dispatcher_that_is_killed_fifty_times_loses_nothing() -> None:
    tasks = tasks_of(cells(50))
    cluster = ClusterDouble(7, deaths=0.2)
    lives = random.Random(3)
    for _ in range(50):
        rows = dispatched(cluster, tasks, lives.randint(1, 3))
    rows = dispatched(cluster, tasks, 10_000)
    assert {row.state for row in rows} == {"verdict"}
    assert set(cluster.reports) == {task.key for task in tasks}


def test_what_the_scheduler_gave_up_is_lost_and_not_waited_for() -> None:
    (task, *_) = tasks_of(cells(1))
    follower = Follower(tasks=[task], known=lambda _tasks: {}, under_way=dict)
    (row,) = follower.wait(threading.Event(), seconds=0.01, say=lambda _rows: None, warn=lambda _error: None)
    assert row.state == "lost"
    assert exit_code([row]) == 5


def test_a_registry_that_stays_away_ends_the_waiting() -> None:
    cluster = ClusterDouble(1, deaths=0)
    cluster.silent = lambda _look: True
    clock = Clock(cluster, 10_000)
    follower = Follower(tasks=tasks_of(cells(1)), known=cluster.known, under_way=cluster.under_way)
    warned: list[RtbuildError] = []
    with pytest.raises(RegistryError):
        follower.wait(clock, seconds=30, say=lambda _rows: None, warn=warned.append)
    assert len(warned) == 20  # ten minutes


def test_a_broken_image_decides_the_exit_code() -> None:
    task, other, *_ = tasks_of(cells(1))
    broken = TaskVerdict(verdict="broken", cause="cudnn-missing", gpu="x", driver="1")
    rows = [TaskState(task=task, state="verdict", verdict=broken), TaskState(task=other, state="lost")]
    assert exit_code(rows) == 1
