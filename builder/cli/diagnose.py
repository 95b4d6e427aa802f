"""``rtbuild diagnose``: from a text that somebody has to the cause and the commands that mend it."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import Annotated

import typer

from builder.cli import options as opt  # noqa: TC001 - typer reads annotations when it runs
from builder.cli.app import app
from builder.errors import UsageError

_PROBE = (sys.executable, "-P", "-m", "builder.probe")
"""The probe as a process of its own: nothing of rtbuild imports it. ``-P``: not what lies in this folder."""
_PROBE_FAULT = 30


@app.command()
def diagnose(
    files: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[FILE]...",
            help="Logs, notebooks, `pip freeze`, `nvidia-smi`, reports of the probe; - for stdin.",
            show_default=False,
        ),
    ] = None,
    json_: opt.Json = False,
) -> int:
    """Say which line of a text names which cause, and what mends it; nothing leaves this machine."""
    if not files and sys.stdin.isatty():
        raise UsageError(
            "there is nothing to read",
            hint="name a log, a notebook or a list of packages, or pipe it: python train.py 2>&1 | "
            "rtbuild diagnose -; or see what is here: `rtbuild probe -o cudnn_verify.py`",
        )
    return ask_probe("--read", *(files or ["-"]), *(["--json"] if json_ else []))


def explain_text(text: str) -> int:
    """A cause by its id, or what a text that a program printed tells of it. UsageError where neither fits."""
    return ask_probe("--explain", text)


def is_text(words: str) -> bool:
    """Whether it can be no cell's id and no glob over ids: a message, or a status such as CUDNN_STATUS_…."""
    return re.search(r"\s|[A-Z]{4}|:", words) is not None


def ask_probe(*arguments: str) -> int:
    """Run the probe with these arguments; its answer goes to stdout. UsageError for what it refuses."""
    done = subprocess.run([*_PROBE, *arguments], stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode == _PROBE_FAULT:
        message = done.stderr.strip().removeprefix("cudnn-verify: ")
        raise UsageError(message, hint="the probe looks for itself: `rtbuild probe -o cudnn_verify.py`")
    sys.stderr.write(done.stderr)
    return done.returncode
