"""The probe, asked in a process of its own: nothing of rtbuild imports it."""

import difflib
import os
import re
import subprocess
import sys

from builder.cli.console import say
from builder.core import resources
from builder.core.errors import UsageError

HOW_TO_PROBE = (
    "to see what is here on this machine: `rtbuild probe -o cudnn_verify.py && python3 cudnn_verify.py`"
)


def is_text(words: str) -> bool:
    """True for a message or a status such as CUDNN_STATUS_…: no cell's id, and no glob over ids."""
    return re.search(r"\s|[A-Z]{4}|:", words) is not None


def ask_probe(*arguments: str, said: str | None = None) -> int:
    """Run the probe with these arguments; its answer goes to stdout. Raises UsageError if it refuses them.

    ``said`` is its standard input, if that is not this program's own.

    ``--explain`` takes a cause by its id, or the output of a program.
    """
    # -P: the module is rtbuild's, whatever lies in this folder
    command = [sys.executable, "-P", "-m", "builder.verify.cudnn_verify", *arguments]
    env = dict(os.environ)
    try:
        env["RTBUILD_SITE"] = resources.site()
    except UsageError as problem:  # an error of the project's settings is not the one that is asked about
        say(f"warning: {problem.message}")
    done = subprocess.run(command, stderr=subprocess.PIPE, input=said, text=True, check=False, env=env)
    if done.returncode == 30:  # called wrongly, or it failed itself: docs/verdicts.md
        message = done.stderr.strip().removeprefix("cudnn-verify: ")
        hint = HOW_TO_PROBE
        if "--explain" in arguments:
            message, _, causes = message.partition("; there are: ")  # sixty of them
            near = difflib.get_close_matches(arguments[-1], causes.split(", "), n=3)
            message += f"; did you mean {' or '.join(near)}?" * bool(near)
            hint = _about(arguments[-1])
        elif "--read" in arguments and message.startswith("cannot read"):
            hint = (
                f"a file is read by its path, and a message in quotes, with all of its words; {HOW_TO_PROBE}"
            )
        raise UsageError(message, hint=hint)
    if done.stderr:
        say(done.stderr.removesuffix("\n"))
    return done.returncode


def _about(text: str) -> str:
    """A hint for a text that is neither a cause nor a message."""
    from builder.plan.facts.tables import load

    words = set(re.findall(r"[a-z][\w-]*", text.lower()))
    named = [row.distribution for row in load().registry if {row.name, row.distribution} & words]
    found = f"`rtbuild resolve {named[0]} --gpu CARD` says what fits a card; " if named else ""
    return f"{found}docs/causes.md has every cause; `rtbuild diagnose FILE` reads a whole log"
