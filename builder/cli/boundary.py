"""Errors become exit codes and text here, and nowhere else."""

import errno
import math
import os
import platform
import signal
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
from builder.core.documents import redact
from builder.core.errors import MatrixError, MissingToolError, RtbuildError
from builder.core.files import one_folder
from builder.core.items import debugging

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
        with one_folder():
            return program()
    except RtbuildError as error:
        from builder.cli.console import error_text

        return _failed(error_text(error), error.message, error.hint, error.exit_code, _places(error))
    except KeyboardInterrupt:
        return _failed("interrupted", "interrupted", None, INTERRUPTED)
    except BrokenPipeError:
        # The reader of stdout went away (`rtbuild list | head`): nobody is left to tell. Python flushes
        # stdout once more at exit, so it has to point somewhere that takes it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
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
