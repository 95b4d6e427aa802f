"""Slurm: arrays of one class of GPU, and questions to the controller.

The batch script is all that a node gets: sbatch carries it there, so no file system need be shared. It names
each task by its key, by which a second dispatcher finds that a task is under way.
Options: https://slurm.schedmd.com/sbatch.html
"""

import hashlib
import re
import shlex
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from builder.core.documents import shown
from builder.core.errors import SchedulerError
from builder.release.dispatch.fleet import KEEP_IMAGES, Fleet, Resources
from builder.release.dispatch.tasks import PREFIX, Scheduled, SchedulerClient, Task, full, why

_SLURM = SchedulerClient(
    name="Slurm",
    absent="run it where jobs are submitted from; --dry-run prints what would be submitted",
    silent="is the controller up? scontrol ping",
    refused="rtbuild doctor --fleet FILE tries each class",
)
_ARRAY = 1000
"""Tasks of an array at most: Slurm's ``MaxArraySize`` is 1001 by default."""
_LATER = 20
"""How often a task waits for the registry, each time a ``pause`` longer: in all three hours and a half."""
AGAIN = "again, "
"""Begins the comment of a job whose node could not submit its task again."""
_COMMENT = re.compile(rf"({AGAIN})?rtbuild: (.+)")
_STRANGE = 100
"""Jobs of other names whose scripts are read at a look, each once."""
_TWICE = "rtbuild: withdrawn"
"""Begins the comment of a job whose tasks another dispatcher submitted first."""
_ENDED = frozenset(
    "BOOT_FAIL CANCELLED COMPLETED DEADLINE FAILED NODE_FAIL OUT_OF_MEMORY PREEMPTED TIMEOUT".split()  # noqa: SIM905
)
"""States of jobs that the controller still knows, five minutes by default (``MinJobAge``)."""


def arrays(tasks: Sequence[Task], most: int = _ARRAY) -> dict[str, Sequence[Task]]:
    """The tasks of each array by its name: ``T4``, and ``T4.2`` if one array does not hold a class.

    Builds of different waves are in different arrays: ``build``, ``build wave 2``.
    """
    found: dict[str, Sequence[Task]] = {}
    for wave, column in sorted({(task.wave, task.column) for task in tasks}):
        name = f"{column} wave {wave + 1}" if wave else column
        mine = [task for task in tasks if (task.wave, task.column) == (wave, column)]
        for first in range(0, len(mine), most):
            found[f"{name}.{first // most + 1}" if first else name] = mine[first : first + most]
    return found


def array_name(column: str, keys: Iterable[str]) -> str:
    """The name of a job: whoever dispatches the same tasks at the same time gives it the same one.

    It is all that other users see of a job, whose batch script they may not read.
    """
    return f"{PREFIX}{column.lower()}-{hashlib.sha256(' '.join(keys).encode()).hexdigest()[:12]}"


def array_limit() -> int:
    """Tasks that this controller lets an array have: an index has to be below its ``MaxArraySize``."""
    told = re.search(r"^MaxArraySize\s*=\s*(\d+)", _SLURM.ask(["scontrol", "show", "config"]), re.MULTILINE)
    return min(_ARRAY, int(told[1])) if told and int(told[1]) else _ARRAY


def verification(tasks: Sequence[Task], fleet: Fleet) -> str:
    name = tasks[0].column
    lane = fleet.lane(name)
    gres = lane.gres or f"gpu:{name.lower()}:1"
    seconds = max(60, 60 * (lane.minutes or fleet.minutes) - 60)  # so that it ends before Slurm ends it
    command = [fleet.command, "verify-digest", "--card", name, "--runtime", fleet.runtime]
    command += ["--timeout", str(seconds), *(["--key", fleet.key] if fleet.key else [])]
    if fleet.keep_images != KEEP_IMAGES:  # a node may have an rtbuild that does not know the option
        command += ["--keep-images", str(fleet.keep_images)]
    return batch_script(
        name,
        [_line(task) for task in tasks],
        fleet,
        lane,
        free=lane.options,
        setup=(*fleet.setup, *lane.setup),
        # By a variable: a node may have an rtbuild that does not know the option.
        run="case $suites in +*) export RTBUILD_SUGGESTED=${suites#+} suites= ;; esac\n"
        f"{shlex.join(command)} ${{RTBUILD_HAND_IN:+--hand-in}}"
        ' ${suites:+--suite "$suites"} "$subject" || code=$?\n'
        "# It gives its reason unless it did not understand the command, which another node's may.\n"
        'if [ "$code" -eq 2 ] && [ ! -s "$RTBUILD_REASON" ]; then\n'
        f'code=64 && echo "{fleet.command} on this node is of another version" >"$RTBUILD_REASON"\nfi',
        # a verdict, or a fleet file that is wrong about a card: no other node would say anything else
        final="2 | 20 | 21",
        card=gres,
    )


