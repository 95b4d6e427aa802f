"""Asks a scheduler by its own command-line client."""

import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from builder.core.errors import MissingToolError, SchedulerError

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
        """As :meth:`answer`, without the failures."""
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
