"""``rtbuild probe`` and ``rtbuild diagnose``: cudnn-verify as a file, or asked in a process of its own.

Nothing of rtbuild imports the probe.
"""

import re
import subprocess
import sys
from pathlib import Path

from builder.cli import options as opt
from builder.cli.console import say
from builder.core.errors import UsageError


def probe(output: Path | None = opt.of("--output, -o: Write it there; without, to stdout.")) -> int:
    """Print the probe, or write it executable."""
    from builder.image.recipe import bundle

    if output is None:
        sys.stdout.buffer.write(bundle())
    else:
        output.write_bytes(bundle())
        output.chmod(0o755)
    return 0


def diagnose(
    files: list[str] | None = opt.of(
        "FILE: Logs, notebooks, `pip freeze`, `nvidia-smi`, reports of the probe; - for stdin."
    ),
    json_: bool = opt.JSON,
) -> int:
    """Say which line of a text names which cause, and what mends it; nothing leaves this machine."""
    if not files and sys.stdin.isatty():
        raise UsageError(
            "there is nothing to read",
            hint="name a log, a notebook or a list of packages, or pipe it: python train.py 2>&1 | "
            "rtbuild diagnose -; or see what is here: `rtbuild probe -o cudnn_verify.py`",
        )
    return ask_probe("--read", *(files or ["-"]), *(["--json"] if json_ else []))


def is_text(words: str) -> bool:
    """True for a message or a status such as CUDNN_STATUS_…: no cell's id, and no glob over ids."""
    return re.search(r"\s|[A-Z]{4}|:", words) is not None


def ask_probe(*arguments: str) -> int:
    """Run the probe with these arguments; its answer goes to stdout. Raises UsageError if it refuses them.

    ``--explain`` takes a cause by its id, or the output of a program.
    """
    # -P: the module is rtbuild's, whatever lies in this folder
    command = [sys.executable, "-P", "-m", "builder.verify.cudnn_verify", *arguments]
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode == 30:  # called wrongly, or it failed itself: docs/verdicts.md
        message = done.stderr.strip().removeprefix("cudnn-verify: ")
        raise UsageError(message, hint="the probe looks for itself: `rtbuild probe -o cudnn_verify.py`")
    if done.stderr:
        say(done.stderr.removesuffix("\n"))
    return done.returncode
