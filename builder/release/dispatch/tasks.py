"""Tasks, the reports that are verdicts on them, and the follower that ends when each has one, or is lost; and
the scheduler's own command-line client, which is asked about them.

Nothing is kept but in registry and scheduler: a dispatcher that was killed and started again goes on there.
"""

import contextlib
import hashlib
import json
import os
import re
import subprocess
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal
from urllib.parse import urljoin

from builder.core.errors import MissingToolError, RegistryError, RtbuildError, SchedulerError
from builder.core.files import disk_errors, locked, try_lock
from builder.core.resources import cache
from builder.plan.facts.tables import class_of
from builder.release.dispatch.fleet import BUILD, Fleet
from builder.sources.oci import Registry, staged_reference
from builder.verify.evidence import no_proof
from builder.verify.runner import SealedReport, parse

_LOGGED = re.compile(r"[EWI]\d{4} \d\d:\d\d:")
"""Lines that kubectl's library logs, and that its last line repeats."""
_FULL = re.compile(
    r"SubmitJobs?(Per\w+)?Limit|MaxJobCount|job submit limit|job array spec|temporarily un|exceeded quota",
    re.IGNORECASE,
)
"""Refusals that pass: fewer tasks at a time, or the same ones later, are taken."""
_SILENT = re.compile(
    r"did not answer|timed out|unable to contact|Unable to connect|Client\.Timeout|deadline exceeded",
    re.IGNORECASE,
)


@dataclass(frozen=True, kw_only=True)
class Scheduled:
    """A task that the scheduler has or had."""

    word: str
    """The scheduler's own, on one line."""
    queued: bool = False
    """It has not started: the registry can have nothing new of it."""
    ended: bool = False
    """No report comes any more."""
    again: bool = False
    """It ended without a decision, so another submission may help."""
    reason: str = ""
    """Why it failed, in the words of its node, if the scheduler has them."""


@dataclass(frozen=True, kw_only=True)
class SchedulerClient:
    """The commands of one scheduler, and the hints if they are not here, do not answer, or refuse."""

    name: str
    absent: str
    silent: str
    refused: str

    def ask(self, command: Sequence[str], text: str | None = None, **options: Any) -> str:
        """The first part of :meth:`answer`, without the failures."""
        return self.answer(command, text, **options)[0]

    def answer(
        self,
        command: Sequence[str],
        text: str | None = None,
        *,
        seconds: float = 60,
        harmless: str = "\n",
        variables: Mapping[str, str] | None = None,
    ) -> tuple[str, list[str]]:
        """The output of a command with ``text`` on its standard input, within ``seconds``, and its failures.

        Each of these is a line in which the pattern ``harmless`` is found.

        Raises:
            MissingToolError: There is no such command here.
            SchedulerError: It failed, or did not answer in time.
        """
        env = {**os.environ, **(variables or {})}
        try:
            done = subprocess.run(
                command,
                input=text,
                capture_output=True,
                encoding="utf-8",
                errors="replace",  # a pod's log is what an image printed
                check=False,
                timeout=seconds,
                env=env,
            )
        except FileNotFoundError as error:
            raise MissingToolError(f"there is no {command[0]} here", hint=self.absent) from error
        except subprocess.TimeoutExpired as error:
            raise SchedulerError(
                f"{command[0]} did not answer in {seconds:.0f} s",
                command=command,
                returncode=124,
                hint=self.silent,
            ) from error
        failed = done.stderr if done.stderr.strip() else done.stdout
        told = [line for line in failed.splitlines() if line.strip() and not _LOGGED.match(line)]
        wrong = [line for line in told if not re.search(harmless, line)]
        if done.returncode != 0 and (wrong or not told):
            raise SchedulerError(
                f"{self.name} refused: {' '.join(command[:2])}",
                command=command,
                returncode=done.returncode,
                tail=wrong[-10:],
                hint=self.refused,
            )
        return done.stdout, told if done.returncode else []


def why(error: SchedulerError) -> str:
    """The scheduler's own last words."""
    return error.tail[-1].removeprefix("sbatch: error: ") if error.tail else error.message


def full(error: SchedulerError | str) -> bool:
    """True if a refusal is about the number of tasks: fewer, or the same ones later, may be taken."""
    return _FULL.search(error if isinstance(error, str) else " ".join(error.tail)) is not None


def silent(words: str) -> bool:
    """True if the scheduler did not answer: it may have taken the tasks, or take them later."""
    return _SILENT.search(words) is not None


Say = Callable[[str], None]
PREFIX = "rtbuild-"
"""Begins the name that a task has at its scheduler."""
CONCLUSIVE = frozenset({"works", "broken", "unsupported-gpu"})
"""Verdicts about the image; ``host``, ``busy`` and ``unverified`` say nothing about it."""


