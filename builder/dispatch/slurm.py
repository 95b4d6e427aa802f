"""Slurm: one array for each class of GPU, and questions to the controller.

The batch script is all that a node gets: sbatch carries it there, so no file system need be shared. It names
each
task by its key, which is how a second dispatcher finds out that a task is under way.
Options: https://slurm.schedmd.com/sbatch.html
"""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING

from builder.dispatch.client import SchedulerClient
from builder.dispatch.plan import VerifyTask
from builder.errors import CommandError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from builder.dispatch.fleet import Fleet

PREFIX = "rtbuild-"
_TASK = re.compile(r"^  '(?P<key>[0-9a-f]{20}) \S+ \S+'$", re.MULTILINE)
_SLURM = SchedulerClient(
    name="Slurm",
    absent="run it where jobs are submitted from; --dry-run prints what would be submitted",
    silent="is the controller up? scontrol ping",
    refused="rtbuild doctor --fleet FILE tries each class",
)
_AGAIN = "22 | 23 | 30"
"""Exit codes of cudnn-verify that say nothing about the image: host, busy, the probe itself failed."""
_ANY = VerifyTask(gpu_class="", matrix="", cell="x", repository="x", digest="x", probe="", inputs="")


def render(tasks: Sequence[VerifyTask], fleet: Fleet) -> dict[str, str]:
    """A batch script for each class that has tasks, by class."""
    classes = sorted({task.gpu_class for task in tasks})
    return {name: _script(name, [t for t in tasks if t.gpu_class == name], fleet) for name in classes}


def _script(name: str, tasks: Sequence[VerifyTask], fleet: Fleet) -> str:
    lane = fleet.lane(name)
    if lane is None:
        raise ValueError(f"the fleet has no class {name}")
    limit = f"%{lane.at_once}" if lane.at_once is not None else ""
    options = {
        "job-name": PREFIX + name.lower(),
        "array": f"0-{len(tasks) - 1}{limit}",
        "gres": lane.gres or f"gpu:{name.lower()}:1",
        "time": str(lane.minutes or fleet.minutes),
        "partition": lane.partition,
        "account": lane.account,
        "qos": lane.qos,
        "constraint": lane.constraint,
        "reservation": lane.reservation,
        "output": fleet.log or "/tmp/rtbuild-%A_%a.log",  # noqa: S108 - on the node, and Slurm makes it
        "open-mode": "append",
    }
    lines = ["#!/bin/bash", *(f"#SBATCH --{key}={value}" for key, value in options.items() if value)]
    lines += ["#SBATCH --requeue", "", "tasks=("]
    lines += [f"  '{task.key} {task.image} {task.cell}'" for task in tasks]
    command = [fleet.command, "verify-digest", "--card", name, "--runtime", fleet.runtime]
    lines += [
        ")",
        'read -r key image cell <<<"${tasks[$SLURM_ARRAY_TASK_ID]}"',
        'echo "$key $cell on $SLURMD_NODENAME, attempt ${RTBUILD_ATTEMPT:-1}"',
        "code=0",
        f'{shlex.join(command)} "$image" || code=$?',
        "case $code in",
        f"  {_AGAIN})  # nothing is known about the image: once more, elsewhere if there is an elsewhere",
        f'    if [ "${{RTBUILD_ATTEMPT:-1}}" -lt {fleet.attempts} ]; then',
        "      export RTBUILD_ATTEMPT=$((${RTBUILD_ATTEMPT:-1} + 1))",
        '      again=(sbatch --parsable --array="$SLURM_ARRAY_TASK_ID")',
        '      "${again[@]}" --exclude="$SLURMD_NODENAME" "$0" || "${again[@]}" "$0"',
        "    fi",
        "    ;;",
        "esac",
        "exit $code",
    ]
    return "\n".join(lines) + "\n"


def keys_in(script: str) -> tuple[str, ...]:
    """The tasks' keys in a batch script, by array index."""
    return tuple(found["key"] for found in _TASK.finditer(script))


def submit(script: str) -> str:
    """The id of the job that Slurm made of the script. Raises CommandError, MissingToolError."""
    return _SLURM.ask(["sbatch", "--parsable"], script).strip().partition(";")[0]


def under_way() -> Mapping[str, str]:
    """The keys of this user's tasks that wait or run, and Slurm's word for each: ``PENDING (Resources)``."""
    listed = _SLURM.ask(["squeue", "--me", "--array", "--noheader", "--format=%F|%K|%j|%T|%r"])
    rows = [line.strip().split("|") for line in listed.splitlines() if line.strip()]
    rows = [row for row in rows if len(row) == 5 and row[2].startswith(PREFIX)]
    scripts = {job: keys_in(_script_of(job)) for job in {row[0] for row in rows}}
    found = {}
    for job, index, _, state, reason in rows:
        keys = scripts[job]
        if index.isdecimal() and int(index) < len(keys):
            found[keys[int(index)]] = f"{state} ({reason})" if reason != "None" else state
    return found


def _script_of(job: str) -> str:
    """A job's batch script; empty if it has ended meanwhile."""
    try:
        return _SLURM.ask(["scontrol", "write", "batch_script", job, "-"])
    except CommandError:
        return ""


def try_lane(name: str, fleet: Fleet) -> str | None:
    """Why Slurm would not take a job of the class; None if it would. Nothing is submitted."""
    lane = fleet.lane(name)
    if lane is None:
        return f"the fleet has no class {name}"
    task = "#!/bin/bash\n" + "".join(
        line + "\n" for line in _script(name, [_ANY], fleet).splitlines() if line.startswith("#SBATCH")
    )
    try:
        _SLURM.ask(["sbatch", "--test-only"], task + "true\n")
    except CommandError as error:
        return error.tail[-1].removeprefix("sbatch: error: ") if error.tail else error.message
    return None
