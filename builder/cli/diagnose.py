"""``rtbuild diagnose``: the cause in a text, and the commands that mend it."""

import sys
from typing import Annotated

from builder.cli import options as opt
from builder.cli.probing import ask_probe
from builder.errors import UsageError


def diagnose(
    files: Annotated[
        list[str] | None,
        opt.of("FILE: Logs, notebooks, `pip freeze`, `nvidia-smi`, reports of the probe; - for stdin."),
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