@dataclass(frozen=True, kw_only=True, order=True)
class Task:
    """A job of a scheduler: one image verified on one class of GPU, or one image built."""

    wave: int = 0
    """It runs when the waves before have ended."""
    column: str
    """The class of GPU, or :data:`BUILD`."""
    matrix: str
    cell: str
    repository: str
    inputs: str
    """Digest of the lock's inputs: :attr:`builder.image.recipe.values.Recipe.inputs`."""
    digest: str = ""
    """The image to verify."""
    probe: str = ""
    """sha256 of the probe in that image, 64 hex digits."""
    suites: tuple[str, ...] = ()
    """Suites that the probe is to run besides ``conv``."""
    suggested: tuple[str, ...] = ()
    """Suites without effect on the verdict; a report is one on this task without them, too."""

    @property
    def image(self) -> str:
        if self.column == BUILD:
            return staged_reference(self.repository, self.inputs)
        return f"{self.repository}@{self.digest}"

    @property
    def key(self) -> str:
        """20 hex digits over image, class, probe, lock and suites; of a build over repository and lock.

        The repository counts: a report in one registry is none in its mirror.
        """
        parts = [self.image, self.column, self.probe, self.inputs, *self.suites]
        if self.column == BUILD:
            parts = [BUILD, self.repository, self.inputs]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:20]


@dataclass(frozen=True, kw_only=True)
class TaskVerdict:
    """A report's verdict on a task; ``built`` for a build whose image is there."""

    verdict: str
    cause: str | None = None
    gpu: str | None = None
    driver: str | None = None


def conclusive(reports: Iterable[SealedReport]) -> Iterator[tuple[SealedReport, str, TaskVerdict]]:
    """The reports that are a verdict on an image, oldest first, each with the class of its GPU.

    Left out: a test double's report, and one that says ``works`` and does not show it.
    """
    for report in sorted(reports, key=lambda report: report.verified):
        if report.test_double or report.verdict not in CONCLUSIVE or not report.key.gpus:
            continue
        if report.verdict == "works" and any(no_proof(parse(json.dumps(report.document)))):
            continue
        name, capability = report.key.gpus[0]
        cause, driver = report.document.get("cause"), report.key.driver
        said = TaskVerdict(verdict=report.verdict, cause=cause and str(cause), gpu=name, driver=driver)
        yield report, class_of(name, capability) or "", said


def answers(report: SealedReport, suites: Iterable[str]) -> bool:
    """Whether a report is one on these suites: one that says ``works`` was asked for each, run or not."""
    if report.document.get("verdict") != "works":
        return True
    return parse(json.dumps(report.document)).suites_asked() >= set(suites)


def verdicts(tasks: Sequence[Task], reports: Iterable[SealedReport]) -> dict[str, TaskVerdict]:
    """The newest conclusive report on each task, by the task's key."""
    wanted = {(task.digest, task.column, task.probe): task for task in tasks}
    found = {}
    for report, gpu_class, verdict in conclusive(reports):
        task = wanted.get((report.key.digest, gpu_class, report.key.probe))
        if task is not None and answers(report, task.suites):
            found[task.key] = verdict
    return found


def missing(tasks: Sequence[Task], known: Iterable[str]) -> tuple[Task, ...]:
    there = set(known)
    return tuple(task for task in tasks if task.key not in there)


State = Literal["verdict", "waiting", "lost"]

_PATIENCE = 3
"""Looks in a row at which a task is neither under way nor in the registry: then it is lost. One look is not
enough, since a report arrives a moment after its job has ended."""
_AWAY = 600.0
"""Seconds of waiting for which registry or scheduler may fail to answer, before that ends the waiting."""


