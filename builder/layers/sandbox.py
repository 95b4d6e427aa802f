"""Runs a shell script in an unpacked system, without an engine and where possible without root.

A user namespace makes the caller root over its own files and nothing else: no network, no other process, no
mount is in reach (https://man7.org/linux/man-pages/man7/user_namespaces.7.html). Where the kernel refuses
them (some containers), root itself may change its root folder, with its own rights.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from functools import cache
from typing import TYPE_CHECKING

from builder.errors import CancelledError, CommandError, MissingToolError

if TYPE_CHECKING:
    import threading
    from collections.abc import Mapping
    from pathlib import Path

NAMESPACES = (
    *("--user", "--map-root-user", "--mount", "--net", "--ipc", "--uts"),
    *("--pid", "--fork", "--kill-child"),
)
"""Options of unshare(1): root over one's own files, and no network or process of the machine's."""
_PATH = "/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin:/usr/bin:/bin"
_POLL = 0.1
_TAIL = 25
"""Lines of a script's output in an error."""


def run_script(
    script: str, root: Path, *, what: str, env: Mapping[str, str], cancel: threading.Event
) -> None:
    """Run ``script`` with ``/bin/sh -c`` and ``root`` as its root folder.

    Raises :class:`~builder.errors.MissingToolError` where this machine lets nobody do that,
    :class:`~builder.errors.CommandError` where the script fails, and
    :class:`~builder.errors.CancelledError` soon after ``cancel`` is set.
    """
    command = [*way_in(), str(root), "/bin/sh", "-c", script]
    log = root.parent / f"{root.name}.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=dict(env),
            cwd="/",
            umask=0o022,
            start_new_session=True,
        )
        while True:
            try:
                status = process.wait(_POLL)
            except subprocess.TimeoutExpired:
                if not cancel.is_set():
                    continue
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                raise CancelledError(f"{what} was not finished") from None
            break
    if status != 0:
        raise CommandError(
            f"{what} failed in the image's own system",
            command=[*command[:-1], "…"],
            returncode=status,
            tail=log.read_text("utf-8", "replace").splitlines()[-_TAIL:],
            hint="if the script says nothing of use, build with an engine, which runs the same one",
        )


@cache
def way_in() -> tuple[str, ...]:
    """The command that takes a root folder and a program. Raises MissingToolError."""
    tried = []
    # Without /sbin a user's PATH lacks chroot on Debian.
    path = os.environ.get("PATH", os.defpath) + ":/usr/sbin:/sbin"
    unshare, chroot = (shutil.which(name, path=path) for name in ("unshare", "chroot"))
    ways: list[tuple[str, ...]] = []
    if unshare and chroot:
        ways.append((unshare, *NAMESPACES, chroot))
    if chroot and os.geteuid() == 0:
        ways.append((chroot,))
    for way in ways:
        done = subprocess.run([*way, "/", "/bin/true"], capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return way
        tried.append(done.stderr.strip() or f"{way[0]}: exit status {done.returncode}")
    if not ways:
        tried.append("there is no unshare and chroot")
    raise MissingToolError(
        "the image's own Python and ldconfig cannot be run on this machine without an engine "
        f"({'; '.join(tried)})",
        hint="let users make user namespaces (Ubuntu 24.04: sudo sysctl "
        "kernel.apparmor_restrict_unprivileged_userns=0), run as root, take the layers from a registry that "
        "has them (--layers-from), or build with an engine",
    )


def environment(given: Mapping[str, str]) -> dict[str, str]:
    """What a script sees: as in a RUN of BuildKit, and nothing of the user's own environment."""
    return {"PATH": _PATH, "HOME": "/root", **given}
