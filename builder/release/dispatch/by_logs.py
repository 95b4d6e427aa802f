"""Verifications whose reports are read from logs and attached here: by dstack's tasks and Kubernetes' Jobs.

The image under test is that of the task or the pod, which is given no token and prints the probe's JSON.
Fields of dstack's task, on a card that is rented for it: https://dstack.ai/docs/reference/dstack.yml/task
"""

import contextlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from builder.core.errors import CellError, SchedulerError, UsageError
from builder.core.items import item
from builder.release.dispatch import kubernetes
from builder.release.dispatch.fleet import Fleet, merged
from builder.release.dispatch.node import other_card, report_on
from builder.release.dispatch.tasks import (
    CONCLUSIVE,
    PREFIX,
    Scheduled,
    SchedulerClient,
    Task,
    TaskVerdict,
    Work,
    full,
    try_push,
    why,
)
from builder.sources.oci import Staged
from builder.verify.evidence import Signer, share

_LOGS = 40
"""Logs that one kubectl reads."""
_DSTACK = SchedulerClient(
    name="dstack",
    absent="install it where the tasks were applied from, and log in to its server",
    silent="is its server up? dstack ps",
    refused="dstack ps",
)
_ABSENT = "not found"
"""In what dstack says of a run that it does not have, which has no log."""
_END = "END-OF-TASK"


def dstack_scripts(tasks: Sequence[Task], fleet: Fleet) -> dict[str, str]:
    """A shell script for each class that has tasks; it applies one document for each task."""
    found = {}
    for name in sorted({task.column for task in tasks}):
        mine = [task for task in tasks if task.column == name]
        lines = ["#!/bin/sh", f"# {name}: {len(mine)} tasks, each on a card that is rented for it", "set -e"]
        for task in mine:
            document = yaml.safe_dump(_dstack_task(task, fleet), sort_keys=False, width=1000)
            lines.append(f"dstack apply --yes --detach --file - <<'{_END}'\n{document}{_END}")
        found[name] = "\n".join(lines) + "\n"
    return found


def _dstack_task(task: Task, fleet: Fleet) -> dict[str, Any]:
    """The document of one task. Its name is the task's key, so applying it twice runs it once at a time."""
    lane = fleet.lane(task.column)
    suites = f" --suite {','.join(task.suites)}" if task.suites else ""
    suites += f" --suggested {','.join(task.suggested)}" if task.suggested else ""
    made = {
        "type": "task",
        "name": PREFIX + task.key,
        "image": task.image,
        "commands": [f"cudnn-verify --json{suites}"],
        "resources": {"gpu": {"name": [task.column], "count": 1}},
        "max_duration": f"{lane.minutes or fleet.minutes}m",
        "tags": {"managed-by": "rtbuild"},
    }
    whole: dict[str, Any] = merged(merged(made, fleet.patch), lane.patch)
    return whole


@dataclass(kw_only=True)
class _ByLogs(Work):
    """Verifications whose reports are read from logs, and attached here."""

    images: Mapping[str, Staged]
    """By :attr:`Task.image`."""

    def collect(self, task: Task, report: bytes, *, exit_code: int | None = None) -> bool:
        """Put a report out of a log beside its image; whether it is new there.

        Raises CellError if it is no verdict on the task, and CommandError if the fleet's key does not sign.
        """
        image, key = self.images[task.image], self.fleet.key
        signer = None if key is None else Signer(key=key)
        found = report_on(image, report, signer, exit_code=exit_code)
        new = bool(share(self.registry, image, found.reports))
        if wrong := other_card(task.column, found.seen):
            raise CellError(wrong)
        if found.verdict not in CONCLUSIVE:
            raise CellError(f"the report says {found.verdict}, which is no verdict on the image")
        return new


@dataclass(kw_only=True)
class OnDstack(_ByLogs):
    """On rented cards: somebody applies what is rendered."""

    def scheduled(self) -> Mapping[str, Scheduled]:
        return {}

    def rendered(self, tasks: Sequence[Task], /) -> Mapping[str, str]:
        return dstack_scripts(tasks, self.fleet)

    def known(self, tasks: Sequence[Task], /) -> Mapping[str, TaskVerdict]:
        """The verdicts in the registry, after the reports in logs were put beside their images.

        Raises RegistryError, SchedulerError, MissingToolError, CommandError.
        """
        found = self.reported(tasks)
        new = False
        for task in tasks:
            if task.key in found:
                continue
            log = _DSTACK.ask(["dstack", "logs", PREFIX + task.key], harmless=_ABSENT)
            try:
                with item(task.cell):
                    new |= self.collect(task, _json_in(log))
            except CellError as error:
                self.warn(f"{task.cell} on {task.column}: {error.message}")
        return self.reported(tasks) if new else found

    def submit(self, tasks: Sequence[Task], _attempt: int, /) -> Mapping[str, str]:
        """Raises UsageError: a card costs money."""
        hint = "--dry-run prints scripts that do, and --collect reads what came of it"
        raise UsageError(f"dispatch rents no cards for {len(tasks)} tasks", hint=hint)


