"""``rtbuild`` as a person calls it, in a process of its own or in this one; or one command of it as Python
calls it."""

from __future__ import annotations

import contextlib
import inspect
import io
import subprocess
import sys
from typing import TYPE_CHECKING, Any
from unittest import mock

from typer.models import ParameterInfo

from builder.cli.app import _program
from builder.cli.boundary import guarded

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

RTBUILD = (sys.executable, "-c", "from builder.cli import main; main()")


def rtbuild(
    folder: Path,
    *arguments: str,
    check: int | None = 0,
    env: Mapping[str, str] | None = None,
    before: tuple[str, ...] = (),
    timeout: float = 300,
) -> subprocess.CompletedProcess[str]:
    """Run it in ``folder``.

    ``check``: the exit status that it must have, None for any; ``before``: the words of what starts it.
    """
    done = subprocess.run(
        [*before, *RTBUILD, *arguments],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert check is None or done.returncode == check, f"exit {done.returncode}\n{done.stderr}\n{done.stdout}"
    return done


def inside(folder: Path, *arguments: str, check: int | None = 0) -> subprocess.CompletedProcess[str]:
    """As :func:`rtbuild`, in this process: the start of another takes longer than most commands.

    What a command's own child says (``diagnose``, ``explain`` of a cause) is not caught.
    """
    words = ["rtbuild", *arguments]
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
    streams = contextlib.ExitStack()
    streams.enter_context(contextlib.chdir(folder))
    streams.enter_context(mock.patch.object(sys, "argv", words))
    streams.enter_context(contextlib.redirect_stdout(out))
    streams.enter_context(contextlib.redirect_stderr(err))
    with streams:
        code = guarded(_program)
    said, errors = (stream.buffer.getvalue().decode() for stream in (out, err))  # type: ignore[attr-defined]
    assert check is None or code == check, f"exit {code}\n{errors}\n{said}"
    return subprocess.CompletedProcess(words, code, said, errors)


def called(command: Callable[..., int], *arguments: object, **options: Any) -> int:
    """The exit code of a command's function; options that are not given have the defaults of the command."""
    bound = inspect.signature(command).bind(*arguments, **options)
    bound.apply_defaults()
    for name, value in bound.arguments.items():
        if isinstance(value, ParameterInfo):
            bound.arguments[name] = value.default
    return command(*bound.args, **bound.kwargs)
