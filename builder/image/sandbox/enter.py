"""Becomes bubblewrap, with a keyring, a user and limits of its own: ``python -I enter.py < PLAN``.

Run by :mod:`builder.image.sandbox.bwrap`. Standard library only. The plan is JSON: ``bwrap`` and its
``arguments`` with ``{name}`` for each of ``sources``; ``owned``, the sources that the program may write to;
``limits`` by name of ``resource``; ``filter``, base64; ``program``.

As root the program becomes a user that nobody else is: its files and processes are not root's then, whatever
it does, and the kernel counts its processes. That user reaches no folder of root's, so the sources are
mounted at places that it reaches, in a mount namespace that ends with the program.

bubblewrap's ``--die-with-parent`` comes too late for a child that still waits for its parent to map users:
if both parents are killed in that moment, it waits for ever. So bubblewrap has a parent here that hears of
rtbuild's end by a pipe, and ends the whole process group.
"""

import base64
import ctypes
import errno
import json
import os
import random
import resource
import select
import signal
import sys
from pathlib import Path

# include/uapi/linux/mount.h, sched.h, keyctl.h
_REC, _PRIVATE, _BIND, _NOSUID, _NODEV = 16384, 1 << 18, 4096, 2, 4
_NEWNS = 0x00020000
_JOIN_SESSION = 1
_PR_SET_CHILD_SUBREAPER = 36
_KEYCTL = {"x86_64": 250, "aarch64": 219}
_UNUSED = 1 << 31
"""User ids from here on are not used as some programs take them for negative: https://systemd.io/UIDS-GIDS/"""
_FOLDER = "/tmp"  # noqa: S108 - covered by a tmpfs that this process alone sees; bubblewrap needs it, too

_libc = ctypes.CDLL(None, use_errno=True)


def _call(name: str, *arguments: object) -> None:
    if getattr(_libc, name)(*arguments) != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"{name}: {os.strerror(error)}")


def _new_keyring() -> None:
    """Leave the session's keyring; if an outer filter forbids keyctl, there is none inside."""
    number = _KEYCTL.get(os.uname().machine)
    if number is not None and _libc.syscall(number, _JOIN_SESSION, None) < 0:
        error = ctypes.get_errno()
        if error not in (errno.EPERM, errno.ENOSYS, errno.EACCES):
            raise OSError(error, f"keyctl: {os.strerror(error)}")


def _spare(kind: str) -> int:
    """An id that belongs to nobody: near the end of the last range of this user namespace."""
    lines = Path(f"/proc/self/{kind}_map").read_text().splitlines()
    ranges = [(int(first), int(count)) for first, _, count in map(str.split, lines)]
    first, count = max(ranges)
    end = min(first + count, _UNUSED)
    return end - 1 - random.SystemRandom().randrange(max(1, min(1 << 20, (end - first) // 2)))


def _apart(sources: dict[str, str], owned: list[str]) -> dict[str, str]:
    """Become a user of its own; the sources at places that it reaches."""
    user, group = _spare("uid"), _spare("gid")
    if user == 0:  # root alone is mapped: it is somebody else's user already
        return sources
    for name in owned:
        _give(sources[name], user, group)
    _call("unshare", _NEWNS)
    _call("mount", b"none", b"/", None, ctypes.c_ulong(_REC | _PRIVATE), None)
    opened = {name: os.open(path, os.O_PATH | os.O_DIRECTORY) for name, path in sources.items()}
    flags = ctypes.c_ulong(_NOSUID | _NODEV)
    _call("mount", b"tmpfs", _FOLDER.encode(), b"tmpfs", flags, b"mode=0755,size=64k")
    places = {}
    for number, (name, file) in enumerate(opened.items()):
        places[name] = f"{_FOLDER}/{number}"
        Path(places[name]).mkdir()
        source = f"/proc/self/fd/{file}".encode()
        _call("mount", source, places[name].encode(), None, ctypes.c_ulong(_BIND | _REC), None)
        os.close(file)
    os.setgroups([])
    os.setresgid(group, group, group)
    os.setresuid(user, user, user)
    return places


def _give(folder: str, user: int, group: int) -> None:
    os.lchown(folder, user, group)
    for place, folders, files, at in os.fwalk(folder):
        del place
        for name in (*folders, *files):
            os.chown(name, user, group, dir_fd=at, follow_symlinks=False)


def _watch_over(life: int, *others: int) -> None:
    """Go on in a child; here wait for its end, or for that of whoever holds the other end of ``life``."""
    ended, tells = os.pipe()
    os.set_blocking(tells, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(tells)
    child = os.fork()
    if child == 0:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for file in (life, ended, tells):
            os.close(file)
        return
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    nothing = os.open(os.devnull, os.O_RDWR)
    for file in (0, 1, 2, *others):  # the pipes end with the program
        os.dup2(nothing, file)
    while True:
        ready, _, _ = select.select([life, ended], [], [])
        if life in ready:
            os.killpg(0, signal.SIGKILL)
        os.read(ended, 512)
        try:
            while True:
                found, status = os.waitpid(-1, os.WNOHANG)
                if found == child:
                    code = os.waitstatus_to_exitcode(status)
                    os._exit(code if code >= 0 else 128 - code)
                if found == 0:
                    break
        except ChildProcessError:
            os._exit(125)


def main() -> None:
    plan = json.load(sys.stdin)
    _watch_over(plan["life"], plan["tells"])
    _new_keyring()
    sources = plan["sources"]
    if os.geteuid() == 0:
        sources = _apart(sources, plan["owned"])
    elif os.getuid() == 0:
        raise SystemExit("enter.py: half of a root")
    for name, wanted in plan["limits"].items():
        limit = getattr(resource, name)
        hard = resource.getrlimit(limit)[1]
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(limit, (most, most))
    rules = os.memfd_create("filter", 0)
    os.write(rules, base64.b64decode(plan["filter"]))
    os.lseek(rules, 0, os.SEEK_SET)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    words = [sources.get(word[1:-1], word) if word[:1] == "{" else word for word in plan["arguments"]]
    os.execv(plan["bwrap"], [plan["bwrap"], "--seccomp", str(rules), *words, *plan["program"]])  # noqa: S606


if __name__ == "__main__":
    main()
