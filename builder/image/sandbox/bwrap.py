"""Runs one program, or a recipe's shell script, in bubblewrap: its view, its limits and its end."""

import base64
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from threading import Event

from builder.core.errors import CancelledError, CommandError, MissingToolError
from builder.image.sandbox import seccomp
from builder.image.sandbox.watch import Limits, Watched, control_group

_ENTER = Path(__file__).with_name("enter.py")
_OURS = 8
"""Processes of a run that are not the program's: bubblewrap's, and who watches over it."""
_DEVICES = ("null", "zero", "full", "random", "urandom")
_BOUND = 'ulimit -u "$0" 2>/dev/null || ulimit -p "$0" || exit 125; exec "$@"'
"""Inside, where the kernel counts this namespace's processes alone. Dash says -p for bash's -u."""
_HINT = (
    "install bubblewrap 0.8 or newer (apt-get install bubblewrap), and let users make user namespaces "
    "(Ubuntu 24.04: sudo sysctl kernel.apparmor_restrict_unprivileged_userns=0)"
)
_PATH = "/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin:/usr/bin:/bin"
_SCRIPT_LIMITS = Limits(seconds=3600, processes=64, disk=4 << 30)
"""Bytecode of the largest frameworks takes a quarter of an hour on one slow core, and 0.3 GB."""
_ALL_TO_STDERR = 'exec /bin/sh -c "$0" >&2'


@dataclass(frozen=True, kw_only=True)
class View:
    """The files that a program sees; nothing else of this machine's is there."""

    root: Path
    """A whole system, read-only but for ``writable``."""
    writable: bool = False
    """Whether the program may write into ``root``, up to ``Limits.disk``. It is given to the program's
    own user, and so has to lie below a folder of mode 0700."""
    folders: Mapping[str, Path] = field(default_factory=dict)
    """Places in the system at which folders of this machine are seen, read-only."""
    memory: Mapping[str, int] = field(default_factory=dict)
    """Places with memory to write into that is gone afterwards, and its bytes."""
    at: str = "/"
    """The folder in which the program starts."""

    def __post_init__(self) -> None:
        if self.writable and (self.root.parent == self.root or self.root.parent.stat().st_mode & 0o077):
            raise ValueError(f"{self.root} is not in a folder of its own")


def run(
    program: Sequence[str],
    view: View,
    *,
    what: str,
    env: Mapping[str, str],
    limits: Limits,
    cancel: Event,
    advise: Callable[[str], str] = lambda _text: "",
) -> bytes:
    """Run ``program`` and return its standard output.

    ``advise`` makes an error's hint of what the program printed.

    Raises:
        MissingToolError: there is no bubblewrap, or this machine lets nobody make the namespaces.
        CommandError: the program failed, or did more than its limits allow; with the end of its output.
        CancelledError: soon after ``cancel`` was set.
    """
    require()
    watched, status = _run(program, view, env, limits, cancel)
    if cancel.is_set():
        raise CancelledError(f"{what} was not finished")
    if watched.broken or status != 0:
        raise CommandError(
            f"{what} {watched.broken or 'failed'}",
            command=list(program),
            returncode=status,
            tail=watched.tail(),
            hint=advise(watched.text) or None,
        )
    return bytes(watched.result)


@cache
def require() -> None:
    """Raises MissingToolError if programs cannot run in a sandbox; then none runs."""
    problem = "there is no bubblewrap"
    if os.uname().machine not in seccomp.MACHINES:
        problem = f"no system-call filter is known for {os.uname().machine}"
    elif _bwrap() is not None:
        view = View(root=Path("/"))
        watched, status = _run(["/bin/true"], view, {}, Limits(seconds=30), Event())
        if status == 0 and not watched.broken:
            return
        problem = watched.broken or "; ".join(watched.tail()) or f"bwrap: exit status {status}"
    raise MissingToolError(
        f"foreign code runs only in a sandbox, and this machine has none: {problem}", hint=_HINT
    )


