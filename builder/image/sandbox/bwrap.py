"""Runs one program, or a recipe's shell script, in bubblewrap: its view, system calls, limits and end.

The missing capabilities refuse most system calls already; the kernel's filter holds even if the kernel has a
fault there. Its list is Docker's (https://docs.docker.com/engine/security/seccomp/), with what bubblewrap
leaves open: all processes of a user share keyrings, a file with a setuid bit outlives the sandbox, and
``memfd_create`` and ``shmget`` give memory that belongs to no process, which no limit of a process counts.
Numbers: ``arch/x86/entry/syscalls/syscall_64.tbl`` and ``include/uapi/asm-generic/unistd.h`` of Linux.
"""

import base64
import contextlib
import csv
import errno
import json
import os
import shutil
import signal
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from threading import Event

from builder.core.errors import CancelledError, CommandError, MissingToolError
from builder.image.sandbox.watch import Limits, Watched, control_group

_NEWEST = 450
"""The last number, ``set_mempolicy_home_node`` of Linux 5.17, that is let through: what came later answers as
on an older kernel, and programs have to go without it."""
_REFUSED = Path(__file__).with_name("refused.csv")
"""Name and numbers of each refused call; no number if a machine does not have the call."""
_ABSENT = {"clone3": 435, "openat2": 437}
"""They take their flags behind a pointer, which no filter sees; glibc goes without. On every machine calls as
new as these have one number."""
_NAMESPACES = 0x7E020080
"""Every ``CLONE_NEW…`` of ``include/uapi/linux/sched.h``."""
_SET_ID = 0o6000
_DEVICE = 0o020000
"""The bit that character and block devices have, and no other kind that mknod makes."""
_MASKED: tuple[tuple[str, int | None, int | None, int, int], ...] = (
    # name, x86_64, aarch64, argument, bits of which none may be set. Without O_CREAT a third argument of open
    # is none; the C libraries pass 0.
    ("clone", 56, 220, 0, _NAMESPACES),
    ("chmod", 90, None, 1, _SET_ID),
    ("fchmod", 91, 52, 1, _SET_ID),
    ("fchmodat", 268, 53, 2, _SET_ID),
    ("creat", 85, None, 1, _SET_ID),
    ("open", 2, None, 2, _SET_ID),
    ("openat", 257, 56, 3, _SET_ID),
    ("mkdir", 83, None, 1, _SET_ID),
    ("mkdirat", 258, 34, 2, _SET_ID),
    ("mknod", 133, None, 1, _SET_ID | _DEVICE),
    ("mknodat", 259, 33, 2, _SET_ID | _DEVICE),
)
_SOCKETS = {1, 2, 10}
"""``AF_UNIX``, ``AF_INET``, ``AF_INET6``: the network namespace is empty. Others, such as ``AF_VSOCK`` to a
virtual machine's host and ``AF_ALG`` into the kernel's ciphers, know no namespace. The kernel loads the
module of a family or protocol before it refuses a socket."""
_SOCKET_TYPES, _TYPE_BITS = {1, 2, 5}, 0xF
"""``SOCK_STREAM``, ``SOCK_DGRAM``, ``SOCK_SEQPACKET``. Flags stand above."""
_PROTOCOLS = {0, 1, 6, 17}
"""By default, ``PF_UNIX`` (``IPPROTO_ICMP``), ``IPPROTO_TCP``, ``IPPROTO_UDP``."""
_INPUT = {0x5412, 0x541C}
"""``TIOCSTI`` and ``TIOCLINUX`` type into a terminal: CVE-2017-5226."""

# include/uapi/linux/bpf_common.h, seccomp.h, audit.h
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _AND, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x54, 0x06
_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16
_X32 = 0x40000000


@dataclass(frozen=True)
class _Machine:
    audit: int
    column: int
    sockets: tuple[int, int]
    """``socket`` and ``socketpair``."""
    ioctl: int


_MACHINES = {
    "x86_64": _Machine(0xC000003E, 0, (41, 53), 16),
    "aarch64": _Machine(0xC00000B7, 1, (198, 199), 29),
}


def _filter_of(machine: str) -> bytes:
    """The filter for a machine of :func:`os.uname`, as an array of ``struct sock_filter``.

    Raises KeyError for a machine whose numbers are not known here.
    """
    return b"".join(_instructions(_MACHINES[machine], refused(machine)))


def refused(machine: str) -> dict[str, int]:
    """Numbers of the refused calls by name."""
    with _REFUSED.open(encoding="utf-8", newline="") as table:
        return {row["name"]: int(row[machine]) for row in csv.DictReader(table) if row[machine]}


def _instructions(machine: _Machine, calls: dict[str, int]) -> Iterator[bytes]:
    yield _one(_LOAD, _ARCHITECTURE)
    yield _one(_EQUAL, machine.audit, 1, 0)
    yield _one(_RETURN, _KILL)  # 32-bit calls have other numbers
    yield _one(_LOAD, _NUMBER)
    if machine.column == 0:
        yield _one(_AT_LEAST, _X32, 0, 1)
        yield _one(_RETURN, _KILL)
    yield _one(_AT_LEAST, _NEWEST + 1, 0, 1)
    yield _error(errno.ENOSYS)
    for code, numbers in ((errno.EPERM, calls.values()), (errno.ENOSYS, _ABSENT.values())):
        for number in numbers:
            yield _one(_EQUAL, number, 0, 1)
            yield _error(code)
    for _, *columns, argument, bits in _MASKED:
        masked = columns[machine.column]
        if masked is not None:
            yield from _when(masked, argument, [_one(_ANY_BIT, bits, 0, 1), _error(errno.EPERM)])
    kind = [_one(_LOAD, _ARGUMENTS + 8), _one(_AND, _TYPE_BITS), *_only(_SOCKET_TYPES)]
    protocol = [_one(_LOAD, _ARGUMENTS + 16), *_only(_PROTOCOLS)]
    for number in machine.sockets:
        yield from _when(number, 0, [*_only(_SOCKETS), *kind, *protocol])
    inputs = [step for code in sorted(_INPUT) for step in (_one(_EQUAL, code, 0, 1), _error(errno.EPERM))]
    yield from _when(machine.ioctl, 1, inputs)
    yield _one(_RETURN, _ALLOW)


def _only(values: set[int]) -> list[bytes]:
    """Refuse a socket unless the loaded value is one of these."""
    tests = [_one(_EQUAL, value, len(values) - at, 0) for at, value in enumerate(sorted(values))]
    return [*tests, _error(errno.EAFNOSUPPORT)]


def _when(number: int, argument: int, steps: list[bytes]) -> Iterator[bytes]:
    """``steps`` on the low half of an argument of one call, which is then let through."""
    yield _one(_EQUAL, number, 0, len(steps) + 2)
    yield _one(_LOAD, _ARGUMENTS + 8 * argument)
    yield from steps
    yield _one(_RETURN, _ALLOW)


def _error(code: int) -> bytes:
    return _one(_RETURN, _ERRNO | code)


def _one(code: int, value: int, yes: int = 0, no: int = 0) -> bytes:
    return struct.pack("=HBBI", code, yes, no, value)


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
    if os.uname().machine not in _MACHINES:
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
        "filter": base64.b64encode(_filter_of(os.uname().machine)).decode(),
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
