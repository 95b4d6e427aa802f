"""Asks a scheduler by its own command-line client, and what it says of a task."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING

from builder.errors import MissingToolError, SchedulerError

if TYPE_CHECKING:
    from collections.abc import Sequence

_SECONDS = 60
_LOGGED = re.compile(r"[EWI]\d{4} \d\d:\d\d:")
"""How kubectl's library logs what its last line then says."""


@dataclass(frozen=True, kw_only=True)
class Scheduled:
    """A task that the scheduler has, and that may still bring a report."""

    word: str
    """The scheduler's own, on one line."""
    queued: bool = False
    """It has not started: the registry can have nothing new of it."""


@dataclass(frozen=True, kw_only=True)
class SchedulerClient:
    """The commands of one scheduler, and what to do when they are not here, do not answer, or refuse."""

    name: str
    absent: str
    silent: str
    refused: str

    def ask(
        self,
        command: Sequence[str],
        text: str | None = None,
        *,
        seconds: float = _SECONDS,
        harmless: str = "\n",
    ) -> str:
        """What the command prints; ``text`` is its standard input, ``seconds`` its time limit.

        A failure of which each line holds ``harmless`` is none.

        Raises:
            MissingToolError: there is no such command here.
            SchedulerError: it failed, or did not answer in time.
        """
        try:
            done = subprocess.run(
                command,
                input=text,
                capture_output=True,
                encoding="utf-8",
                errors="replace",  # a pod's log is what an image printed
                check=False,
                timeout=seconds,
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
        told = [line for line in done.stderr.splitlines() if line.strip() and not _LOGGED.match(line)]
        wrong = [line for line in told if harmless not in line]
        if done.returncode != 0 and (wrong or not told):
            raise SchedulerError(
                f"{self.name} refused: {' '.join(command[:2])}",
                command=command,
                returncode=done.returncode,
                tail=wrong[-10:],
                hint=self.refused,
            )
        return done.stdout
