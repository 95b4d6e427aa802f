"""A recipe's own step: a shell script in an unpacked system, which it may write into."""

from __future__ import annotations

from typing import TYPE_CHECKING

from builder.sandbox.run import Limits, View, run

if TYPE_CHECKING:
    import threading
    from collections.abc import Mapping
    from pathlib import Path

_PATH = "/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin:/usr/bin:/bin"
_LIMITS = Limits(seconds=3600, processes=64, disk=4 << 30)
"""Bytecode of the largest frameworks takes a quarter of an hour on one slow core, and 0.3 GB."""
_ALL_TO_STDERR = 'exec /bin/sh -c "$0" >&2'


def run_script(
    script: str, root: Path, *, what: str, env: Mapping[str, str], cancel: threading.Event
) -> None:
    """Run ``script`` with ``/bin/sh -c`` and ``root``, below a folder of mode 0700, as its root folder.

    Raises :class:`~builder.errors.MissingToolError` where this machine lets nobody do that,
    :class:`~builder.errors.CommandError` where the script fails, and
    :class:`~builder.errors.CancelledError` soon after ``cancel`` is set.
    """
    run(
        ["/bin/sh", "-c", _ALL_TO_STDERR, script],
        View(root=root, writable=True),
        what=what,
        env=env,
        limits=_LIMITS,
        cancel=cancel,
        advise=lambda text: "" if text else "build with an engine, which runs the same script",
    )


def environment(given: Mapping[str, str]) -> dict[str, str]:
    """What a script sees: as in a RUN of BuildKit, and nothing of the user's own environment."""
    return {"PATH": _PATH, "HOME": "/root", **given}
