"""Slurm: arrays of one class of GPU, and questions to the controller.

The batch script is all that a node gets: sbatch carries it there, so no file system need be shared. It names
each task by its key, which is how a second dispatcher finds out that a task is under way.
Options: https://slurm.schedmd.com/sbatch.html
"""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING

from builder.dispatch.client import Scheduled, SchedulerClient
from builder.dispatch.plan import VerifyTask
from builder.documents import shown
from builder.errors import SchedulerError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from builder.dispatch.fleet import Fleet, Resources

PREFIX = "rtbuild-"
_TASK = re.compile(r"^  '(?P<key>[0-9a-f]{20}) [^']+'$", re.MULTILINE)
_SLURM = SchedulerClient(
    name="Slurm",
    absent="run it where jobs are submitted from; --dry-run prints what would be submitted",
    silent="is the controller up? scontrol ping",
    refused="rtbuild doctor --fleet FILE tries each class",
)
_ARRAY = 1000
"""Tasks of an array at most: Slurm's ``MaxArraySize`` is 1001 by default."""
_ANY = VerifyTask(gpu_class="", matrix="", cell="x", repository="x", digest="x", probe="", inputs="")


def render(tasks: Sequence[VerifyTask], fleet: Fleet, array: int = _ARRAY) -> dict[str, str]:
    """The batch scripts of each class that has tasks: ``T4``, and ``T4.2`` if one array does not hold all.

    ``array``: tasks of an array at most.
    """
    found = {}
    for name in sorted({task.gpu_class for task in tasks}):
        mine = [task for task in tasks if task.gpu_class == name]
        for number in range(0, len(mine), array):
            found[f"{name}.{number // array + 1}" if number else name] = _verification(
                name, mine[number : number + array], fleet
            )
    return found


def array_limit() -> int:
    """Tasks that this controller lets an array have: an index has to be below its ``MaxArraySize``."""
    told = re.search(r"^MaxArraySize\s*=\s*(\d+)", _SLURM.ask(["scontrol", "show", "config"]), re.MULTILINE)
    return min(_ARRAY, int(told[1])) if told and int(told[1]) else _ARRAY


def _verification(name: str, tasks: Sequence[VerifyTask], fleet: Fleet) -> str:
    lane = fleet.lane(name)
    if lane is None:
        raise ValueError(f"the fleet has no class {name}")
    seconds = max(60, 60 * (lane.minutes or fleet.minutes) - 60)  # it is to end before Slurm ends it
    command = [fleet.command, "verify-digest", "--card", name, "--runtime", fleet.runtime]
    command += ["--timeout", str(seconds), *(["--key", fleet.key] if fleet.key else [])]
    return batch_script(
        name.lower(),
        [f"{task.key} {task.image} {task.cell}" for task in tasks],
        fleet,
        lane,
        extra={"gres": lane.gres or f"gpu:{name.lower()}:1"},
        run=f'{shlex.join(command)} "$subject" || code=$?',
        # a verdict, or a fleet file that is wrong about a card: no other node would say anything else
        final="0 | 2 | 20 | 21",
    )


def batch_script(
    name: str,
    tasks: Sequence[str],
    fleet: Fleet,
    asked: Resources,
    *,
    extra: Mapping[str, str | None],
    run: str,
    final: str,
) -> str:
    """A script for an array.

    Args:
        tasks: ``KEY SUBJECT CELL``, by index; ``run`` finds them in ``$key``, ``$subject`` and ``$cell``.
        extra: More options of sbatch.
        final: Exit codes, as a pattern of ``case``, after which a task is not tried again.
    """
    limit = f"%{asked.at_once}" if asked.at_once is not None else ""
    options = {
        "job-name": PREFIX + name,
        "array": f"0-{len(tasks) - 1}{limit}",
        **extra,
        "time": str(asked.minutes or fleet.minutes),
        "partition": asked.partition,
        "account": asked.account,
        "qos": asked.qos,
        "constraint": asked.constraint,
        "reservation": asked.reservation,
        "output": fleet.log or "/tmp/rtbuild-%A_%a.log",  # noqa: S108 - on the node, and Slurm makes it
        "open-mode": "append",
    }
    lines = ["#!/bin/bash", *(f"#SBATCH --{key}={value}" for key, value in options.items() if value)]
    lines += ["#SBATCH --requeue", "", "tasks=(", *(f"  '{task}'" for task in tasks), ")"]
    lines += [
        'read -r key subject cell <<<"${tasks[$SLURM_ARRAY_TASK_ID]}"',
        'echo "$key $cell on $SLURMD_NODENAME, attempt ${RTBUILD_ATTEMPT:-1}"',
        "code=0",
        run,
        "case $code in",
        f"  {final}) exit $code ;;",
        "esac",
        "# It says nothing about the image: once more, later, and elsewhere if there is an elsewhere. A job",
        "# that has handed its task over, or given it up, ends with a code on which no cluster requeues it.",
        f'[ "${{RTBUILD_ATTEMPT:-1}}" -lt {fleet.attempts} ] || exit 1',
        "export RTBUILD_ATTEMPT=$((${RTBUILD_ATTEMPT:-1} + 1))",
        f'again=(sbatch --parsable --array="$SLURM_ARRAY_TASK_ID" --begin=now+{fleet.pause})',
        'echo "exit $code: submitted again"',
        '"${again[@]}" --exclude="$SLURMD_NODENAME" "$0" || "${again[@]}" "$0" || exit 1',
    ]
    return "\n".join(lines) + "\n"


