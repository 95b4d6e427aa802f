"""Asks a scheduler by its own command-line client."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING

from builder.errors import CommandError, MissingToolError

if TYPE_CHECKING:
    from collections.abc import Sequence

_SECONDS = 60


@dataclass(frozen=True, kw_only=True)
class SchedulerClient:
    """The commands of one scheduler, and what to do when they are not here, do not answer, or refuse."""

    name: str
    absent: str
    silent: str
    refused: str

    def ask(self, command: Sequence[str], text: str | None = None) -> str:
        """What the command prints; ``text`` is its standard input.

        Raises:
            MissingToolError: there is no such command here.
            CommandError: it failed, or did not answer in time.
        """
        try:
            done = subprocess.run(
                command, input=text, capture_output=True, text=True, check=False, timeout=_SECONDS
            )
        except FileNotFoundError as error:
            raise MissingToolError(f"there is no {command[0]} here", hint=self.absent) from error
        except subprocess.TimeoutExpired as error:
            raise CommandError(
                f"{command[0]} did not answer in {_SECONDS} s",
                command=command,
                returncode=124,
                hint=self.silent,
            ) from error
        if done.returncode != 0:
            raise CommandError(
                f"{self.name} refused: {' '.join(command[:2])}",
                command=command,
                returncode=done.returncode,
                tail=done.stderr.splitlines()[-10:],
                hint=self.refused,
            )
        return done.stdout