@dataclass(kw_only=True)
class Work(ABC):
    """Tasks of one kind for the fleet's scheduler, and how registry and scheduler are asked about them."""

    registry: Registry
    fleet: Fleet
    tasks: Sequence[Task]
    reported: Callable[[Sequence[Task]], dict[str, TaskVerdict]]
    """The verdicts on these tasks that lie in the registry now, by key. Raises RegistryError."""
    say: Say
    warn: Say
    notes: Callable[[Sequence[Task]], Mapping[str, str]] = lambda _tasks: {}
    """Gives the nodes' notes beside the images of these tasks, by key."""

    @abstractmethod
    def scheduled(self) -> Mapping[str, Scheduled]:
        """The tasks that the scheduler has or had, by key."""

    @abstractmethod
    def submit(self, tasks: Sequence[Task], attempt: int, /) -> Mapping[str, str]:
        """Submit tasks that are not under way already, for the nth time.

        Why the scheduler took some not, by key. Raises MissingToolError; what was submitted before stays.
        """

    @abstractmethod
    def rendered(self, tasks: Sequence[Task], /) -> Mapping[str, str]:
        """The texts that would be submitted, by name."""

    @property
    def attempts(self) -> int:
        """Submissions of a task at most."""
        return self.fleet.attempts

    def known(self, tasks: Sequence[Task], /) -> Mapping[str, TaskVerdict]:
        """The verdicts, after the reports in the scheduler's logs were put beside their images."""
        return self.reported(tasks)

    def not_under_way(self, tasks: Sequence[Task], there: Mapping[str, Scheduled]) -> list[Task]:
        """The tasks that the scheduler does not have, or whose job ended without a verdict.

        The number of those under way is said. Raises RegistryError.
        """
        fresh = [task for task in tasks if task.key not in there or there[task.key].ended]
        if len(fresh) < len(tasks):
            self.say(f"{len(tasks) - len(fresh)} are under way already")
        # another dispatcher may have submitted a task, and it may have ended, since this one looked
        found = self.known([task for task in fresh if task.key in there])
        return [task for task in fresh if task.key not in found]

    @contextlib.contextmanager
    def lease(self, tasks: Sequence[Task]) -> Iterator[None]:
        """Be the only one of this user who submits for the tasks' repositories, where the cache is shared.

        Between a look at the queue and a submission another dispatcher would find the tasks missing, too.
        Raises MissingToolError.
        """
        folder = cache() / "dispatch"
        with disk_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
        with contextlib.ExitStack() as held:
            for repository in sorted({task.repository for task in tasks}):
                path = folder / hashlib.sha256(repository.encode()).hexdigest()[:20]
                if not try_lock(path):
                    self.say(f"{repository}: another dispatcher submits tasks; it is waited for")
                held.enter_context(locked(path))
            yield


def try_push(registry: Registry, tasks: Sequence[Task], warn: Say | None = None) -> None:
    """Begin an upload in each repository of the tasks, and cancel it.

    ``warn`` if the tasks' nodes push: they may have another login. Raises RegistryError if a registry can
    neither begin one nor refuse it now, and without ``warn`` MissingToolError if it refuses.
    https://github.com/opencontainers/distribution-spec/blob/main/spec.md#post-then-put
    """
    for repository in sorted({task.repository for task in tasks}):
        host = repository.partition("/")[0]
        options: dict[str, Any] = {"good": range(1000), "actions": "pull,push"}
        with registry.request("POST", repository, "blobs/uploads/", **options) as answer:
            place = urljoin(answer.url, answer.headers.get("Location", ""))
        if answer.status_code == 202:
            registry.request("DELETE", repository, place, **options).close()
            continue
        if answer.status_code >= 500 or answer.status_code == 429:
            said = f"{repository} begins no upload (HTTP {answer.status_code})"
            raise RegistryError(said, hint="try again later")
        said = f"this machine's login may not push to {repository} (HTTP {answer.status_code})"
        if warn is None:
            hint = f"reports go there: docker login {host}, as somebody who may push"
            raise MissingToolError(said, hint=hint)
        warn(f"{said}: the nodes need one that may")


@dataclass(frozen=True, kw_only=True)
class TaskState:
    task: Task
    state: State
    verdict: TaskVerdict | None = None
    word: str = ""
    """The scheduler's own word for a task that has no verdict."""
    again: bool = False
    """Another submission may help."""


