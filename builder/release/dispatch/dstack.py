"""dstack: one task for each image and class, on a card that is rented for it.

The image under test is the task's image; it is given no token. It prints the probe's JSON, and whoever
collects reads it from the task's log. Fields: https://dstack.ai/docs/reference/dstack.yml/task
"""

from collections.abc import Sequence
from typing import Any

import yaml

from builder.release.dispatch.client import SchedulerClient
from builder.release.dispatch.fleet import Fleet, merged
from builder.release.dispatch.tasks import Task

_PREFIX = "rtbuild-"
_DSTACK = SchedulerClient(
    name="dstack",
    absent="install it where the tasks were applied from, and log in to its server",
    silent="is its server up? dstack ps",
    refused="dstack ps",
)
_ABSENT = "not found"
"""In what dstack says of a run that it does not have."""
_END = "END-OF-TASK"


def render(tasks: Sequence[Task], fleet: Fleet) -> dict[str, str]:
    """A shell script for each class that has tasks; it applies one document for each task."""
    found = {}
    for name in sorted({task.column for task in tasks}):
        mine = [task for task in tasks if task.column == name]
        lines = ["#!/bin/sh", f"# {name}: {len(mine)} tasks, each on a card that is rented for it", "set -e"]
        for task in mine:
            document = yaml.safe_dump(_task(task, fleet), sort_keys=False, width=1000)
            lines.append(f"dstack apply --yes --detach --file - <<'{_END}'\n{document}{_END}")
        found[name] = "\n".join(lines) + "\n"
    return found


def _task(task: Task, fleet: Fleet) -> dict[str, Any]:
    """The document of one task. Its name is the task's key, so applying it twice runs it once at a time."""
    lane = fleet.lane(task.column)
    suites = f" --suite {','.join(task.suites)}" if task.suites else ""
    suites += f" --suggested {','.join(task.suggested)}" if task.suggested else ""
    made = {
        "type": "task",
        "name": _PREFIX + task.key,
        "image": task.image,
        "commands": [f"cudnn-verify --json{suites}"],
        "resources": {"gpu": {"name": [task.column], "count": 1}},
        "max_duration": f"{lane.minutes or fleet.minutes}m",
        "tags": {"managed-by": "rtbuild"},
    }
    whole: dict[str, Any] = merged(merged(made, fleet.patch), lane.patch)
    return whole


def log_of(task: Task) -> str:
    """What the task printed so far, or that dstack has no run of it. Raises SchedulerError."""
    return _DSTACK.ask(["dstack", "logs", _PREFIX + task.key], harmless=_ABSENT)