def _run(
    program: Sequence[str], view: View, env: Mapping[str, str], limits: Limits, cancel: Event
) -> tuple[Watched, int]:
    files = sum(view.memory.values()) + (limits.disk if view.writable else 0)  # may lie in memory
    group = control_group(limits.total + files, limits.processes + _OURS)
    told, tells = os.pipe()
    life, holds = os.pipe()  # nobody else has the end that is held here: it closes with this process
    try:
        with subprocess.Popen(
            [sys.executable, "-I", "-S", str(_ENTER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={},  # neither a name of the user's nor a library that the image asks for
            pass_fds=[tells, life],
            cwd="/",
            umask=0o022,
            start_new_session=True,
        ) as process:
            plan = _plan(program, view, env, limits, tells) | {"tells": tells, "life": life}
            os.close(tells)
            tells = -1
            watched = Watched(
                process, limits, cancel, told, view.root if view.writable else None, group=group
            )
            try:
                if group is not None:
                    with contextlib.suppress(OSError):  # it may be made and not entered: then it bounds none
                        group.add(process.pid)
                watched.follow(json.dumps(plan).encode())
            finally:
                with contextlib.suppress(ProcessLookupError):  # bubblewrap's namespace goes with it
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        if watched.broken is None and watched.full():
            watched.broken = f"took more than {limits.total >> 20} MiB of memory, and was stopped"
        return watched, process.returncode
    finally:
        if group is not None:
            group.remove()
        for file in (told, life, holds, *([tells] if tells != -1 else [])):
            os.close(file)


def _plan(
    program: Sequence[str], view: View, env: Mapping[str, str], limits: Limits, tells: int
) -> dict[str, object]:
    """The document that :mod:`.enter` reads."""
    sources = {"root": str(view.root)} | {place: str(path) for place, path in view.folders.items()}
    words = ["--unshare-user", "--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts"]
    words += ["--unshare-cgroup-try", "--uid", "0", "--gid", "0", "--hostname", "rtbuild", "--disable-userns"]
    words += ["--cap-drop", "ALL", "--new-session", "--die-with-parent", "--info-fd", str(tells)]
    words += ["--bind" if view.writable else "--ro-bind", "{root}", "/"]
    words += ["--size", str(1 << 20), "--tmpfs", "/dev"]
    for name in _DEVICES:
        words += ["--dev-bind", f"/dev/{name}", f"/dev/{name}"]
    words += ["--remount-ro", "/dev"]
    for place in view.folders:
        words += ["--ro-bind", f"{{{place}}}", place]
    for place, size in view.memory.items():
        words += ["--size", str(size), "--tmpfs", place]
    words.append("--clearenv")
    for name, value in env.items():
        words += ["--setenv", name, value]
    return {
        "bwrap": _bwrap(),
        "sources": sources,
        "owned": ["root"] if view.writable else [],
        "limits": limits.of_each(),
        "filter": base64.b64encode(seccomp.program(os.uname().machine)).decode(),
        "arguments": [*words, "--chdir", view.at, "--"],
        "program": ["/bin/sh", "-c", _BOUND, str(limits.processes), *program],
    }


def _bwrap() -> str | None:
    return shutil.which("bwrap", path=os.environ.get("PATH", os.defpath) + ":/usr/bin")


def run_script(script: str, root: Path, *, what: str, env: Mapping[str, str], cancel: Event) -> None:
    """Run ``script`` with ``/bin/sh -c`` and ``root``, below a folder of mode 0700, as its root folder.

    Raises as :func:`run`.
    """
    run(
        ["/bin/sh", "-c", _ALL_TO_STDERR, script],
        View(root=root, writable=True),
        what=what,
        env=env,
        limits=_SCRIPT_LIMITS,
        cancel=cancel,
        advise=lambda text: "" if text else "build with an engine, which runs the same script",
    )


def environment(given: Mapping[str, str]) -> dict[str, str]:
    """The variables of a script: those of a RUN of BuildKit, and none of the user's own."""
    return {"PATH": _PATH, "HOME": "/root", **given}
