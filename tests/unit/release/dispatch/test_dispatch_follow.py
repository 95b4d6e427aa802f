"""Nothing is lost and nothing reported twice, whatever dies: a simulation driven by the real planner and
follower.
"""

from __future__ import annotations

import random
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from builder.core.errors import RegistryError, SchedulerError
from builder.release.dispatch.tasks import (
    Follower,
    Scheduled,
    Task,
    TaskState,
    TaskVerdict,
    exit_code,
    full,
    missing,
    silent,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from builder.core.errors import RtbuildError

CLASSES = ("A100", "H100", "L4", "T4")
WORKS = TaskVerdict(verdict="works", cause=None, gpu="Tesla T4", driver="535.104.05")


def tasks_of(cells: int) -> list[Task]:
    """Each of so many cells on each class."""
    return [
        Task(
            column=name,
            cell=f"cell-{number}",
            matrix="m",
            repository="r/s",
            digest=f"sha256:{number:064x}",
            probe="p",
            inputs=f"i{number}",
        )
        for name in CLASSES
        for number in range(cells)
    ]


@dataclass
class WorkDouble:
    """Asks what a test says."""

    tasks: Sequence[Task]
    known: Callable[[Sequence[Task]], dict[str, TaskVerdict]]
    scheduled: Callable[[], dict[str, Scheduled]]
    submit: Callable[[Sequence[Task], int], dict[str, str]] = lambda _tasks, _attempt: {}
    rendered: Callable[[Sequence[Task]], dict[str, str]] = lambda _tasks: {}
    notes: Callable[[Sequence[Task]], dict[str, str]] = lambda _tasks: {}
    attempts: int = 1


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

    def submit(self, tasks: Iterable[Task]) -> None:
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

    def known(self, tasks: Iterable[Task]) -> dict[str, TaskVerdict]:
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


def dispatched(cluster: ClusterDouble, tasks: Sequence[Task], ticks: int) -> tuple[TaskState, ...]:
    """One life of a dispatcher: plan, submit, follow."""
    cluster.submit(missing(tasks, cluster.reports))
    follower = Follower(work=WorkDouble(tasks=tasks, known=cluster.known, scheduled=cluster.under_way))
    warned: list[RtbuildError] = []
    return follower.wait(Clock(cluster, ticks), seconds=1, say=lambda _rows: None, warn=warned.append)


@pytest.mark.parametrize("seed", range(5))
def test_of_a_thousand_tasks_with_dying_nodes_all_are_reported(seed: int) -> None:
    tasks = tasks_of(250)
    cluster = ClusterDouble(seed, deaths=0.1)
    cluster.silent = lambda look: look % 7 == 0
    rows = dispatched(cluster, tasks, 10_000)
    assert len(rows) == 1000
    assert {row.state for row in rows} == {"verdict"}
    assert exit_code(rows) == 0
    assert set(cluster.submitted.values()) == {1}


def test_a_dispatcher_that_is_killed_fifty_times_loses_nothing() -> None:
    tasks = tasks_of(50)
    cluster = ClusterDouble(7, deaths=0.2)
    lives = random.Random(3)
    for _ in range(50):
        rows = dispatched(cluster, tasks, lives.randint(1, 3))
    rows = dispatched(cluster, tasks, 10_000)
    assert {row.state for row in rows} == {"verdict"}
    assert set(cluster.reports) == {task.key for task in tasks}


def test_what_the_scheduler_gave_up_is_lost_and_not_waited_for() -> None:
    (task, *_) = tasks_of(1)
    follower = Follower(work=WorkDouble(tasks=[task], known=lambda _tasks: {}, scheduled=dict))
    (row,) = follower.wait(threading.Event(), seconds=0.01, say=lambda _rows: None, warn=lambda _error: None)
    assert row.state == "lost"
    assert exit_code([row]) == 5


class Scheduler:
    """A double that takes tasks, as many as fit at a time, and ends each in the same way."""

    def __init__(self, ends: Scheduled | None = None, room: int = 1000, works: bool = False) -> None:
        self.ends, self.room, self.works = ends, room, works
        self.live: list[Task] = []
        self.ended: dict[str, Scheduled] = {}
        self.attempts: list[int] = []
        self.reports: dict[str, TaskVerdict] = {}

    def submit(self, tasks: Sequence[Task], attempt: int) -> dict[str, str]:
        free = max(0, self.room - len(self.live))
        self.live += tasks[:free]
        self.attempts += [attempt] * len(tasks[:free])
        return {task.key: "QOSMaxSubmitJobPerUserLimit" for task in tasks[free:]}

    def scheduled(self) -> dict[str, Scheduled]:
        if self.live:
            done = self.live.pop(0)
            if self.works:
                self.reports[done.key] = WORKS
            elif self.ends is not None:
                self.ended[done.key] = self.ends
        return {**self.ended, **{task.key: Scheduled(word="RUNNING") for task in self.live}}

    def follow(self, count: int) -> list[TaskState]:
        tasks = tasks_of(count)
        known = lambda wanted: {t.key: self.reports[t.key] for t in wanted if t.key in self.reports}  # noqa: E731
        work = WorkDouble(tasks=tasks, known=known, scheduled=self.scheduled, submit=self.submit, attempts=3)
        follower = Follower(work=work)
        follower.submit(tasks)
        clock = threading.Event()
        return list(follower.wait(clock, seconds=0, say=lambda _rows: None, warn=lambda _error: None))


@pytest.mark.parametrize(
    ("ends", "attempts"),
    [
        (None, [1, 2, 3]),
        (Scheduled(word="TIMEOUT", ended=True, again=True), [1, 2, 3]),
        (Scheduled(word="FAILED (NonZeroExitCode)", ended=True), [1]),
    ],
    ids=["gone", "cut off", "given up"],
)
def test_a_lost_task_is_submitted_again_as_often_as_the_fleet_says(
    ends: Scheduled | None, attempts: list[int]
) -> None:
    scheduler = Scheduler(ends)
    (*_, row) = scheduler.follow(1)
    assert sorted(scheduler.attempts) == sorted(attempts * len(CLASSES))
    assert (row.state, row.verdict) == ("lost", None)
    assert row.word == f"ended without a verdict: {ends.word if ends else 'it is gone'}"


def test_what_did_not_fit_is_submitted_when_others_have_ended() -> None:
    scheduler = Scheduler(room=3, works=True)
    assert {row.state for row in scheduler.follow(5)} == {"verdict"}
    assert scheduler.attempts == [1] * 20
    full = Scheduler(room=0)
    assert {row.word for row in full.follow(1)} == {"not submitted: QOSMaxSubmitJobPerUserLimit"}


def test_a_registry_that_stays_away_ends_the_waiting() -> None:
    cluster = ClusterDouble(1, deaths=0)
    cluster.silent = lambda _look: True
    clock = Clock(cluster, 10_000)
    follower = Follower(work=WorkDouble(tasks=tasks_of(1), known=cluster.known, scheduled=cluster.under_way))
    warned: list[RtbuildError] = []
    with pytest.raises(RegistryError):
        follower.wait(clock, seconds=30, say=lambda _rows: None, warn=warned.append)
    assert len(warned) == 19  # ten minutes, and what the looks took


def test_a_lost_task_says_what_its_node_left_and_asks_once() -> None:
    (task, *_) = tasks_of(1)
    asked: list[str] = []

    def notes(tasks: Sequence[Task]) -> dict[str, str]:
        asked.extend(task.key for task in tasks)
        return {task.key: "n7: there is no docker on this node"}

    work = WorkDouble(tasks=[task], known=lambda _tasks: {}, scheduled=dict, notes=notes)
    follower = Follower(work=work)
    rows = [follower.look()[0] for _ in range(5)]
    assert rows[-1].word == "ended without a verdict: it is gone: n7: there is no docker on this node"
    assert rows[2] == rows[3] == rows[4]
    assert asked == [task.key]


def test_a_broken_image_decides_the_exit_code() -> None:
    task, other, *_ = tasks_of(1)
    broken = TaskVerdict(verdict="broken", cause="cudnn-missing", gpu="x", driver="1")
    rows = [TaskState(task=task, state="verdict", verdict=broken), TaskState(task=other, state="lost")]
    assert exit_code(rows) == 1


def test_a_submission_that_fails_is_tried_at_the_next_look() -> None:
    """The second task was refused while the first ran; when that ends, the scheduler is away for a look."""
    first, second = tasks_of(1)[:2]
    done: dict[str, TaskVerdict] = {}
    calls: list[str] = []

    def submit(tasks: Sequence[Task], _attempt: int) -> dict[str, str]:
        calls.append(",".join(task.key for task in tasks))
        if len(calls) == 1:
            return {second.key: "QOSMaxSubmitJobPerUserLimit"}
        if len(calls) == 2:
            raise SchedulerError("squeue did not answer", command=["squeue"], returncode=124, tail=[])
        done[second.key] = WORKS
        return {}

    looks: list[int] = []

    def scheduled() -> dict[str, Scheduled]:
        looks.append(len(looks))
        if len(looks) == 1:
            return {first.key: Scheduled(word="RUNNING", ended=False)}
        done[first.key] = WORKS
        return {}

    work = WorkDouble(
        tasks=(first, second), known=lambda _tasks: dict(done), scheduled=scheduled, submit=submit
    )
    follower = Follower(work=work)
    follower.submit(work.tasks)
    rows = follower.wait(threading.Event(), seconds=0.001, say=lambda _rows: None, warn=lambda _error: None)
    assert [row.state for row in rows] == ["verdict", "verdict"]
    assert len(calls) == 3


def test_a_scheduler_that_did_not_answer_has_not_refused() -> None:
    for words in (
        "sbatch did not answer in 60 s",
        "Socket timed out on send/recv",
        "Unable to contact slurm",
    ):
        assert silent(words)
        assert not full(words), "an array that Slurm may have taken is not halved"
    assert not silent("Requested node configuration is not available")
