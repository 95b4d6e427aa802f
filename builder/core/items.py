"""The boundary around the work on one item of many: a cell, tag, statement, label, report, file.

An item's exception is the item's own failure, whatever its class: the run goes on with the other items. Exit
code 70 is left for faults that no item owns.
"""

import contextlib
import errno
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

from builder.core.documents import readable, redact, shown
from builder.core.errors import CellError, FaultError, MissingToolError, RtbuildError, StaleLockError

WorkSpan = Callable[[str], AbstractContextManager[object]]
"""Begins a piece of work of this name in the thread that calls it, for whoever watches; the block is it.

:class:`contextlib.nullcontext` is one where nobody watches.
"""
_FULL = (errno.ENOSPC, errno.EDQUOT)


@contextlib.contextmanager
def item(name: str) -> Iterator[None]:
    """Within a ``with`` block: whatever the work on the item ``name`` raises is raised as a CellError.

    A CellError passes as it is. So do MissingToolError and StaleLockError: they are about the machine or the
    project, and the next item would meet them, too.
    """
    try:
        yield
    except (CellError, MissingToolError, StaleLockError):
        raise
    except RtbuildError as error:  # UsageError of a name or address in the item, which nobody typed
        raise CellError(error.message, hint=error.hint) from error
    except OSError as error:
        hint = "free some, or name folders on a larger disk: RTBUILD_CACHE, TMPDIR"
        said = f"{shown(name)}: this machine failed: {shown(str(error)) or type(error).__name__}"
        raise CellError(said, hint=hint if error.errno in _FULL else None) from error
    except Exception as error:
        if debugging():
            sys.stderr.write(readable(redact("".join(traceback.format_exception(error)))))
        raise FaultError(
            f"{shown(name)}: unexpected {type(error).__name__}: {shown(str(error))}, at {_place(error)}",
            hint="a fault of rtbuild, which this item brings out: --debug shows the traceback to report",
        ) from error


def debugging() -> bool:
    """Whether tracebacks are wanted."""
    return "--debug" in sys.argv or bool(os.environ.get("RTBUILD_DEBUG"))


def _place(error: BaseException) -> str:
    """``judgement.py:88, in standing``: the innermost place in rtbuild's own code."""
    own = str(Path(__file__).parents[1])
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename.startswith(own)]
    last = frames[-1]
    return f"{Path(last.filename).name}:{last.lineno}, in {last.name}"
