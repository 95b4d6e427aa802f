"""Errors become exit codes and text here, and nowhere else; those of the probe become errors.

The probe is asked in a process of its own: nothing of rtbuild imports it.
"""

import difflib
import errno
import math
import os
import platform
import re
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any

from builder import __version__
from builder.cli.console import accept_any_encoding, say
from builder.core import resources
from builder.core.documents import redact
from builder.core.errors import MatrixError, MissingToolError, RtbuildError, UsageError
from builder.core.files import one_folder
from builder.core.items import debugging

HOW_TO_PROBE = (
    "to see what is here on this machine: `rtbuild probe -o cudnn_verify.py && python3 cudnn_verify.py`"
)
BUG = 70
INTERRUPTED = 130
_TOGETHER = 0.5
"""Seconds within which signals count as one."""


def guarded(program: Callable[[], int]) -> int:
    """Run ``program``; an expected error prints a remedy, any other one leaves a file ready to paste."""
    if None in (sys.stdout, sys.stderr):  # Python's word for one that is closed
        nothing = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 - it ends with the process
        sys.stdout, sys.stderr = sys.stdout or nothing, sys.stderr or nothing
    accept_any_encoding()
    interrupt = _Interruption()
    signal.signal(signal.SIGINT, interrupt)  # a script's `rtbuild … &` has it ignored
    for number in (signal.SIGTERM, signal.SIGHUP):
        # CI and `timeout` send these: the program ends as after Ctrl-C, and clears its folders and processes.
        if signal.getsignal(number) is signal.SIG_DFL:  # `nohup` has it ignored
            signal.signal(number, interrupt)
    try:
        return _told(program)
    except BrokenPipeError:
        # The reader of stdout went away (`rtbuild list | head`): nobody is left to tell. Python flushes
        # stdout once more at exit, so it has to point somewhere that takes it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141


def _told(program: Callable[[], int]) -> int:
    """As :func:`guarded`; raises BrokenPipeError, also where an error is told to nobody."""
    try:
        with one_folder():
            return program()
    except RtbuildError as error:
        from builder.cli.console import error_text

        return _failed(error_text(error), error.message, error.hint, error.exit_code, _places(error))
    except KeyboardInterrupt:
        return _failed("interrupted", "interrupted", None, INTERRUPTED)
    except BrokenPipeError:
        raise
    except Exception as error:  # noqa: BLE001 - told, and its traceback kept
        return _unexpected(error)


def _unexpected(error: Exception) -> int:
    """A full disk is a fault of this machine; any other unexpected error is a bug."""
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        message = f"no space left for {error.filename or 'a file'}"
        hint = "free some, or name folders on a larger disk: RTBUILD_CACHE, TMPDIR"
        return failed(message, hint, MissingToolError.exit_code)
    if debugging():
        raise error
    message = f"a bug in rtbuild: {type(error).__name__}: {error}"
    try:
        hint = f"please report it with the text in {_write_report(error)}"
    except OSError as problem:
        say("".join(traceback.format_exception(error)).rstrip())
        hint = f"please report it with the lines above; no file takes them: {problem}"
    return failed(message, hint, BUG)


def failed(message: str, hint: str | None, code: int) -> int:
    """Say an error, and with ``--json`` print its document; the exit code."""
    said = f"error: {message}" + (f"\nhint: {hint}" if hint else "")
    return _failed(said, message, hint, code)


def _failed(
    said: str, message: str, hint: str | None, code: int, places: Sequence[dict[str, Any]] = ()
) -> int:
    say(said)
    if "--json" in takewhile(lambda word: word != "--", sys.argv[1:]):
        from builder.cli.console import document_printed, print_json

        if document_printed():  # two are none
            return code
        document = {"schema": 1, "kind": "error", "rtbuild": __version__, "command": command_line()}
        print_json(document | {"exit_code": code, "message": message, "hint": hint, "places": list(places)})
    return code


def _places(error: RtbuildError) -> list[dict[str, Any]]:
    """One row for each place in a matrix file that an error names."""
    return [
        {
            "file": str(one.span.file),
            "line": one.span.line,
            "column": one.span.column,
            "message": one.message,
            "hint": one.hint,
        }
        for one in (error.diagnostics if isinstance(error, MatrixError) else ())
    ]


def command_line() -> str:
    """The command as it was given, without logins, for records and reports."""
    return redact(" ".join([Path(sys.argv[0]).name, *sys.argv[1:]]))


class _Interruption:
    """A handler that raises KeyboardInterrupt for the first of signals that come together.

    GNU ``timeout`` sends its signal to the program and then to the whole group, so that it comes twice: the
    second one would end the stopping of what is at work, whose files are then removed below it.
    """

    def __init__(self) -> None:
        self._last = -math.inf

    def __call__(self, number: int, frame: object) -> None:
        del number, frame
        before, self._last = self._last, time.monotonic()
        if self._last - before > _TOGETHER:
            raise KeyboardInterrupt


def _write_report(error: BaseException) -> Path:
    trace = redact("".join(traceback.format_exception(error)).rstrip())
    text = (
        f"## rtbuild {__version__}: {type(error).__name__}\n\n- command: `{command_line()}`\n"
        f"- Python {platform.python_version()} on {platform.platform()}\n\n```\n{trace}\n```\n"
    )
    with tempfile.NamedTemporaryFile(
        "w", encoding="utf-8", prefix="rtbuild-bug-", suffix=".md", delete=False
    ) as file:
        file.write(text)
    return Path(file.name)


# -- the probe


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
    done = subprocess.run(command, stderr=subprocess.PIPE, input=said, errors="replace", check=False, env=env)
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