def _line(task: Task) -> str:
    """``KEY SUBJECT CELL [SUITES]``; suites that are suggested alone begin with a plus."""
    suites = ",".join(task.suites) or ("+" + ",".join(task.suggested) if task.suggested else "")
    return f"{task.key} {task.image} {task.cell} {suites}".rstrip()


def batch_script(
    name: str,
    tasks: Sequence[str],
    fleet: Fleet,
    asked: Resources,
    *,
    run: str,
    final: str,
    setup: Sequence[str],
    free: Mapping[str, str] | None = None,
    card: str | None = None,
) -> str:
    """A script for an array.

    Args:
        tasks: ``KEY SUBJECT CELL [SUITES]``, by index; ``run`` finds them in ``$key``, ``$subject``,
            ``$cell`` and ``$suites``.
        run: Commands, which set ``code`` to the task's exit code if it is not 0.
        final: Exit codes beside 0, as a pattern of ``case``, after which a task is not tried again.
        setup: Lines before them.
        free: Options of sbatch that a site adds.
        card: The ``gres`` of a task that has one: it is given back while a registry is waited for.
    """
    limit = f"%{asked.at_once}" if asked.at_once is not None else ""
    options = {
        "job-name": array_name(name, (task.partition(" ")[0] for task in tasks)),
        "array": f"0-{len(tasks) - 1}{limit}",
        "cpus-per-task": str(asked.cpus) if asked.cpus else None,
        "mem": asked.memory,
        "gres": card,
        "time": str(asked.minutes or fleet.minutes),
        **asked.model_dump(include={"partition", "account", "qos", "constraint", "reservation"}),
        "output": fleet.log or "/tmp/rtbuild-%A_%a.log",  # noqa: S108 - on the node, and Slurm makes it
        "open-mode": "append",
    }
    given = {key: value for key, value in options.items() if value}
    given |= {key: value for key, value in (free or {}).items() if key not in given}
    lines = ["#!/bin/bash", *(f"#SBATCH --{key}={value}" for key, value in given.items())]
    lines += ["#SBATCH --requeue", "", "tasks=(", *(f"  '{task}'" for task in tasks), ")"]
    gres = [f"--gres={card}"] if card else []
    again = shlex.join(["sbatch", "--parsable", *gres])
    lines += [
        "# Through a pipe: bash before 5.1 makes a temporary file of <<<, for which a node may have no room.",
        'read -r key subject cell suites < <(echo "${tasks[$SLURM_ARRAY_TASK_ID]}")',
        'echo "$key $cell${suites:+ ($suites)} on $SLURMD_NODENAME, attempt ${RTBUILD_ATTEMPT:-1}"',
        *setup,
        "code=0",
        "if RTBUILD_REASON=$(mktemp); then",
        "export RTBUILD_REASON",
        run,
        'reason=$(head -c 500 "$RTBUILD_REASON")',
        'rm -f "$RTBUILD_REASON"',
        "else",
        'code=1 reason="no temporary file can be made on this node"',
        "fi",
        f'[ "$code" -ne 127 ] || reason="{fleet.command} is not on this node"',
        'reason="rtbuild: $SLURMD_NODENAME: ${reason:-exit $code}"',
        "# Its job's comment is what squeue shows of it, and whoever waits reads why without a login here.",
        "tell() {",
        '  scontrol update "JobId=${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID" "Comment=$1" || true',
        "}",
        "case $code in",
        "  0) exit 0 ;;",
        f'  {final}) tell "$reason"; exit $code ;;',
        "esac",
        f'again=({again} --array="$SLURM_ARRAY_TASK_ID" --comment="$reason")',
    ]
    if card:
        lines += [
            "# The registry is away, which is no attempt. A report that is kept is handed in without a card.",
            'if [ "$code" -eq 75 ] || [ "$code" -eq 76 ]; then',
            "  export RTBUILD_LATER=$((${RTBUILD_LATER:-0} + 1)) RTBUILD_HAND_IN=",
            f'  later="--begin=now+$(({fleet.pause} * RTBUILD_LATER))"',
            f'  if [ "$RTBUILD_LATER" -le {_LATER} ]; then',
            '    if [ "$code" -eq 76 ]; then',
            '      sed "/^#SBATCH --gres=/d" "$0" | RTBUILD_HAND_IN=1 sbatch --parsable "$later" \\',
            '        --array="$SLURM_ARRAY_TASK_ID" --nodelist="$SLURMD_NODENAME" --time=10 \\',
            '        --comment="$reason" && exit 0',
            "    fi",
            '    "${again[@]}" "$later" "$0" && exit 0',
            "  fi",
            '  tell "$reason"',
            "  exit 1",
            "fi",
        ]
    lines += [
        "# It says nothing about the image: once more, later, and elsewhere if there is an elsewhere. A job",
        "# that has handed its task over, or given it up, ends with a code on which no cluster requeues it.",
        f'[ "${{RTBUILD_ATTEMPT:-1}}" -lt {fleet.attempts} ] || {{ tell "$reason"; exit 1; }}',
        "export RTBUILD_ATTEMPT=$((${RTBUILD_ATTEMPT:-1} + 1))",
        f"again+=(--begin=now+{fleet.pause})",
        'echo "exit $code: submitted again"',
        '"${again[@]}" --exclude="$SLURMD_NODENAME" "$0" || "${again[@]}" "$0" && exit 0',
        f'tell "{AGAIN}$reason"  # where no node may submit, the dispatcher does',
        "exit 1",
    ]
    return "\n".join(lines) + "\n"