@dataclass(kw_only=True)
class OnKubernetes(_ByLogs):
    """Tasks as Jobs of Kubernetes."""

    jobs: Mapping[str, kubernetes.JobState] | None = None
    """The Jobs' states at the last look, by name."""

    def scheduled(self) -> Mapping[str, Scheduled]:
        """The Jobs; one whose image cannot be pulled is deleted, since it would hold its GPU."""
        self.jobs = kubernetes.jobs(self.fleet)
        mine = {task.key for task in self.tasks}
        kubernetes.remove(
            {key: job for key, job in self.jobs.items() if job.stuck and key in mine}, self.fleet
        )
        return self.jobs

    def rendered(self, tasks: Sequence[Task], /) -> Mapping[str, str]:
        return kubernetes.render(tasks, self.fleet) if tasks else {}

    def known(self, tasks: Sequence[Task], /) -> Mapping[str, TaskVerdict]:
        """The verdicts in the registry, after the reports in logs were put beside their images.

        Raises RegistryError, SchedulerError, and CommandError if the fleet's key does not sign here.
        """
        found = self.reported(tasks)
        left = [task for task in tasks if task.key not in found]
        if left and self.jobs is None:
            self.jobs = kubernetes.jobs(self.fleet)
        jobs = self.jobs or {}
        ended = [task for task in left if task.key in jobs and jobs[task.key].ended]
        ended = [task for task in ended if not jobs[task.key].stuck]
        new = False
        for first in range(0, len(ended), _LOGS):
            part = ended[first : first + _LOGS]
            keys = [task.key for task in part if jobs[task.key].pod]
            logs = kubernetes.logs_of(keys, self.fleet) if len(keys) > 1 else {}
            for task in part:
                job = jobs[task.key]
                try:
                    with item(task.cell):
                        new |= self.collect(task, self._printed(job, logs), exit_code=job.exit_code)
                except CellError as error:
                    self.warn(f"{task.cell} on {task.column}: {job.word}: {error.message}")
        return self.reported(tasks) if new else found

    def _printed(self, job: kubernetes.JobState, logs: Mapping[str, str]) -> bytes:
        """The report in a pod's log; that is read alone if none is in it as it came with others.

        A log that ends without a new line takes in the first line of the next one.
        """
        with contextlib.suppress(CellError):
            return _json_in(logs.get(job.pod or "", ""))
        return _json_in(kubernetes.log_of(job, self.fleet))

    def submit(self, tasks: Sequence[Task], _attempt: int, /) -> Mapping[str, str]:
        """Submit as on Slurm. A task that failed somewhere goes elsewhere, if there is another place."""
        with self.lease(tasks):
            return self._submit(tasks)

    def _submit(self, tasks: Sequence[Task]) -> Mapping[str, str]:
        if not tasks:
            return {}
        self.scheduled()
        there = self.jobs or {}
        fresh = self.not_under_way(tasks, there)
        classes = sorted({task.column for task in fresh})
        refused = {name: kubernetes.try_lane(name, self.fleet) for name in classes}
        # whether a quota has room shows when ended Jobs have made it
        closed = {name: words for name, words in refused.items() if words is not None and not full(words)}
        taken = [task for task in fresh if task.column not in closed]
        lost = {task.key: closed[task.column] for task in fresh if task.column in closed}
        if taken:
            try_push(self.registry, taken)
            self._create(taken, there, lost)
        return lost

    def _create(
        self, tasks: Sequence[Task], there: Mapping[str, kubernetes.JobState], refused: dict[str, str]
    ) -> None:
        """Make Jobs of tasks, in the place of those that ended; ``refused`` takes why some were not made.

        A namespace may have no room for more Jobs, of which ended ones stay a day for the sake of their logs:
        those whose reports are in the registry make room.
        """
        old = {task.key: there[task.key] for task in tasks if task.key in there}
        kubernetes.remove(old, self.fleet)
        without_room = self._created(tasks, old, refused)
        ended = {key: job for key, job in there.items() if job.ended and key not in old}
        mine = [task for task in self.tasks if task.key in ended]
        if without_room and mine and (spent := self.reported(mine)):
            kubernetes.remove({key: ended[key] for key in spent}, self.fleet)
            left = [task for task in tasks if task.key in without_room]
            without_room = self._created(left, old, refused)
        refused |= without_room

    def _created(
        self, tasks: Sequence[Task], old: Mapping[str, kubernetes.JobState], refused: dict[str, str]
    ) -> dict[str, str]:
        """The tasks for which a quota has no room, with its words."""
        avoided = {key: job.failed_on for key, job in old.items()}
        taken: list[str] = []
        without_room: dict[str, str] = {}
        for name, text in kubernetes.render(tasks, self.fleet, avoided).items():
            try:
                made = kubernetes.submit(text)
            except SchedulerError as error:
                if name != kubernetes.NETWORK or kubernetes.FORBIDDEN not in why(error):
                    raise
                said = "this login may not make network policies, so the pods can reach the network"
                self.warn(f"{said}: an administrator applies the first manifest of --dry-run")
                continue
            self.say(f"{name}: {made.new} of {made.count} are new")
            if name != kubernetes.NETWORK:
                taken += made.there
                cut = len(PREFIX)
                without_room |= {job[cut:]: words for job, words in made.full.items()}
        for job in kubernetes.strangers(taken, self.fleet):
            said = f"{job} is a Job that rtbuild did not make: kubectl describe job {job}"
            refused[job.removeprefix(PREFIX)] = said
        return without_room


def _json_in(log: str) -> bytes:
    """The probe's document in a container's log, in which stderr's lines stand, too. Raises CellError."""
    found, read = [], 0
    for number, start in enumerate(re.finditer(r"^\{", log, re.MULTILINE)):
        if number == 1000:  # or decoding takes minutes
            raise CellError("the log begins too many documents to be read")
        if start.start() < read:
            continue  # within the last one
        try:
            document, read = json.JSONDecoder().raw_decode(log, start.start())
        except (ValueError, RecursionError):
            continue
        found += [document] if "verdict" in document else []
    if len(found) != 1:
        raise CellError(f"the log holds {'several reports' if found else 'no report'}")
    return json.dumps(found[0]).encode()