@dataclass(kw_only=True)
class Follower:
    """Submits tasks and looks at registry and scheduler."""

    work: Work
    refused: dict[str, str] = field(default_factory=dict)
    """Why the scheduler did not take a task, by key."""
    _verdicts: dict[str, TaskVerdict] = field(default_factory=dict)
    _submitted: dict[str, int] = field(default_factory=dict)
    """How often the scheduler took a task."""
    _absent: dict[str, int] = field(default_factory=dict)
    """At how many looks in a row a task was not under way."""
    _decided: dict[str, str] = field(default_factory=dict)
    """The scheduler's word on tasks that it gave up, by key."""
    _reasons: dict[str, str] = field(default_factory=dict)
    """The last words of nodes on tasks that failed there, by key."""
    _asked: set[str] = field(default_factory=set)
    """Lost tasks whose notes were read."""
    _under_way: int = 0
    """Tasks that were waited for at the last look, and those submitted before the first."""

    def submit(self, tasks: Sequence[Task]) -> None:
        """Submit tasks; those that the scheduler does not take are in :attr:`refused`."""
        attempts = {task.key: self._submitted.get(task.key, 0) + 1 for task in tasks}
        for attempt in sorted(set(attempts.values())):
            mine = [task for task in tasks if attempts[task.key] == attempt]
            refused = self.work.submit(mine, attempt)
            for key in (task.key for task in mine):
                self._absent.pop(key, None)
                self._asked.discard(key)
                self._reasons.pop(key, None)
                self.refused.pop(key, None)
                if key in refused:
                    self.refused[key] = refused[key]
                else:
                    self._submitted[key] = attempt
                    self._under_way += 1

    def look(self) -> tuple[TaskState, ...]:
        """The state of every task, in the order of the plan. The registry is asked about those that may have
        a report since the last look.

        Raises RegistryError, SchedulerError.
        """
        there = self.work.scheduled()  # before the registry: a job that ends in between has its report there
        settled = {*self._verdicts, *(key for key, one in there.items() if one.queued)}
        self._verdicts |= self.work.known([task for task in self.work.tasks if task.key not in settled])
        rows = [self._state(task, there.get(task.key)) for task in self.work.tasks]
        lost = {row.task.key for row in rows if row.state == "lost"} - self.refused.keys() - self._asked
        if lost:  # once: a note is written before its job ends
            self._reasons = (
                dict(self.work.notes([t for t in self.work.tasks if t.key in lost])) | self._reasons
            )
            self._asked |= lost
            rows = [
                replace(row, word=self._with_reason(row)) if row.task.key in lost else row for row in rows
            ]
        return tuple(rows)

    def _with_reason(self, row: TaskState) -> str:
        reason = self._reasons.get(row.task.key, "")
        return f"{row.word}: {reason}" if reason and reason not in row.word else row.word

    def _state(self, task: Task, scheduled: Scheduled | None) -> TaskState:
        key = task.key
        lost = TaskState(task=task, state="lost")
        if scheduled is not None and scheduled.reason:
            self._reasons[key] = scheduled.reason
        if key in self._verdicts:
            return TaskState(task=task, state="verdict", verdict=self._verdicts[key])
        if scheduled is not None and not scheduled.ended:
            self._absent.pop(key, None)
            self._decided.pop(key, None)
            return TaskState(task=task, state="waiting", word=scheduled.word)
        if key in self.refused:
            words = self.refused[key]
            return replace(lost, word=f"not submitted: {words}", again=full(words) or silent(words))
        if scheduled is not None and not scheduled.again:
            self._decided[key] = scheduled.word
        self._absent[key] = self._absent.get(key, 0) + 1
        if self._absent[key] < _PATIENCE:
            return TaskState(task=task, state="waiting", word="ended, or not there yet")
        word = self._decided.get(key) or (scheduled.word if scheduled is not None else "it is gone")
        again = key not in self._decided and self._submitted.get(key, 0) < self.work.attempts
        row = replace(lost, word=f"ended without a verdict: {word}", again=again)
        return replace(row, word=self._with_reason(row))

    def wait(
        self,
        cancel: threading.Event,
        *,
        seconds: float,
        say: Callable[[Sequence[TaskState]], None],
        warn: Callable[[RtbuildError | None], None],
    ) -> tuple[TaskState, ...]:
        """Look every ``seconds`` until nothing is waited for, or ``cancel`` is set; ``say`` the changes.

        Lost tasks are submitted again, each as often as :attr:`Work.attempts` says in all; refused ones, if
        there were too many, when others have ended. A look that fails is told to ``warn``, and so is, by
        None, the first one after it. Raises RegistryError and SchedulerError after ten minutes of them.
        """
        before: tuple[TaskState, ...] = ()
        away = 0.0
        while True:
            began = time.monotonic()
            try:
                rows = self.look()
                old = before or (None,) * len(rows)
                if changed := [row for row, last in zip(rows, old, strict=True) if row != last]:
                    say(changed)
                before = rows
                ended = not self._again(rows) and not any(row.state == "waiting" for row in rows)
            except (RegistryError, SchedulerError) as error:
                away += seconds + time.monotonic() - began
                if away > _AWAY:
                    raise
                warn(error)
            else:
                if away:
                    warn(None)
                away = 0.0
                if ended:
                    return rows
            if cancel.wait(seconds):
                return before

    def _again(self, rows: Sequence[TaskState]) -> bool:
        """Whether something was submitted again."""
        under_way = sum(row.state == "waiting" for row in rows)
        fewer = under_way < self._under_way
        tasks = [row.task for row in rows if row.again and (fewer or row.task.key not in self.refused)]
        if tasks:
            self.submit(tasks)
        self._under_way = under_way  # not before: a submission that failed is tried at the next look
        return any(task.key not in self.refused for task in tasks)


def exit_code(rows: Sequence[TaskState]) -> int:
    """0: every task works, or is built; 1: some image is at fault; 5: some task has no verdict."""
    if any(row.verdict is not None and row.verdict.verdict not in {"works", "built"} for row in rows):
        return 1
    return 5 if any(row.verdict is None for row in rows) else 0