def keys_in(script: str) -> tuple[str, ...]:
    """The tasks' keys in a batch script, by array index."""
    return tuple(re.findall(r"^  '([0-9a-f]{20}) [^']+'$", script, re.MULTILINE))


@dataclass(kw_only=True)
class Submission:
    """Jobs made of tasks; refused tasks with Slurm's words."""

    script: Callable[[Sequence[Task]], str]
    attempt: int = 1
    """The number of the attempt with which a task begins: a script submits its task again up to a limit."""
    refused: dict[str, str] = field(default_factory=dict)
    """By the task's key."""

    def submit(self, tasks: Sequence[Task], after: Sequence[str] = (), *, chain: bool = False) -> list[str]:
        """The ids of the jobs, which wait until those in ``after`` have ended.

        An array that is too large for the cluster or for this user's limit is submitted in halves, which wait
        for one another with ``chain``. Raises MissingToolError.
        """
        try:
            return [self._job(self.script(tasks), after)]
        except SchedulerError as error:
            if len(tasks) == 1 or not full(error):
                self.refused |= dict.fromkeys((task.key for task in tasks), why(error))
                return []
        first, rest = tasks[: len(tasks) // 2], tasks[len(tasks) // 2 :]
        jobs = self.submit(first, after, chain=chain)
        if any(task.key in self.refused for task in first):
            self.refused |= {task.key: self.refused[first[-1].key] for task in rest}
            return jobs
        return jobs + self.submit(rest, jobs[-1:] if chain else after, chain=chain)

    def _job(self, script: str, after: Sequence[str]) -> str:
        order = [f"--dependency=afterany:{':'.join(after)}"] if after else []
        again = {"RTBUILD_ATTEMPT": str(self.attempt)} if self.attempt > 1 else {}
        told = _SLURM.ask(["sbatch", "--parsable", *order], script, variables=again)
        found = re.search(r"^(\d+)(?:;\S+)?$", told, re.MULTILINE)  # a site's own words may stand around it
        if found is None:
            raise SchedulerError("sbatch named no job", command=["sbatch"], returncode=0, tail=[shown(told)])
        return found[1]


@dataclass(frozen=True)
class _Row:
    """One task of an array, as squeue shows it."""

    job: int
    index: str
    name: str
    state: str
    reason: str
    submitted: str = ""
    comment: str = ""


@dataclass(kw_only=True)
class Queue:
    """This user's tasks, as the controller knows them."""

    _keys: dict[tuple[str, str], tuple[str, ...]] = field(default_factory=dict)
    """The tasks of each job that was seen, by its id and the time of its submission: a controller that was
    killed and lost its newest jobs gives their ids again."""
    _ended: dict[str, set[tuple[str, str]]] = field(default_factory=dict)
    """The jobs of each task that had ended when they were seen, named as in ``_keys``."""
    _past: dict[str, set[tuple[str, str]]] = field(default_factory=dict)
    """Ended jobs from before the task's last submission."""
    own: set[str] = field(default_factory=set)
    """The ids of jobs that were submitted here."""
    _mine: set[int] = field(default_factory=set)
    """The ids of this user's jobs at the last look."""
    _others: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """The tasks of arrays that other users submitted first, by the job's name."""
    _strange: int = 0
    """Scripts of jobs of other names that may be read at this look."""

    def supersede(self, keys: Iterable[str]) -> None:
        """Slurm took these tasks anew: how their jobs before ended says nothing of them any more."""
        self._past |= {key: set(self._ended.get(key, ())) for key in keys}

    def withdraw(self, jobs: Collection[str]) -> int:
        """Cancel the tasks of these new jobs that an earlier job has, too; their number.

        Another dispatcher, whose lock this one does not see, submitted them between this one's look and its
        submission. The controller numbers jobs in order, so one of two such sees the other's.
        Raises SchedulerError, MissingToolError.
        """
        at: dict[str, list[tuple[int, str]]] = {}
        new: dict[str, tuple[str, ...]] = {}
        for row in (row for row in self._array_tasks() if row.state not in _ENDED):
            keys = self._keys_of(row, alive=True)
            if int(row.index) < len(keys):
                at.setdefault(keys[int(row.index)], []).append((row.job, row.index))
            if str(row.job) in jobs and row.name.startswith(PREFIX):
                new[row.name] = keys
        for key, row in self._rows_of_others(new):
            at.setdefault(key, []).append((row.job, row.index))
            if row.job == min(job for job, _ in at[key]):
                self._others[row.name] = new[row.name]
        twice: dict[int, list[str]] = {}
        for places in at.values():
            first = min(job for job, _ in places)
            for job, index in places:
                if job != first and str(job) in jobs:
                    twice.setdefault(job, []).append(index)
        for job, indexes in twice.items():
            name = f"{job}_[{','.join(indexes)}]"
            # else whoever looks takes it for somebody's decision
            comment = f"Comment={_TWICE}, an earlier job has the task"
            for command in (["scontrol", "update", f"JobId={name}", comment], ["scancel", name]):
                _SLURM.ask(command, harmless="Invalid job id")
        return sum(map(len, twice.values()))

    def of_others(self, arrays: Iterable[tuple[str, Sequence[str]]]) -> set[str]:
        """The tasks of these arrays, of a column and keys each, that other users have submitted as they are.

        They are under way from now on. A site may hide the jobs of others (``PrivateData``): then none are.
        Raises SchedulerError, MissingToolError.
        """
        named = {array_name(column, keys): tuple(keys) for column, keys in arrays}
        found = list(self._rows_of_others(named))
        self._others |= {row.name: named[row.name] for _, row in found}
        return {key for key, _ in found}

    def _rows_of_others(self, named: Mapping[str, tuple[str, ...]]) -> Iterator[tuple[str, _Row]]:
        """The jobs of other users that wait or run in these arrays, each with its task's key."""
        # the names of many arrays are more than a command line should have
        for first in range(0, len(named), 500):
            names = list(named)[first : first + 500]
            for row in _rows(whose=(f"--name={','.join(names)}",)):
                keys = named.get(row.name, ()) if row.job not in self._mine else ()
                if row.index.isdecimal() and int(row.index) < len(keys) and row.state not in _ENDED:
                    yield keys[int(row.index)], row

    def tasks(self) -> dict[str, Scheduled]:
        """Every task that waits, runs or ended lately, by key, with Slurm's word: ``PENDING (Resources)``."""
        found = {}
        # the newest job of a task last, and a live one
        for row in sorted(self._array_tasks(), key=lambda row: (row.state not in _ENDED, row.job, row.index)):
            state, alive = row.state, row.state not in _ENDED
            keys = self._keys_of(row, alive=alive)
            if int(row.index) < len(keys):
                key, job = keys[int(row.index)], (str(row.job), row.submitted)
                if not alive:
                    if job in self._past.get(key, ()) or row.comment.startswith(_TWICE):
                        continue
                    self._ended.setdefault(key, set()).add(job)
                word = f"{state} ({row.reason})" if row.reason != "None" else state
                told = _COMMENT.fullmatch(row.comment)
                # else somebody decided: by scancel, or the script, which tried as often as it may and said so
                # COMPLETED is no decision: its verdict is in the registry, or it handed its task over to a
                # job that is gone, or it reported to another registry
                cut = state != "CANCELLED" and (row.reason != "NonZeroExitCode" or told is None)
                # a held job may have run before: Slurm holds what it could not start again
                queued = state == "PENDING" and not re.search("held|JobHold", row.reason, re.IGNORECASE)
                found[key] = Scheduled(
                    word=f"{word}: {shown(told[2])}" if told and alive else word,
                    queued=queued,
                    ended=not alive,
                    again=not alive and (cut or bool(told and told[1])),
                    reason=shown(told[2]) if told and not alive else "",
                )
        for key, row in self._rows_of_others(self._others):
            if key not in found or found[key].ended:
                said = f"{row.state} ({row.reason}), by job {row.job} of another user"
                found[key] = Scheduled(word=said, queued=row.state == "PENDING")
        return found

    def _array_tasks(self) -> Iterator[_Row]:
        """The tasks of this user's arrays, ours and others."""
        self._strange = _STRANGE
        rows = list(_rows())
        self._mine = {row.job for row in rows}
        return (row for row in rows if row.index.isdecimal())

    def _keys_of(self, row: _Row, *, alive: bool) -> tuple[str, ...]:
        """The keys in a job's batch script; none if it is gone with the job. Raises SchedulerError."""
        name = str(row.job), row.submitted
        if name not in self._keys:
            ours = row.name.startswith(PREFIX) or name[0] in self.own
            if not ours:
                if not alive or not self._strange:
                    return ()
                self._strange -= 1
            command = ["scontrol", "write", "batch_script", name[0], "-"]
            try:
                keys = keys_in(_SLURM.ask(command, harmless="Invalid job id"))
            except SchedulerError:
                if alive and ours:
                    raise
                return ()  # asked again at the next look
            if alive and ours and not keys:
                return ()
            self._keys[name] = keys
        return self._keys[name]


def jobs_named(name: str) -> tuple[str, ...]:
    """The ids of this user's jobs of that name which have not ended."""
    return tuple(dict.fromkeys(str(row.job) for row in _rows(PREFIX + name) if row.state not in _ENDED))


def _rows(prefix: str = "", whose: Sequence[str] = ("--me", "--states=all")) -> Iterator[_Row]:
    """Jobs whose names begin so: a site's plug-in may rename them."""
    command = ["squeue", *whose, "--array", "--noheader", "--format=%F|%K|%j|%T|%r|%V|%k"]
    for line in _SLURM.ask(command).splitlines():
        job, *rest = [*line.strip().split("|", 6), "", "", ""][:7]
        if job.isdecimal() and rest[1].startswith(prefix) and all(rest[2:4]):
            yield _Row(int(job), *rest)


def try_lane(name: str, fleet: Fleet) -> str | None:
    """Why Slurm would not take a job of the class; None if it would. Nothing is submitted."""
    task = Task(column=name, matrix="", cell="x", repository="x", digest="x", inputs="")
    script = verification([task], fleet)
    head = "".join(line + "\n" for line in script.splitlines() if line.startswith("#SBATCH"))
    try:
        _SLURM.ask(["sbatch", "--test-only"], f"#!/bin/bash\n{head}true\n")
    except SchedulerError as error:
        return why(error)
    return None
