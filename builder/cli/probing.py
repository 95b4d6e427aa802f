"""The probe, asked by commands of rtbuild in a process of its own: nothing of rtbuild imports it."""

import re
import subprocess
import sys

from builder.errors import UsageError

_PROBE = (sys.executable, "-P", "-m", "builder.probe")
"""``-P``: the module is rtbuild's, whatever lies in this folder."""
_PROBE_FAULT = 30


def explain_text(text: str) -> int:
    """Explain a cause by its id, or the cause in a program's output. UsageError if neither is found."""
    return ask_probe("--explain", text)


def is_text(words: str) -> bool:
    """True for a message or a status such as CUDNN_STATUS_…: no cell's id, and no glob over ids."""
    return re.search(r"\s|[A-Z]{4}|:", words) is not None


def ask_probe(*arguments: str) -> int:
    """Run the probe with these arguments; its answer goes to stdout. Raises UsageError if it refuses them."""
    done = subprocess.run([*_PROBE, *arguments], stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode == _PROBE_FAULT:
        message = done.stderr.strip().removeprefix("cudnn-verify: ")
        raise UsageError(message, hint="the probe looks for itself: `rtbuild probe -o cudnn_verify.py`")
    sys.stderr.write(done.stderr)
    return done.returncode