def keys_in(script: str) -> tuple[str, ...]:
    """The tasks' keys in a batch script, by array index."""
    return tuple(found["key"] for found in _TASK.finditer(script))


def submit(script: str, after: Sequence[str] = ()) -> str:
    """The id of the job that Slurm made of the script; it waits until the jobs ``after`` have ended.

    Raises SchedulerError, MissingToolError.
    """
    order = [f"--dependency=afterany:{':'.join(after)}"] if after else []
    told = _SLURM.ask(["sbatch", "--parsable", *order], script)
    found = re.search(r"^(\d+)(?:;\S+)?$", told, re.MULTILINE)  # a site's own words may stand around it
    if found is None:
        raise SchedulerError("sbatch named no job", command=["sbatch"], returncode=0, tail=[shown(told)])
    return found[1]


def submit_or_note(script: str, after: Sequence[str], refused: dict[str, str]) -> str | None:
    """As :func:`submit`; None if Slurm refuses the job, with its words in ``refused`` by task key."""
    try:
        return submit(script, after)
    except SchedulerError as error:
        refused |= dict.fromkeys(keys_in(script), why(error))
        return None


def under_way() -> Mapping[str, Scheduled]:
    """This user's tasks that wait or run, by key, with Slurm's word: ``PENDING (Resources)``."""
    found = {}
    for job, rows in _jobs().items():
        keys = keys_in(_script_of(job))
        for index, state, reason in rows:
            if index.isdecimal() and int(index) < len(keys):
                word = f"{state} ({reason})" if reason != "None" else state
                found[keys[int(index)]] = Scheduled(word=word, queued=state == "PENDING")
    return found


def jobs_named(name: str) -> tuple[str, ...]:
    """The ids of this user's jobs of that name which have not ended."""
    return tuple(_jobs(PREFIX + name))


def _jobs(prefix: str = PREFIX) -> dict[str, list[tuple[str, str, str]]]:
    """Array index, state and reason of each task, by its job's id."""
    listed = _SLURM.ask(["squeue", "--me", "--array", "--noheader", "--format=%F|%K|%j|%T|%r"])
    found: dict[str, list[tuple[str, str, str]]] = {}
    for line in listed.splitlines():
        row = line.strip().split("|")
        if len(row) == 5 and row[2].startswith(prefix):
            found.setdefault(row[0], []).append((row[1], row[3], row[4]))
    return found


def _script_of(job: str) -> str:
    """A job's batch script; empty if it has ended meanwhile."""
    try:
        return _SLURM.ask(["scontrol", "write", "batch_script", job, "-"])
    except SchedulerError:
        return ""


def try_lane(name: str, fleet: Fleet) -> str | None:
    """Why Slurm would not take a job of the class; None if it would. Nothing is submitted."""
    if fleet.lane(name) is None:
        return f"the fleet has no class {name}"
    script = _verification(name, [_ANY], fleet)
    head = "".join(line + "\n" for line in script.splitlines() if line.startswith("#SBATCH"))
    try:
        _SLURM.ask(["sbatch", "--test-only"], f"#!/bin/bash\n{head}true\n")
    except SchedulerError as error:
        return why(error)
    return None


def why(error: SchedulerError) -> str:
    """Slurm's own last words."""
    return error.tail[-1].removeprefix("sbatch: error: ") if error.tail else error.message
